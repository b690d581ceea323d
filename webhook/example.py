"""One recorded review sent to the running server, shown with the curl line that does the same."""

from __future__ import annotations

import asyncio
import base64
import ssl
import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import ClientSession

if TYPE_CHECKING:
    from pathlib import Path

    from harbourmaster.serving.site import Site

_INDENT: Final = 2


async def try_review(file: Path, site: Site, authority: Path) -> None:
    """Send the AdmissionReview in ``file`` and print the curl line, the answer and its patch."""
    url = f"https://localhost:{site.port}/mutate"
    body = await asyncio.to_thread(file.read_bytes)
    context = await asyncio.to_thread(ssl.create_default_context, cafile=str(authority))
    headers = {"Content-Type": "application/json"}
    async with (
        ClientSession() as session,
        session.post(url, data=body, headers=headers, ssl=context) as response,
    ):
        answer = await response.read()
    lines = [
        "",
        "Send a recorded admission review to this server:",
        "",
        f"  curl --cacert {authority} -H 'Content-Type: application/json' \\",
        f"       --data @{file} {url}",
        "",
        "It answers:",
        "",
        _indent(msgspec.json.format(answer, indent=_INDENT)),
    ]
    patch = _patch_of(answer)
    if patch is not None:
        lines += ["", "The patch in it, decoded:", "", _indent(patch)]
    lines += ["", "The server keeps running; Ctrl-C stops it.", ""]
    sys.stdout.write("\n".join(lines))
    sys.stdout.flush()


def _patch_of(answer: bytes) -> bytes | None:
    response: dict[str, Any] = msgspec.json.decode(answer)["response"]
    if "patch" not in response:
        return None
    return msgspec.json.format(base64.b64decode(response["patch"]), indent=_INDENT)


def _indent(text: bytes) -> str:
    return "\n".join(f"  {line}" for line in text.decode().splitlines())
