"""Answers requests of a scheduler on a TLS port, on every replica.

Answers come from the cache of workload versions, and fail closed: without a current cache, or after
an internal error, no pod of a workload is scheduled and no pod is evicted. A pod without a workload
does not need the cache.

A scheduler shows the text of an error only if the status is 200, so a request that is too large or
too slow is answered with 200, too, and its connection is closed.
"""

from __future__ import annotations

import asyncio
import math
from http import HTTPStatus
from time import perf_counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.certs.errors import CertificateError
from harbourmaster.controller.extender.rollouts import rollouts_controller
from harbourmaster.controller.runtime import Runnables
from harbourmaster.lifecycle.extender import (
    ArgumentsError,
    filter_error,
    preemption_refused,
    read_filter,
    read_preemption,
)
from harbourmaster.lifecycle.scheduling import scheduling_permission
from harbourmaster.serving.bodies import read_body
from harbourmaster.serving.certificates import tls_options
from harbourmaster.serving.http_connection import check_client, share_of
from harbourmaster.serving.limits import Limits
from harbourmaster.serving.responses import Refusal, json_response
from harbourmaster.serving.settings import StartError
from harbourmaster.serving.site import Routes, Site
from harbourmaster.telemetry.api_metrics import AnswerCounters
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from aiohttp import web
    from prometheus_client import CollectorRegistry

    from harbourmaster.controller.runtime import Runtime
    from harbourmaster.kube.reflector import Reflector
    from harbourmaster.lifecycle.extender import FilterQuestion, PreemptionQuestion
    from harbourmaster.lifecycle.model import WorkloadVersion
    from harbourmaster.serving.certificates import ServingCertificate
    from harbourmaster.serving.site import Handler

FILTER: Final = "filter"
PREEMPT: Final = "preempt"
VERBS: Final = (FILTER, PREEMPT)

FREE: Final = "free"
AVOIDING: Final = "avoiding"
"""The pod can be scheduled, except on nodes on which it failed."""
WAITS: Final = "waits"
FOREIGN: Final = "foreign"
"""The pod of a workload has another scheduler than the settings; its checks do not run."""
UNKNOWN: Final = "unknown"
"""The cache is not filled, or its watch is disconnected."""
MALFORMED: Final = "malformed"
REFUSED: Final = "refused"
"""The request was too large, too slow or otherwise not read."""
DEFECT: Final = "defect"
OUTCOMES: Final = (FREE, AVOIDING, WAITS, FOREIGN, UNKNOWN, MALFORMED, REFUSED, DEFECT)

NAME: Final = "harbourmaster"
"""The prefix of texts that the scheduler shows as its own."""


class CacheOutdatedError(Exception):
    """The cache of workload versions is not current; the text is one line."""


class SchedulerAnswer(Struct, frozen=True, gc=False):
    """The body of an answer and its outcome; ``fault`` is for the log, empty without one."""

    body: bytes
    outcome: str
    fault: str = ""


class Answers:
    """Answers from ``versions``.

    ``deadline`` (seconds) and ``scheduler`` are those of ``scheduling_permission``.
    """

    def __init__(
        self,
        versions: Reflector[WorkloadVersion],
        *,
        deadline: float,
        now: Callable[[], datetime],
        scheduler: str = "",
    ) -> None:
        self.scheduler = scheduler
        self._versions = versions
        self._deadline = deadline
        self._now = now

    def answer(self, verb: str, body: bytes) -> SchedulerAnswer:
        """Select the nodes for a pod (FILTER), or the pods to evict for it (PREEMPT)."""
        try:
            return self._answer(read_filter(body) if verb == FILTER else read_preemption(body))
        except ArgumentsError as error:
            return refuse(verb, MALFORMED, str(error))
        except CacheOutdatedError as error:
            return refuse(verb, UNKNOWN, str(error))

    def _answer(self, question: FilterQuestion | PreemptionQuestion) -> SchedulerAnswer:
        permission = scheduling_permission(
            question.pod,
            self._find,
            deadline=self._deadline,
            now=self._now(),
            scheduler=self.scheduler,
        )
        body = question.answer(permission)
        if permission.is_foreign:
            return SchedulerAnswer(body, FOREIGN, permission.refusal)
        return SchedulerAnswer(
            body, WAITS if permission.refusal else AVOIDING if permission.avoided else FREE
        )

    def _find(self, key: str) -> WorkloadVersion | None:
        cache = self._versions
        if not cache.synced.is_set():
            raise CacheOutdatedError(
                f"workload versions are not cached yet: {cache.error or 'listing'}"
            )
        if cache.error is not None:
            # A pod must not be released by checks that have failed meanwhile.
            raise CacheOutdatedError(f"workload versions are out of date: {cache.error}")
        return cache.store.get(key)


def refuse(verb: str, outcome: str, fault: str) -> SchedulerAnswer:
    """Return an answer that schedules nothing and evicts nothing.

    Only a filter's answer has a text, which the scheduler shows.
    """
    body = filter_error(f"{NAME}: {fault}") if verb == FILTER else preemption_refused()
    return SchedulerAnswer(body, outcome, fault)


PATH: Final = "/scheduler"
MAX_BODY_BYTES: Final = 16 * 1024 * 1024
BODY_SECONDS: Final = 5.0
"""Seconds for a request to arrive, after which a scheduler gives up by default."""
MAX_REPORTED: Final = 20
"""Maximum number of foreign schedulers in the log: any client can make up names."""
_INTERNAL: Final = "internal error: see the log of the controller"


EXTENDER_ANSWERS: Final = "harbourmaster_extender_answers_total"
EXTENDER_DURATION: Final = "harbourmaster_extender_duration_seconds"
_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)
"""Seconds, from a pod without checks up to where a scheduler gives up."""


class ExtenderMetrics(AnswerCounters):
    """Counters and durations of the answers to a scheduler, by ``verb`` and ``outcome``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        answers = (EXTENDER_ANSWERS, "Answers to a scheduler, by outcome.")
        durations = (EXTENDER_DURATION, "Time from the complete request to its answer.")
        super().__init__(registry, ("verb", "outcome"), _BUCKETS, answers, durations)
        for verb in VERBS:
            self._durations.labels(verb)
            for outcome in OUTCOMES:
                self._answers.labels(verb, outcome)


class Extender:
    """The TLS port of the extender."""

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
        """``client_cn`` is the common name that the certificate of a client must have."""
        self._client_cn = client_cn
        self._answers = answers
        self._certificate = certificate
        self._metrics = metrics
        self._host = host
        self._port = port
        # A scheduler repeats a request that was refused because of the lag.
        self._limits = Limits(lag=math.inf)
        self._reported: set[str] = set()
        self.site: Site | None = None
        """The port; None before it listens."""
        self.listening = asyncio.Event()
        """Set when the port listens."""
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
        """Return the handler of the port."""
        return Routes({f"{PATH}/{verb}": self._serve(verb) for verb in VERBS})

    def _serve(self, verb: str) -> Handler:
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
                    answer = self._answer(verb, body)
            except Refusal as refusal:
                text = refusal.text
                if refusal.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                    text = (
                        f"{text}: set nodeCacheCapable: true, so that the request has only the "
                        "names of nodes"
                    )
                answer = refuse(verb, REFUSED, text)
                closes = refusal.close
            self._metrics.count_answer(verb, answer.outcome, perf_counter() - began)
            self._log_fault(verb, answer)
            response = json_response(answer.body)
            if closes:
                response.force_close()
            return response

        return serve

    def _log_fault(self, verb: str, answer: SchedulerAnswer) -> None:
        if answer.outcome == FOREIGN:
            if answer.fault not in self._reported and len(self._reported) < MAX_REPORTED:
                self._reported.add(answer.fault)
                self._log.warning("request from another scheduler", error=answer.fault)
        elif answer.fault and answer.outcome not in {DEFECT, UNKNOWN}:
            self._log.warning("scheduler request invalid", verb=verb, error=answer.fault)

    def _answer(self, verb: str, body: bytes) -> SchedulerAnswer:
        try:
            return self._answers.answer(verb, body)
        except Exception:  # noqa: BLE001 - logged with its traceback
            self._log.exception("scheduler request failed", verb=verb)
            return refuse(verb, DEFECT, _INTERNAL)


def start(runtime: Runtime, versions: Reflector[WorkloadVersion]) -> Runnables:
    """Start the port of the extender if the settings enable it. Raises StartError."""
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
