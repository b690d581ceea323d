"""Tasks and evaluations of a phase start and end (keptn-spec 3.7)."""

from __future__ import annotations

from harbourmaster.lifecycle.model import AppVersionStatus, ItemStatus
from helpers.phased import STAMP, Walk, app_version, workload_version


def item(walk, definition):
    items = (
        *walk.status.pre_deployment_task_status,
        *walk.status.pre_deployment_evaluation_task_status,
    )
    return next(candidate for candidate in items if candidate.definition_name == definition)


def texts(walk, reason):
    return [notice.text for notice in walk.told if f"{notice.phase}{notice.state}" == reason]


def test_a_child_is_made_for_each_definition_at_once():
    walk = Walk(app_version(pre_deployment_tasks=("a", "b", "c")))
    walk.go()
    assert [name for _, name in walk.created] == ["pre-a", "pre-b", "pre-c"]
    assert walk.status.pre_deployment_task_status == tuple(
        ItemStatus(definition_name=name, name=f"pre-{name}", start_time=STAMP) for name in "abc"
    )
    assert walk.status.pre_deployment_status == "Pending"
    assert walk.status.status == "Progressing"


def test_a_slow_one_delays_no_other():
    walk = Walk(app_version(pre_deployment_tasks=("slow", "quick")))
    walk.go()
    walk.end("slow", "Progressing")
    walk.end("quick")
    walk.later(7)
    walk.go()
    assert item(walk, "quick").status == "Succeeded"
    assert item(walk, "quick").end_time == "2026-11-21T18:00:07Z"
    assert item(walk, "slow") == ItemStatus(
        definition_name="slow", status="Progressing", name="pre-slow", start_time=STAMP
    )
    assert walk.status.pre_deployment_status == "Progressing"


def test_a_change_of_status_is_told_once():
    walk = Walk(app_version(pre_deployment_tasks=("a",)))
    for state in ("", "Pending", "Progressing", "Progressing", "Succeeded"):
        walk.go()
        walk.go()
        walk.end("a", state)
    walk.go()
    assert texts(walk, "ReconcileTaskStatusChanged") == [
        "task status changed from  to Pending",
        "task status changed from Pending to Progressing",
        "task status changed from Progressing to Succeeded",
    ]


def test_only_the_end_of_a_failed_task_is_told_with_its_message():
    walk = Walk(app_version(pre_deployment_tasks=("a", "b")))
    walk.go()
    walk.end("a", "Progressing")
    walk.go()
    walk.end("a", "Failed")
    walk.end("b", "Succeeded")
    walk.go()
    assert [notice.failed_task for notice in walk.told if notice.failed_task] == ["pre-a"]


def test_of_two_items_that_keptn_left_for_one_definition_the_first_counts():
    items = (
        ItemStatus(definition_name="a", name="pre-a-11111"),
        ItemStatus(definition_name="a", name="pre-a-22222"),
    )
    status = AppVersionStatus(pre_deployment_task_status=items)
    walk = Walk(app_version(pre_deployment_tasks=("a", "a"), status=status))
    walk.children = {("KeptnTask", item.name): "Progressing" for item in items}
    walk.go()
    assert [state.name for state in walk.status.pre_deployment_task_status] == ["pre-a-11111"]
    assert walk.created == []


def test_a_failed_evaluation_is_told_of_itself():
    walk = Walk(workload_version(pre_deployment_evaluations=("load",)))
    walk.go()
    walk.end("load", "Failed")
    walk.go()
    (told,) = [notice for notice in walk.told if notice.about]
    assert (told.phase, told.state, told.about) == (
        "ReconcileEvaluation",
        "Failed",
        "pre-eval-load",
    )
    assert texts(walk, "ReconcileEvaluationStatusChanged")[-1] == (
        "evaluation status changed from Pending to Failed"
    )


def test_a_missing_definition_keeps_only_its_own_item_waiting():
    walk = Walk(app_version(pre_deployment_tasks=("here", "gone")), undefined=["gone"])
    for _ in range(3):
        walk.go()
    assert [name for _, name in walk.created] == ["pre-here"]
    assert item(walk, "gone") == ItemStatus(definition_name="gone")
    walk.end("here")
    walk.go()
    assert item(walk, "here").status == "Succeeded"
    assert walk.status.pre_deployment_status == "Pending"
    assert texts(walk, "CreateTaskNotFound") == [
        'KeptnTaskDefinition "gone" not found; waiting for it to be created'
    ]
    assert [notice.warning for notice in walk.told if notice.state == "NotFound"] == [True]
    walk.undefined.clear()
    walk.go()
    walk.end("gone")
    walk.go()
    assert walk.status.pre_deployment_status == "Succeeded"
    assert len(texts(walk, "CreateTaskNotFound")) == 1


def test_a_deleted_child_is_made_anew_under_another_name():
    walk = Walk(app_version(pre_deployment_tasks=("a",)))
    walk.go()
    walk.end("a", "Progressing")
    walk.go()
    first = walk.lose("a")
    walk.later(9)
    walk.go()
    second = item(walk, "a")
    assert second.name == walk.names("a")[1] != first
    assert (second.status, second.start_time) == ("Pending", "2026-11-21T18:00:09Z")
    walk.end("a")
    walk.go()
    assert walk.status.pre_deployment_status == "Succeeded"
    assert len(walk.names("a")) == 2


def test_a_deleted_child_that_can_t_be_replaced_keeps_its_name_until_it_can():
    walk = Walk(app_version(pre_deployment_tasks=("a",)))
    walk.go()
    walk.end("a", "Progressing")
    walk.go()
    first = walk.lose("a")
    walk.refused = {("AppPreDeployTasks", "a")}
    walk.go()
    assert (item(walk, "a").name, item(walk, "a").status) == (first, "Pending")
    walk.refused = set()
    walk.go()
    assert item(walk, "a").name not in {"", first}


def test_a_check_taken_off_the_list_is_not_waited_for():
    walk = Walk(workload_version(pre_deployment_tasks=("a", "b")))
    walk.go()
    walk.end("a")
    shorter = workload_version(pre_deployment_tasks=("a",), status=walk.status)
    walk.version = shorter
    walk.go()
    assert walk.status.pre_deployment_status == "Succeeded"
