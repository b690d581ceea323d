"""A registration of webhooks at work, and its results as replicas and API servers judge them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
from datetime import UTC, datetime

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from harbourmaster.api.resources import MUTATING_WEBHOOKS, NAMESPACES, SECRETS, VALIDATING_WEBHOOKS
from harbourmaster.certs.bundle import parse_bundle
from harbourmaster.certs.errors import CertificateError
from harbourmaster.certs.model import BundleFiles
from harbourmaster.controller.registration import certificates
from harbourmaster.controller.registration.controller import RegistrationController
from harbourmaster.controller.runtime import Runtime
from harbourmaster.controller.settings import ControllerSettings

HOME = "harbour"
NAME = "harbourmaster"
SECRET = "harbourmaster-webhook-cert"  # noqa: S105 - a name
CONFIGURATIONS = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
KEYS = ("ca.crt", "ca.key", "tls.crt", "tls.key")


def data_of(secret):
    """The keys of a Secret, decoded."""
    return {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}


def with_data(secret, **changes):
    """A Secret with some keys changed; None removes one. Dots are written as underscores."""
    data = dict(secret["data"])
    for name, value in changes.items():
        key = name.replace("__", "-").replace("_", ".")
        if value is None:
            data.pop(key, None)
        else:
            data[key] = base64.b64encode(value).decode()
    return {**secret, "data": data}


def entry(configuration, name="pods.harbourmaster.dev"):
    """A webhook by its name."""
    return next(webhook for webhook in configuration["webhooks"] if webhook["name"] == name)


def bundles_of(configuration):
    """The caBundle of each webhook, PEM."""
    return [
        base64.b64decode(webhook["clientConfig"].get("caBundle") or "")
        for webhook in configuration.get("webhooks") or ()
    ]


def served_leaf(secret, names=()):
    """The leaf that a replica would begin to serve from this Secret; None for: stay as it is."""
    data = data_of(secret)
    try:
        bundle = parse_bundle(
            BundleFiles(
                ca_crt=data.get("ca.crt"), tls_crt=data.get("tls.crt"), tls_key=data.get("tls.key")
            )
        )
    except CertificateError:
        return None
    return bundle if bundle.names >= set(names) else None


def trusts(bundle, serving_der):
    """Whether a client with this caBundle accepts a leaf, expiry aside."""
    leaf = x509.load_der_x509_certificate(serving_der)
    try:
        authorities = x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return False
    for authority in authorities:
        try:
            leaf.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False


class Registration:
    """A registration at work on a fake API server."""

    def __init__(self, api, client, events, metrics, background):
        self.api, self.client, self.events, self.metrics = api, client, events, metrics
        self.background = background
        self.now = datetime.now(UTC)
        self.runtime = self.controller = None
        self.uid = api.put(NAMESPACES, {"metadata": {"name": HOME}})["metadata"]["uid"]

    def start(self, **values):
        """Begin to lead; returns the tasks."""
        values.setdefault("certificates", {"publishSeconds": 0})
        self.runtime = Runtime(
            msgspec.convert(values, ControllerSettings),
            self.client,
            HOME,
            events=self.events,
            metrics=self.metrics,
            now=lambda: self.now,
        )
        self.controller = controller = RegistrationController(self.runtime).controller
        tasks = [self.background(reflector.run()) for reflector in controller.reflectors]
        return [*tasks, self.background(controller.lead())]

    def secret(self):
        """The Secret as it is stored; None if it does not exist."""
        with contextlib.suppress(KeyError):
            return self.api.get(SECRETS, SECRET, HOME)
        return None

    def carries(self, *names):
        """Whether all have the Secret's authority, and nothing else."""
        return self.secret() is not None and all(
            self.bundle(name) == self.authority() for name in names
        )

    def authority(self):
        """The caBundle that everybody should have."""
        return base64.b64encode(data_of(self.secret())["ca.crt"]).decode()

    async def until(self, condition):
        """Wait until the condition holds after some change."""
        while not (value := condition()):
            await self.api.until_seen(count=len(self.api.requests) + 1)
            await asyncio.sleep(0)
        return value


class Observer:
    """Follows all changes in order, and judges the state after each one.

    A replica serves the last sound leaf; ``broken`` tells of each state in which a webhook would
    not have trusted it. ``ignoring`` takes the resourceVersions that a test wrote itself.
    """

    def __init__(self):
        self.leaf = None
        self.leaves = []
        self.configurations = {}
        self.broken = []
        self.order = []

    def see(self, resource, obj, *, ours=True):
        """Take in one change; ``obj`` is None for a deletion."""
        if resource == SECRETS:
            self._see_secret(obj)
        elif resource in CONFIGURATIONS:
            self._see_configuration(resource, obj)
        if ours and self.leaf is not None:
            self.broken += [
                (kind.kind, obj and obj["metadata"]["resourceVersion"])
                for kind, configuration in self.configurations.items()
                for bundle in bundles_of(configuration)
                if not trusts(bundle, self.leaf)
            ]

    def _see_secret(self, obj):
        if obj is None or obj["metadata"]["name"] != SECRET:
            return
        certificate = served_leaf(obj)
        if certificate is not None and certificate.serving_der != self.leaf:
            self.leaf = certificate.serving_der
            self.leaves.append(certificate.serving_der)
            self.order.append("leaf")

    def _see_configuration(self, resource, obj):
        before = self.configurations.pop(resource, None)
        if obj is not None:
            self.configurations[resource] = obj
            if before is not None and bundles_of(before) != bundles_of(obj):
                self.order.append("bundle")

    def see_all(self, changes, ours=lambda _version: True):
        """Take in changes of the fake API server; ``ours`` tells by resourceVersion who wrote."""
        for change in changes:
            self.see(change.resource, change.after, ours=ours(change.version))


NAMES = {
    f"harbourmaster-{service}{end}"
    for service in ("metrics", "webhook")
    for end in ("", ".harbour", ".harbour.svc", ".harbour.svc.cluster.local")
}
SECRETS_PATH = "/secrets"
CONFIGURATIONS_PATH = "webhookconfigurations"


class Setting(Registration):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.controllers = []
        self.theirs = set()

    def start(self, **values):
        tasks = super().start(**values)
        self.controllers.append(self.controller)
        return tasks

    async def stop(self, tasks):
        for task in reversed(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.controllers.clear()

    def look(self):
        """Ask for a look, as a timer would."""
        for controller in self.controllers:
            controller.enqueue(())

    def get(self, resource):
        with contextlib.suppress(KeyError):
            return self.api.get(resource, NAME)
        return None

    def put(self, resource, obj):
        """Write as another client would."""
        stored = self.api.put(resource, copy.deepcopy(obj))
        self.theirs.add(int(stored["metadata"]["resourceVersion"]))
        return stored

    def ours(self, version):
        return version not in self.theirs

    async def settle(self):
        """Wait until everything is registered and agrees with the Secret."""
        await self.until(self.is_settled)
        return {configuration: self.get(configuration) for configuration in CONFIGURATIONS}

    def is_settled(self):
        secret = self.secret()
        if secret is None or not all(self.get(configuration) for configuration in CONFIGURATIONS):
            return False
        leaf = served_leaf(secret, NAMES)
        return leaf is not None and self.trusts(leaf.serving_der)

    def bundles(self):
        """The caBundle of each webhook of both configurations."""
        return [
            bundle
            for configuration in CONFIGURATIONS
            for bundle in bundles_of(self.get(configuration))
        ]

    def trusts(self, serving_der):
        """Whether the API server would trust this certificate for each webhook."""
        return all(trusts(bundle, serving_der) for bundle in self.bundles())

    def publication(self):
        """Since when the next authority is published; None if it is not."""
        return self.secret()["metadata"].get("annotations", {}).get(certificates.PUBLISHED)

    def observer(self):
        observer = Observer()
        observer.see_all(self.api.objects.history, self.ours)
        return observer
