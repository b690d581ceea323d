"""A directory of certificates: ``ca.crt ca.key tls.crt tls.key``.

A directory with ca.key, or without any of the files, is ours: missing and due certificates are
created. One with foreign tls.crt and tls.key (a mounted Secret) is only read.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harbourmaster.certs.authority import KeyPair, create_authority, issue_serving_certificate
from harbourmaster.certs.bundle import (
    CA_CERTIFICATE,
    CA_KEY,
    TLS_CERTIFICATE,
    TLS_KEY,
    BundleFiles,
    parse_bundle,
    verify_bundle,
)
from harbourmaster.certs.errors import CertificateError, UnreadableError
from harbourmaster.certs.rotation import Keep, RenewServingCertificate, canonical_name, decide

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from harbourmaster.certs.bundle import Bundle

_GENERATION: Final = "..data"
"""The symlink that the kubelet swaps when a mounted Secret changes."""

_KEY_MODE: Final = 0o400
_CERTIFICATE_MODE: Final = 0o444
_DIRECTORY_MODE: Final = 0o700
_MAX_BYTES: Final = 1024 * 1024


def ensure(directory: Path, names: Collection[str], now: datetime) -> Bundle:
    """Return the bundle to serve: our own is kept, renewed or created, a foreign one is only read.

    ``names`` are DNS names and IP addresses; those of a foreign certificate are not checked, as
    clients may reach it by another name. Raises CertificateError.
    """
    files = read_files(directory)
    if is_foreign(files):
        return _check(directory, files, now)
    wanted = sorted({canonical_name(name) for name in names})
    match decide(now, files, wanted):
        case Keep():
            return parse_bundle(files)
        case RenewServingCertificate() if files.ca_crt is not None and files.ca_key is not None:
            authority = KeyPair(files.ca_crt, files.ca_key)
        case _:
            authority = create_authority(now, wanted)
    serving = issue_serving_certificate(now, authority, wanted)
    files = BundleFiles(
        ca_crt=authority.certificate,
        ca_key=authority.key,
        tls_crt=serving.certificate,
        tls_key=serving.key,
    )
    write_files(directory, files)
    return parse_bundle(files)


def load(directory: Path, now: datetime) -> Bundle:
    """Read foreign certificates; create none. Raises CertificateError."""
    return _check(directory, read_files(directory), now)


def is_foreign(files: BundleFiles) -> bool:
    """Whether another issuer manages the certificates."""
    return files.ca_key is None and (files.tls_crt is not None or files.tls_key is not None)


def read_files(directory: Path) -> BundleFiles:
    """Read all four from one generation; a missing directory has none. Raises UnreadableError."""
    try:
        # Resolved once: certificate and key must not come from two sides of a swap.
        generation = (directory / _GENERATION).resolve(strict=True)
    except (OSError, RuntimeError):
        # Python 3.11 has a RuntimeError for links in a circle.
        generation = directory
    return BundleFiles(
        ca_crt=_read(generation / CA_CERTIFICATE),
        ca_key=_read(generation / CA_KEY),
        tls_crt=_read(generation / TLS_CERTIFICATE),
        tls_key=_read(generation / TLS_KEY),
    )


def write_files(directory: Path, files: BundleFiles) -> None:
    """Write the given files, each atomically. Raises UnreadableError."""
    try:
        directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        # Keys first: a certificate without its key cannot be served, a key alone does no harm.
        _write(directory / CA_KEY, files.ca_key, _KEY_MODE)
        _write(directory / CA_CERTIFICATE, files.ca_crt, _CERTIFICATE_MODE)
        _write(directory / TLS_KEY, files.tls_key, _KEY_MODE)
        _write(directory / TLS_CERTIFICATE, files.tls_crt, _CERTIFICATE_MODE)
    except OSError as error:
        raise UnreadableError(
            f"{error.filename or directory}: certificates can't be written: {error.strerror}"
        ) from error


def _check(directory: Path, files: BundleFiles, now: datetime) -> Bundle:
    try:
        bundle = parse_bundle(files)
        verify_bundle(bundle, now)
    except CertificateError as error:
        raise type(error)(f"{directory}: {error}") from error
    return bundle


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from error
    if len(content) > _MAX_BYTES:
        raise UnreadableError(f"{path} is larger than {_MAX_BYTES} bytes, expected a certificate")
    return content


def _write(path: Path, content: bytes | None, mode: int) -> None:
    if content is None:
        return
    # mkstemp creates the file readable by us alone.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
