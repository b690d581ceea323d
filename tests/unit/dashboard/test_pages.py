"""The content of pages, for objects in all states."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from harbourmaster.dashboard.pages import (
    applications,
    checks,
    clusters,
    gates,
    overview,
    policies,
    reservations,
)
from harbourmaster.dashboard.pages.application import application
from harbourmaster.dashboard.pages.applications import MOST
from harbourmaster.dashboard.pages.phases import WIDTH, phase_rows, steps
from harbourmaster.dashboard.query import PageQuery
from harbourmaster.dashboard.reads import read_pod
from harbourmaster.dashboard.slicing import run_sliced
from harbourmaster.dashboard.sources import SOURCES, PageSources
from harbourmaster.dashboard.visibility import EVERYWHERE, ListScope, Visibility
from harbourmaster.lifecycle.apps import deprecate_all_phases
from harbourmaster.lifecycle.model import ItemStatus, WorkloadVersionStatus
from harbourmaster.policies.model import PREFERRED, REQUIRED
from helpers.dashboard import Filled
from helpers.lifecycle_objects import workload_version

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CART = PageQuery(namespace="shop", name="cart")
ALL = Visibility({kind.name: EVERYWHERE for kind in SOURCES})


@pytest.fixture
def stores():
    return Filled(NOW, max_age=3600)


async def test_an_empty_world_has_empty_pages(stores):
    world = await stores.world()
    for page in (applications.applications, policies.policies):
        assert page(world, ALL, PageQuery(), NOW).listing.rows == ()
    assert (await run_sliced(gates.gates(world, ALL, PageQuery(), NOW))).listing.rows == ()
    assert reservations.reservations(world, ALL, PageQuery(), NOW).listing.rows == ()
    assert clusters.clusters(world, ALL, PageQuery(), NOW).clusters.rows == ()
    assert clusters.clusters(world, ALL, PageQuery(view="placed"), NOW).placements.rows == ()
    page = await run_sliced(overview.overview(world, ALL, PageQuery(), NOW))
    assert page.notices == ()
    assert not any(tally.is_off or tally.is_refused for tally in page.tallies)
    assert application(world, ALL, CART, NOW) is None


async def test_what_nobody_mirrors_is_off_and_what_may_not_be_seen_is_refused():
    page = await run_sliced(overview.overview(PageSources(), Visibility(), PageQuery(), NOW))
    assert page.tallies
    assert all(tally.is_off and tally.is_refused for tally in page.tallies)


async def test_the_newest_version_of_an_application_counts_and_the_failed_come_first(
    stores, assert_golden
):
    stores.app("shop", "cart", 0)
    stores.app("shop", "ledger", 2)
    page = applications.applications(await stores.world(), ALL, PageQuery(), NOW)
    assert_golden(to_builtins(page))
    only = applications.applications(await stores.world(), ALL, PageQuery(state="Failed"), NOW)
    assert [row.name for row in only.listing.rows] == ["ledger"]


async def test_phases_stand_on_one_time_line(stores):
    stores.app("shop", "cart", 1)
    page = application(await stores.world(), ALL, CART, NOW)
    assert [(lane.kind, lane.name) for lane in page.lanes] == [
        ("Application", "cart"),
        ("Workload", "web"),
        ("Workload", "worker"),
    ]
    app, web, _ = page.lanes
    tasks, evaluations, deployment, *later = app.phases
    assert tasks.bar.x == 0
    assert tasks.bar.x + tasks.bar.width == pytest.approx(evaluations.bar.x, abs=2)
    assert deployment.bar.x + deployment.bar.width == pytest.approx(WIDTH, abs=2)
    assert all(phase.bar is None for phase in later)
    assert (tasks.took, evaluations.took) == ("20 s", "15 s")
    assert [check.name for check in web.phases[1].checks] == ["latency"]
    # A workload begins when its app's checks have passed.
    assert web.phases[0].bar.x >= evaluations.bar.x + evaluations.bar.width - 2
    for lane in page.lanes:
        for phase in lane.phases:
            assert phase.bar is None or 0 <= phase.bar.x <= phase.bar.x + phase.bar.width <= WIDTH


async def test_times_that_are_none_make_no_bars(stores):
    stores.app("shop", "cart", 3)
    page = application(await stores.world(), ALL, CART, NOW)
    assert all(phase.bar is None for lane in page.lanes for phase in lane.phases)
    assert page.shown.took == ""


async def test_the_failing_check_has_its_value_threshold_and_message(stores, assert_golden):
    stores.app("shop", "cart", 2)
    page = application(await stores.world(), ALL, CART, NOW)
    (failure,) = page.shown.failed
    assert_golden(to_builtins(failure))
    assert page.lanes[0].phases[1].checks == (failure.check,)


async def test_releases_stand_with_their_times_results_and_failures(stores):
    stores.app("shop", "cart", 2, "1.4.2")
    stores.app("shop", "cart", 5, "1.4.1")
    world = await stores.world()
    page = application(world, ALL, CART, NOW)
    failed, passed = page.releases
    assert (failed.version, failed.state.word, failed.is_current) == ("1.4.2", "Failed", True)
    assert failed == page.shown
    assert (passed.version, passed.state.word, passed.failed) == ("1.4.1", "Succeeded", ())
    assert passed.start < passed.end < failed.end
    assert passed.took == "1 m 30 s"
    older = replace(CART, version=passed.object)
    assert application(world, ALL, older, NOW).shown.version == "1.4.1"


async def test_a_release_that_failed_in_a_workload_names_the_workload_once(stores):
    stores.app("shop", "cart", 1)
    world = stores.sources["app_versions"].store
    version = world.get("shop/cart-1.4.2-6b86b273")
    failing = replace(version.status, workload_overall_status="Failed", status="Failed")
    stores.put("app_versions", replace(version, status=failing))
    workload = stores.sources["workload_versions"].store.get("shop/cart-web-1.4.2")
    ended = replace(workload.status, deployment_status="Failed", status="Failed")
    stores.put("workload_versions", replace(workload, status=ended))
    page = application(await stores.world(), ALL, CART, NOW)
    assert [(failure.where, failure.check) for failure in page.shown.failed] == [
        ("web: Deployment", None)
    ]
    hidden = Visibility({"keptnappversions.lifecycle.keptn.sh": EVERYWHERE})
    page = application(await stores.world(), hidden, CART, NOW)
    assert [failure.where for failure in page.shown.failed] == ["Deployment"]


async def test_the_overview_and_the_list_name_the_phase_that_failed_not_the_one_around_it(stores):
    stores.app("shop", "cart", 1)
    world = stores.sources["app_versions"].store
    version = world.get("shop/cart-1.4.2-6b86b273")
    failing = replace(version.status, workload_overall_status="Failed", status="Failed")
    stores.put("app_versions", replace(version, status=failing))
    for name, ended in (("web", 5), ("worker", 60)):
        workload = stores.sources["workload_versions"].store.get(f"shop/cart-{name}-1.4.2")
        fields = {"pre_deployment_evaluation_status": "Failed", "deployment_status": "Deprecated"}
        status = replace(workload.status, **fields, status="Failed", end_time=stores.ago(ended))
        stores.put("workload_versions", replace(workload, status=status))

    async def told(visible):
        page = await run_sliced(overview.overview(await stores.world(), visible, PageQuery(), NOW))
        (notice,) = [notice for notice in page.notices if notice.what == "Application"]
        (row,) = applications.applications(
            await stores.world(), visible, PageQuery(), NOW
        ).listing.rows
        return notice.text, row.phase

    phase = "re-deployment evaluations of worker"
    assert await told(ALL) == (f"version 1.4.2 failed in its p{phase}", f"P{phase}")
    hidden = Visibility({"keptnappversions.lifecycle.keptn.sh": EVERYWHERE})
    assert await told(hidden) == ("version 1.4.2 failed in its deployment", "Deployment")
    lane = application(await stores.world(), ALL, CART, NOW).lanes[1]
    assert [(row.state.word, row.state.tone) for row in lane.phases][1:3] == [
        ("Failed", "bad"),
        ("Not run", "idle"),
    ]
    assert (lane.phases[2].bar, lane.phases[2].took) == (None, "")


async def test_a_held_stage_needs_attention_although_its_version_goes_on(stores):
    stores.staged("shop", "store")

    async def notices(visible):
        page = await run_sliced(overview.overview(await stores.world(), visible, PageQuery(), NOW))
        return [notice for notice in page.notices if notice.what == "Application"]

    (notice,) = await notices(ALL)
    text = "version 1.4.2 is held at stage 2 of 3: evaluation error-rate, task smoke failed"
    assert (notice.text, notice.link) == (text, "/applications/shop/store")
    assert await notices(Visibility({"keptnappversions.lifecycle.keptn.sh": EVERYWHERE})) == []
    version = stores.sources["workload_versions"].store.get("shop/store-web-1.4.2")
    ended = replace(version.status, status="Deprecated")
    stores.put("workload_versions", replace(version, status=ended))
    assert await notices(ALL) == []


async def test_a_phase_that_a_newer_version_ended_says_whether_it_had_begun(stores):
    stores.app("shop", "cart", 1)
    version = stores.sources["app_versions"].store.get("shop/cart-1.4.2-6b86b273")
    superseded = deprecate_all_phases(version.status)
    stores.put("app_versions", replace(version, status=superseded))
    lane = application(await stores.world(), ALL, CART, NOW).lanes[0]
    begun = [bool(version.status.pre_deployment_task_status), False]
    assert [row.state.word == "Superseded" for row in lane.phases[0:5:4]] == begun
    assert {row.state.word for row in lane.phases} == {"Superseded", "Not run"}


async def test_of_a_release_with_many_failures_the_first_are_shown(stores):
    stores.app("shop", "cart", 1)
    version = stores.sources["app_versions"].store.get("shop/cart-1.4.2-6b86b273")
    many = replace(version.spec, workloads=version.spec.workloads[:1] * 4 * MOST)
    failing = replace(version.status, workload_overall_status="Failed", status="Failed")
    stores.put("app_versions", replace(version, spec=many, status=failing))
    workload = stores.sources["workload_versions"].store.get("shop/cart-web-1.4.2")
    ended = replace(workload.status, deployment_status="Failed", status="Failed")
    stores.put("workload_versions", replace(workload, status=ended))
    page = application(await stores.world(), ALL, CART, NOW)
    assert len(page.shown.failed) == len(page.releases[0].failed) == MOST + 1


async def test_a_gate_tells_why_until_when_and_what_its_checks_say(stores, assert_golden):
    stores.app("shop", "cart", 1)
    stores.gated("shop", "cart", 0)
    page = await run_sliced(gates.gates(await stores.world(), ALL, PageQuery(), NOW))
    assert_golden(to_builtins(page))


async def test_a_missing_definition_needs_attention_once(stores):
    for name, number in (("cart", 1), ("ledger", 3), ("done", 0)):
        stores.app("shop", name, number)
    stores.remove("evaluation_definitions", "shop/latency")
    page = await run_sliced(overview.overview(await stores.world(), ALL, PageQuery(), NOW))
    (notice,) = [notice for notice in page.notices if notice.what == "Definition"]
    assert (notice.name, notice.tone) == ("shop/latency", "bad")
    assert notice.text == (
        "KeptnEvaluationDefinition latency not found; waiting for it to be created"
    )
    assert notice.link in {"/applications/shop/cart", "/applications/shop/ledger"}
    # What may not be listed is not called missing.
    kinds = ALL.scopes.keys() - {"keptnevaluationdefinitions.lifecycle.keptn.sh"}
    some = Visibility(dict.fromkeys(kinds, EVERYWHERE))
    page = await run_sliced(overview.overview(await stores.world(), some, PageQuery(), NOW))
    assert [notice for notice in page.notices if notice.what == "Definition"] == []


async def test_a_provider_without_any_answer_needs_attention_until_it_answers(stores):
    async def notices():
        page = await run_sliced(overview.overview(await stores.world(), ALL, PageQuery(), NOW))
        return [
            (notice.name, notice.text, notice.link)
            for notice in page.notices
            if notice.what == "Provider"
        ]

    for name in ("p95", "p99"):
        stores.metric("shop", name, value="", errMsg="connection refused")
    fault = "empty value for: p95: connection refused"
    text = f"none of its KeptnMetrics (2) has a current value: {fault}"
    link = "/checks?namespace=shop&state=Unavailable"
    assert await notices() == [("shop/prometheus", text, link)]
    assert (
        len(
            checks.checks(
                await stores.world(), ALL, PageQuery(state="Unavailable"), NOW
            ).listing.rows
        )
        == 2
    )
    stores.metric("shop", "p99")
    assert await notices() == []


async def test_a_metric_that_nobody_has_asked_for_yet_needs_no_attention(stores):
    stores.metric("shop", "p95", value="")
    page = await run_sliced(overview.overview(await stores.world(), ALL, PageQuery(), NOW))
    assert page.notices == ()


async def test_who_waits_too_long_or_in_vain_needs_attention(stores):
    stores.app("shop", "cart", 2)
    stores.gated("shop", "cart", 0)
    stores.app("shop", "late", 1)
    stores.gated("shop", "late", 499 * 4)
    world = await stores.world()
    stores.rules = type(stores.rules)(max_age_seconds=60)
    page = await run_sliced(overview.overview(await stores.world(), ALL, PageQuery(), NOW))
    pods = [notice for notice in page.notices if notice.what == "Pod"]
    assert [pod.tone for pod in pods] == ["bad", "warn"]
    only = await run_sliced(gates.gates(world, ALL, PageQuery(q="LATE"), NOW))
    assert only.listing.matching == 1


async def test_a_policy_shows_what_it_selects_and_sets(stores, assert_golden):
    stores.namespace("shop")
    stores.policy("shop", "keep-cart", 0)
    stores.policy("shop", "keep-all", 2, podSelector={}, schedulerName="other")
    stores.policy("shop", "keep-none", 0, nodeName="n1")
    stores.policy("shop", "keep-broken", 4)
    stores.pod("shop", {"app": "cart"})
    page = policies.policies(await stores.world(), ALL, PageQuery(), NOW)
    assert_golden(to_builtins(page.listing.rows))
    unused = policies.policies(await stores.world(), ALL, PageQuery(state="unused"), NOW)
    assert [row.name for row in unused.listing.rows] == ["keep-broken", "keep-none"]


async def test_each_rule_of_a_policy_is_a_sentence(stores):
    zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
    cart = {"labelSelector": {"matchLabels": {"app": "cart"}}, "topologyKey": "zone"}
    affinity = {
        "nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": [zone]},
            PREFERRED: [{"weight": 1, "preference": zone}],
        },
        "podAffinity": {REQUIRED: [cart]},
        "podAntiAffinity": {PREFERRED: [{"weight": 5, "podAffinityTerm": cart}]},
    }
    taints = [{"key": "pool", "value": "etcd", "effect": "NoExecute"}]
    stores.policy("shop", "apart", podSelector={}, affinity=affinity, tolerations=taints)
    (row,) = policies.policies(await stores.world(), ALL, PageQuery(), NOW).listing.rows
    assert row.sets == (
        "only on nodes with zone in (a, b)",
        "tolerates pool=etcd:NoExecute",
        "rather on nodes with zone in (a, b) (weight 1)",
        "only near pods with app=cart, by zone",
        "rather not near pods with app=cart, by zone (weight 5)",
    )


async def test_of_a_policy_with_thousands_of_fields_some_are_shown(stores):
    taints = [{"key": f"k{number}", "operator": "Exists"} for number in range(5000)]
    stores.policy("shop", "long", podSelector={}, tolerations=taints)
    (row,) = policies.policies(await stores.world(), ALL, PageQuery(), NOW).listing.rows
    assert (len(row.sets), row.sets[-1], row.has_more) == (policies.MOST, "tolerates k99", True)


async def test_policies_that_select_the_same_pod_and_disagree_are_told(stores):
    stores.namespace("shop")
    everything = {"podSelector": {}}
    stores.policy("shop", "a", **everything, nodeSelector={"disk": "ssd"})
    stores.policy("shop", "b", **everything, nodeSelector={"disk": "hdd", "zone": "x"})
    stores.policy("shop", "c", podSelector={"matchLabels": {"app": "no"}}, nodeName="n1")
    stores.pod("shop", {"app": "cart"})
    world = await stores.world()
    page = policies.policies(world, ALL, PageQuery(state="conflicting"), NOW)
    assert [row.name for row in page.listing.rows] == ["a", "b"]
    first, second = (row.conflicts for row in page.listing.rows)
    (conflict,) = first
    assert first == second
    assert conflict.policies == ("PodSchedulingPolicy shop/b", "PodSchedulingPolicy shop/a")
    assert conflict.text == 'spec.nodeSelector["disk"] stays ssd, not hdd'
    page = await run_sliced(overview.overview(world, ALL, PageQuery(), NOW))
    (notice,) = [notice for notice in page.notices if notice.what == "Policies"]
    assert notice.text == conflict.text
    assert notice.link == "/policies?state=conflicting"


async def test_required_node_affinity_that_excludes_another_is_a_conflict(stores):
    def required_affinity(value):
        term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [value]}]}
        key = "requiredDuringSchedulingIgnoredDuringExecution"
        return {"nodeAffinity": {key: {"nodeSelectorTerms": [term]}}}

    stores.namespace("shop")
    stores.pod("shop", {"app": "cart"})
    for name, value in (("a", "x"), ("b", "y")):
        stores.policy("shop", name, podSelector={}, affinity=required_affinity(value))
    page = policies.policies(await stores.world(), ALL, PageQuery(), NOW)
    (conflict,) = page.listing.rows[0].conflicts
    assert conflict.policies == ("PodSchedulingPolicy shop/b", "PodSchedulingPolicy shop/a")
    assert "no node can satisfy both" in conflict.text


async def test_a_conflict_with_a_policy_that_may_not_be_seen_is_not_told(stores):
    stores.namespace("shop")
    stores.pod("shop", {"app": "cart"})
    stores.policy("shop", "secret", 2, podSelector={}, schedulerName="one")
    stores.policy("shop", "mine", 0, podSelector={}, schedulerName="two")
    world = await stores.world()
    assert policies.policies(world, ALL, PageQuery(), NOW).parts[0].count == 2
    some = Visibility({"podschedulingpolicies.kupid.gardener.cloud": EVERYWHERE})
    (row,) = policies.policies(world, some, PageQuery(), NOW).listing.rows
    assert row.conflicts == ()


async def test_the_pods_of_a_policy_are_listed(stores):
    for name in ("shop", "mail"):
        stores.namespace(name)
        stores.pod(name, {"app": "cart"}, "cart-1")
        stores.pod(name, {"app": "other"}, "other-1")
    stores.policy("shop", "keep-cart", 0)
    world = await stores.world()
    (row,) = policies.policies(world, ALL, PageQuery(), NOW).listing.rows
    only = await run_sliced(policies.pods(world, ALL, PageQuery(state=row.reference), NOW))
    assert only.rows == ("shop/cart-1",)
    every = await run_sliced(policies.pods(world, ALL, PageQuery(q="cart"), NOW))
    assert every.rows == ("mail/cart-1", "shop/cart-1")
    some = Visibility({"pods": ListScope(namespaces=frozenset(("mail",)))})
    assert (await run_sliced(policies.pods(world, some, PageQuery(), NOW))).total == 2


async def test_others_have_their_turn_while_the_pods_of_a_policy_are_listed(stores):
    stores.namespace("shop")
    for _ in range(2 * policies.SLICE + 1):
        stores.pod("shop", {"app": "cart"})
    making = policies.pods(await stores.world(), ALL, PageQuery(), NOW)
    next(making)
    # What changes meanwhile may be on the page or not, and breaks nothing.
    stores.pod("shop", {"app": "cart"})
    next(making)
    assert (await run_sliced(making)).total == 2 * policies.SLICE + 1


async def pod_page(stores, query):
    sources = await stores.world()
    raw = await read_pod(stores.client, sources, ALL, query)
    return policies.pod(await stores.world(read=raw), ALL, query, NOW)


async def test_a_pod_tells_which_policy_or_manager_set_each_field(stores, assert_golden):
    stores.namespace("shop")
    stores.policy("shop", "keep-cart", 0)
    toleration = {"key": "pool", "operator": "Equal", "value": "etcd", "effect": "NoExecute"}
    extra = {"key": "edited", "operator": "Exists"}
    managed = (
        ("schedulerName", "kube-controller-manager", 600),
        ("tolerations", "kube-controller-manager", 600),
        ("tolerations", "kubectl-edit", 60),
    )
    stores.pod(
        "shop",
        {"app": "cart"},
        "cart-1",
        managed,
        nodeSelector={"disk": "ssd"},
        schedulerName="default-scheduler",
        tolerations=[toleration, extra],
    )
    query = PageQuery(namespace="shop", name="cart-1")
    page = await pod_page(stores, query)
    assert_golden(to_builtins(page))
    assert policies.pod(await stores.world(), ALL, query, NOW) is None


async def test_a_field_manager_without_a_time_is_the_oldest(stores):
    managed = (("schedulerName", "unknown", 60), ("schedulerName", "dated", 600))
    stores.pod("shop", {}, "cart-1", managed, schedulerName="other")
    (raw,) = stores.client.objects["pods", "shop"]
    del raw["metadata"]["managedFields"][0]["time"]
    query = PageQuery(namespace="shop", name="cart-1")
    for state in ("dated", "unknown"):
        page = await pod_page(stores, query)
        assert [field.manager["manager"] for field in page.fields] == [state]
        del raw["metadata"]["managedFields"][1:]


async def test_what_a_policy_would_set_in_a_new_pod_is_no_field_of_this_one(stores):
    stores.policy("shop", "keep-cart", 0)
    stores.pod("shop", {"app": "cart"}, "cart-1")
    query = PageQuery(namespace="shop", name="cart-1")
    page = await pod_page(stores, query)
    assert page.policies != ()
    assert page.fields == ()


async def test_clusters_and_what_they_run(stores, assert_golden):
    for number in range(6):
        stores.member("shop", number)
    stores.placed("shop", "cart", 0, 6)
    stores.placed("shop", "ledger", 2, 6)
    page = clusters.clusters(await stores.world(), ALL, PageQuery(), NOW)
    placed = clusters.clusters(await stores.world(), ALL, PageQuery(view="placed"), NOW)
    assert_golden(to_builtins([page.clusters.rows, page.parts, placed.placements.rows]))
    there = PageQuery(view="placed", q="dublin-3")
    page = clusters.clusters(await stores.world(), ALL, there, NOW)
    assert [row.name for row in page.placements.rows] == ["ledger"]


async def test_a_count_of_one_has_a_label_of_one(stores):
    stores.reserved(1)
    (part,) = reservations.reservations(await stores.world(), ALL, PageQuery(), NOW).parts
    assert (part.count, part.label) == (1, "pod that has to go")


async def test_reservations_end(stores):
    stores.reserved(2)
    stores.reserved(0, pod="kube-system/agent")
    page = reservations.reservations(await stores.world(), ALL, PageQuery(), NOW)
    first, second = page.listing.rows
    assert [part.label for part in page.parts] == ["pods that have to go"]
    assert (first.node, second.node) == ("node-2", "node-0")
    assert (second.namespace, second.pod) == ("kube-system", "agent")
    assert len(first.victims) == 2
    late = datetime(2026, 3, 1, 13, tzinfo=UTC)
    over = reservations.reservations(await stores.world(), ALL, PageQuery(state="overdue"), late)
    assert len(over.listing.rows) == 2
    page = await run_sliced(overview.overview(await stores.world(), ALL, PageQuery(), late))
    assert [notice.what for notice in page.notices] == ["Reservation"] * 2


@pytest.mark.parametrize("page", [gates.gates, overview.overview])
async def test_others_have_their_turn_while_a_page_of_many_is_made(stores, page):
    for number in range(350):
        stores.gated("shop", f"cart-{number}", number)
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await run_sliced(page(await stores.world(), ALL, PageQuery(), NOW))
    task.cancel()
    assert turns >= 3


PASSED = dict.fromkeys(
    (
        "pre_deployment_status",
        "pre_deployment_evaluation_status",
        "deployment_status",
        "post_deployment_status",
        "post_deployment_evaluation_status",
    ),
    "Succeeded",
)


def words(version):
    rows = phase_rows(version, NOW, NOW, NOW)
    assert [row.state for row in rows] == [state for _, state in steps(version)]
    return [(row.state.word, row.state.tone) for row in rows]


NONE, GOOD = ("No checks", "idle"), ("Succeeded", "good")


def test_a_phase_that_passed_without_a_check_is_not_green():
    version = workload_version(status=WorkloadVersionStatus(**PASSED))
    assert words(version) == [NONE, NONE, GOOD, NONE, NONE]


@pytest.mark.parametrize("listed", [("migrate",), ()], ids=["listed", "listed before"])
def test_a_phase_with_a_check_is_as_the_check_is(listed):
    items = (ItemStatus(definition_name="migrate", status="Succeeded"),)
    status = WorkloadVersionStatus(**PASSED, pre_deployment_task_status=items)
    version = workload_version(status=status, pre_deployment_tasks=listed)
    assert words(version)[:2] == [GOOD, NONE]


def test_a_phase_without_a_check_that_has_not_begun_is_pending():
    assert {word for word, _ in words(workload_version(status=WorkloadVersionStatus()))} == {
        "Pending"
    }
