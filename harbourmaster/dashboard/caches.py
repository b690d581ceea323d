"""The caches that pages are made of: those of the controllers that run, and a few of our own.

Policies, the labels of pods and those of namespaces are mirrored here: of the last two no more than
their metadata comes. Whoever leads needs none of them.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.decoding import decode
from harbourmaster.api.resources import CLUSTER_POLICIES, NAMESPACES, PODS, POLICIES
from harbourmaster.dashboard.sources import (
    MOST,
    MOST_OF_SET,
    KnownPolicy,
    LabelledPod,
    MatchCounts,
    PageSources,
    conflicts_of,
)
from harbourmaster.kube.caches import Caches
from harbourmaster.policies.compiled import compile_policy, undecodable_policy
from harbourmaster.policies.index import policy_set
from harbourmaster.policies.model import CLUSTER_POLICY, POLICY, Policy, PolicyMetadata
from harbourmaster.rescheduling.model import shared_labels, shared_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from harbourmaster.api.resources import Resource
    from harbourmaster.dashboard.sources import Conflict
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.faults import WatchMetrics
    from harbourmaster.kube.reflector import Reflector
    from harbourmaster.policies.compiled import CompiledPolicy


SLICE: Final = 500
"""Pods that are matched before other tasks may run."""
HELD: Final = 2.0
"""Seconds for which counts are reused although something has changed."""


class PodCounter:
    """Counts selected pods on request, and again only after a change."""

    def __init__(
        self,
        policies: Callable[[], Iterable[CompiledPolicy]],
        pods: Callable[[], Iterable[LabelledPod]],
        namespace: Callable[[str], Mapping[str, str] | None],
        is_whole: Callable[[], bool] = lambda: True,
    ) -> None:
        """``namespace`` returns its labels; ``is_whole`` says whether all caches are filled."""
        self._is_whole = is_whole
        self._policies = policies
        self._pods = pods
        self._namespace = namespace
        self._counts = MatchCounts()
        self._is_outdated = True
        self._good_until = 0.0
        self._counting = asyncio.Lock()

    def outdate(self) -> None:
        """Count again on the next request."""
        self._is_outdated = True

    async def counts(self) -> MatchCounts:
        """Return the counts, which may be those of a former request."""
        async with self._counting:
            clock = asyncio.get_running_loop().time
            is_due = self._is_outdated and clock() >= self._good_until
            if is_due or not self._counts.is_whole:
                self._is_outdated = False
                try:
                    self._counts = await self._count()
                except BaseException:
                    # The client has disconnected, so the next request counts again.
                    self._is_outdated = True
                    raise
                self._good_until = clock() + HELD
            return self._counts

    async def _count(self) -> MatchCounts:
        is_whole = self._is_whole()
        chosen = policy_set(self._policies())
        by_policy: dict[str, dict[str, int]] = {}
        pods: dict[str, int] = {}
        together: dict[tuple[CompiledPolicy, ...], None] = {}
        for number, pod in enumerate(tuple(self._pods()), 1):
            namespace = pod.namespace
            pods[namespace] = pods.get(namespace, 0) + 1
            labels = self._namespace(namespace) or {}
            selecting = chosen.match(namespace, labels, pod.labels)
            if len(selecting) > 1:
                together[selecting] = None
            for policy in selecting:
                counts = by_policy.setdefault(policy.reference, {})
                counts[namespace] = counts.get(namespace, 0) + 1
            if not number % SLICE:
                await asyncio.sleep(0)
        conflicts: dict[Conflict, None] = {}
        small = [group for group in together if len(group) <= MOST_OF_SET][:MOST]
        for group in small:
            conflicts |= dict.fromkeys(conflicts_of(group))
            await asyncio.sleep(0)
        return MatchCounts(by_policy, pods, is_whole, tuple(conflicts), len(small) == len(together))


UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"


class _Metadata(Struct, frozen=True, gc=False):
    namespace: str = ""
    labels: dict[str, str] | None = None


class _Object(Struct, frozen=True, gc=False):
    metadata: _Metadata


_object: Final = msgspec.json.Decoder(_Object).decode
_policy: Final = msgspec.json.Decoder(Policy)


class DashboardCaches(Caches):
    """The caches of all sources; ``on_change`` is called with the name of a source and keys."""

    def __init__(
        self,
        client: Client,
        *,
        metrics: WatchMetrics | None = None,
        shared: Mapping[str, Reflector[Any]] | None = None,
    ) -> None:
        """``shared`` are the caches of controllers by the names of sources.

        It must be created before any of the caches runs.
        """
        super().__init__(client, metrics)
        self.on_change: list[Callable[[str, frozenset[str]], None]] = []
        self.policies = self._policy_cache(POLICIES, POLICY)
        self.cluster_policies = self._policy_cache(CLUSTER_POLICIES, CLUSTER_POLICY)
        self.namespaces = self.cache(
            NAMESPACES, _labels, metadata_only=True, name="namespaces of the dashboard"
        )
        self.pods = self.cache(
            PODS, _pod, field_selector=UNFINISHED, metadata_only=True, name="labels of pods"
        )
        self._counter = PodCounter(
            lambda: [
                policy.compiled
                for source in (self.policies, self.cluster_policies)
                for policy in source.store.values()
            ],
            self.pods.store.values,
            self.namespaces.store.get,
            lambda: all(reflector.synced.is_set() for reflector in self.reflectors),
        )
        for cache in self.reflectors:
            cache.subscribe(lambda _keys: self._counter.outdate())
        self._sources: dict[str, Any] = {
            "policies": self.policies,
            "cluster_policies": self.cluster_policies,
            "namespaces": self.namespaces,
            "labels": self.pods,
            **(shared or {}),
        }
        for source, cache in self._sources.items():
            cache.subscribe(partial(self._notify, source))

    async def sources(self, *, counts: bool, **settings: Any) -> PageSources:  # noqa: ANN401 - of the Sources
        """Return the current sources."""
        if counts:
            settings["counts"] = await self._counter.counts()
        return PageSources(**self._sources, **settings)

    def _policy_cache(self, resource: Resource, kind: str) -> Reflector[KnownPolicy]:
        return self.cache(
            resource,
            decode_policy,
            name=f"{resource.plural} of the dashboard",
            undecodable=lambda key, _raw, error: unreadable_policy(kind, key, error),
        )

    def _notify(self, name: str, keys: frozenset[str]) -> None:
        for listener in self.on_change:
            listener(name, keys)


def decode_policy(raw: msgspec.Raw | bytes) -> KnownPolicy:
    """Decode and compile a policy of either kind. Raises MalformedError."""
    policy = decode(_policy, raw, "")
    return KnownPolicy(policy, compile_policy(policy))


def unreadable_policy(kind: str, key: str, error: Exception) -> KnownPolicy:
    """Return a policy that cannot be decoded, with its fault as in warnings of admission."""
    namespace, _, name = key.rpartition("/")
    policy = Policy(kind=kind, metadata=PolicyMetadata(name=name, namespace=namespace or None))
    return KnownPolicy(
        policy, undecodable_policy(policy.reference, policy.metadata.namespace, str(error))
    )


def _labels(raw: msgspec.Raw) -> dict[str, str]:
    return _object(raw).metadata.labels or {}


def _pod(raw: msgspec.Raw) -> LabelledPod:
    metadata = _object(raw).metadata
    return LabelledPod(shared_text(metadata.namespace), shared_labels(metadata.labels))
