"""Queries to KeptnMetricsProviders, with the credentials of their Secrets.

No watch tells of Secrets: each is read when it is needed, cached for a minute, and read again when
a provider refuses its credentials.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from harbourmaster.api.durations import parse_duration
from harbourmaster.api.names import dns_subdomain
from harbourmaster.api.resources import SECRETS
from harbourmaster.api.urls import with_scheme
from harbourmaster.controller.evaluation.collectors import QueryMetrics
from harbourmaster.evaluation.metric_status import AGGREGATIONS
from harbourmaster.evaluation.targets import shorten
from harbourmaster.kube.errors import ApiError, ForbiddenError, NotFoundError
from harbourmaster.providers.errors import (
    BadAnswerError,
    BadCredentialsError,
    UnauthorizedError,
    UnreachableError,
)
from harbourmaster.providers.http import HttpClient
from harbourmaster.providers.model import Question, Table, Target
from harbourmaster.providers.query_client import QueryClient

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from prometheus_client import CollectorRegistry

    from harbourmaster.controller.evaluation.settings import MetricsSettings
    from harbourmaster.evaluation.model import MetricSpec, Provider, SecretKey
    from harbourmaster.kube.client import Client
    from harbourmaster.providers.errors import ProviderError
    from harbourmaster.providers.model import Answer

KEEP: Final = 60.0
"""Seconds for which a Secret is cached."""
REREAD: Final = 5.0
"""Seconds until a Secret is read again that was absent, or whose credentials were refused."""
_BY_KEY: Final = frozenset({"dql", "dynatrace", "elastic"})
"""Types whose credentials are under the key of the reference; others have fixed keys."""


SecretName: TypeAlias = tuple[str, str]
"""Namespace and name."""


class _Secret(Struct, frozen=True):
    data: dict[str, bytes] | None = None


_decode: Final = msgspec.json.Decoder(_Secret).decode


@dataclass(frozen=True, slots=True, eq=False)
class _SecretRead:
    """The result of reading a Secret: its data, None without one, or the error."""

    at: float
    """The time of the read, in seconds of the clock."""
    data: Mapping[str, bytes] | None = field(repr=False)
    error: ProviderError | None = None


class QueryService:
    """Sends queries to the providers of KeptnMetricsProviders, with their Secrets."""

    def __init__(
        self,
        client: Client,
        query_client: QueryClient,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._query_client = query_client
        self._clock = clock
        self._secrets: dict[SecretName, _SecretRead] = {}
        self._locks: defaultdict[SecretName, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def ask(self, provider: Provider, question: Question) -> Answer:
        """Return the answer of ``provider``. Raises ProviderError, and nothing else."""
        reference = provider.spec.secret_key_ref
        if reference is None:
            return await self._query_client.ask(target(provider, None), question)
        name = (provider.metadata.namespace, reference.name)
        secret = await self._read_secret(name, reference)
        try:
            return await self._query_client.ask(target(provider, secret.data), question)
        except UnauthorizedError:
            newer = await self._read_secret(name, reference, refused=secret)
            if newer.data == secret.data:
                raise
        return await self._query_client.ask(target(provider, newer.data), question)

    async def _read_secret(
        self, name: SecretName, reference: SecretKey, refused: _SecretRead | None = None
    ) -> _SecretRead:
        """Return the Secret, read at most a minute ago; ``refused`` is read again earlier."""
        # The second caller gets what the first has read.
        async with self._locks[name]:
            secret = self._secrets.get(name)
            if secret is None or self._is_expired(secret, refused):
                self._drop_unused()
                secret = self._secrets[name] = await self._fetch_secret(*name)
        if secret.error is None:
            return secret
        if reference.optional and isinstance(secret.error, BadCredentialsError):
            return _SecretRead(secret.at, None)
        # One error that is raised several times would collect the tracebacks of all.
        raise type(secret.error)(str(secret.error))

    def _is_expired(self, secret: _SecretRead, refused: _SecretRead | None) -> bool:
        limit = REREAD if secret is refused or secret.error is not None else KEEP
        return self._clock() - secret.at >= limit

    def _drop_unused(self) -> None:
        now = self._clock()
        for name in [name for name, secret in self._secrets.items() if now - secret.at >= KEEP]:
            del self._secrets[name]
            if not self._locks[name].locked():
                del self._locks[name]

    async def _fetch_secret(self, namespace: str, name: str) -> _SecretRead:
        error: ProviderError
        # Admission only warns of other names, and a proxy may read separators in them.
        if dns_subdomain(name):
            error = BadCredentialsError("secretKeyRef names no Secret")
            return _SecretRead(self._clock(), None, error)
        try:
            raw = await self._client.get(SECRETS, name, namespace)
            return _SecretRead(self._clock(), _decode(raw).data or {})
        except NotFoundError:
            error = BadCredentialsError(f"secret {name} not found")
        except ForbiddenError:
            error = BadCredentialsError(
                f"missing permission to read Secret {namespace}/{name}: run harbourmaster grant "
                f"secrets -n {namespace}"
            )
        except ApiError as fault:
            error = UnreachableError(f"secret {name} can't be read: {type(fault).__name__}")
        except msgspec.DecodeError:
            # The text of this error may have a part of the Secret.
            error = BadAnswerError(f"secret {name} can't be read: it is not a Secret")
        return _SecretRead(self._clock(), None, error)


def question(spec: MetricSpec, now: float) -> Question:
    """Return the question of a metric at ``now``. Raises ValueError for an invalid range."""
    span = spec.range
    if span is None:
        return Question(query=spec.query)
    if bool(span.step) != bool(span.aggregation):
        raise ValueError("range.step and range.aggregation belong together: give both or neither")
    if span.aggregation and span.aggregation not in AGGREGATIONS:
        known = ", ".join(AGGREGATIONS)
        raise ValueError(f"range.aggregation '{shorten(span.aggregation)}' is not one of {known}")
    return Question(
        query=spec.query,
        start=now - _duration("range.interval", span.interval),
        end=now,
        step=_duration("range.step", span.step) if span.step else None,
    )


def target(provider: Provider, secret: Mapping[str, bytes] | None) -> Target:
    """Return the target of a query, with the Secret's data; None for no credentials."""
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
        namespace=provider.metadata.namespace,
    )


def _duration(field: str, text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{field} {error}") from None
    if seconds <= 0:
        raise ValueError(f"{field} is {shorten(text)}, and must be longer than nothing")
    return seconds


def create_query_service(
    client: Client, settings: MetricsSettings, registry: CollectorRegistry
) -> tuple[QueryService, Callable[[], Coroutine[Any, Any, None]]]:
    """Return a query service, and the coroutine function that holds its connections while it runs.

    A metrics registry takes the metrics of one service.
    """
    http = HttpClient(
        settings.allowed_addresses,
        (*settings.denied_addresses, *_own_addresses(client.connection.server)),
        max_bytes=settings.max_answer_bytes,
    )
    query_client = QueryClient(
        http,
        timeout=settings.query_timeout_seconds,
        per_target=settings.queries_per_provider,
        observer=QueryMetrics(registry),
    )

    async def keep_open() -> None:
        async with http:
            await asyncio.get_running_loop().create_future()

    return QueryService(client, query_client), keep_open


def _own_addresses(server: str) -> tuple[str, ...]:
    """Return the address of the API server, which is not a provider; empty for a loopback one."""
    host = urlsplit(server).hostname or ""
    try:
        address = ip_address(host)
    except ValueError:
        return ()
    # Servers of other ports have the loopback address, too.
    return () if address.is_loopback else (host,)
