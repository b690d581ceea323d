"""Asks the providers that KeptnMetricsProviders describe, with the credentials of their Secrets.

Nothing watches Secrets: one is read when it is needed and kept for a minute, and read anew as soon
as a provider refuses what it says.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from harbourmaster.api.durations import parse_duration
from harbourmaster.api.names import dns_subdomain
from harbourmaster.api.resources import SECRETS
from harbourmaster.api.urls import with_scheme
from harbourmaster.controller.evaluation.telemetry import QueryMetrics
from harbourmaster.evaluation.aggregation import AGGREGATIONS
from harbourmaster.evaluation.targets import shortened
from harbourmaster.kube.errors import ApiError, ForbiddenError, NotFoundError
from harbourmaster.providers.asking import Asker
from harbourmaster.providers.errors import (
    BadAnswerError,
    BadCredentialsError,
    UnauthorizedError,
    UnreachableError,
)
from harbourmaster.providers.http import Http
from harbourmaster.providers.model import Question, Table, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable, Mapping

    from prometheus_client import CollectorRegistry

    from harbourmaster.controller.evaluation.settings import MetricsSettings
    from harbourmaster.evaluation.model import MetricSpec, Provider, SecretKey
    from harbourmaster.kube.client import Client
    from harbourmaster.providers.errors import ProviderError
    from harbourmaster.providers.model import Answer

KEEP: Final = 60.0
"""Seconds for which a Secret is taken as it was read."""
REREAD: Final = 5.0
"""Seconds in which nobody looks again, whether it was absent or its credentials were refused."""
_BY_KEY: Final = frozenset({"dql", "dynatrace", "elastic"})
"""Types whose credentials stand under the key that is named; others have names of their own."""


class _Secret(Struct, frozen=True):
    data: dict[str, bytes] | None = None


_decode: Final = msgspec.json.Decoder(_Secret).decode


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """A Secret at some time by the clock: its data, None for none, or why it can't be had."""

    at: float
    data: Mapping[str, bytes] | None = field(repr=False)
    fault: ProviderError | None = None


class Questions:
    """One for all reconcilers, so that the same question is asked once."""

    def __init__(
        self, client: Client, asker: Asker, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._asker = asker
        self._clock = clock
        self._read: dict[tuple[str, str], _Read] = {}
        self._turns: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def ask(self, provider: Provider, question: Question, shared: Hashable = None) -> Answer:
        """The answer of ``provider``. Raises ProviderError, and nothing else.

        Who asks with an equal ``shared`` meanwhile gets the same answer; by default that is who
        asks the same question.
        """
        reference = provider.spec.secret_key_ref
        if reference is None:
            return await self._asker.ask(target(provider, None), question, shared)
        where = (provider.metadata.namespace, reference.name)
        read = await self._secret(where, reference)
        try:
            return await self._asker.ask(target(provider, read.data), question, shared)
        except UnauthorizedError:
            newer = await self._secret(where, reference, refused=read)
            if newer.data == read.data:
                raise
        return await self._asker.ask(target(provider, newer.data), question, shared)

    async def _secret(
        self, where: tuple[str, str], reference: SecretKey, refused: _Read | None = None
    ) -> _Read:
        """The Secret as it was read at most a minute ago, and not as it was ``refused``."""
        # One after the other: who comes second finds what the first has read.
        async with self._turns[where]:
            found = self._read.get(where)
            if found is None or self._is_old(found, refused):
                self._forget()
                found = self._read[where] = await self._get(*where)
        if found.fault is None:
            return found
        if reference.optional and isinstance(found.fault, BadCredentialsError):
            return _Read(found.at, None)
        # Raised again and again, one error would collect the tracebacks of all.
        raise type(found.fault)(str(found.fault))

    def _is_old(self, found: _Read, refused: _Read | None) -> bool:
        limit = REREAD if found is refused or found.fault is not None else KEEP
        return self._clock() - found.at >= limit

    def _forget(self) -> None:
        """Keep no Secret in memory that nobody asks for any more."""
        now = self._clock()
        for where in [each for each, read in self._read.items() if now - read.at >= KEEP]:
            del self._read[where]
            if not self._turns[where].locked():
                del self._turns[where]

    async def _get(self, namespace: str, name: str) -> _Read:
        fault: ProviderError
        # Admission only warns of other names, and a proxy may read separators in them.
        if dns_subdomain(name):
            fault = BadCredentialsError("secretKeyRef names no Secret")
            return _Read(self._clock(), None, fault)
        try:
            raw = await self._client.get(SECRETS, name, namespace)
            return _Read(self._clock(), _decode(raw).data or {})
        except NotFoundError:
            fault = BadCredentialsError(f"secret {name} not found")
        except ForbiddenError:
            fault = BadCredentialsError(
                f"missing permission to read Secret {namespace}/{name}: run harbourmaster grant "
                f"secrets -n {namespace}"
            )
        except ApiError as error:
            fault = UnreachableError(f"secret {name} can't be read: {type(error).__name__}")
        except msgspec.DecodeError:
            # What it says is not for anybody to see.
            fault = BadAnswerError(f"secret {name} can't be read: it is not a Secret")
        return _Read(self._clock(), None, fault)


def question(spec: MetricSpec, now: float) -> Question:
    """What a metric asks at that time. Raises ValueError with one line: a spec may be any."""
    span = spec.range
    if span is None:
        return Question(query=spec.query)
    if bool(span.step) != bool(span.aggregation):
        raise ValueError("range.step and range.aggregation belong together: give both or neither")
    if span.aggregation and span.aggregation not in AGGREGATIONS:
        known = ", ".join(AGGREGATIONS)
        raise ValueError(f"range.aggregation '{shortened(span.aggregation)}' is not one of {known}")
    return Question(
        query=spec.query,
        start=now - _duration("range.interval", span.interval),
        end=now,
        step=_duration("range.step", span.step) if span.step else None,
    )


def target(provider: Provider, secret: Mapping[str, bytes] | None) -> Target:
    """Who is asked, given the Secret's data; None for no credentials."""
    spec = provider.spec
    kind = provider.type
    reference = spec.secret_key_ref
    key = "" if reference is None else reference.key
    if (
        secret is not None
        and reference is not None
        and reference.optional
        and kind in _BY_KEY
        and key not in secret
    ):
        secret = None
    kafka = spec.kafka
    return Target(
        type=kind,
        server=with_scheme(spec.target_server, "https" if reference else "http"),
        secret=secret,
        secret_key=key,
        secret_name="" if reference is None else f"{provider.metadata.namespace}/{reference.name}",
        skip_verify=spec.insecure_skip_tls_verify,
        table=None
        if kafka is None
        else Table(kafka.table, kafka.comparison_column, kafka.value_column),
        static=None if spec.static is None else spec.static.metrics,
    )


def _duration(field: str, text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{field} {error}") from None
    if seconds <= 0:
        raise ValueError(f"{field} is {shortened(text)}, and must be longer than nothing")
    return seconds


def provider_questions(
    client: Client, settings: MetricsSettings, registry: CollectorRegistry
) -> tuple[Questions, Callable[[], Coroutine[Any, Any, None]]]:
    """Make the questions of a process, and what keeps connections to providers; once a registry."""
    http = Http(
        settings.allowed_addresses,
        (*settings.denied_addresses, *_own_addresses(client.connection.server)),
        max_bytes=settings.max_answer_bytes,
    )
    asker = Asker(
        http,
        timeout=settings.query_timeout_seconds,
        per_target=settings.queries_per_provider,
        observer=QueryMetrics(registry),
    )

    async def keep() -> None:
        async with http:
            await asyncio.get_running_loop().create_future()

    return Questions(client, asker), keep


def _own_addresses(server: str) -> tuple[str, ...]:
    """That of the API server, which is not a provider; on loopback others may have it, too."""
    host = urlsplit(server).hostname or ""
    try:
        found = ip_address(host)
    except ValueError:
        return ()
    return () if found.is_loopback else (host,)
