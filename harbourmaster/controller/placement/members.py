"""The member clusters by the kubeconfigs in their Secrets: one session for each, and no stranger's.

A kubeconfig that is not allowed, or names another server than the Cluster is bound to, is reported
and opens nothing. Renewed credentials of the same server are used by the same session; any other
change ends it. A Secret that goes does so too, but not while its Cluster is going: what is left
there has yet to be deleted.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harbourmaster.api.times import format_rfc3339
from harbourmaster.api.turns import namespace_of
from harbourmaster.controller.placement.secret_reads import READS, Kubeconfig
from harbourmaster.controller.placement.session import Session
from harbourmaster.kube.backoff import supervise
from harbourmaster.kube.connection import canonical_server
from harbourmaster.kube.errors import ConnectionSettingsError
from harbourmaster.kube.peer_bounds import PeerBudget
from harbourmaster.placement.model import BoundServer
from harbourmaster.placement.rollout import Reach
from harbourmaster.placement.server_binding import ACCEPT_SERVER, ServerVerdict, judge_server
from harbourmaster.providers.addresses import AddressFilter
from harbourmaster.providers.connector import make_connector
from harbourmaster.providers.errors import ForbiddenAddressError
from harbourmaster.providers.query_client import PerTargetLimit

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from harbourmaster.controller.placement.settings import MemberSettings
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.untrusted_kubeconfig import Access
    from harbourmaster.placement.deployed import MemberCluster

_LONGEST_TIMER: Final = 86400.0
_EARLY_SECONDS: Final = 10.0


class _Addresses(AddressFilter):
    """Refuses addresses: anybody who may write Clusters chooses what we connect to."""

    def check(self, address: str, host: str) -> None:
        """Raise PermissionError for one that is not allowed."""
        try:
            super().check(address, host)
        except ForbiddenAddressError as error:
            text = f"{error} (placement.members.allowedAddresses)"
            raise PermissionError(text) from None


class MemberConnection:
    """The kubeconfig of one cluster, and the session that it opened or why it did not."""

    def __init__(self, cluster: MemberCluster, kubeconfig: Kubeconfig) -> None:
        self.cluster = cluster
        self.kubeconfig = kubeconfig
        self.reading: asyncio.Task[None] | None = None
        self.session: Session | None = None
        self.running: asyncio.Task[None] | None = None
        self.settled: tuple[object, ...] = ()
        """The text and the bindings for which the session was opened."""
        self.verdict = ServerVerdict(None, "")
        """On the server of the kubeconfig; without a reason before it was read."""
        self.fault = ""
        self.expiry: asyncio.TimerHandle | None = None


class Members:
    """All member clusters of one term of leading; keys are those of the Clusters."""

    def __init__(
        self,
        client: Client,
        settings: MemberSettings,
        *,
        now: Callable[[], datetime],
        on_change: Callable[[str], None],
        on_objects: Callable[[frozenset[str]], None],
        on_crash: Callable[[str], None] = lambda _name: None,
    ) -> None:
        """``on_change`` gets the key of a cluster of which something else is known now.

        ``on_objects`` gets the uids of applications of whose objects this is so.
        """
        self._client = client
        self._settings = settings
        self._now = now
        self._on_change = on_change
        self._on_objects = on_objects
        self._on_crash = on_crash
        self._connections: dict[str, MemberConnection] = {}
        self._closed: set[str] = set()
        """The clusters that have no kubeconfig."""
        self._leaving: set[asyncio.Task[None]] = set()
        self._turns = PerTargetLimit(READS)
        self._parsing = PerTargetLimit(1)
        self._budget = PeerBudget(time.monotonic)
        self._connector = partial(make_connector, _Addresses(settings.allowed_addresses))

    def follow(self, cluster: MemberCluster) -> None:
        """Reach the cluster as its spec says now; nothing where that is done already."""
        key, metadata = cluster.metadata.key, cluster.metadata
        connection = self._connections.get(key)
        if connection is None or _identity(connection.cluster) != _identity(cluster):
            connection = self._open_session(key, cluster)
        elif _bindings(connection.cluster) != _bindings(cluster):
            # Perhaps its Secret was written with it.
            connection.kubeconfig.look(again=True)
        if connection is not None:
            connection.cluster = cluster
            connection.kubeconfig.is_kept = bool(metadata.deletion_timestamp)

    def _open_session(self, key: str, cluster: MemberCluster) -> MemberConnection | None:
        """A new way in place of the one of before; None where none is given."""
        self.drop(key)
        reference = cluster.spec.kubeconfig_secret_ref
        if reference is None or not reference.name:
            self._closed.add(key)
            return None
        kubeconfig = Kubeconfig(
            self._client,
            cluster.metadata.namespace,
            reference,
            seconds=self._settings.kubeconfig_interval_seconds,
            turns=self._turns,
            on_change=partial(self._look, key),
        )
        connection = self._connections[key] = MemberConnection(cluster, kubeconfig)
        name = f"kubeconfig of {key}"
        connection.reading = asyncio.create_task(supervise(name, kubeconfig.run, self._on_crash))
        return connection

    def drop(self, key: str) -> None:
        """Reach a cluster no more."""
        self._closed.discard(key)
        connection = self._connections.pop(key, None)
        if connection is not None:
            if connection.reading is not None:
                connection.reading.cancel()
            self._shut(connection)

    async def close(self) -> None:
        """Leave all clusters now."""
        connections, self._connections = list(self._connections.values()), {}
        self._closed.clear()
        tasks = [
            task
            for connection in connections
            for task in (connection.reading, connection.running)
            if task
        ]
        for connection in connections:
            if connection.expiry is not None:
                connection.expiry.cancel()
        tasks += self._leaving
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def session(self, key: str) -> Session | None:
        """The session with a cluster, where there is one."""
        connection = self._connections.get(key)
        return connection.session if connection is not None else None

    def reach(self, key: str) -> Reach:
        """Whether a cluster answers; one with a kubeconfig that is not allowed does not."""
        connection = self._connections.get(key)
        if connection is None:
            return Reach.NO if key in self._closed else Reach.UNKNOWN
        if connection.session is not None:
            return connection.session.reach
        return Reach.NO if connection.fault else Reach.UNKNOWN

    def verdict(self, key: str) -> ServerVerdict | None:
        """Return the verdict on the server of a kubeconfig; None for an unknown cluster."""
        connection = self._connections.get(key)
        return connection.verdict if connection is not None else None

    def fault(self, key: str) -> str:
        """Return why a cluster cannot be reached, in one line; empty if it can, or if unknown."""
        connection = self._connections.get(key)
        if connection is None:
            return "kubeconfigSecretRef is missing" if key in self._closed else ""
        return connection.session.fault if connection.session is not None else connection.fault

    async def _look(self, key: str) -> None:
        """Open, change or end the session by what the Secret says now."""
        connection = self._connections.get(key)
        if connection is None:
            return
        kubeconfig = connection.kubeconfig
        try:
            if kubeconfig.text is None:
                raise ConnectionSettingsError(kubeconfig.fault)  # noqa: TRY301 - one of several
            cluster = connection.cluster
            settled = (sha256(kubeconfig.text).digest(), *_bindings(cluster))
            if connection.session is not None and connection.settled == settled:
                return
            bound = cluster.status.server or connection.verdict.bound
            now = self._now()
            async with self._parsing.turn(None, namespace_of(key)):
                # A large one takes its time.
                access, connection.verdict = await asyncio.to_thread(
                    _access, kubeconfig, cluster, bound, format_rfc3339(now)
                )
            access.check_end(now)
            if (verdict := connection.verdict).is_refused:
                raise ConnectionSettingsError(f"{kubeconfig.source}: {verdict.fault}")  # noqa: TRY301 - one of several
        except ConnectionSettingsError as error:
            self._shut(connection)
            connection.fault = str(error)
        else:
            checked = replace(access.connection, connector=self._connector)
            access = replace(access, connection=checked)
            if connection.session is None or not connection.session.renew(access):
                self._shut(connection)
                self._open(key, connection, access)
            connection.fault, connection.settled = "", settled
            self._set_timer(key, connection, access)
        kubeconfig.is_of_use = not connection.fault
        self._on_change(key)

    def _open(self, key: str, connection: MemberConnection, access: Access) -> None:
        session = Session(
            key,
            access,
            self._settings,
            discover=connection.cluster.spec.discover_custom_resources,
            on_change=partial(self._on_change, key),
            on_objects=self._on_objects,
            on_crash=self._on_crash,
            on_failure=connection.kubeconfig.look,
            budget=self._budget,
        )
        connection.session = session
        connection.running = asyncio.create_task(
            supervise(f"cluster {key}", session.run, self._on_crash)
        )

    def _set_timer(self, key: str, connection: MemberConnection, access: Access) -> None:
        """End the session when its credentials end."""
        if connection.expiry is not None:
            connection.expiry.cancel()
        if access.expires is None:
            connection.expiry = None
            return
        left = (access.expires - self._now()).total_seconds()

        def due() -> None:
            if self._connections.get(key) is not connection or connection.session is None:
                return
            try:
                access.check_end(self._now())
            except ConnectionSettingsError as error:
                self._shut(connection)
                connection.fault, connection.kubeconfig.is_of_use = str(error), False
                connection.kubeconfig.look()
                self._on_change(key)
            else:
                connection.kubeconfig.look()
                self._set_timer(key, connection, access)

        # A look before the end may find them renewed.
        wait = left - _EARLY_SECONDS if left > _EARLY_SECONDS else left
        seconds = min(max(wait, 1.0), _LONGEST_TIMER)
        connection.expiry = asyncio.get_running_loop().call_later(seconds, due)

    def _shut(self, connection: MemberConnection) -> None:
        """End a session, and let those who are at work there finish."""
        session, running = connection.session, connection.running
        connection.session = connection.running = None
        connection.settled = ()
        if connection.expiry is not None:
            connection.expiry.cancel()
            connection.expiry = None
        if session is None or running is None:
            return

        async def leave() -> None:
            try:
                await session.leave()
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                session.bounds.close()

        task = asyncio.create_task(leave())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)


def _identity(cluster: MemberCluster) -> tuple[object, ...]:
    return cluster.spec, cluster.metadata.uid


def _bindings(cluster: MemberCluster) -> tuple[object, ...]:
    """Return what the verdict on the server depends on, and the generation."""
    accepted = cluster.metadata.annotations.get(ACCEPT_SERVER)
    return cluster.status.server, accepted, cluster.metadata.generation


def _access(
    kubeconfig: Kubeconfig, cluster: MemberCluster, bound: BoundServer | None, now: str
) -> tuple[Access, ServerVerdict]:
    """Read a kubeconfig and judge its server. Raises ConnectionSettingsError; nothing is sent."""
    # Reading YAML and certificates is of no use to who has no clusters.
    from harbourmaster.kube.untrusted_kubeconfig import access_from  # noqa: PLC0415

    server, where = cluster.spec.server, f"Cluster {cluster.metadata.key}, spec.server"
    wanted = server and canonical_server(server, where)
    trusted = bound.authorities if bound is not None else ()
    access = access_from(kubeconfig.text or b"", kubeconfig.source, trusted)
    offered = BoundServer(
        url=access.connection.server,
        tls_server_name=access.connection.server_name or "",
        authorities=access.authorities,
        time=now,
    )
    return access, judge_server(cluster.metadata, wanted, bound, offered)
