"""Serves the dashboard on a port of every replica."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from harbourmaster.certs.reload import TlsOptions
from harbourmaster.dashboard.app import Dashboard
from harbourmaster.dashboard.tokens import Sealer
from harbourmaster.dashboard.visibility import ClusterAccess
from harbourmaster.kube.backoff import supervise
from harbourmaster.serving.background import running
from harbourmaster.serving.http_connection import Timeouts
from harbourmaster.serving.site import Site
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.certs.reload import CertificateHolder
    from harbourmaster.dashboard.caches import DashboardCaches
    from harbourmaster.dashboard.settings import DashboardSettings
    from harbourmaster.dashboard.sources import PageSources
    from harbourmaster.kube.client import Client
    from harbourmaster.lifecycle.gate_verdict import GateWaitRules
    from harbourmaster.serving.certificates import ServingCertificate

CLIENTS: Final = TlsOptions()
"""TLS asks for no client certificates, because users have tokens."""
TIMEOUTS: Final = Timeouts(first_request=10.0, keepalive=75.0)
"""Idle connections end earlier than those of the API server, because anybody may connect."""


class DashboardServer:
    """The port of the dashboard; without ``certificate`` it is plain and on loopback only."""

    def __init__(  # noqa: PLR0913 - what to show, by which rules, to whom and where
        self,
        client: Client,
        settings: DashboardSettings,
        caches: DashboardCaches,
        *,
        certificate: ServingCertificate | None,
        rules: GateWaitRules,
        definition_namespaces: tuple[str, ...],
        note_crash: Callable[[str], None],
    ) -> None:
        if certificate is None and not settings.is_local:
            raise ValueError("without a certificate it is served to this machine only")
        self._settings = settings
        self._caches = caches
        self._certificate = certificate
        self._rules = rules
        self._definition_namespaces = definition_namespaces
        self._note_crash = note_crash
        self._sealer = Sealer(time.time)
        access = ClusterAccess(client, lambda: asyncio.get_running_loop().time())
        self._dashboard = Dashboard(
            self._read_sources,
            access,
            self._sealer,
            client,
            is_tls=certificate is not None,
            proxies=settings.trusted_proxies,
        )
        caches.on_change.append(self._dashboard.notify)
        self.site: Site | None = None
        """The port; None before it listens."""
        self.listening = asyncio.Event()
        """Set when the port listens."""
        self._log = get_logger("dashboard")

    async def run(self) -> None:
        """Run the caches and serve until cancelled. Raises AddressError."""
        tasks = (
            supervise(f"cache of {reflector.name}", reflector.run, self._note_crash)
            for reflector in self._caches.reflectors
        )
        async with running(*tasks, self._serve()):
            await asyncio.Event().wait()

    async def _serve(self) -> None:
        host, port = self._settings.host, self._settings.port
        serve = partial(Site, self._dashboard.app(), host=host, port=port, timeouts=TIMEOUTS)
        certificate = self._certificate
        if certificate is None:
            self.site = serve()
            await self._listen(self.site)
            return
        holder = await certificate.first()
        self._renew_key(holder)
        certificate.on_change.append(lambda: self._renew_key(holder))
        self.site = serve(tls=holder.context)
        keeping = asyncio.create_task(certificate.keep(holder))
        try:
            await self._listen(self.site)
        finally:
            keeping.cancel()

    async def _listen(self, site: Site) -> None:
        await site.start()
        try:
            self._log.info("dashboard served", url=site.url)
            self.listening.set()
            await asyncio.Event().wait()
        finally:
            await site.stop()

    async def _read_sources(self, *, counts: bool) -> PageSources:
        return await self._caches.sources(
            counts=counts,
            rules=self._rules,
            definition_namespaces=self._definition_namespaces,
        )

    def _renew_key(self, holder: CertificateHolder) -> None:
        """Encrypt sessions with the key of our certificate, which all replicas have."""
        key = holder.bundle.files.tls_key
        if key is not None:
            self._sealer.renew(key)
