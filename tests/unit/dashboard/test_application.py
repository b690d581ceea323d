"""The page of a release: what failed first, its pods, stages, measurements, runs and warnings."""

from __future__ import annotations

import asyncio
import html
from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace

from harbourmaster.api.resources import (
    ANALYSES,
    CONTROLLER_REVISIONS,
    CORE_EVENTS,
    DAEMON_SETS,
    EVALUATIONS,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from harbourmaster.dashboard import reads
from harbourmaster.dashboard.pages.application import application
from harbourmaster.dashboard.query import PageQuery
from harbourmaster.dashboard.reads import read_application, read_within
from harbourmaster.dashboard.registry import APPLICATION_PAGE
from harbourmaster.dashboard.visibility import EVERYWHERE, ListScope, Visibility
from harbourmaster.dashboard.workload_pods import (
    MOST_EVENTS,
    VersionPods,
    related_events,
)
from harbourmaster.evaluation.model import Analysis
from harbourmaster.kube.errors import ApiError, ForbiddenError
from harbourmaster.lifecycle.model import ItemStatus
from helpers.dashboard import Filled
from helpers.patience import PATIENCE

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
STORE = PageQuery(namespace="shop", name="store")
KINDS = {kind.name: EVERYWHERE for kind in APPLICATION_PAGE.kinds}
ALL = Visibility(KINDS)
NEW, OLD = "shop/store-web-1.4.2", "shop/store-web-1.4.1"


@pytest.fixture
def stores():
    stores = Filled(NOW, max_age=3600)
    stores.staged("shop", "store")
    return stores


async def read(stores, visible=ALL, query=STORE):
    return await read_application(stores.client, await stores.world(), visible, query)


async def build(stores, visible=ALL, query=STORE):
    known = await read(stores, visible, query)
    return application(await stores.world(read=known), visible, query, NOW)


def change(stores, key, **fields):
    """Replace fields of the status of a workload's version."""
    version = stores.sources["workload_versions"].store.get(key)
    status = replace(version.status, **fields)
    stores.put("workload_versions", replace(version, status=status))


# What failed first


async def test_what_failed_first_has_its_value_and_its_threshold(stores):
    # Argo Rollouts said "failed (1) > failureLimit (0)", and people searched for the value.
    page = await build(stores)
    check = page.first.check
    assert page.first.where == "web: Stage 2 of 3"
    assert (check.name, check.value, check.threshold) == ("error-rate", "4.8", "<1")
    assert [failure.check.name for failure in page.shown.failed] == ["error-rate", "smoke"]
    (drawn,) = page.first_plots
    assert [mark.measured.value for mark in drawn.marks] == ["0.4", "1.2", "2.1", "4.8"]
    assert drawn.summary.startswith("3 of 4 measurements did not meet the target, the last 3")
    # It is drawn once.
    assert [lane.plots for lane in page.lanes] == [(), ()]


async def test_an_analysis_is_drawn_over_the_stages_of_its_version(stores):
    # A single value says nothing of how the canary became worse.
    target = {"failure": {"greaterThan": {"fixedValue": "50m"}}}
    objective = {"analysisValueTemplateRef": {"name": "errors"}, "target": target}
    for number, value, passed in ((1, 0.02, True), (2, 0.07, False), (3, 0.9, True)):
        result = {"objective": objective, "value": value, "result": {"pass": passed}}
        stores.made(
            "analyses",
            Analysis,
            "shop",
            f"stage-{number}",
            ("KeptnWorkloadVersion", NEW.partition("/")[2] if number < 3 else "of-another"),
            100 - number,
            spec={"analysisDefinition": {"name": "canary"}},
            status={"raw": msgspec.json.encode({"objectiveResults": [result]}).decode()},
        )
    item = ItemStatus(definition_name="canary", name="stage-2", status="Failed")
    item = replace(item, end_time=stores.ago(200))
    change(stores, NEW, stage_analysis_status=(item,), stage_task_status=())
    (drawn,) = (await build(stores)).first_plots
    assert (drawn.name, drawn.target) == ("canary: errors", "<=0.05")
    marks = [(mark.measured.value, mark.kind) for mark in drawn.marks]
    assert marks == [("0.02", "met"), ("0.07", "unmet")]
    hidden = Visibility({name: scope for name, scope in KINDS.items() if name != ANALYSES.name})
    assert (await build(stores, hidden)).first_plots == ()


async def test_the_earliest_end_comes_first_and_a_warning_last(stores):
    version = stores.sources["workload_versions"].store.get(NEW)
    (task,) = version.status.stage_task_status
    (evaluation,) = version.status.stage_evaluation_status
    change(stores, NEW, stage_task_status=(replace(task, end_time=stores.ago(65)),))
    page = await build(stores)
    assert page.first.check.name == "smoke"
    assert page.first.check.message == "checkout answers 502 instead of 200"
    assert [drawn.name for drawn in page.lanes[1].plots] == ["error-rate"]
    warned = replace(task, status="Warning", end_time=stores.ago(65))
    change(stores, NEW, stage_task_status=(warned,), stage_evaluation_status=(evaluation,))
    assert (await build(stores)).first.check.name == "error-rate"


async def test_a_stage_without_a_failed_check_says_why_it_is_held(stores):
    stage = stores.sources["workload_versions"].store.get(NEW).status.stage
    stage = replace(stage, message="its pods are not ready after 300 s")
    change(stores, NEW, stage=stage, stage_task_status=(), stage_evaluation_status=())
    first = (await build(stores)).first
    assert first.check is None
    assert first.text == "its pods are not ready after 300 s"
    assert first.ended == stage.since


async def test_nothing_failed_in_a_release_that_goes_on(stores):
    stage = stores.sources["workload_versions"].store.get(NEW).status.stage
    change(stores, NEW, stage=replace(stage, state="Paused", message=""))
    page = await build(stores)
    assert page.first is None
    assert page.first_plots == ()


# Pods and their images


async def test_each_version_has_its_images_and_its_ready_pods(stores):
    # Users of Argo's dashboard missed the image of a revision.
    new, old = (await build(stores)).lanes[1].pods
    image = "registry.example.com/shop/store:1.4."
    assert new == ("New", "1.4.2", VersionPods((f"{image}2",), ready=1, wanted=4))
    assert old == ("Old", "1.4.1", VersionPods((f"{image}1",), ready=2, wanted=2))
    assert (new[2].tone, old[2].tone) == ("warn", "good")


async def test_a_former_release_wants_no_pods_any_more(stores):
    # Its ReplicaSet still has the annotation with the number of its Deployment.
    (raw, *_) = stores.client.objects["replicasets", "shop"]
    raw["metadata"]["annotations"]["deployment.kubernetes.io/desired-replicas"] = "4"
    raw["spec"]["replicas"] = 0
    raw["status"] = {}
    query = replace(STORE, version="store-1.4.1")
    ((_, version, pods),) = (await build(stores, query=query)).lanes[1].pods
    assert (version, pods.ready, pods.wanted, pods.tone) == ("1.4.1", 0, 0, "idle")


@pytest.mark.parametrize("text", ["", "many", "-1", "9" * 5000])
async def test_an_annotation_that_is_not_a_number_of_pods_does_not_count(stores, text):
    raw = stores.client.objects["replicasets", "shop"][1]
    raw["metadata"]["annotations"]["deployment.kubernetes.io/desired-replicas"] = text
    assert (await read(stores)).pods["store-web-1.4.2"].wanted == 2


async def test_an_owner_that_was_created_again_is_another_one(stores):
    for raw in stores.client.objects["replicasets", "shop"]:
        raw["metadata"]["uid"] = "new"
    assert (await read(stores)).pods == {}
    stores.client.objects.clear()
    known = await read(stores)
    assert known.pods == {}
    assert known.fault == ""


def own_by(stores, kind, spec, status):
    """Let both versions have one owner with a revision for each."""
    for key in (NEW, OLD):
        version = stores.sources["workload_versions"].store.get(key)
        reference = replace(
            version.spec.resource_reference, kind=kind.kind, name="store", uid="uid-store"
        )
        spec_of = replace(version.spec, resource_reference=reference)
        stores.put("workload_versions", replace(version, spec=spec_of))
    owner = {
        "metadata": {"name": "store", "uid": "uid-store"},
        "spec": {"selector": {"matchLabels": {"app": "store"}}, **spec},
        "status": status,
    }
    stores.client.put(kind, "shop", owner)
    for number in (1, 2):
        labels = {"keptn.sh/workload": "web", "keptn.sh/version": f"1.4.{number}"}
        template = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"image": f"store:{number}"}]},
        }
        revision = {
            "metadata": {
                "name": f"store-rev{number}",
                "labels": {"controller-revision-hash": f"rev{number}"},
                "ownerReferences": [{"uid": "uid-store"}],
            },
            "revision": number,
            "data": {"spec": {"template": template}},
        }
        stores.client.put(CONTROLLER_REVISIONS, "shop", revision)
        foreign = {**revision, "metadata": {"name": "x", "ownerReferences": [{"uid": "x"}]}}
        stores.client.put(CONTROLLER_REVISIONS, "shop", {**foreign, "revision": 9})
    # Whoever may create revisions can write any data into them.
    for number, data in enumerate(
        (None, {"spec": "x"}, {"spec": {"template": template | {"spec": 1}}})
    ):
        metadata = {**revision["metadata"], "name": f"strange-{number}"}
        strange = {"metadata": metadata, "revision": 9, "data": data}
        stores.client.put(CONTROLLER_REVISIONS, "shop", strange)


def rows(stores, number, *cells):
    selector = f"app=store,controller-revision-hash in (store-rev{number},rev{number})"
    stores.client.tables[selector] = [
        {"metadata": {"name": "store-x"}, "status": {"ready": ready, "phase": phase}}
        for ready, phase in cells
    ]


@pytest.mark.parametrize(
    ("kind", "spec", "status"),
    [
        (STATEFUL_SETS, {"replicas": 3}, {"readyReplicas": 9}),
        # Kubernetes' dashboard showed DaemonSets with other numbers than kubectl.
        (DAEMON_SETS, {}, {"desiredNumberScheduled": 3, "numberReady": 9}),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
async def test_pods_of_one_owner_are_counted_for_each_version(stores, kind, spec, status):
    own_by(stores, kind, spec, status)
    # Argo's dashboard showed a pod that runs as ready, and a person promoted it.
    rows(stores, 2, ("0/1", "Running"), ("2/2", "Running"), ("1/1", "Terminating"))
    rows(stores, 1, ("1/1", "Running"), ("0/1", "CrashLoopBackOff"))
    (*_, new), (*_, old) = (await build(stores)).lanes[1].pods
    assert new == VersionPods(("store:2",), ready=1, wanted=3)
    assert old == VersionPods(("store:1",), ready=1, wanted=2)
    without = Visibility({name: of for name, of in KINDS.items() if name != "pods"})
    assert (await build(stores, without)).lanes[1].pods == ()


async def test_a_long_list_of_pods_is_read_to_its_end(stores):
    own_by(stores, STATEFUL_SETS, {"replicas": 70}, {})
    stores.client.page = 10
    rows(stores, 2, *[("1/1", "Running")] * 65)
    ((*_, new), *_) = (await build(stores)).lanes[1].pods
    assert (new.ready, new.wanted) == (65, 70)


# What is not read


async def test_a_fault_of_a_read_is_told_and_the_rest_is_shown(place):
    place.filled.staged("shop", "store")
    place.filled.client.faults["replicasets"] = ForbiddenError("no", call="get replicasets")
    place.filled.client.faults["events"] = ApiError("etcd <leader> changed", status=500)
    text = html.unescape(await place.page("/applications/shop/store"))
    assert "3 of 3 reads failed: " in text
    place.filled.client.faults.pop("replicasets")
    text = html.unescape(await place.page("/applications/shop/store"))
    assert "1 of 3 reads failed: 500: etcd <leader> changed" in text
    assert "registry.example.com" in text
    assert "checkout answers 502 instead of 200" in text
    assert "Back-off restarting" not in text


async def test_events_of_a_namespace_need_no_right_in_the_cluster(place):
    # Headlamp asked for the events of the whole cluster, and showed an error to such users.
    place.filled.staged("shop", "store")
    assert "Back-off restarting" in await place.page("/applications/shop/store", "sailor")
    place.access.kinds["sailor"] = {"keptnappversions", "keptnworkloadversions"}
    place.filled.client.asked.clear()
    text = await place.page("/applications/shop/store", "sailor")
    assert "Back-off restarting" not in text
    assert "registry.example.com" not in text
    assert "events" in text[text.index("Left out here") :]
    assert place.filled.client.asked == []


async def test_reads_end_at_their_deadline_and_few_run_at_once(monkeypatch):
    running = most = ended = 0
    forever, idle = asyncio.Event(), asyncio.Event()

    async def job():
        nonlocal running, most, ended
        running += 1
        most = max(most, running)
        try:
            await forever.wait()
        finally:
            running -= 1
            ended += 1
            if not running:
                idle.set()

    async def answer():
        return "here"

    monkeypatch.setattr(reads, "PATIENCE", 0.05)
    jobs = {"first": answer} | dict.fromkeys(map(str, range(20)), job)
    results, fault = await read_within(jobs)
    assert results == {"first": "here"}
    assert fault == "20 of 21 reads failed: no answer within 0.05 s"
    async with asyncio.timeout(PATIENCE):
        await idle.wait()
    assert most == ended == reads.AT_ONCE


async def test_a_visitor_who_leaves_ends_the_reads():
    began, ended = asyncio.Event(), asyncio.Event()

    async def job():
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    visit = asyncio.create_task(read_within({"a": job}))
    await began.wait()
    visit.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(visit, PATIENCE)
    assert ended.is_set()


async def test_a_fault_of_ours_is_not_hidden():
    async def job():
        raise KeyError("ours")

    with pytest.raises(ExceptionGroup):
        await read_within({"a": job})


# Warnings


def event(kind, name, reason="BackOff", time="2026-03-01T11:59:00Z", **fields):
    involved = {"kind": kind, "name": name}
    return {"involvedObject": involved, "reason": reason, "lastTimestamp": time, **fields}


def test_a_pod_belongs_to_its_owner_by_name():
    owner, long = "store-2", "s" * 70
    shown = ("store-2-x1xyz", "store-2-0", f"{long[:58]}abcde")
    hidden = ("store-2-5f-x1xyz", "store-22-x1xyz", "store-2", "other-x1xyz", f"{long[:57]}-abcde")
    for name in shown:
        assert related_events([event("Pod", name)], {owner, long}), name
    for name in hidden:
        assert not related_events([event("Pod", name)], {owner, long}), name
    # An object of another kind can have the name of a pod.
    assert not related_events([event("Job", "store-2-x1xyz")], {owner})
    (line,) = related_events([event("Job", "store-2")], {owner})
    assert (line.kind, line.name) == ("Job", "store-2")


def test_a_thousand_pods_with_one_trouble_are_one_line():
    events = [event("Pod", f"store-2-{number}") for number in range(1000)]
    events += [event("Pod", "store-2-7", time="2026-03-01T11:59:30Z", message="m" * 5000, count=7)]
    events += [event("Pod", "store-2-7", "Unhealthy")]
    line, second = related_events(events, {"store-2"})
    assert (line.name, line.others, line.count) == ("store-2-7", 999, 7)
    assert len(line.message) == 500
    assert (second.reason, second.others) == ("Unhealthy", 0)


def test_the_newest_lines_are_shown_and_times_of_new_events_count():
    events = [
        event("Pod", "a-1", f"R{number}", f"2026-03-01T11:{number:02}:00Z") for number in range(60)
    ]
    shown = related_events(events, {"a"})
    assert [line.reason for line in shown] == [f"R{number}" for number in range(59, 9, -1)]
    assert len(shown) == MOST_EVENTS
    # The API of events.k8s.io has other fields, and null for those of the core group.
    series = {"count": 5, "lastObservedTime": "2026-03-01T11:59:59.000000Z"}
    nulls = {"count": None, "message": None, "eventTime": "2026-03-01T11:00:00.000000Z"}
    (line,) = related_events([event("Pod", "a-1", time=None, series=series, **nulls)], {"a"})
    assert (line.time, line.count) == ("2026-03-01T11:59:59.000000Z", 5)


async def test_warnings_are_about_the_release_and_its_tasks(stores):
    stores.warning("shop", "Pod", "store-1-x1xyz", "Old")
    stores.warning("shop", "Pod", "cart-1-x1xyz", "Foreign")
    stores.warning("shop", "Pod", "job-stage-2-smoke-abcde", "OfTask")
    stores.warning("shop", "ReplicaSet", "store-2", "FailedCreate")
    stores.warning("shop", "KeptnTask", "stage-2-smoke", "JobFailed")
    stores.warning("shop", "KeptnAppVersion", "store-1.4.2", "OfApp", type="Normal")
    stores.warning("shop", "Pod", "job-of-old-abcde", "OfFormerTask")
    context = {"workloadName": "store-web", "appName": "store", "workloadVersion": "1.4.1"}
    stores.task("shop", "smoke", "of-old", {"context": context}, jobName="job-of-old")
    shown = {line.reason for line in (await build(stores)).events}
    assert shown == {"BackOff", "OfTask", "FailedCreate", "JobFailed"}


async def test_many_warnings_of_a_namespace_are_not_read_without_a_limit(stores):
    for number in range(2100):
        stores.warning("shop", "Pod", f"cart-1-{number}", "Foreign")
    stores.client.asked.clear()
    await read(stores)
    lists = [asked for asked in stores.client.asked if asked[0] == CORE_EVENTS.plural]
    assert lists == [("events", "shop", "type=Warning")] * (reads.MOST_EVENTS_READ // 500)


# Stages, measurements, runs


async def test_the_bar_has_the_pods_of_each_stage(stores):
    rows_of = (await build(stores)).lanes[1].phases
    (stages,) = [row.stages for row in rows_of if row.stages]
    assert [(stage.number, stage.state.word, stage.released, stage.pods) for stage in stages] == [
        (1, "Passed", 1, 1),
        (2, "Held", 1, 1),
        (3, "To come", 0, 2),
    ]
    bars = [(stage.bar.x, stage.bar.width) for stage in stages]
    assert bars == [(0, 250), (250, 250), (500, 500)]


@pytest.mark.parametrize("count", [1, 3, 4000])
async def test_every_stage_is_within_the_bar(stores, count):
    stage = stores.sources["workload_versions"].store.get(NEW).status.stage
    stage = replace(stage, wanted=count, allowed=5000, released=5000, results=())
    change(stores, NEW, stage=stage)
    rows_of = (await build(stores)).lanes[1].phases
    (stages,) = [row.stages for row in rows_of if row.stages]
    assert sum(part.pods for part in stages) == count
    bars = [part.bar for part in stages]
    assert all(bar.x >= 0 and bar.width > 4 and bar.x + bar.width <= 1000 for bar in bars)
    assert all(0 <= part.released <= part.pods for part in stages)


async def test_measurements_that_met_their_targets_are_kept_besides(stores):
    # Keptn's bridge lost results when its chart was folded.
    stores.measured("shop", "stage-2-errors", "error-rate", "0.1 0.2", "<1")
    status = stores.sources["workload_versions"].store.get(NEW).status
    (item,) = status.stage_evaluation_status
    change(stores, NEW, stage_evaluation_status=(replace(item, status="Succeeded"),))
    lane = (await build(stores)).lanes[1]
    assert [len(drawn.marks) for drawn in lane.plots] == [2]
    hidden = Visibility({name: of for name, of in KINDS.items() if name != EVALUATIONS.name})
    assert (await build(stores, hidden)).lanes[1].plots == ()


async def test_every_run_of_a_task_has_its_last_message(stores):
    context = {"workloadName": "store-web", "appName": "store", "workloadVersion": "1.4.1"}
    stores.task("shop", "smoke", "of-old", {"context": context})
    stores.task("shop", "smoke", "of-app", {"context": {"appName": "store", "appVersion": "1.4.2"}})
    # Another namespace has an app of this name, too, and perhaps other readers.
    context = {**context, "workloadVersion": "1.4.2"}
    stores.task("payments", "smoke", "foreign", {"context": context})
    of_app, of_web = (await build(stores)).lanes
    assert [run.object for run in of_app.runs] == ["of-app"]
    assert [(run.object, run.state, run.message) for run in of_web.runs] == [
        ("stage-2-smoke", "Failed", "checkout answers 502 instead of 200"),
        ("stage-1-smoke", "Succeeded", "12 of 12 requests were answered"),
    ]
    hidden = Visibility({**KINDS, "keptntasks.lifecycle.keptn.sh": ListScope()})
    assert (await build(stores, hidden)).lanes[1].runs == ()


async def test_texts_of_the_cluster_are_escaped(place):
    place.filled.staged("shop", "store")
    (raw, *_) = place.filled.client.objects[REPLICA_SETS.plural, "shop"]
    raw["spec"]["template"]["spec"]["containers"] = [{"image": "<i>x</i>\u202e"}]
    place.filled.warning("shop", "ReplicaSet", "store-2", "<b>", "<script>")
    text = await place.page("/applications/shop/store")
    assert "&lt;i&gt;x&lt;/i&gt;\\u202e" in text
    assert "<script>" not in text.replace('<script src="', "")
    assert "<b>" not in text[text.index("Warnings of") :]
