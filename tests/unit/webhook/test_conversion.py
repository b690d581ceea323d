"""Reviews of conversions are answered, whatever they hold (keptn-spec 1.4)."""

from __future__ import annotations

import asyncio
import json

import pytest

from harbourmaster.lifecycle.conversion import SPEC_FIELDS, STATUS_FIELDS
from harbourmaster.serving.definitions import schemas
from harbourmaster.serving.limits import Limits
from harbourmaster.serving.settings import ServerSettings
from harbourmaster.serving.site import Site
from harbourmaster.telemetry.metrics import create_metrics
from harbourmaster.webhook import conversion
from harbourmaster.webhook.conversion import Conversions, answer
from harbourmaster.webhook.review import MAX_BODY_BYTES
from harbourmaster.webhook.server import Reviews, create_app
from harbourmaster.webhook.verdict import OUTCOMES
from helpers.raw_http import Connection, post

GROUP = "lifecycle.keptn.sh"
V1 = "apiextensions.k8s.io/v1"
REVIEWS = "harbourmaster_conversions_total"


def app(version="v1alpha3", name="shop", **spec):
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "KeptnApp",
        "metadata": {"name": name, "namespace": "market", "uid": name},
        "spec": {"version": "1.0", "revision": 123, **spec},
    }


def review(*objects, wanted=f"{GROUP}/v1", api_version=V1):
    request = {"uid": "705ab4f5", "desiredAPIVersion": wanted, "objects": list(objects)}
    return {"apiVersion": api_version, "kind": "ConversionReview", "request": request}


async def asked(question):
    body = question if isinstance(question, bytes) else json.dumps(question).encode()
    conversion = await answer(body)
    value = json.loads(conversion.body)
    assert value.keys() == {"apiVersion", "kind", "response"}
    assert value["kind"] == "ConversionReview"
    assert bool(conversion.error) == (value["response"]["result"]["status"] == "Failure")
    return value


async def failure(question):
    response = (await asked(question))["response"]
    assert response["result"]["status"] == "Failure"
    assert response["convertedObjects"] == []
    return response["uid"], response["result"]["message"]


@pytest.mark.parametrize(
    ("part", "fields"), [("spec", SPEC_FIELDS), ("status", STATUS_FIELDS)], ids=["spec", "status"]
)
def test_each_field_of_a_version_is_converted(part, fields):
    names = set()
    for kind in ("KeptnApp", "KeptnAppVersion"):
        for schema in schemas(GROUP, kind).values():
            names |= schema["properties"][part].get("properties", {}).keys()
    assert names == set(fields.split())


async def test_all_objects_come_back_in_order():
    answered_review = await asked(review(app(name="a"), app(name="b"), app("v1alpha1", name="c")))
    response = answered_review["response"]
    assert (response["uid"], response["result"]) == ("705ab4f5", {"status": "Success"})
    names = [converted_obj["metadata"]["name"] for converted_obj in response["convertedObjects"]]
    assert names == ["a", "b", "c"]
    assert {obj["apiVersion"] for obj in response["convertedObjects"]} == {f"{GROUP}/v1"}


@pytest.mark.parametrize("api_version", [V1, "apiextensions.k8s.io/v1beta1"])
async def test_the_answer_has_the_version_of_the_question(api_version):
    assert (await asked(review(api_version=api_version)))["apiVersion"] == api_version
    bad = review(5, api_version=api_version)
    assert (await asked(bad))["apiVersion"] == api_version


async def test_no_objects_are_no_fault():
    question = review()
    del question["request"]["objects"]
    assert (await asked(question))["response"]["convertedObjects"] == []


async def test_c90_one_that_cannot_be_converted_fails_the_review():
    broken = {**app(name="b"), "spec": "none"}
    uid, message = await failure(review(app(name="a"), broken))
    assert uid == "705ab4f5"
    assert message == 'KeptnApp market/b: spec: expected an object, got "none"'


@pytest.mark.parametrize(
    ("question", "text"),
    [
        (review({**app(), "kind": "Deployment"}), 'objects of kind "Deployment"'),
        (review(app(), wanted="apps/v1"), '"apps/v1" is not converted here'),
        (review(5), "cannot be decoded: expected object, got integer"),
        (review(api_version="v2"), "expected apiextensions.k8s.io/v1, Kind=ConversionReview, got"),
        ({**review(), "kind": "AdmissionReview"}, "Kind=AdmissionReview"),
        ({"apiVersion": V1, "kind": "ConversionReview"}, "holds no request"),
        ({**review(), "request": {"uid": "705ab4f5", "objects": {}}}, "is not a ConversionReview"),
        (b"", "is not a ConversionReview"),
        (b"[" * 5000, "is not a ConversionReview"),
        (b"\xff", "is not a ConversionReview"),
        (
            b'{"apiVersion":"%b","kind":"ConversionReview","request":{"objects":[{"a":"\xff"}]}}'
            % V1.encode(),
            "object 0 of the review cannot be decoded",
        ),
    ],
)
async def test_whatever_is_asked_is_answered(question, text):
    uid, message = await failure(question)
    assert text in message
    if isinstance(question, dict) and "request" in question:
        assert uid == "705ab4f5"


async def test_deep_nesting_is_no_fault_of_the_server():
    deep = b'{"apiVersion":"%b/v1","kind":"KeptnApp","metadata":{},"spec":%b%b}' % (
        GROUP.encode(),
        b'{"a":' * 3000,
        b"1" + b"}" * 3000,
    )
    body = json.dumps(review("HERE")).encode().replace(b'"HERE"', deep)
    _, message = await failure(body)
    assert message.startswith(
        "the body is not a ConversionReview: maximum recursion depth exceeded"
    )


async def test_a_long_message_is_cut_and_has_one_line():
    _, message = await failure(review({**app(name="x\n" * 2000), "spec": 5}))
    assert len(message) <= 1024
    assert "\n" not in message


@pytest.mark.parametrize(
    "objects",
    [[app(name=f"a{index}") for index in range(1000)], [app(name="a", x="x" * 100_000)]],
    ids=["many", "large"],
)
async def test_others_have_their_turn_within_a_long_review(objects):
    turns = 0

    async def count_turns():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(count_turns())
    await asked(review(*objects))
    task.cancel()
    assert turns >= 2


@pytest.fixture
async def ask():
    """Return a function that sends a body to the path of a server, and what the server counts."""
    metrics = create_metrics("0", OUTCOMES)

    async def send(body, *headers, **settings):
        limits = Limits(metrics=metrics)
        conversions = Conversions(ServerSettings(**settings), limits, metrics.conversions)
        reviews = Reviews(None, ServerSettings(), limits, None)
        site = Site(create_app(reviews, conversions), host="127.0.0.1", port=0)
        await site.start()
        wire = await Connection.open(site)
        try:
            return await wire.ask(post(body, *headers, path="/convert"))
        finally:
            await wire.drop()
            await site.stop()

    def count_reviews(outcome):
        return metrics.registry.get_sample_value(REVIEWS, {"outcome": outcome})

    send.counted = count_reviews
    return send


async def test_the_path_answers_200_whatever_comes(ask):
    good = await ask(json.dumps(review(app())).encode())
    bad = await ask(json.dumps(review(5)).encode())
    assert good.status == bad.status == 200
    assert json.loads(good.body)["response"]["result"]["status"] == "Success"
    assert json.loads(bad.body)["response"]["result"]["status"] == "Failure"
    assert (ask.counted("converted"), ask.counted("failed")) == (1, 1)


async def test_an_error_of_ours_is_a_failure_with_the_uid(ask, monkeypatch):
    def raise_error(*_):
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(conversion, "convert", raise_error)
    answered = await ask(json.dumps(review(app())).encode())
    response = json.loads(answered.body)["response"]
    assert answered.status == 200
    assert (response["uid"], response["result"]["status"]) == ("705ab4f5", "Failure")
    assert "secret" not in answered.body.decode()


async def test_the_path_has_the_server_s_limits(ask):
    assert (await ask(b"{}", "Content-Type: text/plain")).status == 415
    assert (await ask(b"{}", client_cn="kube-apiserver")).status == 403


async def test_a_list_may_be_larger_than_one_object(ask):
    many = [app(name=f"a{index}", preDeploymentTasks=["x" * 1000]) for index in range(9000)]
    body = json.dumps(review(*many)).encode()
    assert len(body) > MAX_BODY_BYTES
    response = json.loads((await ask(body)).body)["response"]
    assert len(response["convertedObjects"]) == 9000
