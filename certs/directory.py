"""The four files of a directory of certificates."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from harbourmaster.certs.errors import UnreadableError
from harbourmaster.certs.model import (
    CA_CERTIFICATE,
    CA_KEY,
    TLS_CERTIFICATE,
    TLS_KEY,
    BundleFiles,
)

_GENERATION: Final = "..data"
"""The symlink that the kubelet swaps when a mounted Secret changes."""

_KEY_MODE: Final = 0o400
_CERTIFICATE_MODE: Final = 0o444
_DIRECTORY_MODE: Final = 0o700
_MAX_BYTES: Final = 1024 * 1024


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
