"""The sources of a process's connection: a kubeconfig, or a pod's ServiceAccount."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harbourmaster.kube.connection import (
    FALLBACK_NAMESPACE,
    Connection,
    TokenFile,
    read_text,
    subject_of,
)
from harbourmaster.kube.errors import ConnectionSettingsError
from harbourmaster.kube.trust import TrustFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SERVICE_ACCOUNT_DIR: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOME_KUBECONFIG: Final = Path("~/.kube/config")
_TOKEN: Final = "token"  # noqa: S105 - a file's name
_AUTHORITY: Final = "ca.crt"
_NAMESPACE: Final = "namespace"


def connect(
    kubeconfig: str | None = None,
    *,
    context: str | None = None,
    service_account_dir: Path = SERVICE_ACCOUNT_DIR,
) -> Connection:
    """Return the connection of the settings. Raises ConnectionSettingsError.

    In this order: ``kubeconfig``, $KUBECONFIG (files separated by colons), the ServiceAccount of
    the pod, ~/.kube/config. The first that exists is used, and must be valid. Nothing is sent.
    """
    given = kubeconfig or os.environ.get("KUBECONFIG")
    if given:
        return _from_kubeconfig(given, context)
    why_not = _find_lack_of_account(os.environ, service_account_dir)
    # A context names one of a kubeconfig's.
    if why_not is None and context is None:
        return in_cluster(os.environ, service_account_dir)
    home = HOME_KUBECONFIG.expanduser()
    if home.exists():
        return _from_kubeconfig(str(home), context)
    raise ConnectionSettingsError(
        f"no API server: no kubeconfig is given, $KUBECONFIG is not set, {why_not or ''}"
        f"{', ' if why_not else ''}and {home} does not exist: set a kubeconfig"
    )


def in_cluster(
    environment: Mapping[str, str],
    service_account_dir: Path = SERVICE_ACCOUNT_DIR,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Connection:
    """Return the connection of a pod. Raises ConnectionSettingsError.

    Token and authority are read again as the kubelet renews them.
    """
    host = environment["KUBERNETES_SERVICE_HOST"]
    port = environment.get("KUBERNETES_SERVICE_PORT") or "443"
    if ":" in host:
        host = f"[{host}]"
    authority = service_account_dir / _AUTHORITY
    trust = TrustFile(authority)
    token = TokenFile(service_account_dir / _TOKEN, clock=clock, on_read=trust.refresh)
    return Connection(
        server=f"https://{host}:{port}",
        ssl=trust.context,
        token=token.get,
        refused=token.expire,
        user=subject_of(token.read()),
        source=str(service_account_dir),
        namespace=own_namespace(service_account_dir) or FALLBACK_NAMESPACE,
    )


def own_namespace(service_account_dir: Path = SERVICE_ACCOUNT_DIR) -> str | None:
    """Return the namespace that we run in; None outside a pod.

    It is in $POD_NAMESPACE, or that of the ServiceAccount.
    """
    name = os.environ.get("POD_NAMESPACE", "").strip()
    if name:
        return name
    try:
        return read_text(service_account_dir / _NAMESPACE).strip() or None
    except ConnectionSettingsError:
        return None


def _find_lack_of_account(environment: Mapping[str, str], directory: Path) -> str | None:
    """Return why this is not a pod with a ServiceAccount, or None."""
    if not environment.get("KUBERNETES_SERVICE_HOST"):
        return "$KUBERNETES_SERVICE_HOST is not set"
    if not (directory / _TOKEN).exists():
        return f"{directory / _TOKEN} is not there"
    return None


def _from_kubeconfig(paths: str, context: str | None) -> Connection:
    # Importing the module below it costs 60 MB and up to two seconds; a pod has no use for it.
    from harbourmaster.kube.kubeconfig import connection_from  # noqa: PLC0415

    return connection_from(paths, context)
