"""The clients of metric providers, each with a target and the question of its recordings."""

from __future__ import annotations

import json
from urllib.parse import parse_qs

from msgspec.structs import replace

from harbourmaster.providers.datadog import Datadog
from harbourmaster.providers.dynatrace import Dynatrace
from harbourmaster.providers.elastic import Elastic
from harbourmaster.providers.kafka import Kafka
from harbourmaster.providers.model import Question, Table, Target
from harbourmaster.providers.prometheus import Prometheus
from helpers.exchanges import RECORDED, Told, outcome, played, timed_out

NOW = 1772366400.5
URL = "https://metrics.example.com"


class ProviderClient:
    """A client, a target below the server's URL, and a question."""

    def __init__(self, provider, target, question):
        self.provider = provider
        self.target = target
        self.question = question

    def __str__(self):
        return self.target.type

    def at(self, url, **changes):
        """The target below a URL, with other fields."""
        target = replace(self.target, **changes)
        return replace(target, server=url + target.server)

    def asked(self, _case):
        """The question of a recording."""
        return self.question

    async def ask(self, case, question=None, **changes):
        """The answer, or the error, in recorded exchanges."""
        question = question or self.asked(case)
        kind = self.target.type
        return await played(
            self.provider, lambda url: self.at(url, **changes), question, kind, case
        )

    async def told(self, body, question=None, status=200, kind="application/json", **changes):
        """The answer or the error where the server sends a body, and the requests."""
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        http = Told(body, status=status, kind=kind)
        target = self.at(URL, **changes)
        return await outcome(self.provider, http, target, question or self.question), http.sent

    async def timed_out(self):
        """The error where the server never answers."""
        return await timed_out(self.provider, self.at, self.question)


class PrometheusClient(ProviderClient):
    """Each recording has a query of its own."""

    def asked(self, case):
        """The question that the recorded request was made for."""
        recorded = json.loads((RECORDED / "prometheus" / f"{case}.json").read_text())
        body = recorded["exchanges"][0]["request"]["body"]
        form = {name: values[0] for name, values in parse_qs(body).items()}
        times = {name: float(form[name]) for name in ("start", "step") if name in form}
        end = form.get("end", form.get("time"))
        return Question(form["query"], end=None if end is None else float(end), **times)


DATADOG = ProviderClient(
    Datadog(now=lambda: NOW + 0.4),
    Target(
        "datadog",
        "",
        secret={"DD_CLIENT_API_KEY": b"dd-api-canary\n", "DD_CLIENT_APP_KEY": b"dd-app-canary"},
        secret_key="ignored",  # noqa: S106
    ),
    Question('avg:system.cpu.idle{env:prod,service:"web"}'),
)
DYNATRACE = ProviderClient(
    Dynatrace(),
    Target("dynatrace", "/e/abc12345/", secret={"token": b"dt0c01.CANARY\n"}, secret_key="token"),  # noqa: S106
    Question('builtin:service.response.time:filter(eq("service","web & co")):splitBy()'),
)
ELASTIC_QUERY = {
    "size": 0,
    "query": {
        "bool": {
            "filter": [{"term": {"service": "web"}}, {"range": {"@timestamp": {"gte": "now-5m"}}}]
        }
    },
    "aggs": {"latency": {"avg": {"field": "latency"}}},
}
ELASTIC = ProviderClient(
    Elastic(now=lambda: NOW),
    Target(
        "elastic",
        "/logs-web",
        secret={"apiKey": b"Y2FuYXJ5LWlkOmNhbmFyeS1rZXk=\n"},
        secret_key="apiKey",  # noqa: S106
    ),
    Question(json.dumps(ELASTIC_QUERY)),
)
KAFKA = ProviderClient(
    Kafka(now=lambda: NOW),
    Target("kafka", "/", table=Table("HEAT_DEMAND", "ZONE", "VALUE")),
    Question("zone'1"),
)
PROMETHEUS = PrometheusClient(
    Prometheus(),
    Target("prometheus", "", secret_key="ignored"),  # noqa: S106
    Question('tide{harbour="north"}'),
)
