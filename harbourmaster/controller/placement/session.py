"""One member cluster, while its kubeconfig leads there: a client, and what is seen there.

Whoever wants something of the cluster is told at once that it does not answer, or that enough
others are at it already: one that hangs costs each of its applications one time-out at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import DEFINITIONS, NODES
from harbourmaster.api.turns import Turns, namespace_of
from harbourmaster.controller.placement.watches import MemberWatches
from harbourmaster.kube.backoff import PacedCall, supervise
from harbourmaster.kube.client import Client
from harbourmaster.kube.discovery import Discovery
from harbourmaster.kube.errors import (
    ApiError,
    ForbiddenError,
    UnauthorizedError,
    UnreachableError,
)
from harbourmaster.kube.event_series import Allowance
from harbourmaster.kube.peer_bounds import PeerBounds, PeerBudget
from harbourmaster.kube.reflector import Reflector
from harbourmaster.placement.cluster_state import ClusterObservation, NodeCondition, ObservedNode
from harbourmaster.placement.rollout import Reach
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.transport_errors import is_denied

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from harbourmaster.controller.placement.settings import MemberSettings
    from harbourmaster.kube.connection import Connection
    from harbourmaster.kube.untrusted_kubeconfig import Access
    from harbourmaster.kube.workqueue import WorkQueue

PACE: Final = Allowance(burst=10, period=5.0)
"""Changes, and probes that are requested, of one cluster: more of them are merged."""
QUICK: Final = 2.0
"""Seconds until a cluster is asked again whose last answer was another than the one before."""
_STEADY: Final = 2
"""Answers in a row after which a cluster that was offline is trusted."""
_KINDS_SECONDS: Final = 60.0
"""Between two looks for new versions of APIs."""
_SETTLED_SECONDS: Final = 10.0
"""After a change of definitions, until what the API server lists includes it."""
_LEAVE_SECONDS: Final = 30.0
"""Added to the time limit of a write: for so long, users may finish when the session ends."""


_MAX_CONDITIONS: Final = 32
"""Conditions of a node that are read; Kubernetes has five."""


class BusyError(Exception):
    """The cluster has enough users now; the caller is woken when it may come again."""


class _Status(Struct, frozen=True, gc=False):
    conditions: tuple[NodeCondition, ...] | None = None


class _Node(Struct, frozen=True, gc=False):
    metadata: Metadata
    status: _Status = _Status()


_decode_node: Final = msgspec.json.Decoder(_Node).decode


def _place(connection: Connection) -> tuple[object, ...]:
    """Return what tells two clusters apart: server and authorities."""
    trusted = connection.ssl.get_ca_certs(binary_form=True) if connection.ssl else None
    return connection.server, connection.server_name, trusted


def _version(raw: msgspec.Raw) -> str:
    return _decode_node(raw).metadata.resource_version


def _node(raw: msgspec.Raw) -> ObservedNode:
    node = _decode_node(raw)
    return ObservedNode(node.metadata.name, (node.status.conditions or ())[:_MAX_CONDITIONS])


class Session:
    """A member cluster; ``run`` keeps it, ``on_change`` is called when ``observation`` changed."""

    def __init__(  # noqa: PLR0913 - whom to talk to, how, and whom to tell
        self,
        key: str,
        access: Access,
        settings: MemberSettings,
        *,
        discover: bool,
        on_change: Callable[[], None],
        on_objects: Callable[[frozenset[str]], None],
        on_crash: Callable[[str], None],
        on_failure: Callable[[], None] = lambda: None,
        budget: PeerBudget | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """``on_failure`` is called whenever it was asked for itself and did not answer well."""
        self.key = key
        self.namespace = access.namespace or "default"
        """The namespace of objects whose manifests name none."""
        self._on_change = PacedCall(on_change, PACE)
        self.bounds = PeerBounds(budget or PeerBudget(time.monotonic), self._on_change)
        self.client = Client(
            access.connection,
            user_agent="harbourmaster-placement",
            timeout=settings.request_timeout_seconds,
            write_timeout=settings.write_timeout_seconds,
            retries=1,
            bounds=self.bounds,
        )
        self.discovery = Discovery(self.client, self.bounds)
        self.watches = MemberWatches(self.client, self._start, on_objects, self.bounds)
        self.reach = Reach.UNKNOWN
        self.fault = ""
        """Why it does not answer."""
        self.is_denied = False
        """Whether it is our credentials, a certificate or a setting that keeps us out."""
        self._settings = settings
        self._on_crash = on_crash
        self._on_failure = on_failure
        self._chance = chance
        self._answers = 0
        self._failures = 0
        self._doubted = asyncio.Event()
        self.doubt = PacedCall(self._doubted.set, PACE)
        """Requests a probe, because a request got no answer."""
        self._users: set[asyncio.Timeout] = set()
        self._turns: Turns[str] = Turns(settings.concurrency)
        self._waiting: dict[str, WorkQueue] = {}
        self._left = asyncio.Event()
        self._closing = False
        self._tasks: asyncio.TaskGroup | None = None
        self._later: deque[Callable[[], Coroutine[Any, Any, None]]] = deque()
        self._nodes: Reflector[ObservedNode] = Reflector(
            self.client,
            NODES,
            _node,
            on_change=lambda _keys: self._on_change(),
            on_state=self._node_state,
            name=f"nodes of {key}",
            bounds=self.bounds,
        )
        self.kinds: tuple[str, ...] | None = None
        """The served ``apiVersion/kind``; empty if unknown, None before the cluster was asked."""
        self._kinds_due = self._defined = -math.inf
        """The time to ask for kinds again, and the time of the last change of definitions."""
        self._redefine = PacedCall(self._definitions_changed, PACE)
        self._definitions: Reflector[str] | None = None
        if discover:
            self._definitions = Reflector(
                self.client,
                DEFINITIONS,
                _version,
                on_change=lambda _keys: self._redefine(),
                metadata_only=True,
                name=f"definitions of {key}",
                bounds=self.bounds,
            )
        self._log = get_logger("members").bind(cluster=key)

    async def run(self) -> None:
        """Watch the cluster until cancelled."""
        try:
            async with self.client, asyncio.TaskGroup() as group:
                self._tasks = group
                self._start(self._nodes.run)
                if self._definitions is not None:
                    self._start(self._definitions.run)
                while self._later:
                    self._start(self._later.popleft())
                await self._probe()
        finally:
            self._tasks = None

    @property
    def is_steady(self) -> bool:
        """Whether it has answered more than once since it did not."""
        return self._answers >= _STEADY

    @property
    def observation(self) -> ClusterObservation:
        """The current observation of the cluster."""
        excess = self.bounds.excess
        if self.reach is Reach.NO:
            return ClusterObservation(False, self.fault, is_denied=self.is_denied, excess=excess)
        nodes_fault = self._nodes.error or ""
        is_asked = self._definitions is None or self.kinds is not None
        is_known = is_asked and self.reach is not Reach.UNKNOWN
        if not (is_known and (self._nodes.synced.is_set() or nodes_fault)):
            return ClusterObservation(excess=excess)
        # A watch that broke off says nothing about the nodes: what is cached stays in force.
        fault = nodes_fault if not self._nodes.synced.is_set() else ""
        nodes = sorted(self._nodes.store.values(), key=lambda node: node.name)
        return ClusterObservation(True, "", tuple(nodes), fault, excess=excess)

    @property
    def custom_resources(self) -> tuple[str, ...] | None:
        """``plural.group`` of each definition there; None where that is not known."""
        if self._definitions is None or not self._definitions.synced.is_set():
            return None
        return tuple(sorted(self._definitions.store))

    @contextlib.asynccontextmanager
    async def use(self, key: str, queue: WorkQueue) -> AsyncIterator[None]:
        """Do something there for ``key``, which takes no worker of its queue meanwhile.

        Raises BusyError, and queues the key when it may come again; UnreachableError once the
        cluster is offline.
        """
        namespace = namespace_of(key)
        if self._closing or not self._turns.has_room(namespace):
            if key not in self._waiting:
                self._turns.put(namespace, key)
            self._waiting[key] = queue
            raise BusyError(f"cluster {self.key} is busy")
        self._waiting.pop(key, None)
        limit = asyncio.timeout(None)
        self._turns.take(namespace)
        self._users.add(limit)
        try:
            with queue.waiting(key):
                async with limit:
                    yield
        except TimeoutError:
            raise UnreachableError(self.fault) from None
        finally:
            self._users.discard(limit)
            if not self._users:
                self._left.set()
            self._turns.leave(namespace)
            free = self._turns.places - self._turns.taken
            while free > 0 and (name := self._turns.pop()) is not None:
                # One that came by itself meanwhile waits no more.
                if (work_queue := self._waiting.pop(name, None)) is not None:
                    work_queue.add(name)
                    free -= 1

    def renew(self, access: Access) -> bool:
        """Go on with renewed credentials; False if they may be for another cluster."""
        same_place = _place(access.connection) == _place(self.client.connection)
        if not same_place or self.namespace != (access.namespace or "default"):
            return False
        self.client.renew(access.connection)
        self.doubt()
        return True

    async def leave(self) -> None:
        """Admit no further user, and wait a while for the present ones."""
        self._closing = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.write_timeout_seconds + _LEAVE_SECONDS):
                while self._users:
                    self._left.clear()
                    await self._left.wait()
        waiting, self._waiting = self._waiting, {}
        for key, queue in waiting.items():
            queue.add(key)

    async def _probe(self) -> None:
        """Ask again and again; sooner where it is not clear how things stand."""
        excess = ""
        while True:
            changed = await self._ask()
            is_settled = self._definitions is None or self.reach is not Reach.YES
            if not is_settled:
                before, is_settled = self.kinds, await self._ask_kinds()
                changed = changed or self.kinds != before
            is_clear = (self.is_steady and is_settled) or self.reach is Reach.NO
            seconds = self._settings.probe_interval_seconds * (0.8 + 0.4 * self._chance())
            if changed or self.bounds.excess != excess:
                excess = self.bounds.excess
                self._on_change()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds if is_clear else min(QUICK, seconds)):
                    await self._doubted.wait()
            self._doubted.clear()

    async def _ask(self) -> bool:
        """Ask once; whether the answer changes what is known."""
        before = (self.reach, self.fault, self.is_steady)
        try:
            await self.client.list(NODES, limit=1, metadata_only=True, retries=0)
        except ForbiddenError:
            # Whoever says so knows us, and works.
            self._record_answer()
        except UnauthorizedError as error:
            text = f"the cluster refuses the credentials of its kubeconfig: {error.message}"
            self._record_failure(text, is_denied=True)
        except ApiError as error:
            self._record_failure(error.message, is_denied=is_denied(error.__cause__))
        else:
            self._record_answer()
        return before != (self.reach, self.fault, self.is_steady)

    async def _ask_kinds(self) -> bool:
        """Ask what is served if that can have changed; whether it will not change soon."""
        now = asyncio.get_running_loop().time()
        is_settled = now >= self._defined + _SETTLED_SECONDS
        if is_settled and now < self._kinds_due:
            return True
        if not is_settled:
            self.discovery.forget()
        try:
            self.kinds = await self.discovery.kinds()
        except ApiError as error:
            self.kinds = self.kinds or ()
            self._log.warning("kinds not listed", error=error.message)
        self._kinds_due = now + _KINDS_SECONDS
        # Definitions that are due request a probe themselves.
        return is_settled or self._redefine.is_due

    def _definitions_changed(self) -> None:
        self.discovery.forget()
        self._kinds_due = -math.inf
        if self._definitions is not None and self._definitions.synced.is_set():
            self._defined = asyncio.get_running_loop().time()
            self._doubted.set()
        self._on_change()

    def _record_answer(self) -> None:
        if self.reach is Reach.NO:
            self._log.info("cluster reachable again")
            self._wake_mirrors()
        self._answers += 1
        self._failures = 0
        self.reach, self.fault = Reach.YES, ""

    def _record_failure(self, text: str, *, is_denied: bool) -> None:
        self._answers = 0
        self._failures += 1
        self._on_failure()
        if self._failures >= self._settings.failures_until_offline:
            if self.reach is not Reach.NO:
                self._log.warning("cluster unreachable", error=text)
                for limit in self._users:
                    # A write may take longer than it takes to know that the cluster is offline.
                    limit.reschedule(-math.inf)
            self.reach, self.fault, self.is_denied = Reach.NO, text, is_denied

    def _wake_mirrors(self) -> None:
        """Reset the back-off of the watches."""
        self._nodes.wake()
        if self._definitions is not None:
            self._definitions.wake()
        self.watches.wake()

    def _node_state(self) -> None:
        if self._nodes.error:
            self.doubt()
        self._on_change()

    def _start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._tasks is None:
            self._later.append(run)
            return
        self._tasks.create_task(supervise(f"mirror of {self.key}", run, self._on_crash))
