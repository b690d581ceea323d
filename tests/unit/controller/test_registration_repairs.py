"""Changes of the configurations by others are repaired, and fights about them end."""

from __future__ import annotations

import asyncio
import copy
import itertools

import pytest

from harbourmaster.api.resources import (
    CLUSTER_POLICIES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    POLICIES,
    SECRETS,
)
from harbourmaster.registration import repair_limiter
from harbourmaster.registration.desired import GATES_LABEL
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
            await asyncio.sleep(0.05)

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
            await asyncio.sleep(0.05)

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
            await asyncio.sleep(0.05)

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


AKS = [
    {"key": "control-plane", "operator": "NotIn", "values": ["true"]},
    {"key": "kubernetes.azure.com/managedby", "operator": "NotIn", "values": ["aks"]},
]


def add_as_aks(setting, resource):
    """Add to each webhook what AKS adds, and return whether any lacked it."""
    changed = copy.deepcopy(setting.get(resource))
    for webhook in changed["webhooks"]:
        expressions = webhook["namespaceSelector"].setdefault("matchExpressions", [])
        expressions += [expression for expression in AKS if expression not in expressions]
    lacked = changed != setting.get(resource)
    if lacked:
        setting.put(resource, changed)
    return lacked


async def test_additions_are_kept_without_a_fight(setting, api, events):
    setting.start()
    await setting.settle()
    writes = []

    async def enforce():
        while True:
            present = filter(setting.get, CONFIGURATIONS)
            writes.extend(resource for resource in present if add_as_aks(setting, resource))
            await asyncio.sleep(0.05)

    setting.background(enforce())
    await setting.until(lambda: len(writes) == 2)
    # Something else is repaired beside them.
    changed = copy.deepcopy(setting.get(MUTATING_WEBHOOKS))
    entry(changed)["timeoutSeconds"] = 30
    setting.put(MUTATING_WEBHOOKS, changed)
    await setting.until(lambda: entry(setting.get(MUTATING_WEBHOOKS))["timeoutSeconds"] == 3)
    await asyncio.sleep(60)
    assert len(writes) == 2
    assert len(api.seen("update", CONFIGURATIONS_PATH)) == 1
    assert (len(events.of("DriftRepaired")), events.of("FieldFight")) == (1, [])
    assert events.of("NamespacesExcluded") == []


async def test_an_event_names_the_namespaces_that_an_addition_excludes(setting, api, events):
    api.put(POLICIES, {"metadata": {"name": "p", "namespace": "owns"}, "spec": {}})
    chosen = {"namespaceSelector": {"matchLabels": {"stage": "test"}}}
    api.put(CLUSTER_POLICIES, {"metadata": {"name": "c"}, "spec": chosen})
    api.put(CLUSTER_POLICIES, {"metadata": {"name": "malformed"}, "spec": 1})
    spaces = {"owns": {}, "chosen": {"stage": "test"}, "neither": {}, "asks": {GATES_LABEL: "true"}}
    for name, labels in spaces.items():
        api.put(
            NAMESPACES, {"metadata": {"name": name, "labels": {"control-plane": "true", **labels}}}
        )
    setting.start()
    await setting.settle()
    for resource in CONFIGURATIONS:
        add_as_aks(setting, resource)
    note = await events.until("NamespacesExcluded", 2)
    assert note.startswith("others exclude asks, chosen, owns from gates and policies: ")
    assert 'namespaceSelector {"key":"control-plane","operator":"NotIn","values":["true"]}' in note
    # It is reported once, and again when other namespaces are excluded.
    api.put(NAMESPACES, {"metadata": {"name": "late", "labels": {"control-plane": "true"}}})
    api.put(POLICIES, {"metadata": {"name": "p", "namespace": "late"}, "spec": {}})
    note = await events.until("NamespacesExcluded", 3)
    assert "exclude asks, chosen, late, owns from" in note


async def test_additions_that_exclude_objects_are_reported_though_policies_cannot_be_read(
    setting, api, events
):
    api.forbid("list", POLICIES)
    api.forbid("list", CLUSTER_POLICIES)
    setting.start()
    changed = copy.deepcopy((await setting.settle())[MUTATING_WEBHOOKS])
    entry(changed)["objectSelector"] = {"matchLabels": {"a": "b"}}
    setting.put(MUTATING_WEBHOOKS, changed)
    note = await events.until("NamespacesExcluded")
    assert note == (
        "others exclude objects from gates and policies: change their labels, or remove what was "
        'added: objectSelector {"a":"b"}'
    )
    assert events.of("DriftRepaired") == []


async def test_a_tool_that_writes_ever_new_selectors_without_ours_is_a_fight(setting, api, events):
    setting.start()
    await setting.settle()
    values = (f"value-{number}" for number in itertools.count())

    async def other():
        while True:
            configuration = setting.get(MUTATING_WEBHOOKS)
            if configuration and "matchExpressions" in entry(configuration)["namespaceSelector"]:
                changed = copy.deepcopy(configuration)
                entry(changed)["namespaceSelector"] = {"matchLabels": {"a": next(values)}}
                setting.put(MUTATING_WEBHOOKS, changed)
            await asyncio.sleep(0.05)

    setting.background(other())
    await events.until("FieldFight")
    updates = len(api.seen("update", CONFIGURATIONS_PATH))
    await asyncio.sleep(0.3)
    assert len(api.seen("update", CONFIGURATIONS_PATH)) == updates == repair_limiter.LIMIT + 1
    assert len(events.of("FieldFight")) == 1
