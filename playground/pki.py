"""Certificates and kubeconfigs of one control plane: one CA, ECDSA P-256, one year."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import os
from typing import TYPE_CHECKING

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from harbourmaster.certs.authority import create_authority, issue_certificate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harbourmaster.certs.authority import KeyPair

# User and group as the API server reads them from the subject: (common name, organisation).
CLIENTS = {
    "admin": ("playground-admin", "system:masters"),
    "etcd-client": ("kube-apiserver-etcd-client", None),
    "kube-controller-manager": ("system:kube-controller-manager", None),
    "kube-scheduler": ("system:kube-scheduler", None),
    "kwok": ("kwok", "system:masters"),
}
# By this name the API server's aggregator is known, and by an authority that signs nothing else.
FRONT_PROXY = "front-proxy-client"
SERVING_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
VALIDITY = dt.timedelta(days=365)


def write_pki(directory: Path, service_ip: str) -> None:
    """Write ``ca.crt``, ``serving.*``, ``service-account.key`` and ``<client>.*``, all 0600.

    ``front-proxy-ca.crt`` is an authority of its own, only for ``front-proxy-client.*``.
    ``service_ip`` is the address of the Service ``kubernetes``.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    now = dt.datetime.now(dt.UTC)
    authority = create_authority(now, common_name="playground-ca", lifetime=VALIDITY)
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in SERVING_NAMES]
    names += [x509.IPAddress(ipaddress.ip_address(ip)) for ip in ("127.0.0.1", service_ip)]
    write_private(directory / "ca.crt", authority.certificate)
    _write_leaf(directory / "serving", authority, ("kube-apiserver", None), names)
    for client, subject in CLIENTS.items():
        _write_leaf(directory / client, authority, subject)
    proxies = create_authority(now, common_name="playground-front-proxy-ca", lifetime=VALIDITY)
    write_private(directory / "front-proxy-ca.crt", proxies.certificate)
    _write_leaf(directory / FRONT_PROXY, proxies, (FRONT_PROXY, None))
    key = ec.generate_private_key(ec.SECP256R1())
    # The API server reads a service-account key in the SEC1 form only.
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    write_private(directory / "service-account.key", pem)


def write_kubeconfig(path: Path, server: str, pki: Path, client: str) -> None:
    """Write a kubeconfig (0600) for ``client`` of `CLIENTS` with everything embedded."""

    def embed(name: str) -> str:
        return base64.b64encode((pki / name).read_bytes()).decode()

    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "playground",
                "cluster": {"server": server, "certificate-authority-data": embed("ca.crt")},
            }
        ],
        "users": [
            {
                "name": client,
                "user": {
                    "client-certificate-data": embed(f"{client}.crt"),
                    "client-key-data": embed(f"{client}.key"),
                },
            }
        ],
        "contexts": [
            {"name": "playground", "context": {"cluster": "playground", "user": client}},
        ],
        "current-context": "playground",
    }
    write_private(path, yaml.safe_dump(config, sort_keys=False).encode())


def write_private(path: Path, content: bytes) -> None:
    """Replace ``path`` by a file that only its owner reads; no reader sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    temporary.replace(path)


def _write_leaf(
    path: Path,
    authority: KeyPair,
    subject: tuple[str, str | None],
    names: Sequence[x509.GeneralName] = (),
) -> None:
    """Write ``path`` with ``.crt`` and ``.key``: for clients, and with ``names`` for serving."""
    # etcd and its peers also present the serving pair when they dial.
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if names:
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
    now = dt.datetime.now(dt.UTC)
    pair = issue_certificate(now, authority, _name(*subject), names, usages, VALIDITY)
    write_private(path.with_name(f"{path.name}.crt"), pair.certificate)
    write_private(path.with_name(f"{path.name}.key"), pair.key)


def _name(common_name: str, organisation: str | None) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organisation is not None:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation))
    return x509.Name(attributes)
