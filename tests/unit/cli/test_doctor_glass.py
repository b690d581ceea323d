"""``harbourmaster doctor --break-glass``: what is written, by whom it is told, and what refuses."""

from __future__ import annotations

import argparse
import copy

import msgspec
import pytest

from harbourmaster.api.resources import EVENTS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from harbourmaster.cli.arguments import reason
from harbourmaster.cli.doctor import break_glass
from harbourmaster.cli.main import main
from harbourmaster.kube.errors import ConflictError, ForbiddenError
from harbourmaster.registration.break_glass import ANNOTATION, break_glass_of
from harbourmaster.registration.desired import Home, desired_configurations
from harbourmaster.registration.settings import RegistrationSettings
from helpers.fake_api import FakeApi

NAME = "harbourmaster"
BOTH = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)


@pytest.fixture
async def api():
    async with FakeApi() as fake_api:
        for resource, configuration in desired_configurations(
            RegistrationSettings(), Home("h"), b"x"
        ).items():
            fake_api.put(resource, configuration)
        yield fake_api


@pytest.fixture
async def client(api):
    async with api.client() as api_client:
        yield api_client


async def change(client, to, reason="incident 4711"):
    arguments = argparse.Namespace(break_glass=to, reason=reason)
    return await break_glass._run(arguments, client)


def policies(api):
    return {
        webhook["name"]: webhook["failurePolicy"]
        for resource in BOTH
        for webhook in api.get(resource, NAME)["webhooks"]
    }


def notes(api):
    return [event["note"] for event in api.objects.all(EVENTS).values()]


async def test_break_glass_mode_is_started_reported_and_ended(api, client, capsys):
    before = copy.deepcopy([api.get(resource, NAME) for resource in BOTH])
    kept = policies(api)
    assert await change(client, "on") == 0
    assert set(policies(api).values()) == {"Ignore"}
    said = break_glass_of(api.get(MUTATING_WEBHOOKS, NAME))
    assert said.reason == "incident 4711"
    assert said.by
    assert {**said.before, **break_glass_of(api.get(VALIDATING_WEBHOOKS, NAME)).before} == kept
    assert len(notes(api)) == 2
    assert all(
        "started break-glass mode, all webhooks fail open: incident 4711" in note
        for note in notes(api)
    )
    assert await change(client, "off") == 0
    for resource, configuration in zip(BOTH, before, strict=True):
        stored = api.get(resource, NAME)
        assert stored["webhooks"] == configuration["webhooks"]
        assert "annotations" not in stored["metadata"]
    assert len(notes(api)) == 4
    assert "restored" in capsys.readouterr().out


async def test_switching_twice_changes_nothing(api, client, capsys):
    await change(client, "on")
    written = len(api.seen("update"))
    assert await change(client, "on", "another") == 0
    assert break_glass_of(api.get(MUTATING_WEBHOOKS, NAME)).reason == "incident 4711"
    assert "is on already" in capsys.readouterr().out
    assert len(api.seen("update")) == written
    await change(client, "off")
    written = len(api.seen("update"))
    assert await change(client, "off") == 0
    assert "break-glass mode is off" in capsys.readouterr().out
    assert len(api.seen("update")) == written


async def test_a_webhook_that_was_closed_again_is_opened(api, client):
    await change(client, "on")
    stored = copy.deepcopy(api.get(MUTATING_WEBHOOKS, NAME))
    stored["webhooks"][0]["failurePolicy"] = "Fail"
    api.put(MUTATING_WEBHOOKS, stored)
    before = break_glass_of(stored).before
    assert await change(client, "on") == 0
    assert set(policies(api).values()) == {"Ignore"}
    assert break_glass_of(api.get(MUTATING_WEBHOOKS, NAME)).before == before


async def test_a_mode_that_was_annotated_by_hand_is_ended_too(api, client):
    stored = copy.deepcopy(api.get(MUTATING_WEBHOOKS, NAME))
    stored["metadata"]["annotations"] = {ANNOTATION: "fire"}
    api.put(MUTATING_WEBHOOKS, stored)
    assert await change(client, "off") == 0
    assert break_glass_of(api.get(MUTATING_WEBHOOKS, NAME)) is None


async def test_an_unknown_failure_policy_of_gated_pods_becomes_fail_and_is_reported(
    api, client, capsys
):
    await change(client, "on")
    stored = copy.deepcopy(api.get(MUTATING_WEBHOOKS, NAME))
    forged = {"gated-pods.harbourmaster.dev": "Nonsense", "pods.harbourmaster.dev": "Ignore"}
    said = {"by": "mallory\x1b[2J", "before": forged}
    stored["metadata"]["annotations"] = {ANNOTATION: msgspec.json.encode(said).decode()}
    api.put(MUTATING_WEBHOOKS, stored)
    assert await change(client, "off") == 0
    assert policies(api)["gated-pods.harbourmaster.dev"] == "Fail"
    assert policies(api)["pods.harbourmaster.dev"] == "Ignore"
    assert (
        "the earlier failurePolicy of templates.harbourmaster.dev, gated-pods."
        in capsys.readouterr().out
    )


async def test_the_caller_learns_that_gates_are_open_too(client, capsys):
    await change(client, "on")
    assert "pods of namespaces with gates start without their checks" in capsys.readouterr().out


async def test_a_missing_configuration_does_not_stop_the_other(api, client, capsys):
    api.remove(MUTATING_WEBHOOKS, NAME)
    assert await change(client, "on") == 1
    assert break_glass_of(api.get(VALIDATING_WEBHOOKS, NAME)) is not None
    assert "MutatingWebhookConfiguration harbourmaster not found" in capsys.readouterr().err


async def test_missing_permissions_are_one_line_each(client, capsys, monkeypatch):
    async def replace(*_, **__):
        raise ForbiddenError("cannot update", status=403)

    monkeypatch.setattr(client, "replace", replace)
    assert await change(client, "on") == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(
        "MutatingWebhookConfiguration: not changed: missing permission: cannot update"
    )
    assert "ValidatingWebhookConfiguration" in second


async def test_a_configuration_that_changes_meanwhile_is_read_again(api, client, monkeypatch):
    replace, refused = client.replace, []

    async def once(*arguments, **options):
        if len(refused) < 2:
            refused.append(1)
            raise ConflictError("changed", status=409)
        return await replace(*arguments, **options)

    monkeypatch.setattr(client, "replace", once)
    assert await change(client, "on") == 0
    assert set(policies(api).values()) == {"Ignore"}


async def test_a_configuration_that_always_changes_is_given_up(client, capsys, monkeypatch):
    async def replace(*_, **__):
        raise ConflictError("changed", status=409)

    monkeypatch.setattr(client, "replace", replace)
    assert await change(client, "on") == 1
    assert "not changed" in capsys.readouterr().err


async def test_an_event_that_cannot_be_written_is_no_failure(api, client, capsys, monkeypatch):
    async def create(*_, **__):
        raise ForbiddenError("cannot create", status=403)

    monkeypatch.setattr(client, "create", create)
    assert await change(client, "on") == 0
    assert set(policies(api).values()) == {"Ignore"}
    assert "done, but the event could not be written" in capsys.readouterr().err


@pytest.mark.claim("B1")
def test_break_glass_mode_needs_a_reason(capsys):
    assert main(["doctor", "--break-glass", "on", "--kubeconfig=/none"]) == 2
    assert "needs --reason" in capsys.readouterr().err


def test_a_reason_is_limited_and_cleaned():
    with pytest.raises(argparse.ArgumentTypeError, match="longer than 512"):
        reason("x" * 513)
    assert reason(" two\n lines ") == "two lines"
    # Of a shell's bytes that are no UTF-8, and of terminal controls, escapes are left.
    assert reason("a\udcff\x1b[2J") == "a\\udcff\\x1b[2J"


def test_the_event_is_valid_for_the_api():
    stored = {"metadata": {"uid": "u"}}
    said = break_glass.BreakGlass(by="ada", reason="x" * 2000)
    result = break_glass.event(MUTATING_WEBHOOKS, stored, said, is_on=True)
    assert len(result["note"]) <= 1000
    assert result["regarding"]["uid"] == "u"
    assert msgspec.json.encode(result)
