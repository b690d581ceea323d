"""Whatever a server says, a provider gives an answer or an error of its own."""

from __future__ import annotations

import asyncio
import json
import math
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.providers.datadog import Datadog
from harbourmaster.providers.dql import SSO, Dql
from harbourmaster.providers.dynatrace import Dynatrace
from harbourmaster.providers.elastic import Elastic
from harbourmaster.providers.errors import ProviderError
from harbourmaster.providers.kafka import Kafka
from harbourmaster.providers.model import Answer, Question, Table, Target
from harbourmaster.providers.prometheus import Prometheus
from helpers.provider_clients import RECORDED, FakeHttp

SECRET = {
    "key": b"dt0s16.CANARY." + b"A" * 64,
    "client": b"dt0s08.CANARY." + b"A" * 64,
    "DD_CLIENT_API_KEY": b"canary",
    "DD_CLIENT_APP_KEY": b"canary",
    "user": b"canary",
    "password": b"canary",
}


async def no_sleep(_seconds):
    """Time that costs nothing."""


PROVIDERS = {
    "client": Dql(sleep=no_sleep),
    "datadog": Datadog(),
    "dql": Dql(sleep=no_sleep),
    "dynatrace": Dynatrace(),
    "elastic": Elastic(),
    "kafka": Kafka(),
    "prometheus": Prometheus(),
}
KINDS = {"client": "dql", "cortex": "prometheus", "thanos": "prometheus"}
"""The provider kinds whose recordings these share."""
NUMBERS = (
    st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([10**400, -(10**20), 1e308, 2**64])
)
LEAVES = st.none() | st.booleans() | NUMBERS | st.text(max_size=9) | st.sampled_from(["NaN", "1"])
QUESTIONS = st.sampled_from(
    [
        Question("{}"),
        Question("{}", path="value"),
        Question('{"range": 1}', start=1772366100.0, end=1772366400.0),
        Question("m", start=1772366100.0, end=1772366400.0, step=60.0),
    ]
)
STATUSES = st.sampled_from([200, 200, 200, 200, 202, 400, 404, 429, 503, 599])


@cache
def recordings(kind):
    """All answers of a provider that are JSON."""
    return [
        exchange["response"]["body"]
        for file in sorted((RECORDED / KINDS.get(kind, kind)).glob("*.json"))
        for exchange in json.loads(file.read_text())["exchanges"]
        if "body" in exchange["response"]
    ]


def names_of(document):
    """All member names and all texts in a document."""
    if isinstance(document, dict):
        return {*document, *(name for value in document.values() for name in names_of(value))}
    if isinstance(document, list):
        return {name for value in document for name in names_of(value)}
    return {document} if isinstance(document, str) else set()


@cache
def documents(kind):
    """Any JSON, with names that mean something to the provider."""
    names = sorted({name for document in recordings(kind) for name in names_of(document)})
    keys = st.sampled_from(names) | st.text(max_size=3)

    def nest(inner):
        return st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4)

    return st.recursive(LEAVES, nest, max_leaves=12)


@st.composite
def altered_documents(draw, kind):
    """A recorded answer with another value in one place."""
    document = json.loads(json.dumps(draw(st.sampled_from(recordings(kind)))))
    if not isinstance(document, (dict, list)) or not document:
        return draw(documents(kind))
    node = document
    while True:
        key = draw(
            st.sampled_from(sorted(node))
            if isinstance(node, dict)
            else st.integers(0, len(node) - 1)
        )
        below = node[key]
        if not isinstance(below, (dict, list)) or not below or draw(st.integers(0, 4)) == 0:
            node[key] = draw(documents(kind))
            return document
        node = below


@pytest.mark.parametrize("kind", PROVIDERS)
@given(data=st.data())
def test_any_json_is_an_answer_or_an_error_of_ours(kind, data):
    document = data.draw(altered_documents(kind) | documents(kind))
    status = data.draw(STATUSES)
    assert_an_answer_or_an_error(kind, json.dumps(document).encode(), data.draw(QUESTIONS), status)


@pytest.mark.parametrize("kind", PROVIDERS)
@given(body=st.binary(max_size=40), question=QUESTIONS)
@pytest.mark.claim("W8")
def test_any_bytes_are_an_answer_or_an_error_of_ours(kind, body, question):
    assert_an_answer_or_an_error(kind, body, question, 200)


@pytest.mark.parametrize("kind", PROVIDERS)
@given(query=st.text(max_size=20), path=st.text(max_size=5))
def test_any_query_is_sent_whole_or_not_at_all(kind, query, path):
    http = assert_an_answer_or_an_error(kind, b"{}", Question(query, path=path), 200)
    for _method, url, options in http.sent:
        assert url.startswith("https://host.example.com/base/") or url == SSO
        assert url == url.partition("?")[0].partition("#")[0]
        assert all(value.isprintable() for value in options["headers"].values())
        if (body := options.get("body")) and options["headers"]["Content-Type"].endswith("json"):
            assert isinstance(json.loads(body), dict)


def assert_an_answer_or_an_error(kind, body, question, status):
    http = FakeHttp(body, status=status)
    target = Target(
        kind,
        "https://host.example.com/base",
        secret=SECRET,
        secret_key="client" if kind == "client" else "key",
        table=Table("t", "c", "v"),
    )
    try:
        answer = asyncio.run(PROVIDERS[kind].ask(http, target, question))
    except ProviderError as error:
        answer = error
    if isinstance(answer, ProviderError):
        assert str(answer).isprintable()
        return http
    assert isinstance(answer, Answer)
    assert status < 300
    assert math.isfinite(float(answer.value))
    assert answer.samples
    assert all(math.isfinite(sample.value) for sample in answer.samples)
    assert all(0 <= sample.time < 253_402_300_800 for sample in answer.samples)
    assert list(answer.samples) == sorted(answer.samples, key=lambda value: value.time)
    return http
