"""The HTTP face of admission: paths, limits and time-outs around ``handlers.answer`` (D2)."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Final

from serving.bodies import read_body
from serving.clients import check_client
from serving.deadline import request_budget
from serving.replies import json_reply
from serving.routes import post_routes
from telemetry.logging import get_logger
from webhook.handlers import answer, answer_unchanged
from webhook.review import MAX_BODY_BYTES

if TYPE_CHECKING:
    from aiohttp import web

    from serving.limits import Limits
    from serving.routes import Handler
    from webhook.engine import EngineHolder
    from webhook.handlers import Decision
    from webhook.records import Records
    from webhook.settings import ServerSettings

MUTATE_PATHS: Final = ("/mutate", "/webhook")
"""Our own path and kupid's; on both the object's kind decides what happens."""
VALIDATE_PATH: Final = "/validate"


class Reviews:
    """Answers the review paths from the current snapshot; one for each server."""

    def __init__(
        self,
        holder: EngineHolder,
        settings: ServerSettings,
        limits: Limits,
        records: Records,
    ) -> None:
        self._holder = holder
        self._settings = settings
        self._limits = limits
        self._records = records
        self._log = get_logger("admission")

    async def mutate(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer with a patch where policies ask for one."""
        return await self._review(request, may_patch=True)

    async def validate(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer without a patch: a validating webhook may not give one."""
        return await self._review(request, may_patch=False)

    async def _review(self, request: web.BaseRequest, *, may_patch: bool) -> web.StreamResponse:
        started = perf_counter()
        server = self._settings
        if server.client_cn is not None:
            check_client(request, server.client_cn)
        clock = asyncio.get_running_loop().time
        deadline = clock() + request_budget(request)
        with self._limits.admit() as admission:
            body = await read_body(
                request,
                limit=MAX_BODY_BYTES,
                deadline=min(deadline, clock() + server.body_timeout_seconds),
                admission=admission,
            )
            if clock() > deadline:
                text = "the time for this request ran out, nothing was changed"
                result, decision = answer_unchanged(body, "deadline", text)
            else:
                result, decision = self._answer(body, may_patch=may_patch)
        self._records.add(decision, perf_counter() - started)
        return json_reply(request, result)

    def _answer(self, body: bytes, *, may_patch: bool) -> tuple[bytes, Decision]:
        try:
            return answer(body, self._holder.current, may_patch=may_patch)
        except Exception:  # noqa: BLE001 - logged with its traceback
            # A defect of ours must not stop anybody's pods (design D7).
            self._log.exception("review failed")
            text = "an internal error, nothing was changed; the server's log says more"
            return answer_unchanged(body, "internal-error", text)


def create_app(reviews: Reviews) -> Handler:
    """What the TLS port serves."""
    routes: dict[str, Handler] = dict.fromkeys(MUTATE_PATHS, reviews.mutate)
    return post_routes({**routes, VALIDATE_PATH: reviews.validate})
