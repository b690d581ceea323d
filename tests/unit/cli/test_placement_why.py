"""The record of a decision, as people and programs are shown it."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

from harbourmaster.api.resources import APPLICATIONS
from harbourmaster.cli import main as cli
from harbourmaster.cli.placement.why import lines, report_of
from harbourmaster.placement.model import Application
from helpers.commands import kubeconfig
from helpers.fake_api import FakeApi

RECORD = {
    "time": "2026-03-01T12:00:00Z",
    "generation": 2,
    "outcome": "Moved",
    "chosen": "two",
    "reason": "'two' has the best score, 0.9",
    "considered": 4,
    "matched": 2,
    "candidates": [
        {
            "cluster": "two",
            "matched": True,
            "score": 0.9,
            "terms": [
                {"metric": "heat", "weight": 2, "value": 4.5, "normalised": 0.9},
                {
                    "metric": "cost",
                    "scope": "Namespaced",
                    "weight": 1,
                    "value": 0.9,
                    "normalised": 0.9,
                    "inherited": True,
                },
            ],
        },
        {"cluster": "one", "matched": True, "score": 0.181818, "stickiness": 0.1},
        {"cluster": "far", "matched": False, "reason": "location is SK, not DE"},
    ],
    "runnerUp": {"cluster": "one", "score": 0.181818},
    "wouldChange": ["'one' if 'heat' were below 1; it is 4.5"],
}
STATUS = {
    "phase": "Migrating",
    "scheduledTo": {"name": "two", "uid": "u"},
    "scheduledTime": "2026-03-01T12:00:00Z",
    "scheduledGeneration": 1,
    "runningOn": {"name": "one", "uid": "v"},
    "conditions": [{"type": "Scheduled", "status": "True", "reason": "Scheduled"}],
    "lastDecision": RECORD,
}


@pytest.fixture
async def api(tmp_path):
    async with FakeApi() as fake_api:
        fake_api.kubeconfig = kubeconfig(tmp_path, fake_api.url)
        yield fake_api


async def put(api, status):
    metadata = {"name": "app", "namespace": "shop"}
    async with api.client() as client:
        obj = {
            "apiVersion": APPLICATIONS.api_version,
            "kind": "Application",
            "metadata": metadata,
            "status": status,
        }
        await client.create(APPLICATIONS, obj, "shop")


async def why(api, *arguments, name="shop/app"):
    arguments = ["placement", "why", name, f"--kubeconfig={api.kubeconfig}", *arguments]
    return await asyncio.to_thread(cli.main, arguments)


async def test_people_are_shown_every_term_and_every_reason(api, capsys):
    await put(api, STATUS)
    assert await why(api) == 0
    assert capsys.readouterr().out.splitlines() == [
        "shop/app: it is placed on 'two' since 2026-03-01T12:00:00Z, and runs on 'one'",
        "2026-03-01T12:00:00Z, generation 2: Moved to 'two'",
        "  'two' has the best score, 0.9",
        "2 of 4 clusters matched",
        "  * two: 0.9",
        "      heat 0.9 x 2 (read 4.5)",
        "      cost 0.9 x 1 (read 0.9, of the namespace, of its cloud)",
        "    one: 0.181818",
        "      stickiness 1 x 0.1, because it is the current cluster",
        "    far: out, location is SK, not DE",
        "    and 1 more, which are not kept",
        "runner-up: one, 0.181818",
        "the decision would have been different",
        "    'one' if 'heat' were below 1; it is 4.5",
    ]


async def test_programs_get_the_record_as_it_is(api, capsys):
    await put(api, STATUS)
    assert await why(api, "-o", "json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["decision"] == RECORD
    assert (printed["scheduledTo"], printed["runningOn"]) == ("two", "one")
    assert printed["application"] == "shop/app"


async def test_what_is_placed_nowhere_says_why_and_until_when(api, capsys):
    fault = {
        "type": "Scheduled",
        "status": "False",
        "reason": "NoSuitableTarget",
        "message": "there is no cluster",
    }
    status = {"conditions": [fault], "nextRetryTime": "2026-03-01T12:00:30Z"}
    await put(api, {**status, "lastDecision": {"outcome": "NoSuitableTarget"}})
    assert await why(api) == 0
    assert capsys.readouterr().out.splitlines()[:3] == [
        "shop/app: it is not placed",
        "  NoSuitableTarget: there is no cluster",
        "  the next try is at 2026-03-01T12:00:30Z",
    ]


def test_an_update_that_waits_is_told():
    metadata = {"name": "app", "namespace": "shop", "generation": 3}
    application = msgspec.convert({"metadata": metadata, "status": STATUS}, Application)
    line = "  generation 3 is not handed over yet: generation 1 is"
    assert line in lines(report_of(application))


async def test_without_a_record_there_is_a_hint(api, capsys):
    await put(api, {})
    assert await why(api) == 1
    assert "is placement switched on (placement.enabled)?" in capsys.readouterr().out


async def test_one_that_is_not_there_is_one_line(api, capsys):
    assert await why(api) == 1
    assert capsys.readouterr().err == (
        "harbourmaster: Application shop/app not found: "
        "kubectl -n shop get applications lists those that exist\n"
    )


async def test_without_a_namespace_it_is_default(api, capsys):
    assert await why(api, name="app") == 1
    assert "default/app" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "/app", "a/b/c", "shop/"])
def test_what_is_no_name_is_refused(name, capsys):
    with pytest.raises(SystemExit):
        cli.main(["placement", "why", name])
    assert "expected [NAMESPACE/]NAME" in capsys.readouterr().err
