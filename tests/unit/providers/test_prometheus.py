"""Prometheus' API, as recorded from a server of version 3, and what else servers answer."""

from __future__ import annotations

import json
from urllib.parse import parse_qs

import msgspec
import pytest

from harbourmaster.providers.errors import (
    BadAnswerError,
    BadProviderError,
    BadQueryError,
    NotFiniteError,
    NoValuesError,
    ProviderError,
    ThrottledError,
    TooLargeError,
    UnauthorizedError,
    UnreachableError,
)
from harbourmaster.providers.http import HttpClient
from harbourmaster.providers.model import Answer, Question, Sample, Target
from harbourmaster.providers.prometheus import Prometheus
from harbourmaster.providers.registry import PROVIDERS
from helpers.provider_clients import GARBAGE, PROMETHEUS, FakeHttp, outcome

SECRET = {"user": b"harbour", "password": b"canary-password"}


async def answer_to(document, question=None, **options):
    answer, _ = await PROMETHEUS.answer_to(document, question, **options)
    return answer


def result(*values, kind="vector"):
    series = [{"metric": {"__name__": "up"}, "value": value} for value in values]
    return {"status": "success", "data": {"resultType": kind, "result": series}}


@pytest.mark.parametrize(
    ("case", "value"),
    [("success", "4"), ("expression", "0.25"), ("at", "4"), ("get", "4")],
)
async def test_the_one_sample_is_the_value(case, value):
    answer = await PROMETHEUS.ask(case)
    assert isinstance(answer, Answer), answer
    assert answer.value == value
    assert answer.raw == f'"{value}"'.encode()
    (sample,) = answer.samples
    assert sample.value == float(value)
    assert sample.time > 1_700_000_000


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        (
            {"warnings": ["partial response: store-1.example.com:10901 is unavailable"]},
            "the answer may lack data: partial response: store-1.example.com:10901 is unavailable",
        ),
        (
            {"warnings": ["PromQL info: not a counter", "remote_read: connection refused"]},
            "the answer may lack data: remote_read: connection refused",
        ),
        (
            {"warnings": ["No StoreAPIs matched for this query"]},
            "the answer may lack data: No StoreAPIs matched for this query",
        ),
        (
            {"warnings": ["results truncated due to limit"]},
            "the answer may lack data: results truncated due to limit",
        ),
        ({"isPartial": True}, "the answer lacks data: the provider calls it partial"),
        (
            {
                "warnings": [
                    'PromQL info: metric might not be a counter, name does not end: "a" (1:5)'
                ]
            },
            "",
        ),
        ({"warnings": ["PromQL warning: quantile value should be between 0 and 1, got 2"]}, ""),
        (
            {
                "warnings": [
                    "PromQL warning: a mix of histograms",
                    "3 more warning annotations omitted",
                ]
            },
            "",
        ),
        ({"infos": ["PromQL info: metric might not be a counter"], "isPartial": False}, ""),
        ({"infos": ["partial response"], "warnings": []}, ""),
        ({"warnings": None}, ""),
    ],
)
@pytest.mark.parametrize("kind", ["thanos", "prometheus", "cortex"])
async def test_an_answer_that_may_lack_data_is_an_error(kind, fields, error):
    answer = await answer_to(result([1, "7"]) | fields, type=kind)
    assert str(answer) == error if error else answer.value == "7"
    assert isinstance(answer, BadAnswerError) == bool(error)


async def test_a_server_that_truncates_its_results_gives_no_value():
    error = await PROMETHEUS.ask("warned")
    assert str(error) == "the answer may lack data: results truncated"


@pytest.mark.parametrize("question", [Question("up"), Question("up", start=1.0, end=2.0)])
async def test_thanos_is_asked_for_no_partial_answer(question):
    for kind, expected in (("thanos", ["false"]), ("prometheus", None)):
        _, requests = await PROMETHEUS.answer_to(result([1, "7"]), question, type=kind)
        form = parse_qs(requests[0][2]["body"].decode())
        assert form.get("partial_response") == expected


async def test_a_time_without_a_start_is_that_of_the_query():
    answer = await PROMETHEUS.ask("at")
    assert answer.samples[0].time == PROMETHEUS.recorded_question("at").end


async def test_a_step_gives_all_samples_of_the_series():
    question = PROMETHEUS.recorded_question("steps")
    answer = await PROMETHEUS.ask("steps")
    assert answer.value == "4"
    assert answer.samples == tuple(Sample(question.start + n / 4, 4.0) for n in range(5))


async def test_a_range_without_a_step_gives_the_first_sample_as_with_keptn():
    question = msgspec.structs.replace(PROMETHEUS.recorded_question("range"), step=None)
    answer = await PROMETHEUS.ask("range", question)
    assert answer.samples == (Sample(question.start, 4.0),)


def series(*pairs):
    answer = [{"metric": labels, "value": [1, value]} for labels, value in pairs]
    return {"status": "success", "data": {"resultType": "vector", "result": answer}}


BY = Question("load", by_label="cluster")


async def test_by_a_label_each_series_has_a_value():
    answer = await answer_to(series(({"cluster": "a"}, "0.5"), ({"cluster": "b"}, "2")), BY)
    assert answer.by_label == {"a": 0.5, "b": 2.0}
    assert (await answer_to(series(), BY)).by_label == {}


async def test_by_a_label_series_without_it_do_not_count():
    answer = series(
        ({"zone": "a"}, "1"), ({}, "2"), ({"cluster": ""}, "3"), ({"cluster": "a"}, "4")
    )
    assert (await answer_to(answer, BY)).by_label == {"a": 4.0}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "canary"])
async def test_by_a_label_one_bad_value_is_no_fault_of_others(value):
    answer = series(({"cluster": "a"}, value), ({"cluster": "b"}, "2"))
    text = "the value is not a finite number"
    assert (await answer_to(answer, BY)).by_label == {"a": text, "b": 2.0}


@pytest.mark.parametrize("count", [2, 3])
async def test_by_a_label_several_series_of_one_are_a_fault_of_it_alone(count):
    twice = [({"cluster": "a", "n": str(n)}, "1") for n in range(count)]
    answer = (await answer_to(series(*twice, ({"cluster": "b"}, "2")), BY)).by_label
    assert answer == {"a": "several series have this cluster", "b": 2.0}


@pytest.mark.parametrize("metric", [5, {"cluster": 5}, None])
async def test_by_a_label_other_labels_than_texts_are_no_answer(metric):
    assert isinstance(await answer_to(series((metric, "1")), BY), BadAnswerError)


@pytest.mark.parametrize("case", ["unauthorized", "forbidden"])
async def test_rejected_credentials_are_an_error(case):
    assert type(await PROMETHEUS.ask(case, secret=SECRET)) is UnauthorizedError


@pytest.mark.parametrize("body", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_of_status_500_is_a_failed_server(body):
    assert type(await answer_to(body, status=500)) is UnreachableError


@pytest.mark.parametrize(
    "document",
    [
        {"status": "success"},
        {"status": "success", "data": None},
        {"status": "success", "data": {"resultType": "vector", "result": {}}},
        {"status": "success", "data": {"resultType": "vector", "result": None}},
        {"status": "success", "data": {"resultType": ["vector"], "result": []}},
        {"status": "success", "data": {"resultType": "vector", "result": [None]}},
        {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}}]}},
        result([1.0]),
        result([1.0, 4]),
        result([1.0, None]),
        result(["1", "4"]),
        result([1.0, "4", "5"]),
        result([-1.0, "4"]),
        result([1e300, "4"]),
        result([1.0, ""]),
        result([1.0, "4"], kind="matrix"),
        {**result([1.0, "4"]), "status": "odd"},
        {"status": "error", "errorType": "new", "error": "x"},
        {"status": 1},
    ],
    ids=json.dumps,
)
async def test_another_schema_is_an_error(document):
    assert type(await answer_to(document)) is BadAnswerError


async def test_an_unknown_error_is_judged_by_its_status():
    document = {"status": "error", "errorType": "new", "error": "the moon"}
    answer = await answer_to(document, status=503)
    assert type(answer) is UnreachableError
    assert str(answer) == "the provider failed (HTTP 503: the moon)"


@pytest.mark.parametrize(
    ("status", "kind"), [(401, UnauthorizedError), (403, UnauthorizedError), (429, ThrottledError)]
)
async def test_some_statuses_say_it_better_than_the_body(status, kind):
    document = {"status": "error", "errorType": "bad_data", "error": "canary is no password"}
    assert type(await answer_to(document, status=status)) is kind


async def test_a_success_with_an_error_status_is_an_error():
    assert type(await answer_to(result([1.0, "4"]), status=500)) is UnreachableError


def steps(count, value="4"):
    values = [[1772366400 + n, value] for n in range(count)]
    series = {"metric": {}, "values": values}
    return {"status": "success", "data": {"resultType": "matrix", "result": [series]}}


async def test_ten_thousand_samples_are_enough():
    question = Question("up", 1772366400.0, 1772386400.0, 1.0)
    assert len((await answer_to(steps(10_000), question)).samples) == 10_000
    assert type(await answer_to(steps(10_001), question)) is TooLargeError


async def test_one_invalid_value_is_an_error():
    document = steps(3)
    document["data"]["result"][0]["values"][2][1] = "NaN"
    question = Question("up", 1772366400.0, 1772366402.0, 1.0)
    assert type(await answer_to(document, question)) is NotFiniteError
    # Of which only the first counts:
    assert (await answer_to(document, Question("up", 1772366400.0, 1772366402.0))).value == "4"


async def test_a_series_without_samples_has_no_values():
    question = Question("up", 1772366400.0, 1772366402.0, 1.0)
    assert type(await answer_to(steps(0), question)) is NoValuesError


@pytest.mark.parametrize(
    ("start", "end"), [(1772366400.0, None), (1772366400.0, 1772366400.0), (2.0, 1.0)]
)
async def test_a_range_has_a_length(start, end):
    assert type(await answer_to(steps(1), Question("up", start, end))) is BadQueryError


async def test_the_query_can_say_nothing_but_itself():
    query = 'a{b="c"}&time=0&query=x\r\nHost: y #+%00\u2028é'
    _, ((method, url, options),) = await PROMETHEUS.answer_to(result([1.0, "4"]), Question(query))
    assert (method, url) == ("POST", "https://metrics.example.com/api/v1/query")
    assert parse_qs(options["body"].decode(), strict_parsing=True) == {"query": [query]}
    assert "params" not in options


@pytest.mark.parametrize("kind", ["prometheus", "thanos", "cortex"])
async def test_the_path_of_the_server_is_kept_and_its_certificate_may_go_unverified(kind):
    http = FakeHttp(json.dumps(result([1.0, "4"])).encode())
    own = Target(kind, "https://prom.example.com/base/", skip_verify=True)
    assert (await outcome(PROVIDERS[kind], http, own, Question("up"))).value == "4"
    ((_, url, options),) = http.sent
    assert url == "https://prom.example.com/base/api/v1/query"
    assert options["skip_verify"]
    assert options["repeatable"]


@pytest.mark.parametrize("status", [405, 501])
async def test_a_server_that_rejects_forms_gets_the_query_in_the_url(status):
    class Refuses(FakeHttp):
        async def send(self, method, url, **options):
            reply = await super().send(method, url, **options)
            refused = type(reply)(status, {}, b"")
            return refused if method == "POST" else reply

    http = Refuses(json.dumps(steps(2)).encode())
    question = Question("up & away", 1772366400.0, 1772366460.5, 30.0)
    own = PROMETHEUS.at("https://prom.example.com", secret=SECRET)
    assert len((await outcome(Prometheus(), http, own, question)).samples) == 2
    (_, (method, url, options)) = http.sent
    assert (method, url) == ("GET", "https://prom.example.com/api/v1/query_range")
    assert options["params"] == {
        "query": "up & away",
        "start": "1772366400",
        "end": "1772366460.5",
        "step": "30",
    }
    assert "body" not in options
    assert options["headers"].keys() == {"Accept", "Authorization"}


@pytest.mark.parametrize("url", ["", "prom:9090"])
async def test_an_invalid_url_is_a_bad_provider(url):
    async with HttpClient() as http:
        answer = await outcome(Prometheus(), http, PROMETHEUS.at(url), Question("up"))
    assert type(answer) is BadProviderError


# What Krake makes of each (krake-spec 4): no contact, or no value.
@pytest.mark.parametrize(
    ("case", "is_unreachable"),
    [
        *(("unparsable", True), ("missing", True), ("unauthorized", True), ("internal", True)),
        *(("gateway", True), ("login", True), ("throttled", True), ("execution", True)),
        *(("empty", False), ("text", False), ("nan", False), ("infinite", False)),
        *(("error", False), ("scalar", False), ("several", False)),
    ],
)
async def test_the_error_says_whether_there_was_contact(case, is_unreachable):
    secret = SECRET if case == "unauthorized" else None
    answer = await PROMETHEUS.ask(case, secret=secret)
    assert isinstance(answer, ProviderError)
    assert answer.is_unreachable is is_unreachable
