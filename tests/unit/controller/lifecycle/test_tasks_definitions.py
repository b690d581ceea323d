"""KeptnTaskDefinitions and the ConfigMaps with their code, on a fake API server.

These tests prove keptn-spec 3.9.
"""

from __future__ import annotations

import msgspec
import pytest

from harbourmaster.api.metadata import LAST_APPLIED
from harbourmaster.api.resources import CONFIG_MAPS, TASK_DEFINITIONS
from helpers.tasks import TaskControllers, definition, definition_of, maps, settle

KEY = "prod/hello"
NAME = "keptnfn-hello"


async def until_named(controllers, name, key=KEY):
    store = controllers.caches.task_definitions.store
    await controllers.until(
        lambda: key in store and store.get(key).status.function.config_map == name
    )


async def until_code(api, controllers, code, name=NAME):
    await controllers.until(lambda: maps(api).get(name, {}).get("data") == {"code": code})


def inline(code, **fields):
    return definition(deno={"inline": {"code": code}}, **fields)


async def test_inline_code_gets_a_config_map_that_goes_with_it(api, controllers):
    api.put(TASK_DEFINITIONS, inline("console.log(1)"))
    await until_named(controllers, NAME)
    config_map = maps(api)[NAME]
    assert config_map["data"] == {"code": "console.log(1)"}
    (owner,) = config_map["metadata"]["ownerReferences"]
    assert owner["kind"] == "KeptnTaskDefinition"
    assert owner["uid"] == definition_of(api)["metadata"]["uid"]
    assert config_map["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "harbourmaster"}


@pytest.mark.claim("O11")
async def test_code_is_not_cached_and_neither_is_what_kubectl_noted(api, controllers):
    code = "x" * 100_000
    noted = {LAST_APPLIED: code, "team": "a"}
    with_code = inline(code)
    with_code["metadata"]["annotations"] = noted
    api.put(TASK_DEFINITIONS, with_code)
    await until_code(api, controllers, code)
    await until_named(controllers, NAME)
    cached = controllers.caches.task_definitions.store.get(KEY)
    assert len(msgspec.json.encode(cached)) < 1000
    assert cached.metadata.annotations == {LAST_APPLIED: "", "team": "a"}


async def test_a_config_map_that_somebody_edits_is_mended(api, controllers):
    api.put(TASK_DEFINITIONS, inline("1"))
    await until_named(controllers, NAME)
    api.put(CONFIG_MAPS, {**maps(api)[NAME], "data": {"code": "rm -rf /", "more": "x"}})
    await until_code(api, controllers, "1")


async def test_a_config_map_of_somebody_else_is_never_overwritten(api, controllers):
    api.put(CONFIG_MAPS, _map(NAME, {"code": "mine"}))
    api.put(TASK_DEFINITIONS, inline("1"))
    store = controllers.caches.task_definitions.store
    await controllers.until(lambda: KEY in store)
    await api.until_seen("get", f"/configmaps/{NAME}")
    await settle()
    assert maps(api)[NAME]["data"] == {"code": "mine"}
    assert definition_of(api)["status"] == {}
    ((about, reason, text, *_),) = controllers.signals.kept
    assert (about, reason) == (f"ConfigMap {NAME}", "ReconcileTaskFailed")
    assert text == (
        "ConfigMap keptnfn-hello is not that of KeptnTaskDefinition hello: delete it, or rename one"
    )
    api.remove(CONFIG_MAPS, NAME, "prod")
    await until_named(controllers, NAME)
    assert len(controllers.signals.kept) == 1


async def test_a_config_map_that_keptn_left_is_taken_over(api, controllers):
    # Keptn's own have no owner.
    api.put(CONFIG_MAPS, _map(NAME, {"code": "old"}))
    api.put(TASK_DEFINITIONS, inline("1", status={"function": {"configMap": NAME}}))
    await until_code(api, controllers, "1")
    assert maps(api)[NAME]["metadata"]["ownerReferences"]


async def test_a_definition_made_anew_takes_over_what_the_last_one_left(api, controllers):
    api.put(TASK_DEFINITIONS, inline("1"))
    await until_named(controllers, NAME)
    api.remove(TASK_DEFINITIONS, "hello", "prod")
    api.put(TASK_DEFINITIONS, inline("2"))
    await until_code(api, controllers, "2")
    await settle()
    (owner,) = maps(api)[NAME]["metadata"]["ownerReferences"]
    assert owner["uid"] == definition_of(api)["metadata"]["uid"]
    assert controllers.signals.kept == []


async def test_a_config_map_by_reference_is_named_when_it_is_there(api, controllers):
    api.put(TASK_DEFINITIONS, definition(deno={"configMapRef": {"name": "code"}}))
    await settle()
    assert definition_of(api)["status"] == {}
    api.put(CONFIG_MAPS, _map("code", {"code": "1"}))
    await until_named(controllers, "code")
    api.remove(CONFIG_MAPS, "code", "prod")
    await until_named(controllers, "")


async def test_a_definition_without_code_of_its_own_costs_nothing(api, controllers):
    api.put(TASK_DEFINITIONS, definition(deno={"httpRef": {"url": "https://example.com"}}))
    api.put(TASK_DEFINITIONS, definition("a", container={"name": "x"}))
    api.put(TASK_DEFINITIONS, definition("b", deno={"functionRef": {"name": "a"}}))
    store = controllers.caches.task_definitions.store
    await controllers.until(lambda: len(store) == 3)
    await settle()
    assert not [request for request in api.requests if request.verb not in {"list", "watch"}]


async def test_a_refusal_is_told_once(api, controllers):
    api.fail_next("create", "/configmaps$", 3, status=403)
    api.put(TASK_DEFINITIONS, inline("1"))
    await until_named(controllers, NAME)
    assert [signal.reason for signal in controllers.signals.kept] == ["ReconcileTaskFailed"]


async def test_a_new_leader_looks_at_each_function_once(api, client):
    api.put(TASK_DEFINITIONS, inline("1"))
    async with TaskControllers(client) as first:
        await until_named(first, NAME)
    writes = len(api.seen("create") + api.seen("patch"))
    async with TaskControllers(client):
        await api.until_seen("get", f"/configmaps/{NAME}")
        await settle()
    assert len(api.seen("create") + api.seen("patch")) == writes
    assert len(api.seen("get", f"/configmaps/{NAME}")) == 1


def _map(name, data):
    return {"metadata": {"name": name, "namespace": "prod"}, "data": data}
