"""The optional parts of an installation on this machine, and their settings."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import yaml

from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.manifests import DEPLOY
from harbourmaster.playground.ports import free_ports
from harbourmaster.playground.processes import run_captured
from harbourmaster.playground.workloads import LOOPBACK, NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from harbourmaster.playground.manifests import Kubectl

COMPONENTS: Final = ("placement", "rescheduling", "dashboard")
# In the place of gates; the demo has gates.
SCHEDULER: Final = "scheduler"
SCHEDULER_NAME: Final = "keptn-scheduler"
# Prometheus is here in the place of its operator.
MONITORING: Final = "monitoring"
DASHBOARD_PORT: Final = "--dashboard-port="
VISITOR: Final = "visitor"
LIFETIME: Final = "24h"


def overlay(folder: Path, components: Collection[str] = COMPONENTS) -> Path:
    """Write the kustomization of a user who wants these components; returns its folder."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Bases must be named relative to it.
    deploy = os.path.relpath(DEPLOY.resolve(), folder.resolve())
    known = (*COMPONENTS, SCHEDULER)
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{deploy}/default"],
        "components": [f"{deploy}/components/{name}" for name in known if name in components],
    }
    # JSON is YAML.
    (folder / "kustomization.yaml").write_text(json.dumps(content, indent=2))
    return folder


def controller_flags() -> list[str]:
    """Return the flags with which the controller connects to loopback addresses only."""
    (port,) = free_ports(1)
    return [
        f"--metrics-allowed-addresses={LOOPBACK}/32",
        f"--scheduler-extender-host={LOOPBACK}",
        f"--placement-members-allowed-addresses={LOOPBACK}/32",
        "--placement-members-probe-interval-seconds=1",
        f"--dashboard-host={LOOPBACK}",
        f"{DASHBOARD_PORT}{port}",
    ]


def enabled_components(command: Sequence[str]) -> set[str]:
    """Return the components of a controller that was started with this command line."""
    return {name for name in (*COMPONENTS, SCHEDULER) if f"--{name}-enabled=true" in command}


def scheduler_configuration(port: int, authority: Path) -> dict[str, Any]:
    """The shipped KubeSchedulerConfiguration, led to a controller's port on this machine.

    ``authority`` is a file with the CA of its certificate.
    """
    shipped = yaml.safe_load((DEPLOY / "components/scheduler/configuration.yaml").read_text())
    configuration: dict[str, Any] = yaml.safe_load(shipped["data"]["kube-scheduler.yaml"])
    (extender,) = configuration["extenders"]
    url = urlsplit(extender["urlPrefix"])
    extender["urlPrefix"] = f"https://{LOOPBACK}:{port}{url.path}"
    extender["tlsConfig"] = {"caFile": str(authority), "serverName": url.hostname}
    return configuration


def dashboard_url(command: Sequence[str]) -> str:
    """Return the URL of the dashboard of a controller with this command line."""
    (*_, port) = [flag for flag in command if flag.startswith(DASHBOARD_PORT)]
    return f"http://{LOOPBACK}:{port.removeprefix(DASHBOARD_PORT)}/"


def visitor_token(kubectl: Kubectl) -> str:
    """Return a token of a user that may see all pages of the dashboard."""
    # Both stay from an earlier start; what else fails leaves no token to be had.
    where = f"--namespace={NAMESPACE}"
    kubectl("create", "serviceaccount", VISITOR, where, check=False)
    role = "--clusterrole=harbourmaster-dashboard-viewer"
    account = f"--serviceaccount={NAMESPACE}:{VISITOR}"
    kubectl("create", "clusterrolebinding", VISITOR, role, account, check=False)
    return kubectl("create", "token", VISITOR, where, f"--duration={LIFETIME}").stdout.strip()


def harbourmaster(kubeconfig: Path, arguments: Sequence[str]) -> str:
    """Return the output of a harbourmaster command. Raises PlaygroundError."""
    # -P: a folder named cli may lie where the user stands.
    command = [sys.executable, "-P", "-m", "harbourmaster.cli.main", *arguments]
    result = run_captured(command, env={**os.environ, "KUBECONFIG": str(kubeconfig)})
    if result.returncode > 1:
        said = result.stderr.strip()
        raise PlaygroundError(f"harbourmaster {' '.join(arguments)} failed: {said}")
    return result.stdout
