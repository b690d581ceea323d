"""The server of reviews for every source of policies: both ports, their limits, the drain."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harbourmaster.certs.reload import CertificateHolder
from harbourmaster.certs.watch import keep_current
from harbourmaster.policies.model import CLUSTER_POLICY, POLICY
from harbourmaster.serving.certificates import tls_options
from harbourmaster.serving.drain import drain
from harbourmaster.serving.health import health_app
from harbourmaster.serving.limits import Limits
from harbourmaster.serving.process import start_tracing
from harbourmaster.serving.readiness import Readiness, tls_probe
from harbourmaster.serving.site import Site
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.metrics import create_metrics, set_certificate_expiry
from harbourmaster.webhook.app import Reviews, create_app
from harbourmaster.webhook.conversion import Conversions
from harbourmaster.webhook.record_files import RecordFiles
from harbourmaster.webhook.recording import Recorder
from harbourmaster.webhook.records import Records
from harbourmaster.webhook.verdict import OUTCOMES

if TYPE_CHECKING:
    from typing import BinaryIO

    from harbourmaster.certs.bundle import Bundle
    from harbourmaster.policies.index import PolicySet
    from harbourmaster.telemetry.metrics import Metrics
    from harbourmaster.webhook.app import Arrival
    from harbourmaster.webhook.engine import EngineHolder
    from harbourmaster.webhook.settings import RecordSettings, Settings
    from harbourmaster.webhook.shadow import Shadow

_LAST_CONNECTIONS: Final = 3
"""Times the drain that connections may take in all to end by themselves; then they are cut."""
_SERVICE: Final = "harbourmaster-webhook"
"""Our name in traces."""


class ReviewServer:
    """The two ports of the admission process, its metrics and its readiness."""

    def __init__(
        self,
        settings: Settings,
        holder: EngineHolder,
        stream: BinaryIO | None,
        arrival: Arrival | None = None,
        shadow: Shadow | None = None,
    ) -> None:
        """``stream`` takes the reviews' log lines; ``arrival`` waits for an unknown namespace.

        Raises CertificateError where the client authority can't be used, and StartError where
        nothing can be traced or recorded.
        """
        release = version("harbourmaster")
        server = settings.server
        self.metrics = create_metrics(release, OUTCOMES)
        self.readiness = Readiness()
        self.health = Site(
            health_app(self.readiness, self.metrics.registry),
            host=server.host,
            port=server.health_port,
        )
        self.reviews: Site | None = None
        self._settings = server
        self._tls = tls_options(server.client_ca, server.client_cn, server.tls_min_version)
        self._limits = Limits(
            connections=server.max_connections,
            requests=server.max_in_flight,
            body_bytes=server.max_in_flight_bytes,
            metrics=self.metrics,
        )
        self._tracer = start_tracing(settings.tracing, _SERVICE, release, self.metrics.spans)
        self._records = Records(self.metrics, asyncio.get_running_loop(), stream, self._tracer)
        self._recorder = _recorder(settings.record, self.metrics)
        reviews = Reviews(holder, server, self._limits, self._records, arrival, self._recorder)
        reviews.shadow = shadow
        conversions = Conversions(server, self._limits, self.metrics.conversions)
        self._app = create_app(reviews, conversions)
        self._log = get_logger("server")

    async def start(self, bundle: Bundle) -> tuple[Site, CertificateHolder]:
        """Serve reviews with these certificates, until ``stop``. Raises AddressError."""
        certificates = CertificateHolder(bundle, self._tls)
        self._note_expiry(bundle)
        site = Site(
            self._app,
            host=self._settings.host,
            port=self._settings.port,
            tls=certificates.context,
        )
        self._limits.start()
        if self._recorder is not None:
            self._recorder.start()
        await site.start()
        self.reviews = site
        self.readiness.add_probe(
            "serving", tls_probe(site, lambda: certificates.bundle.serving_der)
        )
        self.metrics.connections.set_function(lambda: site.connections)
        return site, certificates

    async def drain(self, signal: str) -> None:
        """End the service so that no request is lost."""
        # Ctrl-C is a person's, who waits; SIGTERM is a cluster's, which does not.
        wait = self._settings.drain_seconds if signal == "SIGTERM" else 0.0
        self._log.info("stopping", signal=signal, drain_seconds=wait)
        cut = 0
        if self.reviews is not None:
            cap = wait * _LAST_CONNECTIONS
            cut = await drain(self.reviews, self.readiness, wait=wait, cap=cap)
        self._log.info("stopped", connections_cut=cut)

    async def stop(self) -> None:
        """Close both ports at once and write what waits."""
        self._limits.stop()
        if self.reviews is not None:
            await self.reviews.stop()
        await self.health.stop()
        self._records.flush()
        if self._recorder is not None:
            await self._recorder.close()
        if self._tracer is not None:
            await self._tracer.close()

    def note_policies(self, policies: PolicySet) -> None:
        """Show how many policies are in force."""
        self.metrics.policies.labels(CLUSTER_POLICY).set(policies.cluster_size)
        self.metrics.policies.labels(POLICY).set(policies.namespaced_size)
        self.metrics.policies_invalid.set(policies.invalid)
        self.metrics.admission.references = lambda: policies.references

    async def renew(
        self, certificates: CertificateHolder, directory: Path, names: tuple[str, ...] | None
    ) -> None:
        """Keep what is served current, see ``certs.watch``; until cancelled."""
        await keep_current(
            certificates,
            directory,
            names,
            on_change=self._note_renewal,
            on_error=self._note_certificate_error,
        )

    def _note_renewal(self, bundle: Bundle) -> None:
        self._note_expiry(bundle)
        self._log.info("certificate renewed", not_after=bundle.not_after.isoformat())

    def _note_certificate_error(self, text: str) -> None:
        self.metrics.certificate_reload_errors.inc()
        self._log.error("certificates not reloaded, serving the previous ones", error=text)

    def _note_expiry(self, bundle: Bundle) -> None:
        set_certificate_expiry(self.metrics, "leaf", bundle.not_after)
        if bundle.authority_not_after is not None:
            set_certificate_expiry(self.metrics, "authority", bundle.authority_not_after)


def _recorder(settings: RecordSettings, metrics: Metrics) -> Recorder | None:
    if settings.directory is None:
        return None
    files = RecordFiles(
        Path(settings.directory), max_bytes=settings.max_bytes, max_files=settings.max_files
    )
    return Recorder(files, settings.sample, metrics.recorded)
