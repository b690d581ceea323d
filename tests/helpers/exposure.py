"""KeptnMetrics with values, and the aggregator that asks for them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import aiohttp
import msgspec
import trustme

from harbourmaster.api.resources import CONFIG_MAPS
from harbourmaster.api.times import format_rfc3339
from harbourmaster.controller.exposure.metrics_api import CONFIG_MAP, NAMESPACE
from harbourmaster.controller.exposure.values import ExposedValues
from harbourmaster.evaluation.model import Metric
from harbourmaster.kube.store import Store
from helpers.certificates import strict_client

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
INTERVALS = 2.0


def metric(name, value="", *, namespace="prod", age=0, labels=None, results=()):
    """A metric that is fetched every ten seconds; its value is ``age`` seconds old.

    ``results`` are stored ones, each a value and its age.
    """
    status = {}
    if value:
        status = {"value": value, "rawValue": "eA==", "lastUpdated": since(age)}
    if results:
        status["intervalResults"] = [
            {"value": result, "range": {}, "lastUpdated": since(result_age)}
            for result, result_age in results
        ]
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {"fetchIntervalSeconds": 10},
        "status": status,
    }


def since(seconds):
    return format_rfc3339(NOW - timedelta(seconds=seconds))


def mirror(*metrics):
    """A mirror that holds these metrics."""
    store = Store()
    for metric in metrics:
        decoded = msgspec.convert(metric, Metric)
        store.put(decoded.metadata.key, decoded)
    return store


def values(*metrics):
    """The values that these metrics show at ``NOW``."""
    return ExposedValues(mirror(*metrics), INTERVALS, lambda: NOW)


NAME = "front-proxy-client"
GROUPS = ("team", "system:authenticated")


class Aggregator:
    """An aggregation layer with a certificate; ``user`` is its user unless headers say so."""

    def __init__(self, folder):
        self._folder = folder
        self.authority = trustme.CA()

    def config_map(self, **changes):
        """The ConfigMap that the API server publishes."""
        data = {
            "requestheader-client-ca-file": self.authority.cert_pem.bytes().decode(),
            "requestheader-allowed-names": json.dumps([NAME]),
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-uid-headers": '["X-Remote-Uid"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
            **changes,
        }
        return {"metadata": {"name": CONFIG_MAP, "namespace": NAMESPACE}, "data": data}

    def publish(self, api, **changes):
        """Put it on a fake API server."""
        api.put(CONFIG_MAPS, self.config_map(**changes))

    def context(self, trusted, *, name=NAME, authority=None):
        """The TLS context of its connections; ``name`` None has no certificate."""
        context = strict_client(trusted)
        context.check_hostname = False
        if name is not None:
            issuer = authority or self.authority
            leaf = issuer.issue_cert(f"{name}.example.com", common_name=name)
            path = self._folder / f"{name}.pem"
            path.write_bytes(leaf.private_key_and_cert_chain_pem.bytes())
            context.load_cert_chain(path)
        return context


def headers_of(user="jane", groups=GROUPS, **others):
    """The headers that name a user."""
    headers = [("X-Remote-Group", group) for group in groups]
    if user:
        headers.append(("X-Remote-User", user))
    return [*headers, *others.items()]


async def get(site, path, context, headers=(), method="GET"):
    """Ask over a connection of its own; status and body."""
    connector = aiohttp.TCPConnector(ssl=context, force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.request(
            method, f"{site.url}{path}", headers=list(headers), server_hostname="localhost"
        ) as answer,
    ):
        return answer.status, await answer.read()
