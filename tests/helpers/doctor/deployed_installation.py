"""An installation with everything that a cluster has of it, and the faults that befall one."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import os
import signal
from datetime import UTC, datetime

from harbourmaster.certs.authority import create_authority, issue_serving_certificate
from harbourmaster.cli.doctor.run import diagnose
from harbourmaster.playground import manifests
from harbourmaster.playground.installation import Installation
from helpers.flow.installation import FLAGS, HOME
from helpers.patience import PATIENCE, WAIT

LEASE = (
    "--leader-election-lease-duration-seconds=120",
    "--leader-election-renew-deadline-seconds=90",
)
"""A controller that is held for a while leads on."""
CONTROLLER_FLAGS = (*FLAGS, *LEASE)
CERTIFICATE = "harbourmaster-webhook-cert"
NAME = "harbourmaster"


class DeployedInstallation:
    """Harbourmaster at work, with its Deployments, whose pods kwok only plays.

    Each fault is a context: it is there inside, and gone after.
    """

    def __init__(self, plane, folder=manifests.DEFAULT):
        self.plane = plane
        self.kubectl = plane.kubectl
        self._folder = folder
        flags = {"controller": CONTROLLER_FLAGS}
        self.installation = Installation(plane, arguments=flags, folder=folder)
        self._shipped = []

    def __enter__(self):
        self.installation.__enter__()
        self._shipped = manifests.render(self.kubectl, self._folder)
        self.deploy()
        return self

    def __exit__(self, *error):
        self.installation.__exit__(*error)

    def deploy(self):
        """Put the Deployments there, with the flags that the processes really have."""
        items = [copy.deepcopy(obj) for obj in self._shipped if obj["kind"] == "Deployment"]
        for item in items:
            if item["metadata"]["name"] == "harbourmaster-controller":
                container = item["spec"]["template"]["spec"]["containers"][0]
                port = self.installation.service_port
                container["args"] += [*CONTROLLER_FLAGS, f"--webhook-service-port={port}"]
        self.apply(*items)
        for role in ("controller", "webhook"):
            where = ("--namespace", HOME, f"deployment/harbourmaster-{role}")
            self.kubectl("rollout", "status", WAIT, *where)

    def apply(self, *items):
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})
        # To validate it would wait for the schemas of all kinds.
        flags = ("--server-side", "--force-conflicts", "--validate=false", "--filename=-")
        self.kubectl("apply", *flags, stdin=text)

    def _manifest_of(self, kind, name):
        """One of our manifests, as it is applied here."""
        items = manifests.adapt(
            self._shipped,
            self.installation.service_port,
            self.installation.controllers[0].metrics_api_port,
        )
        return next(
            item for item in items if (item["kind"], item["metadata"]["name"]) == (kind, name)
        )

    def stored_object(self, what, name, namespace=None):
        where = ("--namespace", namespace) if namespace else ()
        return json.loads(self.kubectl("get", what, name, "--output=json", *where).stdout)

    def patch(self, what, name, patch, namespace=None):
        where = ("--namespace", namespace) if namespace else ()
        self.kubectl("patch", what, name, "--type=json", f"--patch={json.dumps(patch)}", *where)

    # Faults

    @contextlib.contextmanager
    def pause_process(self, name="controller"):
        """A process hangs; the controller repairs nothing, and its lease lasts for a while."""
        pid = self.installation.pid(name)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    @contextlib.contextmanager
    def edit_object(self, what, name, edit, namespace=None, *, is_paused=True):
        """An object that ``edit`` changed in place; it is put back by hand, whoever repairs it."""
        with self.pause_process() if is_paused else contextlib.nullcontext():
            before = self.stored_object(what, name, namespace)
            changed = copy.deepcopy(before)
            edit(changed)
            self._replace(changed)
            try:
                yield
            finally:
                self._replace(before)

    def _replace(self, obj):
        obj = copy.deepcopy(obj)
        # A new object does not depend on what happened to the old one.
        obj["metadata"].pop("resourceVersion", None)
        self.kubectl("replace", "--filename=-", stdin=json.dumps(obj))

    @contextlib.contextmanager
    def delete_object(self, what, name, kind):
        """One of our objects that is deleted, and applied again afterwards."""
        manifest = self._manifest_of(kind, name)
        self.kubectl("delete", what, name, WAIT)
        try:
            yield
        finally:
            self.apply(manifest)

    @contextlib.contextmanager
    def there(self, manifest):
        """An object that should not be there."""
        self.kubectl("create", "--filename=-", stdin=json.dumps(manifest))
        try:
            yield
        finally:
            flags = ("--ignore-not-found", "--force", "--grace-period=0")
            self.kubectl("delete", "--filename=-", *flags, stdin=json.dumps(manifest))

    @contextlib.contextmanager
    def configure(self, role, flag):
        """A Deployment with one more flag; its process stays as it is."""
        name = f"harbourmaster-{role}"
        rollout = ("rollout", "status", WAIT, "--namespace", HOME, f"deployment/{name}")

        def edit(obj):
            obj["spec"]["template"]["spec"]["containers"][0]["args"].append(flag)

        with self.edit_object("deployment", name, edit, HOME, is_paused=False):
            self.kubectl(*rollout)
            yield
        self.kubectl(*rollout)

    @contextlib.contextmanager
    def kill_process(self, name):
        """A process that is not there."""
        self.installation.kill(name)
        try:
            yield
        finally:
            self.installation.restart(name)

    @contextlib.contextmanager
    def end_process(self, name):
        """A process that was ended in order."""
        self.installation.end(name)
        try:
            yield
        finally:
            self.installation.restart(name)


def webhook_of(configuration, name):
    """One of the webhooks of a configuration."""
    return next(webhook for webhook in configuration["webhooks"] if webhook["name"] == name)


def strange_bundle():
    """A foreign authority, and a certificate of it for localhost."""
    now = datetime.now(UTC)
    authority = create_authority(now)
    return authority, issue_serving_certificate(now, authority, ["localhost"])


async def look(client, **options):
    """The report of doctor."""
    return await diagnose(client, HOME, **options)


async def until(client, is_right):
    """Look until the report is right; return it."""
    bad = []
    try:
        async with asyncio.timeout(PATIENCE):
            while not is_right(report := await look(client)):
                bad = [
                    finding for finding in report.findings if finding.severity not in {"ok", "note"}
                ]
                await asyncio.sleep(0.3)
    except TimeoutError:
        raise AssertionError(f"still {bad}") from None
    return report


def findings_of(report, check, severity, words):
    """The findings of a check with these words."""
    return [
        finding
        for finding in report.findings
        if (finding.check, finding.severity) == (check, severity)
        and words in f"{finding.subject}: {finding.text}"
    ]
