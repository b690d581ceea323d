"""The state of the cluster that admission decides by, as snapshots of watches.

A change takes effect within milliseconds. If watches fail, the last snapshot stays in use.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.resources import (
    CLUSTER_POLICIES,
    NAMESPACES,
    NODES,
    POLICIES,
    ROLLOUTS,
    RUNTIME_CLASSES,
)
from harbourmaster.gates.owners import ROLLOUT, SUPPORTED
from harbourmaster.kube.backoff import Backoff
from harbourmaster.kube.definitions import DefinitionWatch
from harbourmaster.kube.quiet_watch import QuietWatch
from harbourmaster.kube.reflector import Reflector
from harbourmaster.policies.enforcement import COMPILED_SELECTORS, QUIET, decode_compiled, known_of
from harbourmaster.rescheduling.unmet import decode_known, known_nodes
from harbourmaster.webhook.parents import Parents, decode_parent
from harbourmaster.webhook.policy_feed import PolicyFeed
from harbourmaster.webhook.policy_objects import project_policy
from harbourmaster.webhook.snapshot import NamespaceObject, Snapshot, decode_class

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import TypeAlias

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.faults import WatchMetrics
    from harbourmaster.policies.enforcement import CompiledObject
    from harbourmaster.policies.index import PolicySet
    from harbourmaster.rescheduling.unmet import KnownNode, KnownNodes
    from harbourmaster.webhook.engine import EngineHolder
    from harbourmaster.webhook.parents import Parent
    from harbourmaster.webhook.policy_feed import Content
    from harbourmaster.webhook.settings import WatchSettings
    from harbourmaster.webhook.snapshot import Namespace

    _Watch: TypeAlias = Reflector[Namespace] | Reflector[Content] | Reflector[Parent]
    _AnyWatch: TypeAlias = _Watch | Reflector[KnownNode] | Reflector[CompiledObject]

_BACKOFF: Final = Backoff(limit=10.0)
"""The longest pause before a watch is tried again."""

_decode_namespace: Final = msgspec.json.Decoder(NamespaceObject).decode


class ClusterState:
    """Keeps ``holder`` at the state of the cluster, while ``run`` runs."""

    def __init__(  # noqa: PLR0913 - what to follow, for what, and whom to tell
        self,
        client: Client,
        holder: EngineHolder,
        settings: WatchSettings,
        *,
        features: Collection[str] = ("policies", "gates"),
        metrics: WatchMetrics | None = None,
        keeps_policies: bool = False,
        quiet_seconds: float = QUIET,
        on_policies: Callable[[PolicySet], None],
        on_return: Callable[[], None] | None = None,
    ) -> None:
        """Only what the features need is watched. ``on_policies`` gets each new set.

        ``keeps_policies`` keeps them as they were written, too.

        ``on_return`` is called when the API server is there again after it was away.
        """
        self._holder = holder
        self._settings = settings
        self._on_policies = on_policies
        self._on_return = on_return
        self._is_away = False
        self._known: dict[str, Namespace] = {}
        self._feed = PolicyFeed(self._policies_changed, keeps_sources=keeps_policies)
        self._awaited: dict[str, set[asyncio.Future[None]]] = {}
        self.namespaces: Reflector[Namespace] = Reflector(
            client,
            NAMESPACES,
            _namespace,
            on_change=self._namespaces_changed,
            on_state=self._contact_changed,
            backoff=_BACKOFF,
            metrics=metrics,
        )
        self.cluster_policies = self._mirror(client, CLUSTER_POLICIES, metrics)
        self.policies = self._mirror(client, POLICIES, metrics)
        self.parents = {
            resource.kind: Reflector(
                client,
                resource,
                decode_parent,
                backoff=_BACKOFF,
                metrics=metrics,
                metadata_only=True,
            )
            for resource in SUPPORTED.values()
        }
        self.reflectors: tuple[_Watch, ...] = (self.namespaces,)
        """The watches that admission depends on."""
        self._definitions: list[DefinitionWatch] = []
        if "policies" in features:
            self.reflectors += (self.cluster_policies, self.policies)
            policies = ((CLUSTER_POLICIES, self.cluster_policies), (POLICIES, self.policies))
            self._definitions += (
                DefinitionWatch(client, policies, only=resource) for resource, _ in policies
            )
        if "gates" in features:
            self.reflectors += tuple(self.parents.values())
            rollouts = [(ROLLOUTS, self.parents[ROLLOUT])]
            self._definitions.append(DefinitionWatch(client, rollouts, only=ROLLOUTS))
        self._nodes: KnownNodes | None = None
        self.nodes: Reflector[KnownNode] = Reflector(
            client,
            NODES,
            decode_known,
            on_change=lambda _: self._nodes_changed(),
            on_state=self._nodes_changed,
            backoff=_BACKOFF,
            metrics=metrics,
        )
        self.watches: tuple[_AnyWatch, ...] = (
            *self.reflectors,
            *((self.nodes,) if settings.nodes else ()),
        )
        self.classes: Reflector[tuple[str, dict[str, str]]] = Reflector(
            client,
            RUNTIME_CLASSES,
            decode_class,
            on_change=lambda _: self._take(self._holder.current.snapshot.policies),
            backoff=_BACKOFF,
            metrics=metrics,
        )
        self._sets_labels = asyncio.Event()
        if "policies" in features:
            self._compiled = QuietWatch(
                client,
                COMPILED_SELECTORS,
                decode_compiled,
                known_of,
                lambda: self._feed.leave_out(self._compiled.summary.left_out),
                quiet_seconds=quiet_seconds,
                backoff=_BACKOFF,
                metrics=metrics,
            )
            self.watches += self._compiled.reflectors
        """All watches; admission can work without nodes and compiled policies."""
        self._parents = Parents(
            {kind: _Followed(reflector) for kind, reflector in self.parents.items()}
        )

    def _mirror(
        self, client: Client, resource: Resource, metrics: WatchMetrics | None
    ) -> Reflector[Content]:
        def note_change(keys: frozenset[str]) -> None:
            self._feed.change({f"{resource.kind} {key}": mirror.store.get(key) for key in keys})

        mirror: Reflector[Content] = Reflector(
            client,
            resource,
            project_policy,
            undecodable=lambda _key, _raw, error: str(error),
            on_change=note_change,
            backoff=_BACKOFF,
            metrics=metrics,
        )
        return mirror

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            for task in (*self.watches, *self._definitions, self._feed):
                group.create_task(task.run())
            # Only a policy's nodeSelector can contradict that of a RuntimeClass.
            await self._sets_labels.wait()
            group.create_task(self.classes.run())

    async def wait_until_synced(self) -> None:
        """Wait for the first whole snapshot."""
        for reflector in self.reflectors:
            await reflector.synced.wait()
        await self._feed.wait_until_compiled()
        self._policies_changed(self._feed.policies)

    def failing(self) -> str | None:
        """Return in one line why the state is not good enough to answer by, or None."""
        now = asyncio.get_running_loop().time()
        faults = (_fault(reflector, now, self._settings) for reflector in self.reflectors)
        return "; ".join(fault for fault in faults if fault is not None) or None

    async def arrival(self, name: str, deadline: float) -> bool:
        """Wait for a namespace to be known, for the time of the settings and not beyond."""
        loop = asyncio.get_running_loop()
        deadline = min(deadline, loop.time() + self._settings.namespace_wait_seconds)
        # One for each who waits: each waits for another time, and may be gone before it is over.
        known: asyncio.Future[None] = loop.create_future()
        waiting = self._awaited.setdefault(name, set())
        waiting.add(known)
        try:
            async with asyncio.timeout_at(deadline):
                await known
        except TimeoutError:
            return False
        finally:
            waiting.discard(known)
            if not waiting:
                self._awaited.pop(name, None)
        return True

    def _namespaces_changed(self, keys: frozenset[str]) -> None:
        store, known = self.namespaces.store, dict(self._known)
        for key in keys:
            namespace = store.get(key)
            if namespace is None:
                known.pop(key, None)
            else:
                known[key] = namespace
        self._known = known
        self._take(self._holder.current.snapshot.policies)
        for key in keys & self._awaited.keys():
            if key in known:
                for waiter in self._awaited[key]:
                    if not waiter.done():
                        waiter.set_result(None)

    def _nodes_changed(self) -> None:
        watch, pools = self.nodes, self._settings.autoscaled_pools.values()
        is_known = watch.synced.is_set() and watch.error is None
        self._nodes = known_nodes(watch.store.values(), pools) if is_known else None
        self._take(self._holder.current.snapshot.policies)

    def _contact_changed(self) -> None:
        was_away, self._is_away = self._is_away, self.namespaces.error is not None
        if was_away and not self._is_away and self._on_return is not None:
            self._on_return()

    def _policies_changed(self, policies: PolicySet) -> None:
        self._take(policies)
        if not self._sets_labels.is_set() and any(
            policy.node_selector for policy in policies.filed
        ):
            self._sets_labels.set()
        self._on_policies(policies)

    def _take(self, policies: PolicySet) -> None:
        current = self._holder.current
        excluded = current.snapshot.excluded
        self._holder.current = current.with_snapshot(
            Snapshot(
                policies,
                self._known,
                excluded,
                self._parents,
                self._nodes,
                self._feed.audited,
                dict(self.classes.store.values()),
            )
        )


def _fault(reflector: _Watch, now: float, settings: WatchSettings) -> str | None:
    if not reflector.synced.is_set():
        return reflector.error or f"waiting for the first list of {reflector.name}"
    silent = now - reflector.last_contact
    if silent <= settings.stale_after_seconds:
        return None
    why = reflector.error or "its watch is silent"
    return f"what is known of {reflector.name} is {silent:.0f} s old: {why}"


class _Followed:
    """The owners of a kind, all unknown while their watch is disconnected.

    By a stale owner, a pod could pass without checks, or by those of another version.
    """

    __slots__ = ("_mirror",)

    def __init__(self, mirror: Reflector[Parent]) -> None:
        self._mirror = mirror

    def get(self, key: str, /) -> Parent | None:
        """The owner, or None where it is not known."""
        return None if self._mirror.error is not None else self._mirror.store.get(key)


def _namespace(raw: msgspec.Raw) -> Namespace:
    return _decode_namespace(raw).to_namespace()
