"""A second kube-scheduler on a control plane: as shipped, except for the controller's address."""

from __future__ import annotations

import base64
import contextlib

import yaml

from harbourmaster.playground.capabilities import SCHEDULER_NAME as NAME
from harbourmaster.playground.capabilities import scheduler_configuration
from harbourmaster.playground.pki import write_private
from helpers import rights
from helpers.manifests import DEPLOY

HOME = "harbourmaster-system"
SECRET = "harbourmaster-webhook-cert"  # noqa: S105 - the name of an object
PART = DEPLOY / "components/scheduler"


def shipped():
    """The KubeSchedulerConfiguration of the component."""
    manifest = yaml.safe_load((PART / "configuration.yaml").read_text())
    return yaml.safe_load(manifest["data"]["kube-scheduler.yaml"])


def configuration(port, authority, **extender):
    """The shipped configuration, led to a port here; ``authority`` is a file with PEM.

    ``extender`` are changes of its fields, None for one that is left out.
    """
    base = scheduler_configuration(port, authority)
    changed = {**base["extenders"][0], **extender}
    base["extenders"] = [{key: value for key, value in changed.items() if value is not None}]
    return base


def unextended():
    """The shipped configuration without an extender."""
    return {key: value for key, value in shipped().items() if key != "extenders"}


def authority_of(plane, namespace=HOME):
    """Write the authorities that are served now into the control plane's folder; the file."""
    path = "--output=jsonpath={.data['ca\\.crt']}"
    result = plane.kubectl("get", "secret", SECRET, f"--namespace={namespace}", path).stdout
    file = plane.layout.directory / "extender-ca.crt"
    write_private(file, base64.b64decode(result))
    return file


def account(plane):
    """Give the shipped ServiceAccount the shipped rights; a kubeconfig of it."""
    for name in ("service-account.yaml", "rights.yaml"):
        plane.kubectl("apply", "--server-side", "--filename", str(PART / name))
    token = plane.kubectl(
        "create", "token", "harbourmaster-scheduler", f"--namespace={HOME}", "--duration=3h"
    ).stdout.strip()
    file = plane.layout.directory / "harbourmaster-scheduler.kubeconfig"
    write_private(file, rights.kubeconfig(plane.kubeconfig, token=token).encode())
    return file


@contextlib.contextmanager
def second_scheduler(plane, settings, kubeconfig=None):
    """Let a scheduler of this configuration run meanwhile."""
    if kubeconfig is not None:
        connection = {**settings.get("clientConnection", {}), "kubeconfig": str(kubeconfig)}
        settings = {**settings, "clientConnection": connection}
    plane.add_scheduler(NAME, settings)
    try:
        yield
    finally:
        plane.end(NAME)
