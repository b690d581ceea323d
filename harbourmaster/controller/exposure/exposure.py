"""Serves metric values on two ports, on every replica.

The controllers work without them: the port of the custom metrics API stays closed without a
certificate, and refuses all clients if the API server publishes no aggregator.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from harbourmaster.api.resources import CONFIG_MAPS
from harbourmaster.api.times import utc_now
from harbourmaster.certs.errors import CertificateError
from harbourmaster.certs.reload import TlsOptions
from harbourmaster.controller.exposure.metrics_api import (
    CONFIG_MAP,
    NAMESPACE,
    MetricsApiHandler,
    decode_front_proxy,
)
from harbourmaster.controller.exposure.plain import PlainHandler
from harbourmaster.controller.exposure.values import ExposedValues
from harbourmaster.kube.access import Decisions
from harbourmaster.kube.reflector import Reflector
from harbourmaster.serving.background import running
from harbourmaster.serving.site import Site
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from harbourmaster.certs.reload import CertificateHolder
    from harbourmaster.controller.evaluation.settings import MetricsSettings
    from harbourmaster.controller.exposure.metrics_api import FrontProxy
    from harbourmaster.evaluation.model import Metric
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.faults import WatchMetrics
    from harbourmaster.kube.store import Store
    from harbourmaster.serving.certificates import ServingCertificate

CLIENTS: Final = TlsOptions(client_required=False)
"""TLS lets clients without a certificate connect; they are answered with 401."""


class Exposure:
    """The two ports; without ``certificate``, there is no custom metrics API."""

    def __init__(  # noqa: PLR0913 - what to show, to whom and where
        self,
        client: Client,
        settings: MetricsSettings,
        store: Store[Metric],
        *,
        host: str,
        intervals: float,
        results: Collector,
        certificate: ServingCertificate | None = None,
        watches: WatchMetrics | None = None,
    ) -> None:
        """``host`` is the address if the settings have none, ``intervals`` that of ``expose``.

        ``results`` collects the metrics of analyses for the plain port.
        """
        values = ExposedValues(store, intervals, utc_now)
        self._client = client
        self._certificate = certificate
        self._holder: CertificateHolder | None = None
        self._front_proxies: Reflector[FrontProxy] = Reflector(
            client,
            CONFIG_MAPS,
            decode_front_proxy,
            namespace=NAMESPACE,
            field_selector=f"metadata.name={CONFIG_MAP}",
            on_change=lambda _: self._trust_aggregator(),
            metrics=watches,
            name="authentication of the aggregator",
        )
        self._host = settings.expose_host or host
        self._api_port = settings.custom_metrics_port
        self._handler = MetricsApiHandler(
            values, Decisions(client, lambda: asyncio.get_running_loop().time()), self._front_proxy
        )
        self.plain = (
            Site(PlainHandler(values, results), host=self._host, port=settings.expose_port)
            if settings.expose
            else None
        )
        self.api: Site | None = None
        """The port of the custom metrics API; None before it listens."""
        self.listening = asyncio.Event()
        """Set when that port listens."""
        self._log = get_logger("exposure")

    async def run(self) -> None:
        """Serve until cancelled. Raises AddressError."""
        try:
            if self.plain is not None:
                await self.plain.start()
                self._log.info("metric values served", url=self.plain.url)
            tasks = (
                ()
                if self._certificate is None
                else (self._front_proxies.run(), self._serve_api(self._certificate))
            )
            async with running(*tasks):
                await asyncio.Event().wait()
        finally:
            if self.plain is not None:
                await self.plain.stop()

    async def _serve_api(self, certificate: ServingCertificate) -> None:
        holder = await certificate.first()
        self._holder = holder
        self._trust_aggregator()
        self.api = Site(self._handler, host=self._host, port=self._api_port, tls=holder.context)
        try:
            await self.api.start()
            self._log.info("custom metrics API served", url=self.api.url)
            self.listening.set()
            await certificate.keep(holder)
        finally:
            await self.api.stop()

    def _front_proxy(self) -> FrontProxy | None:
        return self._front_proxies.store.get(f"{NAMESPACE}/{CONFIG_MAP}")

    def _trust_aggregator(self) -> None:
        if self._holder is None:
            return
        front_proxy = self._front_proxy()
        try:
            self._holder.trust((front_proxy.authority if front_proxy else b"") or None)
        except CertificateError as error:
            self._log.warning("aggregator authority rejected", error=str(error))
