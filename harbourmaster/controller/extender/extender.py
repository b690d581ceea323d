"""The TLS port on which a scheduler's questions are answered, on every replica.

A scheduler shows the text of an error only where the status is 200, so even a question that is too
large or comes too slowly is answered so, and its connection closed.
"""

from __future__ import annotations

import asyncio
import math
from http import HTTPStatus
from time import perf_counter
from typing import TYPE_CHECKING, Final

from harbourmaster.certs.errors import CertificateError
from harbourmaster.controller.extender.answers import (
    DEFECT,
    FOREIGN,
    REFUSED,
    UNKNOWN,
    VERBS,
    Answers,
    failed,
)
from harbourmaster.controller.extender.metrics import ExtenderMetrics
from harbourmaster.controller.extender.rollouts import rollouts_controller
from harbourmaster.controller.runtime import Runnables
from harbourmaster.serving.bodies import read_body
from harbourmaster.serving.certificates import tls_options
from harbourmaster.serving.http_connection import check_client, share_of
from harbourmaster.serving.limits import Limits
from harbourmaster.serving.responses import Refusal, json_response
from harbourmaster.serving.settings import StartError
from harbourmaster.serving.site import Routes, Site
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from aiohttp import web

    from harbourmaster.controller.extender.answers import SchedulerAnswer
    from harbourmaster.controller.runtime import Runtime
    from harbourmaster.kube.reflector import Reflector
    from harbourmaster.lifecycle.model import WorkloadVersion
    from harbourmaster.serving.certificates import ServingCertificate
    from harbourmaster.serving.site import Handler

PATH: Final = "/scheduler"
MAX_BODY_BYTES: Final = 16 * 1024 * 1024
BODY_SECONDS: Final = 5.0
"""For a question to arrive: a scheduler gives up after as long by default."""
MOST_TOLD: Final = 20
"""Schedulers of which the log tells that they are not ours; anybody may make up more."""
_INTERNAL: Final = "internal error: see the log of the controller"


class Extender:
    """The port."""

    def __init__(
        self,
        answers: Answers,
        certificate: ServingCertificate,
        metrics: ExtenderMetrics,
        *,
        host: str,
        port: int,
        client_cn: str | None = None,
    ) -> None:
        """``client_cn`` is the common name that a client's certificate must have."""
        self._client_cn = client_cn
        self._answers = answers
        self._certificate = certificate
        self._metrics = metrics
        self._host = host
        self._port = port
        # Refused for being late, a pod would only be asked about again.
        self._limits = Limits(lag=math.inf)
        self._told: set[str] = set()
        self.site: Site | None = None
        """The port, once it listens."""
        self.listening = asyncio.Event()
        """Set when it does."""
        self._log = get_logger("extender")

    async def run(self) -> None:
        """Serve until cancelled, from the first certificate on. Raises AddressError."""
        holder = await self._certificate.first()
        self.site = Site(
            self.handler(),
            host=self._host,
            port=self._port,
            tls=holder.context,
            limits=self._limits,
        )
        try:
            await self.site.start()
            url, scheduler = f"{self.site.url}{PATH}", self._answers.scheduler
            self._log.info("scheduler extender started", url=url, scheduler=scheduler)
            self.listening.set()
            await self._certificate.keep(holder)
        finally:
            await self.site.stop()

    def handler(self) -> Handler:
        """What the port serves."""
        return Routes({f"{PATH}/{verb}": self._served(verb) for verb in VERBS})

    def _served(self, verb: str) -> Handler:
        async def serve(request: web.BaseRequest) -> web.StreamResponse:
            if self._client_cn is not None:
                check_client(request, self._client_cn)
            deadline = asyncio.get_running_loop().time() + BODY_SECONDS
            closes = False
            began = perf_counter()
            try:
                with self._limits.admit(share_of(request)) as admission:
                    body = await read_body(
                        request, limit=MAX_BODY_BYTES, deadline=deadline, admission=admission
                    )
                    began = perf_counter()
                    found = self._safely(verb, body)
            except Refusal as refusal:
                text = refusal.text
                if refusal.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                    text = (
                        f"{text}: set nodeCacheCapable: true, so that the request has only the "
                        "names of nodes"
                    )
                found = failed(verb, REFUSED, text)
                closes = refusal.close
            self._metrics.count_answer(verb, found.outcome, perf_counter() - began)
            self._tell(verb, found)
            reply = json_response(found.body)
            if closes:
                reply.force_close()
            return reply

        return serve

    def _tell(self, verb: str, found: SchedulerAnswer) -> None:
        if found.outcome == FOREIGN:
            if found.fault not in self._told and len(self._told) < MOST_TOLD:
                self._told.add(found.fault)
                self._log.warning("request from another scheduler", error=found.fault)
        elif found.fault and found.outcome not in {DEFECT, UNKNOWN}:
            self._log.warning("scheduler request invalid", verb=verb, error=found.fault)

    def _safely(self, verb: str, body: bytes) -> SchedulerAnswer:
        try:
            return self._answers.answer(verb, body)
        except Exception:  # noqa: BLE001 - logged with its traceback
            self._log.exception("scheduler request failed", verb=verb)
            return failed(verb, DEFECT, _INTERNAL)


def start(runtime: Runtime, versions: Reflector[WorkloadVersion]) -> Runnables:
    """Answer a scheduler from the workload versions, if the settings say so."""
    settings = runtime.settings.scheduler
    if not settings.enabled:
        return Runnables()
    try:
        clients = tls_options(settings.client_ca, settings.client_cn)
    except CertificateError as error:
        raise StartError(f"scheduler: {error}") from None
    certificate = runtime.serving_certificate("extender", clients, holds=True)
    if certificate is None:
        return Runnables()
    answers = Answers(
        versions,
        deadline=settings.pre_check_deadline_seconds,
        now=runtime.now,
        scheduler=settings.scheduler_name,
    )
    extender = Extender(
        answers,
        certificate,
        ExtenderMetrics(runtime.metrics.registry),
        host=settings.extender_host,
        port=settings.extender_port,
        client_cn=settings.client_cn,
    )
    rollouts = (
        (rollouts_controller(runtime, certificate, settings.deployment),)
        if settings.deployment
        else ()
    )
    return Runnables(controllers=rollouts, background=(extender.run,))
