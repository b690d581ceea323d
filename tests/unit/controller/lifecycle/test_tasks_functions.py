"""A task finds its definition and its code, or waits for them."""

from __future__ import annotations

from harbourmaster.api.metadata import NO_OVERRIDE
from harbourmaster.api.resources import CONFIG_MAPS, TASK_DEFINITIONS, TASKS
from helpers.tasks import (
    HOME,
    KEY,
    STATUS,
    definition,
    environment,
    give,
    jobs,
    maps,
    read,
    settle,
    task,
    task_of,
)


async def test_a_missing_definition_is_told_once_and_waited_for(api, controllers):
    api.put(TASKS, task())
    status = await controllers.until_reason(KEY, "TaskDefinitionNotFound")
    assert status.message == "KeptnTaskDefinition hello is not found in prod, harbour, keptn-system"
    assert status.status == "Pending"
    api.put(TASKS, {**task_of(api), "metadata": {**task_of(api)["metadata"], "labels": {"a": "b"}}})
    await controllers.until_told("CreateTaskNotFound")
    assert len(api.seen("patch", STATUS)) == 1
    api.put(TASK_DEFINITIONS, definition())
    await controllers.until_status(KEY, "Progressing")
    assert "reason" not in task_of(api)["status"]
    assert "message" not in task_of(api)["status"]


async def test_a_definition_that_only_the_watch_lacks_is_no_news(api, controllers):
    api.silence()
    api.put(TASK_DEFINITIONS, definition())
    controllers.caches.tasks.store.put(KEY, read(api.put(TASKS, task())))
    controllers.jobs["tasks"].enqueue([KEY])
    await api.until_seen("get", "/keptntaskdefinitions/hello")
    await settle()
    assert controllers.signals.reasons == []
    api.release()
    await controllers.until_status(KEY, "Progressing")


async def test_c55_a_definition_of_ours_serves_every_namespace(api, controllers):
    api.put(TASK_DEFINITIONS, definition(namespace=HOME, deno={"inline": {"code": "theirs"}}))
    api.put(TASKS, task())
    await controllers.until_status(KEY, "Progressing")
    (job,) = jobs(api)
    (volume,) = job["spec"]["template"]["spec"]["volumes"]
    copied = maps(api)[volume["configMap"]["name"]]
    assert copied["data"] == {"code": "theirs"}
    # It goes with the task that needs it.
    assert copied["metadata"]["ownerReferences"][0]["uid"] == task_of(api)["metadata"]["uid"]


async def test_c56_a_definition_of_the_own_namespace_wins(api, controllers):
    for namespace in (HOME, "prod", "keptn-system"):
        url = f"https://example.com/{namespace}"
        api.put(TASK_DEFINITIONS, definition(namespace=namespace, deno={"httpRef": {"url": url}}))
    api.put(TASKS, task())
    await controllers.until_status(KEY, "Progressing")
    (job,) = jobs(api)
    assert environment(job)[-1]["value"] == "https://example.com/prod"


async def test_s20_a_config_map_of_another_namespace_is_named_by_its_definition_only(
    api, controllers
):
    api.put(CONFIG_MAPS, _map("code", HOME, {"code": "ours", "password": "secret"}))
    api.put(CONFIG_MAPS, _map("private", "others", {"code": "theirs"}))
    api.put(TASK_DEFINITIONS, definition(namespace=HOME, deno={"configMapRef": {"name": "code"}}))
    api.put(TASKS, task())
    await controllers.until_status(KEY, "Progressing")
    assert maps(api)["keptntask-pre-hello-12345"]["data"] == {"code": "ours"}
    for number, name in enumerate(("others/private", "../../others/configmaps/private", "..")):
        api.put(
            TASK_DEFINITIONS, definition(f"d{number}", HOME, deno={"configMapRef": {"name": name}})
        )
        api.put(TASKS, task(f"t{number}", taskDefinition=f"d{number}"))
        await controllers.until_reason(f"prod/t{number}", "FunctionNotFound")
    assert len(jobs(api)) == 1


async def test_a_config_map_is_waited_for(api, controllers):
    give(api, deno={"configMapRef": {"name": "code"}})
    status = await controllers.until_reason(KEY, "FunctionNotFound")
    assert status.message == (
        "ConfigMap code, which KeptnTaskDefinition hello names, has no code yet"
    )
    api.put(CONFIG_MAPS, _map("code", "prod", {"code": "1"}))
    await controllers.until_status(KEY, "Progressing")
    (volume,) = jobs(api)[0]["spec"]["template"]["spec"]["volumes"]
    assert volume["configMap"] == {"name": "code"}


async def test_a_referenced_definition_is_waited_for(api, controllers):
    refers = {"functionRef": {"name": "parent"}}
    api.put(TASK_DEFINITIONS, definition("child", deno=refers))
    give(api, deno={"functionRef": {"name": "child"}})
    status = await controllers.until_reason(KEY, "TaskDefinitionNotFound")
    assert status.message == "KeptnTaskDefinition parent, which child refers to, is not found"
    api.put(TASK_DEFINITIONS, definition("parent"))
    await controllers.until_status(KEY, "Progressing")
    await controllers.until_told("CreateTaskNotFound")


async def test_what_a_definition_without_override_refers_to_is_not_overridden(api, controllers):
    checking = definition(namespace=HOME, deno={"functionRef": {"name": "base"}})
    checking["metadata"]["annotations"] = {NO_OVERRIDE: "true"}
    api.put(TASK_DEFINITIONS, checking)
    for namespace in (HOME, "prod"):
        url = f"https://example.com/{namespace}"
        referred = definition("base", namespace, deno={"httpRef": {"url": url}})
        api.put(TASK_DEFINITIONS, referred)
    api.put(TASKS, task())
    await controllers.until_status(KEY, "Progressing")
    (job,) = jobs(api)
    assert environment(job)[-1]["value"] == f"https://example.com/{HOME}"


async def test_a_config_map_of_somebody_else_is_in_the_way(api, controllers):
    api.put(CONFIG_MAPS, _map("keptnfn-hello", "prod", {"code": "not yours"}))
    give(api)
    status = await controllers.until_reason(KEY, "FunctionClash")
    assert status.message == (
        "ConfigMap keptnfn-hello is not that of KeptnTaskDefinition hello: delete it, or rename one"
    )
    await settle()
    assert maps(api)["keptnfn-hello"]["data"] == {"code": "not yours"}
    assert "CreateTaskFailed" in controllers.signals.reasons
    api.remove(CONFIG_MAPS, "keptnfn-hello", "prod")
    await controllers.until_status(KEY, "Progressing")
    assert maps(api)["keptnfn-hello"]["data"] == {"code": "1"}


def _map(name, namespace, data):
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}
