"""Connections from untrusted kubeconfigs, which can refer to nothing outside their text (S37).

No local file is read, no program is run, and no server is trusted without verification.
"""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from warnings import catch_warnings

import yaml
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.utils import CryptographyDeprecationWarning
from msgspec import Struct

from harbourmaster.certs.bundle import parse_certificates
from harbourmaster.certs.errors import CertificateError
from harbourmaster.kube.connection import Connection, canonical_server, claims_of, fixed_token
from harbourmaster.kube.errors import ConnectionSettingsError, one_line
from harbourmaster.kube.trust import load_pair, verifying_context

if TYPE_CHECKING:
    import ssl
    from collections.abc import Collection, Iterator

MAX_BYTES: Final = 64 * 1024
"""Maximum bytes of YAML, because reading it blocks the event loop."""
_LONGEST: Final = 253
"""Characters of the name of a host."""
SYSTEM: Final = "system"
"""Stands for the authorities of the system, which a kubeconfig without any trusts."""
_FILE: Final = "names a file: give what kubectl config view --raw --flatten --minify prints"
_OF_CLUSTERS: Final = {
    "certificate-authority": _FILE,
    "insecure-skip-tls-verify": "is refused: give certificate-authority-data",
    "proxy-url": "is refused: the cluster must be reached without it",
}
_OF_USERS: Final = {
    "exec": "plugins are not run: give a token or a client certificate",
    "auth-provider": "is refused: give a token or a client certificate",
    "tokenFile": "names a file: give a token",
    "client-certificate": _FILE,
    "client-key": _FILE,
    "username": "and password are refused: give a token or a client certificate",
    "password": "and username are refused: give a token or a client certificate",
    "as": "is refused: give credentials of the user itself",
    "as-uid": "is refused: give credentials of the user itself",
    "as-groups": "is refused: give credentials of the user itself",
    "as-user-extra": "is refused: give credentials of the user itself",
}


class _Loader(yaml.SafeLoader):
    """Refuses aliases: a few lines of them can stand for more than fits into memory."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "an alias", None)
        return super().compose_node(parent, index)


class Access(Struct, frozen=True):
    """A way into a cluster. ``expires`` is None for credentials that do not say so."""

    connection: Connection
    namespace: str
    """The namespace of objects without one; empty if the kubeconfig has none."""
    expires: datetime | None
    authorities: tuple[str, ...] = (SYSTEM,)
    """The digests of the public keys of all authorities in the kubeconfig, or SYSTEM."""

    def check_end(self, now: datetime) -> None:
        """Raise ConnectionSettingsError if the credentials have ended."""
        if self.expires is not None and self.expires <= now:
            raise _fault(
                self.connection.source,
                f"its credentials expired on {self.expires:%Y-%m-%d %H:%M} UTC: renew them",
            )


def access_from(text: bytes, source: str, trusted: Collection[str] = ()) -> Access:
    """Return the access of a kubeconfig. Raises ConnectionSettingsError, one line with ``source``.

    It must have exactly one context, one user and one cluster. Nothing is sent. If it has any of
    the authorities ``trusted``, others of it are not trusted.
    """
    if len(text) > MAX_BYTES:
        raise _fault(source, f"is larger than {MAX_BYTES} bytes")
    config = parse_kubeconfig(text, source)
    context = _only(config, "context", source)
    cluster = _only(config, "cluster", source)
    user = _only(config, "user", source)
    _check_names(config, context[1], cluster[0], user[0], source)
    for section, name, refused in (
        (cluster[1], "cluster", _OF_CLUSTERS),
        (user[1], "user", _OF_USERS),
    ):
        for field, why in refused.items():
            if section.get(field):
                raise _fault(source, f"{field} of its {name} {why}")
    server = canonical_server(_text(cluster[1], "server", source), source)
    server_name = _text(cluster[1], "tls-server-name", source)
    if len(server_name) > _LONGEST or not server_name.isprintable():
        raise _fault(source, "tls-server-name is not a host name")
    pem = _data(cluster[1], "certificate-authority-data", source)
    authorities = list(_authorities(pem)) if pem is not None else []
    kept = b"".join(part for key, part in authorities if key in trusted)
    tls = verifying_context(kept or pem, f"{source}: certificate-authority-data")
    ends = [_load_pair(tls, user[1], source)]
    token = None
    if user[1].get("token"):
        value = str(user[1]["token"])
        token, claimed = fixed_token(value, f"{source}: token"), claims_of(value.strip()).exp
        ends.append(None if claimed is None else _moment(claimed))
    elif not user[1].get("client-certificate-data"):
        raise _fault(source, "its user has neither a token nor client-certificate-data")
    return Access(
        connection=Connection(
            server=server,
            ssl=tls,
            token=token,
            user=user[0],
            source=source,
            server_name=server_name or None,
        ),
        namespace=_text(context[1], "namespace", source),
        expires=min((end for end in ends if end is not None), default=None),
        authorities=tuple(sorted({key for key, _ in authorities})) or (SYSTEM,),
    )


def _authorities(pem: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield each certificate behind the digest of its public key, as kubeadm writes it."""
    try:
        # The serial number of K3s' authorities is 0.
        with catch_warnings(action="ignore", category=CryptographyDeprecationWarning):
            certificates = parse_certificates(pem, "")
    except CertificateError:
        # OpenSSL may read it nevertheless; then it counts as a whole.
        yield f"sha256:{sha256(pem).hexdigest()}", pem
        return
    for certificate in certificates:
        key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        yield f"sha256:{sha256(key).hexdigest()}", certificate.public_bytes(Encoding.PEM)


def parse_kubeconfig(text: bytes, source: str) -> dict[str, Any]:
    """Return the content of a kubeconfig. Raises ConnectionSettingsError."""
    try:
        config = yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe one
    except yaml.composer.ComposerError:
        raise _fault(source, "has YAML aliases, which are not supported") from None
    except yaml.YAMLError as error:
        # Its text would quote what may be a secret.
        mark = getattr(error, "problem_mark", None)
        raise _fault(
            source, f"is not valid YAML{f' in line {mark.line + 1}' if mark else ''}"
        ) from None
    except Exception:  # noqa: BLE001 - values such as "!!bool x" fail in many ways
        raise _fault(source, "is not valid YAML") from None
    if not isinstance(config, dict):
        raise _fault(source, "is invalid" if config is not None else "is empty")
    return config


def _only(config: dict[str, Any], kind: str, source: str) -> tuple[str, dict[str, Any]]:
    """Return name and content of the only section of a kind."""
    sections = config.get(f"{kind}s")
    count = len(sections) if isinstance(sections, list) else 0
    if not isinstance(sections, list) or count != 1:
        raise _fault(source, f"has {count} {kind}s, and must have exactly one")
    section = sections[0]
    name = section.get("name") if isinstance(section, dict) else None
    content = section.get(kind) if isinstance(section, dict) else None
    if not isinstance(name, str) or not name or not isinstance(content, dict):
        raise _fault(source, f"its {kind} is invalid: expected a name and a {kind}")
    return name, content


def _check_names(
    config: dict[str, Any], context: dict[str, Any], cluster: str, user: str, source: str
) -> None:
    for field, wanted in (("cluster", cluster), ("user", user)):
        if context.get(field) != wanted:
            named = one_line(str(context.get(field) or ""), 100)
            raise _fault(source, f'its context names the {field} "{named}", which does not exist')
    chosen = config.get("current-context")
    if chosen and chosen != config["contexts"][0]["name"]:
        named = one_line(str(chosen), 100)
        raise _fault(source, f'its current-context is "{named}", which does not exist')


def _load_pair(context: ssl.SSLContext, user: dict[str, Any], source: str) -> datetime | None:
    """Load the client certificate, if there is one; returns the time of its end."""
    certificate = _data(user, "client-certificate-data", source)
    if certificate is None:
        return None
    load_pair(context, certificate, _data(user, "client-key-data", source) or b"", source)
    try:
        certificates = parse_certificates(certificate, f"{source}: client-certificate-data")
    except CertificateError as error:
        raise ConnectionSettingsError(str(error)) from None
    return certificates[0].not_valid_after_utc


def _data(section: dict[str, Any], field: str, source: str) -> bytes | None:
    text = _text(section, field, source)
    if not text:
        return None
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise _fault(source, f"{field} is not valid base64") from None


def _text(section: dict[str, Any], field: str, source: str) -> str:
    text = section.get(field) or ""
    if not isinstance(text, str):
        raise _fault(source, f"{field} is not text")
    return text


def _moment(seconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def _fault(source: str, text: str) -> ConnectionSettingsError:
    return ConnectionSettingsError(f"{source}: {text}")
