"""What a registration leaves behind, read back and judged as replicas and API servers would."""

from __future__ import annotations

import base64

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from harbourmaster.api.resources import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS
from harbourmaster.certs.bundle import BundleFiles, parse_bundle
from harbourmaster.certs.errors import CertificateError

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
    return next(one for one in configuration["webhooks"] if one["name"] == name)


def bundles_of(configuration):
    """The caBundle of each webhook, PEM."""
    return [
        base64.b64decode(one["clientConfig"].get("caBundle") or "")
        for one in configuration.get("webhooks") or ()
    ]


def served_leaf(secret, names=()):
    """The leaf that a replica would begin to serve from this Secret; None for: stay as it is."""
    data = data_of(secret)
    try:
        found = parse_bundle(
            BundleFiles(
                ca_crt=data.get("ca.crt"), tls_crt=data.get("tls.crt"), tls_key=data.get("tls.key")
            )
        )
    except CertificateError:
        return None
    return found if found.names >= set(names) else None


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
        found = served_leaf(obj)
        if found is not None and found.serving_der != self.leaf:
            self.leaf = found.serving_der
            self.leaves.append(found.serving_der)
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
