"""Reviews served over HTTP in this process, with what was counted and logged of them."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

from harbourmaster.serving.limits import Limits
from harbourmaster.serving.settings import ServerSettings
from harbourmaster.serving.site import Site
from harbourmaster.telemetry.metrics import create_metrics
from harbourmaster.webhook.engine import EngineHolder
from harbourmaster.webhook.records import Records
from harbourmaster.webhook.server import Reviews, create_app
from harbourmaster.webhook.verdict import OUTCOMES
from helpers.raw_http import Connection

KUPID_TYPES = ("processed", "allowed", "denied", "mutated", "error")


class Admission:
    """Server of the review paths, backed by one engine."""

    def __init__(self, log, engine, *, limits=None, tracer=None, shadow=None, **settings):
        self.output = log
        self.metrics = create_metrics("0", OUTCOMES)
        self.limits = Limits(metrics=self.metrics, **(limits or {}))
        self.records = Records(self.metrics, asyncio.get_running_loop(), log, tracer)
        server = ServerSettings(**settings)
        reviews = Reviews(EngineHolder(engine), server, self.limits, self.records)
        reviews.shadow = shadow
        self.app = create_app(reviews)

    @asynccontextmanager
    async def connected(self, tls=None, client=None):
        """A client's connection to it."""
        site = Site(self.app, host="127.0.0.1", port=0, tls=tls)
        await site.start()
        wire = await Connection.open(site, client)
        try:
            yield wire
        finally:
            await wire.gone()
            await site.stop()

    async def ask(self, data):
        async with self.connected() as wire:
            return await wire.ask(data)

    def lines(self):
        self.records.flush()
        return [json.loads(line) for line in self.output.getvalue().splitlines()]

    def value(self, name, **labels):
        self.records.flush()
        return self.metrics.registry.get_sample_value(f"harbourmaster_admission_{name}", labels)

    def kupid(self):
        """The types of kupid's counter that are not 0."""
        self.records.flush()
        value = self.metrics.registry.get_sample_value
        counts = {name: value("kupid_aggr_requests_total", {"type": name}) for name in KUPID_TYPES}
        return {name: count for name, count in counts.items() if count}
