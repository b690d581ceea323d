"""Calls the functions that load the library of certificates, in a process of their own.

The library takes a sixth of the memory of a webhook, which needs it for moments in a week.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from harbourmaster.certs import errors
from harbourmaster.certs.model import Action, Bundle, BundleFiles, Lifetimes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

T = TypeVar("T")

SECONDS: Final = 30.0
_ARGUMENTS: Final[dict[str, Any]] = {
    "bundle:parse_bundle": tuple[BundleFiles],
    "bundle:end_of": tuple[bytes, str],
    "store:load": tuple[Path, datetime],
    "store:ensure": tuple[Path, list[str], datetime],
    "overlap:decide": tuple[
        datetime, dict[str, bytes], list[str], datetime | None, Lifetimes, list[str]
    ],
}
"""The types of the arguments, by function."""
_FAULT: Final = 3
"""The exit code for a CertificateError."""


async def parse_bundle(files: BundleFiles) -> Bundle:
    """Call ``bundle.parse_bundle``."""
    return await _call(Bundle, "bundle:parse_bundle", files)


async def end_of(pem: bytes, file: str) -> datetime:
    """Call ``bundle.end_of``."""
    return await _call(datetime, "bundle:end_of", pem, file)


async def load(directory: Path, now: datetime) -> Bundle:
    """Call ``store.load``."""
    return await _call(Bundle, "store:load", directory, now)


async def ensure(directory: Path, names: Collection[str], now: datetime) -> Bundle:
    """Call ``store.ensure``."""
    return await _call(Bundle, "store:ensure", directory, names, now)


async def decide(
    now: datetime,
    data: Mapping[str, bytes],
    names: Collection[str],
    published_since: datetime | None,
    lifetimes: Lifetimes,
    permitted: Collection[str],
) -> Action:
    """Call ``overlap.decide``."""
    arguments = (now, data, names, published_since, lifetimes, permitted)
    action: Action = await _call(Action, "overlap:decide", *arguments)  # type: ignore[arg-type]
    return action


async def _call(kind: type[T], function: str, *arguments: object) -> T:
    """Return what the function returns. Raises CertificateError, also if the process fails."""
    # No keys in the command line; -P: nothing is imported from the current directory.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", __name__, function),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(SECONDS):
            answer, _ = await process.communicate(msgspec.json.encode(arguments, enc_hook=str))
    except TimeoutError:
        raise errors.UnreadableError(f"certificates not checked within {SECONDS:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == _FAULT:
        name, text = msgspec.json.decode(answer, type=tuple[str, str])
        raise getattr(errors, name)(text)
    if process.returncode:
        code = process.returncode
        raise errors.UnreadableError(f"certificates not checked: the process ended with {code}")
    return msgspec.json.decode(answer, type=kind)


def _main(function: str) -> int:
    # A path is the only type that JSON lacks.
    arguments = msgspec.json.decode(
        sys.stdin.buffer.read(), type=_ARGUMENTS[function], dec_hook=lambda kind, text: kind(text)
    )
    result: object
    code = 0
    try:
        result = resolve_name(f"harbourmaster.certs.{function}")(*arguments)
    except errors.CertificateError as error:
        code, result = _FAULT, (type(error).__name__, str(error))
    sys.stdout.buffer.write(msgspec.json.encode(result))
    return code


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
