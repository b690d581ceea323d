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
from helpers.exchanges import RECORDED, FakeHttp, outcome, replay, replay_and_hang

NOW = 1772366400.5
URL = "https://metrics.example.com"


class ProviderClient:
    """A client with a target below the server's URL, and a question."""

    def __init__(self, provider, target, question):
        self.provider = provider
        self.target = target
        self.question = question

    def __str__(self):
        return self.target.type

    def at(self, url, **changes):
        """Return the target below a URL, with changed fields."""
        target = replace(self.target, **changes)
        return replace(target, server=url + target.server)

    def recorded_question(self, _case):
        """Return the question of a recording."""
        return self.question

    async def ask(self, case, question=None, **changes):
        """Return the answer or the error in recorded exchanges."""
        question = question or self.recorded_question(case)
        kind = self.target.type
        return await replay(
            self.provider, lambda url: self.at(url, **changes), question, kind, case
        )

    async def answer_to(self, body, question=None, status=200, kind="application/json", **changes):
        """Return the answer or the error for a response body, and the requests."""
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        http = FakeHttp(body, status=status, kind=kind)
        target = self.at(URL, **changes)
        return await outcome(self.provider, http, target, question or self.question), http.sent

    async def ask_hanging(self):
        """Return the error if the server never answers."""
        return await replay_and_hang(self.provider, self.at, self.question)


class PrometheusClient(ProviderClient):
    """The client of Prometheus, whose recordings have different queries."""

    def recorded_question(self, case):
        """Return the question of the recorded request."""
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
