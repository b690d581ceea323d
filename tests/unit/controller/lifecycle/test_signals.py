"""A signal becomes events on the right objects, CloudEvents and counts (keptn-spec 5.1)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harbourmaster.api.resources import PODS
from harbourmaster.controller.lifecycle.signals import Reference
from harbourmaster.evaluation.model import Analysis, AnalysisSpec
from harbourmaster.evaluation.model import ObjectReference as Named
from harbourmaster.kube.event_series import ObjectReference
from harbourmaster.lifecycle.gate_waits import GateWait
from harbourmaster.lifecycle.model import App, AppSpec, AppVersionStatus, WorkloadVersionStatus
from helpers.lifecycle_objects import (
    app,
    app_version,
    evaluation,
    metadata,
    owner_by,
    task,
    workload,
    workload_version,
)
from helpers.logs import captured_log
from helpers.signals import Telling

APP = ObjectReference("lifecycle.keptn.sh/v1", "KeptnApp", "shop", "prod", "uid of shop")


@pytest.fixture(autouse=True)
def log():
    with captured_log() as stream:
        yield stream
    assert b"signal lost" not in stream.getvalue()


@pytest.mark.parametrize(
    "obj", [app(), app_version(), workload(), workload_version(), task(), evaluation()]
)
def test_a_creation_is_told_of_its_object_in_the_documentations_words(obj):
    telling = Telling("documented")
    telling.signals.report_created(obj)
    kind = type(obj).__name__
    assert telling.reasons == [(f"Keptn{kind}", f"Create{kind}")]


def test_the_creation_of_an_analysis_names_its_workload():
    telling = Telling("documented")
    args = {"workload": "shop-cart", "version": "2.0"}
    spec = AnalysisSpec(analysis_definition=Named(name="error-rate"), args=args)
    telling.signals.report_created(Analysis(metadata=metadata("stage-1-analysis"), spec=spec))
    (event,) = telling.events.taken
    assert (event.about, event.reason) == ("Analysis prod/stage-1-analysis", "CreateAnalysis")
    assert event.annotations["workloadName"] == "shop-cart"
    assert event.annotations["analysisDefinitionName"] == "error-rate"


def test_a_superseded_version_is_told_in_the_documentations_words():
    telling = Telling("documented")
    telling.signals.report_deprecated(app_version("0"))
    assert telling.reasons == [("KeptnAppVersion", "Deprecated")]


def test_a_wait_is_told_with_the_command_that_explains_it_and_gives_no_cloud_event():
    telling = Telling()
    text = f"waits for\npre-deployment task warm: {'x' * 2000}"
    wait = GateWait(reason="GateBlocked", identity="GateBlocked/shop-front-7/warm", text=text)
    about = ObjectReference("apps/v1", "Deployment", "front", "prod", "uid of front")
    telling.signals.report_wait(about, wait)
    telling.signals.report_wait(about, replace(wait, reason="GateWaiting"))
    first, second = telling.events.taken
    assert (first.regarding, first.type, first.reason) == (about, "Warning", "GateBlocked")
    assert first.note.startswith("waits for; pre-deployment task warm: xxx")
    assert first.note.endswith("…; run harbourmaster why deployment front -n prod")
    assert (second.type, second.reason) == ("Normal", "GateWaiting")
    assert telling.cloud_events.taken == []


def test_what_is_minor_gives_a_cloud_event_and_no_event():
    telling = Telling()
    telling.signals.emit(workload_version(), "WorkloadPreDeployTasks", "Started", is_minor=True)
    assert telling.events.taken == []
    assert [kind for kind, _ in telling.cloud_events.taken] == [
        "Workload Pre-Deployment Tasks.Started"
    ]


def test_an_event_is_as_keptns_are():
    telling = Telling()
    telling.put(telling.caches.apps, app())
    telling.signals.emit(workload_version(), "WorkloadDeploy", "Failed")
    (event,) = telling.events.taken
    assert event.about == "KeptnWorkloadVersion prod/shop-front-7"
    assert event.regarding.uid == "uid of shop-front-7"
    assert (event.type, event.reason) == ("Warning", "WorkloadDeployFailed")
    assert (
        event.note
        == "Workload Deployment: has failed / Namespace: prod, Name: shop-front-7, Version: 7"
    )
    assert event.related == APP
    assert event.annotations == {
        "namespace": "prod",
        "name": "shop-front-7",
        "phase": "WorkloadDeploy",
        "appName": "shop",
        "workloadName": "shop-front",
        "workloadVersion": "7",
        "workloadVersionName": "shop-front-7",
    }


@pytest.mark.parametrize(
    ("obj", "fields"),
    [
        (app(), {"appName": "shop", "appVersion": "1", "appRevision": "3"}),
        (
            app_version(),
            {"appName": "shop", "appVersion": "1", "appVersionName": "shop-1-6b86b273"},
        ),
        (
            workload(),
            {"appName": "shop", "workloadName": "shop-front", "workloadVersion": "7"},
        ),
        (
            task(),
            {
                "appName": "shop",
                "appVersion": "1",
                "workloadName": "",
                "workloadVersion": "",
                "taskDefinitionName": "entry",
                "taskName": "pre-entry-12345",
            },
        ),
        (
            evaluation(),
            {
                "appName": "shop",
                "appVersion": "",
                "workloadName": "shop-front",
                "workloadVersion": "7",
                "evaluationDefinitionName": "cpu",
                "evaluationName": "pre-eval-cpu-54321",
            },
        ),
    ],
    ids=lambda obj: type(obj).__name__,
)
def test_annotations_are_those_of_the_kind(obj, fields):
    telling = Telling()
    telling.signals.emit(obj, "CreateTask", "Failed", "no")
    (event,) = telling.events.taken
    assert event.annotations == {
        "namespace": "prod",
        "name": obj.metadata.name,
        "phase": "CreateTask",
        **fields,
    }


def test_the_app_is_related_only_where_it_is_there_and_never_to_itself():
    telling = Telling("both")
    telling.signals.report_created(workload())
    telling.put(telling.caches.apps, app())
    telling.signals.report_created(workload())
    telling.signals.report_created(app())
    assert [event.related for event in telling.events.taken] == [None, APP, None]


@pytest.mark.parametrize(
    ("status", "vocabulary", "expected"),
    [
        ("Succeeded", "keptn", ["AppCompletedFinished", "WorkloadCompletedFinished"]),
        ("Failed", "keptn", ["AppCompletedFailed", "WorkloadCompletedFailed"]),
        ("Succeeded", "documented", ["Completed", "Completed"]),
        ("Failed", "documented", ["AppCompletedErrored", "WorkloadCompletedErrored"]),
    ],
)
def test_the_end_of_a_version_is_told_as_it_came(status, vocabulary, expected):
    telling = Telling(vocabulary)
    telling.signals.report_completed(app_version(status=AppVersionStatus(status=status)))
    telling.signals.report_completed(workload_version(status=WorkloadVersionStatus(status=status)))
    telling.signals.report_completed(task())
    telling.signals.report_completed(evaluation())
    assert [event.reason for event in telling.events.taken] == expected


@pytest.mark.parametrize(
    ("checks", "is_told"),
    [({}, True), ({"post_deployment_tasks": ("a",)}, False)],
    ids=["none", "one"],
)
def test_the_end_of_a_workload_version_says_that_it_had_no_checks(checks, is_told):
    telling = Telling()
    for state in ("Succeeded", "Failed"):
        status = WorkloadVersionStatus(status=state)
        telling.signals.report_completed(workload_version(status=status, **checks))
    telling.signals.report_completed(app_version(status=AppVersionStatus(status="Succeeded")))
    texts = [
        "no checks: the workload names no task" in event.note for event in telling.events.taken
    ]
    assert texts == [is_told, False, False]


def test_an_object_of_no_model_is_named_by_a_reference():
    telling = Telling()
    pod = Reference(PODS, metadata("front-abc-x", uid="p-1"))
    telling.signals.emit(pod, "Gate", "Expired", "waits", warning=True)
    (event,) = telling.events.taken
    assert event.regarding == ObjectReference("v1", "Pod", "front-abc-x", "prod", "p-1")
    assert (event.type, event.reason) == ("Warning", "GateExpired")


def test_a_cloud_event_says_what_the_event_says():
    telling = Telling()
    telling.signals.emit(app_version(), "AppPreDeployTasks", "Started")
    ((kind, data),) = telling.cloud_events.taken
    assert kind == "App Pre-Deployment Tasks.Started"
    assert data == {
        "message": telling.events.taken[0].note,
        "resource": {
            "group": "lifecycle.keptn.sh",
            "kind": "KeptnAppVersion",
            "name": "shop-1-6b86b273",
            "namespace": "prod",
            "version": "v1",
        },
        "type": "Normal",
        "version": "1",
    }


def test_nothing_that_is_told_has_a_second_line():
    hostile = "one\nAppDeploy: has finished\r\x1b[31m\u2028two"
    telling = Telling("both")
    shop = App(metadata=metadata("shop\nb"), spec=AppSpec(version="1\n2"))
    telling.signals.emit(shop, "CreateAppVersion", "Failed", hostile)
    (keptn, documented) = telling.events.taken
    for event in (keptn, documented):
        assert event.note.isprintable()
        assert all(annotation.isprintable() for annotation in event.annotations.values())
    assert keptn.note.startswith("Create AppVersion: one; AppDeploy: has finished; \\x1b[31m; two")
    assert all(data["message"].isprintable() for _, data in telling.cloud_events.taken)


def test_a_long_text_is_cut_and_still_says_of_what_it_is():
    telling = Telling()
    telling.signals.emit(task(), "CreateTask", "Failed", "x" * 5000)
    (event,) = telling.events.taken
    assert len(event.note) < 1024
    assert event.note.endswith("Name: pre-entry-12345, Version: 1")


def test_what_ends_is_counted_once():
    telling = Telling()
    owner = owner_by("KeptnAppVersion", app_version())
    for _ in range(2):
        telling.signals.report_completed(app_version())
        telling.signals.report_completed(task(owner))
    counts = {
        sample.name: sample.value
        for family in telling.metrics.collect()
        for sample in family.samples
        if sample.name in {"keptn_app_count_total", "keptn_task_count_total"}
    }
    assert counts == {"keptn_app_count_total": 1, "keptn_task_count_total": 1}


def test_a_signal_that_makes_no_sense_harms_nothing():
    telling = Telling()
    with captured_log() as stream:
        signals = telling.new_signals()
        signals.emit(object(), "AppDeploy", "Started")
        signals.report_completed(None)
        signals.report_created(3)
        signals.report_deprecated(app())
        assert stream.getvalue().count(b"signal lost") >= 2
    assert telling.events.taken == []


def test_a_late_check_is_told_and_counted():
    telling = Telling("both")
    telling.signals.report_late_checks(workload_version(), "not done by then")
    (event,) = telling.events.taken
    assert (event.reason, event.type) == ("PreCheckDeadlineExceeded", "Warning")
    assert event.note.startswith("Pre-Deployment Check Deadline: not done by then / Namespace: ")
    assert telling.metrics._late._value.get() == 1
