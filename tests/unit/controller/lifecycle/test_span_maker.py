"""An application that runs through its phases causes these spans (keptn-spec 5.4)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from harbourmaster.lifecycle.keptn_config import LifecycleConfiguration
from harbourmaster.lifecycle.model import (
    AppVersionStatus,
    StageResult,
    StageStatus,
    TaskContext,
    WorkloadVersionStatus,
)
from harbourmaster.lifecycle.tracing import phase_carrier
from helpers.lifecycle_objects import (
    app_version,
    evaluation,
    of_application,
    owner_by,
    task,
    workload_version,
)
from helpers.signals import NOW, Telling

LINK = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CREATED = (NOW - timedelta(seconds=70)).timestamp()
STARTED = (NOW - timedelta(seconds=60)).timestamp()


def ids(span):
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


def parent(span):
    return f"{span.parent.span_id:016x}"


def seconds(span):
    return span.start_time / 1e9, span.end_time / 1e9


@pytest.fixture
async def telling():
    return Telling(traced=True)


async def test_phases_hang_below_their_version_and_workloads_below_the_deployment(telling):
    shop = telling.put(telling.caches.app_versions, app_version(span_links=(LINK, "nonsense")))
    front = telling.put(telling.caches.workload_versions, workload_version())
    signals = telling.signals
    for version, phase in (
        (shop, "AppPreDeployTasks"),
        (front, "WorkloadDeploy"),
        (shop, "AppDeploy"),
    ):
        signals.emit(version, phase, "Started")
        signals.emit(version, phase, "Finished")
    pre = task(owner_by("KeptnAppVersion", shop))
    check = evaluation(owner_by("KeptnWorkloadVersion", front))
    for obj in (pre, check, front, shop):
        signals.report_completed(obj)
    spans = await telling.spans()
    assert set(spans) == {
        "shop-1-6b86b273",
        "AppPreDeployTasks",
        "AppDeploy",
        "pre-entry-12345",
        "shop-front-7",
        "shop-front/WorkloadDeploy",
        "pre-eval-cpu-54321",
    }
    root = spans["shop-1-6b86b273"]
    assert root.parent is None
    assert len({span.context.trace_id for span in spans.values()}) == 1
    assert parent(spans["AppPreDeployTasks"]) == ids(root)[1]
    assert parent(spans["AppDeploy"]) == ids(root)[1]
    assert parent(spans["pre-entry-12345"]) == ids(spans["AppPreDeployTasks"])[1]
    assert parent(spans["shop-front-7"]) == ids(spans["AppDeploy"])[1]
    assert parent(spans["shop-front/WorkloadDeploy"]) == ids(spans["shop-front-7"])[1]
    (link,) = root.links
    assert f"{link.context.trace_id:032x}" == LINK.split("-")[1]
    assert link.attributes["opentracing.ref_type"] == "follows-from"
    assert {span.kind for span in spans.values()} == {SpanKind.CONSUMER}
    assert root.instrumentation_scope.name == "keptn/lifecycle-operator/appversion"
    front_scope = spans["shop-front/WorkloadDeploy"].instrumentation_scope.name
    assert front_scope == "keptn/lifecycle-operator/workloadversion"
    assert dict(root.attributes) == {
        "keptn.deployment.app.name": "shop",
        "keptn.deployment.app.version": "1",
        "keptn.deployment.app.namespace": "prod",
        "keptn.deployment.app.status": "Succeeded",
    }
    # The evaluation has failed, the rest has not.
    failed = {name for name, span in spans.items() if span.status.status_code is StatusCode.ERROR}
    assert failed == {"pre-eval-cpu-54321"}
    assert spans["AppDeploy"].status.status_code is StatusCode.OK


@pytest.mark.parametrize(
    ("phase", "state", "title"),
    [
        ("ApplicationPreDeployTasks", "Finished", "Application Pre-Deployment Tasks"),
        ("ApplicationPreDeployEvaluations", "Failed", "Application Pre-Deployment Evaluations"),
        ("ApplicationDeploy", "Finished", "Application Deployment"),
        ("ApplicationPostDeployTasks", "Failed", "Application Post-Deployment Tasks"),
        ("ApplicationPostDeployEvaluations", "Finished", "Application Post-Deployment Evaluations"),
    ],
)
async def test_phases_of_an_application_hang_below_its_version(telling, phase, state, title):
    shop = telling.put(telling.caches.app_versions, of_application(app_version()))
    for reported in ("Started", state):
        telling.signals.emit(shop, phase, reported)
    context = TaskContext(
        app_name=shop.spec.app_name, app_version="1", object_type="Application", task_type="pre"
    )
    telling.signals.report_completed(task(owner_by("KeptnAppVersion", shop), context=context))
    telling.signals.report_completed(shop)
    spans = await telling.spans()
    assert set(spans) == {phase, "pre-entry-12345", "shop-1-6b86b273"}
    assert parent(spans[phase]) == ids(spans["shop-1-6b86b273"])[1]
    is_of_phase = parent(spans["pre-entry-12345"]) == ids(spans[phase])[1]
    assert is_of_phase is (phase == "ApplicationPreDeployTasks")
    outcome = "has failed" if state == "Failed" else "has finished"
    assert [event.name for event in spans[phase].events] == [
        f"{title} has started",
        f"{title} {outcome}",
    ]
    scopes = {span.instrumentation_scope.name for span in spans.values()}
    assert scopes == {"keptn/lifecycle-operator/appversion"}
    kinds = [kind for kind, _ in telling.cloud_events.taken]
    assert (kinds[0], kinds[-1]) == (f"{title}.Started", "Application Completed.Finished")
    assert spans[phase].attributes["keptn.deployment.app.name"] == "application/shop"


async def test_phases_of_an_app_are_none_of_an_application(telling):
    telling.signals.emit(of_application(app_version()), "AppDeploy", "Finished")
    assert await telling.spans() == {}


async def test_the_ids_are_those_that_the_objects_carry(telling):
    front = workload_version(trace_id=phase_carrier(None, "an app", "AppDeploy"))
    signals = telling.signals
    signals.emit(front, "WorkloadDeploy", "Started")
    signals.emit(front, "WorkloadDeploy", "Finished")
    (started, _) = telling.events.taken
    carried = phase_carrier(front.spec.trace_id, front.metadata.uid, "WorkloadDeploy")
    assert started.annotations["traceparent"] == carried["traceparent"]
    spans = await telling.spans()
    trace, span = ids(spans["shop-front/WorkloadDeploy"])
    assert carried["traceparent"] == f"00-{trace}-{span}-01"


async def test_a_phase_lasts_from_its_start_to_its_end(telling):
    shop = app_version(status=AppVersionStatus(status="Progressing"))
    begun = telling.now
    telling.signals.emit(shop, "AppDeploy", "Started")
    telling.now += timedelta(seconds=30)
    telling.signals.emit(shop, "AppDeploy", "Failed")
    span = (await telling.spans())["AppDeploy"]
    assert seconds(span) == (begun.timestamp(), begun.timestamp() + 30)
    assert span.status.status_code is StatusCode.ERROR
    assert [event.name for event in span.events] == [
        "App Deployment has started",
        "App Deployment has failed",
    ]


async def test_after_a_restart_it_goes_on_with_the_same_ids_from_the_start_of_the_object(telling):
    shop = app_version()
    telling.signals.emit(shop, "AppDeploy", "Started")
    before = telling.events.taken[0].annotations["traceparent"]
    telling.new_signals().emit(shop, "AppDeploy", "Finished")
    assert telling.events.taken[1].annotations["traceparent"] == before
    span = (await telling.spans())["AppDeploy"]
    assert seconds(span) == (STARTED, NOW.timestamp())


async def test_without_a_start_the_creation_counts(telling):
    shop = app_version(status=AppVersionStatus(status="Progressing"))
    telling.signals.emit(shop, "AppDeploy", "Finished")
    assert seconds((await telling.spans())["AppDeploy"])[0] == CREATED


async def test_a_time_out_is_not_yet_the_end_of_a_phase(telling):
    front = workload_version()
    telling.signals.emit(front, "WorkloadDeploy", "Finished", "has reached timeout", warning=True)
    telling.signals.emit(front, "WorkloadDeploy", "Failed")
    (span,) = (await telling.spans()).values()
    assert span.status.status_code is StatusCode.ERROR


async def test_each_stage_has_a_span_also_one_that_a_person_ended(telling):
    signals, results = telling.signals, ()
    for number, end in ((1, "Promoted"), (2, "Finished")):
        signals.emit(workload_version(), "WorkloadStage", "Started", f"stage {number}")
        signals.emit(workload_version(), "WorkloadStage", "Held", "task probe failed")
        results = (*results, StageResult(number=number, state="Passed"))
        ended = WorkloadVersionStatus(stage=StageStatus(number=number + 1, of=3, results=results))
        signals.emit(workload_version(status=ended), "WorkloadStage", end)
    spans = await telling.spans()
    assert sorted(spans) == ["shop-front/WorkloadStage-1", "shop-front/WorkloadStage-2"]
    first, second = spans.values()
    assert ids(first)[0] == ids(second)[0]
    assert ids(first)[1] != ids(second)[1]
    assert parent(first) == parent(second)


async def test_a_phase_of_its_app_is_none_of_a_workloads(telling):
    telling.signals.emit(workload_version(), "AppPreDeployEvaluations", "Failed")
    assert await telling.spans() == {}


async def test_a_superseded_version_ends_then_but_not_one_that_had_ended(telling):
    signals = telling.signals
    signals.report_deprecated(app_version("1", status=AppVersionStatus(status="Deprecated")))
    signals.report_deprecated(app_version("2", status=AppVersionStatus(status="Deprecated")))
    over = AppVersionStatus(status="Deprecated", end_time="2026-03-01T11:00:00Z")
    telling.new_signals().report_deprecated(app_version("3", status=over))
    assert set(await telling.spans()) == {"shop-1-6b86b273", "shop-2-6b86b273"}


async def test_a_task_of_nobody_goes_by_its_context(telling):
    context = TaskContext(app_name="shop", metadata={"traceparent": LINK})
    telling.signals.report_completed(task(context=context))
    span = (await telling.spans())["pre-entry-12345"]
    assert ids(span)[0] == LINK.split("-")[1]
    assert parent(span) == LINK.split("-")[2]


async def test_without_a_collector_there_are_no_spans_and_no_ids_anywhere():
    telling = Telling()
    signals = telling.signals
    assert not signals.is_tracing
    signals.emit(app_version(), "AppDeploy", "Started")
    signals.emit(app_version(), "AppDeploy", "Finished")
    signals.emit(app_version("2"), "AppDeploy", "Started")
    signals.report_completed(app_version())
    assert len(signals._spans._begun) == 0
    assert not any("traceparent" in event.annotations for event in telling.events.taken)
    assert "traceparent" not in str(telling.cloud_events.taken)


async def test_a_collector_that_is_configured_later_is_found():
    telling = Telling()
    assert not telling.signals.is_tracing
    telling.configuration = LifecycleConfiguration(collector_url="http://127.0.0.1:1")
    assert telling.signals.is_tracing
    await telling.tracer.close()


async def test_context_metadata_of_the_app_and_then_of_the_workload_is_on_all_their_spans(telling):
    shop = telling.put(
        telling.caches.app_versions, app_version(metadata={"stage": "dev", "team": "shop"})
    )
    front = telling.put(
        telling.caches.workload_versions,
        workload_version(
            metadata={"team": "front", "commit-id": "d1fc"},
            status=WorkloadVersionStatus(
                status="Succeeded", app_context_metadata={"stage": "dev", "team": "shop"}
            ),
        ),
    )
    for version, phase in ((shop, "AppDeploy"), (front, "WorkloadDeploy")):
        telling.signals.emit(version, phase, "Finished")
    pre = task(owner_by("KeptnAppVersion", shop))
    check = evaluation(owner_by("KeptnWorkloadVersion", front))
    for obj in (pre, check, front, shop):
        telling.signals.report_completed(obj)
    spans = await telling.spans()
    told = {
        name: {key: value for key, value in span.attributes.items() if "keptn." not in key}
        for name, span in spans.items()
    }
    of_app = {"stage": "dev", "team": "shop"}
    of_workload = {"stage": "dev", "team": "front", "commit-id": "d1fc"}
    assert told == {
        "shop-1-6b86b273": of_app,
        "AppDeploy": of_app,
        "pre-entry-12345": of_app,
        "shop-front-7": of_workload,
        "shop-front/WorkloadDeploy": of_workload,
        "pre-eval-cpu-54321": of_workload,
    }
    assert not any("stage" in event.annotations for event in telling.events.taken)


async def test_context_metadata_is_bounded_and_replaces_nothing_of_ours(telling):
    shop = app_version(
        metadata={
            "keptn.deployment.app.namespace": "of-others",
            "": "no key",
            "k" * 4_097: "long key",
            "note": "two\nlines" + "x" * 2_000,
            **{f"key-{number}": "x" for number in range(100)},
        }
    )
    telling.signals.report_completed(shop)
    attributes = dict((await telling.spans())["shop-1-6b86b273"].attributes)
    assert attributes["keptn.deployment.app.namespace"] == "prod"
    assert attributes["note"].startswith("two\\nlinesxx")
    assert len(attributes["note"]) < 1_100
    assert attributes.keys().isdisjoint({"", "k" * 1_024})
    assert len([key for key in attributes if key.startswith("key-")]) == 60


async def test_a_span_has_four_kibibytes_of_metadata_and_those_of_the_workload_first(telling):
    of_app = {f"app-{number}": "ä" * 1_000 for number in range(100)}
    front = workload_version(
        metadata={"team": "front"},
        status=WorkloadVersionStatus(status="Succeeded", app_context_metadata=of_app),
    )
    telling.signals.report_completed(front)
    (span,) = (await telling.spans()).values()
    attributes = dict(span.attributes)
    assert attributes["team"] == "front"
    assert len([key for key in attributes if key.startswith("app-")]) == 2
