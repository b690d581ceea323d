"""Kubeconfigs of member clusters, as they go into Secrets.

The controller takes one context and no local files. A kubeconfig of a person often has more.
"""

from __future__ import annotations

import base64
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

import yaml
from yarl import URL

from harbourmaster.api.times import utc_now
from harbourmaster.kube.errors import ConnectionSettingsError
from harbourmaster.kube.untrusted_kubeconfig import access_from, parse_kubeconfig
from harbourmaster.providers.addresses import AddressFilter

if TYPE_CHECKING:
    from pathlib import Path

_FILES: Final = ("certificate-authority", "client-certificate", "client-key")


def read_context(path: Path, name: str | None) -> bytes:
    """Return a context, by default the current one, with the files that it names.

    The same as ``kubectl config view --minify --flatten --raw``. Raises ConnectionSettingsError.
    """
    config = parse_kubeconfig(path.read_bytes(), str(path))
    context = _find(config, "context", name or config.get("current-context"), path)
    cluster = _find(config, "cluster", context["context"].get("cluster"), path)
    user = _find(config, "user", context["context"].get("user"), path)
    for section in (cluster["cluster"], user["user"]):
        for field in _FILES:
            if (file := section.pop(field, None)) and not section.get(f"{field}-data"):
                content = (path.parent / str(file)).read_bytes()
                section[f"{field}-data"] = base64.b64encode(content).decode()
    sections = {"clusters": [cluster], "contexts": [context], "users": [user]}
    head = {"apiVersion": "v1", "kind": "Config", "current-context": context["name"]}
    return yaml.safe_dump({**head, **sections}, sort_keys=False).encode()


def check_kubeconfig(kubeconfig: bytes, source: str) -> tuple[str, list[str]]:
    """Return its server, and what is to be done for it to work and to go on working.

    Raises ConnectionSettingsError where the controller refuses it.
    """
    access, notes = access_from(kubeconfig, source), []
    access.check_end(utc_now())
    if access.expires is not None:
        ends = f"{access.expires:%Y-%m-%d %H:%M} UTC"
        notes.append(f"its credentials expire on {ends}: renew them in its Secret before")
    host = URL(access.connection.server).host or ""
    with suppress(ValueError):
        address = ip_address("127.0.0.1" if host == "localhost" else host)
        if why := AddressFilter().refusal(address):
            text = f"the controller refuses server {host}, {why}: give another one, or list it in"
            notes.append(f"{text} placement.members.allowedAddresses")
    return access.connection.server, notes


def _find(config: dict[str, Any], kind: str, name: object, path: Path) -> dict[str, Any]:
    sections = config.get(f"{kind}s")
    for section in sections if isinstance(sections, list) else ():
        if not isinstance(section, dict) or section.get("name") != name:
            continue
        if isinstance(section.get(kind), dict):
            return section
    todo = "correct the name" if name else "set current-context, or give --context"
    raise ConnectionSettingsError(f'{path}: has no {kind} "{name or ""}": {todo}')
