"""The version of the API server: GET /version."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.kube.errors import BadAnswerError

if TYPE_CHECKING:
    from harbourmaster.kube.client import Client

_PATH: Final = "/version"
_NUMBER: Final = re.compile(r"([0-9]{1,4})(?![0-9])")
"""Some providers write ``27+`` for a minor version."""
_GIT_VERSION: Final = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?![0-9])")
_SHOWN: Final = 100


class ServerVersion(Struct, frozen=True, gc=False, order=True):
    """The version of an API server, without the patch level, which no API depends on."""

    major: int
    minor: int

    def __str__(self) -> str:
        """``1.27``."""
        return f"{self.major}.{self.minor}"


class _Info(Struct, frozen=True, gc=False, rename="camel"):
    major: str = ""
    minor: str = ""
    git_version: str = ""


_decode: Final = msgspec.json.Decoder(_Info).decode


async def server_version(client: Client) -> ServerVersion:
    """Ask for the version, without repetitions. Raises an ApiError, also for what is none."""
    body = await client.request("GET", _PATH, retries=0)
    try:
        return parse_version(body)
    except ValueError as error:
        raise BadAnswerError(str(error), status=200, call=f"get {_PATH}") from error


def parse_version(body: bytes) -> ServerVersion:
    """The version in an answer to GET /version. Raises ValueError.

    A custom build can lack both numbers and have only a ``gitVersion``, or there v0.0.0,
    which says nothing of what it can do.
    """
    try:
        info = _decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"no version: {error}") from error
    major, minor = _NUMBER.match(info.major), _NUMBER.match(info.minor)
    if major and minor:
        return ServerVersion(int(major[1]), int(minor[1]))
    described = _GIT_VERSION.match(info.git_version)
    if described is None or not int(described[1]):
        raise ValueError(f"no version: {body[:_SHOWN].decode(errors='replace')}")
    return ServerVersion(int(described[1]), int(described[2]))
