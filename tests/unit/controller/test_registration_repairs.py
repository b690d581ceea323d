"""Changes of the configurations by others are repaired, and fights about them end."""

from __future__ import annotations

import asyncio
import copy
import itertools

import pytest

from harbourmaster.api.resources import MUTATING_WEBHOOKS, NAMESPACES, SECRETS
from harbourmaster.registration import repair_limiter
from helpers.registration import (
    CONFIGURATIONS,
    CONFIGURATIONS_PATH,
    HOME,
    NAME,
    SECRETS_PATH,
    data_of,
    entry,
    with_data,
)

# Together they take as long as a thousand others.
pytestmark = pytest.mark.slow


async def test_a_fight_ends_in_one_repair_a_minute(setting, api, events, metrics):
    setting.start()
    await setting.settle()

    async def other():
        while True:
            configuration = setting.get(MUTATING_WEBHOOKS)
            if configuration and entry(configuration)["failurePolicy"] != "Fail":
                changed = copy.deepcopy(configuration)
                entry(changed)["failurePolicy"] = "Fail"
                setting.put(MUTATING_WEBHOOKS, changed)
            await asyncio.sleep(0.005)

    setting.background(other())
    assert "once a minute" in await events.until("FieldFight")
    updates = len(api.seen("update", CONFIGURATIONS_PATH))
    await asyncio.sleep(0.3)
    assert len(api.seen("update", CONFIGURATIONS_PATH)) == updates == repair_limiter.LIMIT + 1
    assert len(events.of("FieldFight")) == 1
    # All else is repaired as ever, certificates too.
    changed = copy.deepcopy(setting.get(MUTATING_WEBHOOKS))
    entry(changed)["timeoutSeconds"] = 30
    setting.put(MUTATING_WEBHOOKS, changed)
    await setting.until(lambda: entry(setting.get(MUTATING_WEBHOOKS))["timeoutSeconds"] == 3)


async def test_so_does_one_about_the_whole_configuration(setting, api, events):
    setting.start()
    await setting.settle()

    async def other():
        while True:
            if setting.get(MUTATING_WEBHOOKS):
                api.remove(MUTATING_WEBHOOKS, NAME)
            await asyncio.sleep(0.005)

    setting.background(other())
    assert "once a minute" in await events.until("FieldFight")
    made = len(api.seen("create", "mutatingwebhook"))
    await asyncio.sleep(0.3)
    assert len(api.seen("create", "mutatingwebhook")) == made


async def test_so_does_one_about_webhooks_of_ever_new_names(setting, api, events):
    setting.start()
    await setting.settle()
    names = (f"n-{number}.example.com" for number in itertools.count())

    async def other():
        while True:
            configuration = setting.get(MUTATING_WEBHOOKS)
            if configuration and not any(
                "example.com" in webhook["name"] for webhook in configuration["webhooks"]
            ):
                changed = copy.deepcopy(configuration)
                changed["webhooks"].append({**entry(changed), "name": next(names)})
                setting.put(MUTATING_WEBHOOKS, changed)
            await asyncio.sleep(0.005)

    setting.background(other())
    await events.until("FieldFight")
    updates = len(api.seen("update", CONFIGURATIONS_PATH))
    await asyncio.sleep(0.3)
    assert len(api.seen("update", CONFIGURATIONS_PATH)) == updates == repair_limiter.LIMIT + 1


async def test_many_webhooks_added_at_once_are_no_fight(setting, events):
    setting.start()
    changed = copy.deepcopy((await setting.settle())[MUTATING_WEBHOOKS])
    others = [{**entry(changed), "name": f"n-{number}.example.com"} for number in range(100)]
    changed["webhooks"] += others
    setting.put(MUTATING_WEBHOOKS, changed)
    await setting.until(lambda: len(setting.get(MUTATING_WEBHOOKS)["webhooks"]) < len(others))
    await events.until("DriftRepaired", len(others))
    assert events.of("FieldFight") == []


async def test_a_secret_that_may_not_be_written_does_not_stop_repairs(setting, api, events):
    setting.start()
    await setting.settle()
    api.forbid("update", SECRETS)
    setting.put(SECRETS, with_data(setting.secret(), tls_key=b"x"))
    await api.until_seen("update", SECRETS_PATH)
    api.remove(MUTATING_WEBHOOKS, NAME)
    await events.until("DriftRepaired")
    api.heal()
    await setting.until(lambda: data_of(setting.secret())["tls.key"] != b"x")


async def test_an_owner_of_an_earlier_namespace_is_replaced(setting, api):
    setting.start()
    await setting.settle()
    api.remove(NAMESPACES, HOME)
    uid = api.put(NAMESPACES, {"metadata": {"name": HOME}})["metadata"]["uid"]
    for resource in CONFIGURATIONS:
        # As the garbage collector does.
        api.remove(resource, NAME)
    configurations = await setting.settle()
    assert len(configurations) == 2
    for configuration in configurations.values():
        assert [reference["uid"] for reference in configuration["metadata"]["ownerReferences"]] == [
            uid
        ]


async def test_an_owner_removed_by_hand_is_put_back(setting, events):
    setting.start()
    configuration = copy.deepcopy((await setting.settle())[MUTATING_WEBHOOKS])
    del configuration["metadata"]["ownerReferences"]
    setting.put(MUTATING_WEBHOOKS, configuration)
    assert "metadata.ownerReferences was removed by hand" in await events.until("DriftRepaired")
    (owner,) = setting.get(MUTATING_WEBHOOKS)["metadata"]["ownerReferences"]
    assert owner["uid"] == setting.uid
