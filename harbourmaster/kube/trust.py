"""TLS contexts of a client: trusted authorities and client certificates."""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING

from harbourmaster.kube.connection import read_text
from harbourmaster.kube.errors import ConnectionSettingsError

if TYPE_CHECKING:
    from pathlib import Path


class TrustFile:
    """A client's context that trusts the authorities of a file, also those that come later."""

    def __init__(self, path: Path) -> None:
        """Raises ConnectionSettingsError where the file is not usable."""
        self.context = client_context()
        self._path = path
        self._trusted = ""
        self._load(read_text(path))

    def refresh(self) -> None:
        """Trust what the file has gained; a file that is gone or bad changes nothing."""
        try:
            text = read_text(self._path)
            if text != self._trusted:
                self._load(text)
        except ConnectionSettingsError:
            # The next handshake says it, if it matters.
            return

    def _load(self, text: str) -> None:
        load_authorities(self.context, text, str(self._path))
        self._trusted = text


def client_context() -> ssl.SSLContext:
    """A context that checks chain and name, and has no trusted authority yet.

    Without OpenSSL's strict X.509 checks, as the certificates of many clusters predate them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def verifying_context(pem: bytes | None, source: str) -> ssl.SSLContext:
    """A context that trusts these certificates; without any, the authorities of the system.

    Raises ConnectionSettingsError naming ``source``.
    """
    context = client_context()
    if pem is None:
        context.load_default_certs()
    else:
        load_authorities(context, pem.decode(errors="replace"), source)
    return context


def load_authorities(context: ssl.SSLContext, pem: str, source: str) -> None:
    """Trust the certificates in ``pem`` too. Raises ConnectionSettingsError naming ``source``."""
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        raise ConnectionSettingsError(f"{source} has no certificates in PEM form") from error


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes, source: str) -> None:
    """Show a certificate from now on. Raises ConnectionSettingsError, and then changes nothing."""
    # Tried elsewhere first: half a pair would break the context that is in use.
    for tried in (client_context(), context):
        # OpenSSL reads keys from files only; this one is never on a disk.
        with os.fdopen(os.memfd_create("pair"), "wb") as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            try:
                # With a password of its own, OpenSSL would ask the terminal for one.
                tried.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password="")
            except (ssl.SSLError, ValueError, OSError) as error:
                raise ConnectionSettingsError(
                    f"{source}: the client certificate and key do not match or are not PEM"
                ) from error
