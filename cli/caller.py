"""Who the API server takes the caller for."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.kube.errors import ApiError

if TYPE_CHECKING:
    from harbourmaster.kube.client import Client

_REVIEWS: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class _User(Struct, frozen=True):
    username: str = ""


class _Status(Struct, frozen=True, rename="camel"):
    user_info: _User = _User()


class _Review(Struct, frozen=True):
    status: _Status = _Status()


_decode: Final = msgspec.json.Decoder(_Review).decode


async def caller(client: Client) -> str:
    """The user's name; where the API server doesn't say, who we are on this machine."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await client.request(
            "POST", _REVIEWS, body=msgspec.json.encode(body), content_type="application/json"
        )
        found = _decode(answer).status.user_info.username
    except (ApiError, msgspec.DecodeError):
        found = ""
    return found or f"unknown ({os.environ.get('USER', '?')} on {socket.gethostname()})"
