"""Who calls: the common name in the client certificate that the handshake has verified."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.serving.protocol import Protocol
from harbourmaster.serving.responses import Refusal

if TYPE_CHECKING:
    from aiohttp import web


def check_client(request: web.BaseRequest, common_name: str) -> None:
    """Let only the holder of this name pass; call it before the body is read.

    Raises Refusal (403). The certificate is looked at once for each connection.
    """
    protocol = request.protocol
    if not isinstance(protocol, Protocol) or protocol.client_name != common_name:
        raise Refusal(
            403, "403: the client certificate is for another name than the one that may call here"
        )
