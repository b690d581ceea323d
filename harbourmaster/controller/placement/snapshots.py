"""The snapshots that decisions are made on, and the newest values of the metrics in them (7.4).

Each metric that a target names is queried once in an interval. No decision waits for a provider. A
value counts for a while after it was read, so that one answer that fails to come
changes nothing; a provider that says there is none is believed. Constraints and ranking of one pass
see the same values. A pass lasts until something that it shows has changed, and a moment at most;
who moves where by choice counts for as long as the values that all of them follow.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from harbourmaster.api.metadata import Metadata
from harbourmaster.controller.placement.caches import places
from harbourmaster.evaluation.model import KafkaTable, Provider, ProviderSpec, SecretKey
from harbourmaster.placement.application_decisions import MoveLimits
from harbourmaster.placement.candidates import cloud_key, taken_over
from harbourmaster.placement.cluster_queries import cluster_query
from harbourmaster.placement.passes import Pass
from harbourmaster.placement.provider_validation import KAFKA, PROMETHEUS, STATIC
from harbourmaster.placement.snapshot import MetricFault, key_of, snapshot_of
from harbourmaster.providers.errors import BadAnswerError, ProviderError
from harbourmaster.providers.model import Question
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from harbourmaster.controller.evaluation.query_service import QueryService
    from harbourmaster.controller.placement.caches import PlacementCaches
    from harbourmaster.controller.placement.settings import PlacementSettings
    from harbourmaster.placement.model import MetricSource, Object
    from harbourmaster.placement.provider_validation import SubmittedProvider, SubmittedProviderSpec
    from harbourmaster.placement.snapshot import ObjectKey, Reading, ReadingKey, Snapshot


FIRST_WAIT: Final = 2.0
"""Seconds that a decision waits for the first value of a metric, and never again."""
_SOON: Final = 0.01
"""Seconds by which a look is late, so that what it waits for is over."""


Values: TypeAlias = Mapping[str, float | str]
"""Values by the name of the cluster, or the reason why it has none."""


class MetricQuery(NamedTuple):
    """A query of a provider; metrics with the same query share its answer."""

    provider: ObjectKey
    metric: str
    by_label: str = ""


@dataclass(slots=True, eq=False)
class SampledValue:
    """The last answer to one query."""

    spec: SubmittedProviderSpec
    started: float = -math.inf
    task: asyncio.Task[None] | None = None
    value: float | Values | None = None
    at: float = -math.inf
    trouble: MetricFault | None = None
    """Why the last question has no answer; None where it has one."""
    told: Reading | Values | None = None

    def reading(self, now: float, max_age: float) -> Reading | Values | None:
        """The value, or why there is none; None before the first answer."""
        trouble = self.trouble
        if trouble is not None and trouble.reason != "UnreachableMetricsProvider":
            return trouble
        if self.value is not None and now - self.at < max_age:
            return self.value
        if trouble is not None or self.value is None:
            return trouble
        text = f"no answer for {max_age:g} s"
        return MetricFault("UnreachableMetricsProvider", text)


class Samples:
    """All values; empty if another process leads. ``clock`` gives seconds."""

    def __init__(
        self, caches: PlacementCaches, *, max_age: float, clock: Callable[[], float]
    ) -> None:
        self.caches = caches
        self.max_age = max_age
        self.clock = clock
        self.held: dict[MetricQuery, SampledValue] = {}
        self._since: dict[MetricQuery, float] = {}
        """Since when each is wanted."""

    def clear(self) -> None:
        """Know nothing, at the beginning and the end of a term."""
        self.held.clear()
        self._since.clear()

    def queries(self) -> dict[MetricQuery, list[ReadingKey]]:
        """Return the queries of all metrics that a target names, with the keys of these metrics."""
        queries: dict[MetricQuery, list[ReadingKey]] = {}
        per_cluster: dict[ObjectKey, tuple[MetricSource, SubmittedProvider]] = {}
        caches = self.caches
        for mirror in (caches.metrics, caches.global_metrics):
            for target in mirror.store.values():
                place = (target.metadata.namespace, target.metadata.name)
                source = target.spec.provider
                provider = caches.provider((place[0], source.name))
                if provider is None or provider.spec.type == STATIC:
                    continue
                if source.is_per_cluster:
                    per_cluster[place] = source, provider
                elif next(caches.users(place), None) is not None:
                    query = MetricQuery((place[0], source.name), source.metric)
                    queries.setdefault(query, []).append(place)
        for cluster in caches.clusters.store.values() if per_cluster else ():
            metadata, inherited = taken_over(cluster, caches.cloud(cloud_key(cluster)))
            references = (*(cluster.spec.metrics or ()), *inherited)
            for place in per_cluster.keys() & set(places(metadata.namespace, references)):
                source, provider = per_cluster[place]
                text = cluster_query(place[1], source, provider, metadata)
                if isinstance(text, str):
                    query = MetricQuery((place[0], source.name), text, source.by_label)
                    queries.setdefault(query, []).append((*place, *key_of(metadata)))
        return queries

    def readings(self) -> tuple[dict[ReadingKey, Reading], dict[str, float]]:
        """The readings, and until when decisions of a namespace wait for the first ones.

        Who waits for what all may use stands under an empty namespace.
        """
        now = self.clock()
        readings: dict[ReadingKey, Reading] = {}
        waits: dict[str, float] = {}
        wanted = self.queries()
        self._since = {query: self._since.get(query, now) for query in wanted}
        for query, users in wanted.items():
            sample = self.held.get(query)
            reading = None if sample is None else sample.reading(now, self.max_age)
            if reading is not None:
                readings.update((user, _of_user(reading, query, user)) for user in users)
                continue
            until = self._since[query] + FIRST_WAIT
            if until > now:
                for namespace in self.namespaces(users):
                    waits[namespace] = max(waits.get(namespace, 0.0), until)
        return readings, waits

    def count_without_value(self) -> int:
        """Return the number of metrics without a value; one per cluster counts for each cluster."""
        readings = self.readings()[0]
        users = (user for query, user in self.queries().items() if query in self.held)
        return sum(not isinstance(readings.get(query), float) for query in chain(*users))

    def namespaces(self, users: Iterable[ReadingKey]) -> set[str]:
        """Return the namespaces in which a change of these metrics matters; empty for all."""
        caches = self.caches
        return {
            user_object.metadata.namespace
            for user in users
            for user_object in caches.users(user[:2])
        }


def _of_user(reading: Reading | Values, query: MetricQuery, user: ReadingKey) -> Reading:
    """Return the part of an answer that concerns one metric, or one cluster."""
    if not isinstance(reading, Mapping):
        return reading
    value = reading.get(user[-1], "no series has it")
    if isinstance(value, float):
        return value
    if not reading:
        value += f": add by ({query.by_label}) to the query"
    text = f"'{query.metric}' with {query.by_label}=\"{user[-1]}\""
    return MetricFault("InvalidMetric", f"'{query.provider[1]}' has no value {text}: {value}")


class SampleReconciler:
    """Reconciles one query; ``wake`` queues a key, ``tell`` gets namespaces with new readings."""

    def __init__(
        self,
        samples: Samples,
        questions: QueryService,
        *,
        home: str,
        interval: float,
        wake: Callable[[str], None],
        tell: Callable[[set[str]], None],
    ) -> None:
        """``home`` is our own namespace, where global providers have their Secrets."""
        self._samples = samples
        self._questions = questions
        self._home = home
        self._interval = interval
        self._wake = wake
        self._tell = tell
        self._wanted: dict[MetricQuery, list[ReadingKey]] = {}
        self._queries: dict[str, MetricQuery] = {}
        self._log = get_logger("sampler")
        samples.clear()

    def map_changes(self, _keys: Iterable[str] | None) -> Iterator[str]:
        """Yield the keys of queries that are new, changed or no longer needed."""
        wanted, held = self._samples.queries(), self._samples.held
        self._wanted = wanted
        for query in [*wanted, *(query for query in held if query not in wanted)]:
            sample, provider = held.get(query), self._samples.caches.provider(query.provider)
            is_known = sample is not None and query in wanted
            if is_known and provider is not None and sample and sample.spec == provider.spec:
                continue
            key = "/".join((*query.provider, query.by_label, query.metric))
            self._queries[key] = query
            yield key

    async def reconcile(self, key: str) -> float | None:
        """Ask if it is time, and tell what has changed."""
        query = self._queries.get(key)
        if query is None:
            return None
        held, now = self._samples.held, self._samples.clock()
        provider, sample = self._samples.caches.provider(query.provider), held.get(query)
        if provider is None or query not in self._wanted:
            self._queries.pop(key, None)
            self._drop(query)
            return None
        if sample is None or sample.spec != provider.spec:
            self._drop(query)
            sample = held[query] = SampledValue(provider.spec)
        due = sample.started + self._interval
        if sample.task is None and now >= due:
            # Later ones keep the pace, whatever an answer takes.
            sample.started = now if now - due > self._interval else due
            asked = self._ask(key, query, sample, as_asked(provider, self._home))
            sample.task = asyncio.create_task(asked)
            due = sample.started + self._interval
        self._tell_change(query, sample, now)
        times = [sample.at + self._samples.max_age]
        if sample.task is None:
            times.append(due)
        left = [time - now for time in times if time > now]
        return min(left) + _SOON if left else None

    async def close(self) -> None:
        """Leave all questions unanswered that are under way, and know nothing."""
        tasks = [sample.task for sample in self._samples.held.values() if sample.task is not None]
        self._samples.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(
        self, key: str, query: MetricQuery, sample: SampledValue, provider: Provider
    ) -> None:
        try:
            question = Question(query=query.metric, by_label=query.by_label)
            answer = await self._questions.ask(provider, question)
            value = answer.by_label if query.by_label else answer.samples[-1].value
            sample.value, sample.trouble = value, None
            sample.at = self._samples.clock()
        except ProviderError as error:
            sample.trouble = fault_of(error, query)
        except Exception as error:  # noqa: BLE001 - the next question may be answered
            self._log.exception("query crashed", query=query.metric)
            sample.trouble = fault_of(BadAnswerError(type(error).__name__), query)
        sample.task = None
        self._wake(key)

    def _tell_change(self, query: MetricQuery, sample: SampledValue, now: float) -> None:
        reading = sample.reading(now, self._samples.max_age)
        if reading != sample.told:
            sample.told = reading
            self._tell(self._samples.namespaces(self._wanted[query]))

    def _drop(self, query: MetricQuery) -> None:
        sample = self._samples.held.pop(query, None)
        if sample is not None and sample.task is not None:
            sample.task.cancel()


def fault_of(error: ProviderError, query: MetricQuery) -> MetricFault:
    """Return the fault of a metric whose query failed (krake-spec 3.9)."""
    away = error.is_unreachable or error.reason in {"BadCredentials", "BadProvider"}
    text = f"'{query.provider[1]}' has no value '{query.metric}': {error}"
    return MetricFault("UnreachableMetricsProvider" if away else "InvalidMetric", text)


def as_asked(provider: SubmittedProvider, home: str) -> Provider:
    """The provider as those who speak to it want it; its Secret is in its namespace, or at home."""
    spec = provider.spec
    server = {PROMETHEUS: spec.prometheus, KAFKA: spec.kafka}.get(spec.type)
    reference = server.secret_key_ref if server is not None else None
    table = spec.kafka
    return Provider(
        metadata=Metadata(
            name=provider.metadata.name, namespace=provider.metadata.namespace or home
        ),
        spec=ProviderSpec(
            type=spec.type or "none",
            target_server="" if server is None else server.url,
            secret_key_ref=None
            if reference is None
            else SecretKey(name=reference.name, key=reference.key),
            kafka=None
            if table is None
            else KafkaTable(
                table=table.table,
                comparison_column=table.comparison_column,
                value_column=table.value_column,
            ),
        ),
    )


LASTS: Final = 0.25
"""Seconds for which a pass has the right time."""


class TimedPass(NamedTuple):
    """One pass, begun ``at`` some second; ``waits`` are until when namespaces wait for metrics."""

    seen: Pass
    move_limits: MoveLimits
    waits: dict[str, float]
    at: float

    def requeue_after(self, namespace: str, now: float) -> float | None:
        """Seconds until decisions of a namespace need wait no more; None where they need not."""
        waits = (self.waits.get(namespace, 0.0), self.waits.get("", 0.0))
        left = max(waits) - now
        return left if left > 0 else None


class Snapshots:
    """Gives out passes. ``now`` tells the time of day, ``clock`` seconds."""

    def __init__(
        self,
        caches: PlacementCaches,
        samples: Samples,
        settings: PlacementSettings,
        *,
        now: Callable[[], datetime],
        clock: Callable[[], float],
    ) -> None:
        self._caches = caches
        self._samples = samples
        self._settings = settings
        self._now = now
        self._clock = clock
        self._world: Snapshot | None = None
        self._waits: dict[str, float] = {}
        self._snapshot: TimedPass | None = None
        self._move_limits = MoveLimits(settings)
        self._limits_since = -float("inf")
        self._begun: datetime | None = None

    def begin(self) -> None:
        """A term begins: what statuses say is of an earlier one."""
        self._begun = self._now()
        self.outdate()

    def outdate(self) -> None:
        """Something has changed that decisions see."""
        self._world = self._snapshot = None

    def current(self) -> TimedPass:
        """The world as it is now."""
        at = self._clock()
        snapshot = self._snapshot
        if snapshot is not None and at - snapshot.at < LASTS:
            return snapshot
        if at - self._limits_since >= self._settings.sample_interval_seconds:
            seconds = self._settings.sample_interval_seconds
            ends = self._now() + timedelta(seconds=seconds)
            self._move_limits, self._limits_since = MoveLimits(self._settings, ends), at
        if self._world is None:
            self._world, self._waits = self._build()
        seen = Pass(self._world, self._now(), self._settings, self._begun)
        self._snapshot = TimedPass(seen, self._move_limits, self._waits, at)
        return self._snapshot

    def _build(self) -> tuple[Snapshot, dict[str, float]]:
        caches = self._caches
        readings, waits = self._samples.readings()
        objects: tuple[Iterable[Object], ...] = (
            caches.clusters.store.values(),
            caches.clouds.store.values(),
            caches.global_clouds.store.values(),
            caches.projects.store.values(),
            caches.metrics.store.values(),
            caches.global_metrics.store.values(),
            caches.providers.store.values(),
            caches.global_providers.store.values(),
        )
        return snapshot_of(chain.from_iterable(objects), readings), waits
