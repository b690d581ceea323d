"""The admission process in a cluster: certificates from files, everything else by watches.

The choice of ``gating: auto`` waits for the version of the API server, because an older one drops
the gates of a pod silently; once chosen, a fault changes nothing.

It starts unready, says at /readyz what it waits for, and takes reviews when it knows the cluster
and has a certificate. It never writes to the API.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvloop

from harbourmaster.certs.errors import CertificateError
from harbourmaster.certs.hardening import disable_core_dumps
from harbourmaster.certs.watch import wait_for
from harbourmaster.kube.backoff import Backoff
from harbourmaster.kube.client import Client
from harbourmaster.kube.connection import FALLBACK_NAMESPACE
from harbourmaster.kube.connection_sources import connect, own_namespace
from harbourmaster.kube.errors import ApiError, ConnectionSettingsError
from harbourmaster.kube.server_version import server_version
from harbourmaster.serving.background import running
from harbourmaster.serving.drain import StopSignals
from harbourmaster.serving.settings import StartError
from harbourmaster.serving.site import AddressError
from harbourmaster.telemetry.api_metrics import RequestCounters, WatchCollector
from harbourmaster.telemetry.logging import configure_logging, get_logger
from harbourmaster.webhook.cluster_state import ClusterState
from harbourmaster.webhook.engine import Engine, EngineHolder
from harbourmaster.webhook.server import ReviewServer
from harbourmaster.webhook.settings import gating_of
from harbourmaster.webhook.shadow import Shadow, keep_written
from harbourmaster.webhook.snapshot import Snapshot, describe

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Callable, Coroutine, Iterator
    from typing import BinaryIO

    from harbourmaster.certs.model import Bundle
    from harbourmaster.kube.connection import Connection
    from harbourmaster.kube.server_version import ServerVersion
    from harbourmaster.webhook.settings import WebhookSettings


CERTIFICATE_DIRECTORY: Final = "/etc/harbourmaster/certs"
"""The directory into which the manifests mount the Secret."""


def run(arguments: Arguments) -> int:
    """Serve until SIGTERM or SIGINT. Raises StartError where it can't begin."""
    settings: WebhookSettings = arguments.settings
    disable_core_dumps()
    stream = configure_logging(settings.log.level, settings.log.format)
    cluster = settings.cluster
    directory = Path(cluster.service_account_dir)
    try:
        connection = connect(
            cluster.kubeconfig, context=cluster.context, service_account_dir=directory
        )
        own = cluster.namespace or own_namespace(directory)
        uvloop.run(_serve(settings, connection, own, stream))
    except (AddressError, CertificateError, ConnectionSettingsError) as error:
        raise StartError(str(error)) from None
    return 0


async def _serve(
    settings: WebhookSettings, connection: Connection, own: str | None, stream: BinaryIO | None
) -> None:
    await _Process(settings, connection, own, stream).run()


class _Process:
    def __init__(
        self,
        settings: WebhookSettings,
        connection: Connection,
        own: str | None,
        stream: BinaryIO | None,
    ) -> None:
        self._directory = Path(settings.server.cert_dir or CERTIFICATE_DIRECTORY)
        excluded = frozenset((own,) if own else ())
        # No namespace is known yet, which is not the same as every one existing.
        self._holder = EngineHolder(Engine(Snapshot(namespaces={}, excluded=excluded), settings))
        self._own, self._reported = own or FALLBACK_NAMESPACE, asyncio.Event()
        self._shadow = Shadow(self._reported.set) if settings.shadow else None
        self._server = ReviewServer(settings, self._holder, stream, self._arrival, self._shadow)
        registry = self._server.metrics.registry
        self._watches = WatchCollector(registry)
        self._client = Client(
            connection,
            user_agent="harbourmaster-webhook",
            observer=RequestCounters(registry).note,
        )
        self._choice = (
            GatingChoice(self._client, self._holder, on_wait=self._note_choice)
            if settings.gating == "auto" and "gates" in settings.features
            else None
        )
        self._cluster = ClusterState(
            self._client,
            self._holder,
            settings.watch,
            features=settings.features,
            metrics=self._watches,
            keeps_policies=settings.record.directory is not None,
            on_policies=self._server.note_policies,
            on_return=None if self._choice is None else self._choice.look_again,
        )
        self._log = get_logger("webhook")

    async def run(self) -> None:
        """Serve until a signal comes, then drain."""
        server = self._server
        server.readiness.add_probe("watches", self._probe)
        self._watches.follow(self._cluster.watches, asyncio.get_running_loop().time)
        api_server = self._client.connection.server
        with StopSignals() as stop:
            try:
                await server.health.start()
                self._log.info("started", health=server.health.url, api_server=api_server)
                async with self._client, running(*self._work()):
                    signal = await stop.wait()
                    await server.drain(signal)
            finally:
                await server.stop()

    def _work(self) -> Iterator[Coroutine[Any, Any, None]]:
        yield self._cluster.run()
        if self._choice is not None:
            yield self._choice.run()
        yield self._serve()
        if self._shadow is not None:
            yield keep_written(self._shadow, self._reported, self._client, self._own)

    async def _serve(self) -> None:
        """Take reviews as soon as they can be answered; then keep the certificate current."""
        server = self._server
        server.readiness.set("starting", "not serving yet")
        bundle = await self._certificates()
        await self._cluster.wait_until_synced()
        if self._choice is not None:
            await self._choice.wait_until_chosen()
        # What is known stays; without this each full collection walks all of it.
        gc.collect()
        gc.freeze()
        site, certificates = await server.start(bundle)
        server.readiness.set("starting", None)
        self._log.info(
            "serving",
            reviews=site.url,
            health=server.health.url,
            **describe(self._holder.current.snapshot),
        )
        # A Secret mounted whole holds ca.key too, and is still the controller's to write.
        await server.renew(certificates, self._directory, None)

    async def _certificates(self) -> Bundle:
        readiness = self._server.readiness

        def note(text: str) -> None:
            readiness.set("certificates", text)
            self._log.warning("waiting for certificates", reason=text)

        bundle = await wait_for(self._directory, on_error=note)
        readiness.set("certificates", None)
        return bundle

    def _note_choice(self, reason: str | None) -> None:
        self._server.readiness.set("gating", reason)

    async def _arrival(self, namespace: str, deadline: float) -> bool:
        return await self._cluster.arrival(namespace, deadline)

    async def _probe(self) -> str | None:
        return self._cluster.failing()


_BACKOFF: Final = Backoff(limit=10.0)


class GatingChoice:
    """Keeps the engine in ``holder`` at what the API server can do, while ``run`` runs."""

    def __init__(
        self,
        client: Client,
        holder: EngineHolder,
        *,
        on_wait: Callable[[str | None], None],
        backoff: Backoff = _BACKOFF,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """``on_wait`` gets why nothing is chosen yet, and None when something is."""
        self._client = client
        self._holder = holder
        self._on_wait = on_wait
        self._backoff = backoff
        self._chance = chance
        self._due = asyncio.Event()
        self._due.set()
        self._chosen = asyncio.Event()
        self._version: ServerVersion | None = None
        self._told = ""
        self._log = get_logger("gating")

    def look_again(self) -> None:
        """Ask now: the API server may be another one."""
        self._due.set()

    async def wait_until_chosen(self) -> None:
        """Wait for the first choice."""
        await self._chosen.wait()

    async def run(self) -> None:
        """Ask when it is due, until cancelled."""
        attempt = 0
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                version = await server_version(self._client)
            except ApiError as error:
                self._note_fault(error)
                delay = self._backoff.delay(attempt, self._chance())
                attempt += 1
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(delay, error.retry_after or 0.0)):
                        await self._due.wait()
                self._due.set()
                continue
            attempt = 0
            self._take(version)

    def _take(self, version: ServerVersion) -> None:
        self._told = ""
        if version != self._version:
            self._version = version
            gating = gating_of(version)
            engine = self._holder.current.with_gating(gating)
            if engine.gates.rules != self._holder.current.gates.rules:
                self._holder.current = engine
            self._log.info("chosen where pods wait", gating=gating, server_version=str(version))
        self._chosen.set()
        self._on_wait(None)

    def _note_fault(self, error: ApiError) -> None:
        if not self._chosen.is_set():
            self._on_wait(f"gating: auto needs the API server's version, or set gating: {error}")
        text = str(error)
        if text != self._told:
            self._told = text
            self._log.warning("version of the API server is not known", error=text)
