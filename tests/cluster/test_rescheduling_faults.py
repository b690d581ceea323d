"""Limits, and what fails meanwhile: C39, C40, C46-C49, C53-C56, C64 (rescheduler-spec 8.3)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from unittest import mock

import msgspec

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import CONFIG_MAPS, LEASES, PODS
from harbourmaster.controller.names import CONTROLLERS
from harbourmaster.controller.rescheduling.controller import start
from harbourmaster.controller.runtime import Runtime
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.kube.errors import ApiError
from harbourmaster.telemetry.controller_metrics import create_controller_metrics
from helpers.evicting import leading
from helpers.rescheduling.cases import HOME, SETTINGS, Cases
from helpers.rescheduling.intercepting_proxy import InterceptingProxy, is_dry, overload_answer
from helpers.rescheduling.objects import (
    CASE,
    IMPORTANT,
    OURS,
    RESERVATIONS,
    TAINT,
    budget,
    pod,
    removable,
)
from helpers.rescheduling.toy_kubelet import BUDGETS, NODES, SLOW

CASES = Cases()
case = CASES.case
APP = {"app": "a"}
KILL_SWITCH = "harbourmaster-rescheduling"
ELECTION = (
    "--leader-election-lease-duration-seconds=3",
    "--leader-election-renew-deadline-seconds=2",
    "--leader-election-retry-period-seconds=1",
)


@case("C39", manual=True)
async def another_leader_goes_on_where_the_first_one_died(place):
    on = await place.node("n1", 2)
    await place.full(on, "v0", "v1", labels=SLOW)
    tried = set()

    async def intercept(method, path, body):
        if method == "POST" and path.endswith("/eviction") and not is_dry(body):
            tried.add(path)
            return None if len(tried) == 1 else overload_answer()
        return None

    field = place.field
    with InterceptingProxy(field.plane) as proxy:
        proxy.intercept(intercept)
        async with field.control({}, *ELECTION, kubeconfig=proxy.kubeconfig) as first:
            uid = await place.critical(cpu=2)
            await place.cluster.until(place.taken_pods, why=place.why)
            await asyncio.to_thread(first.kill)
            before = place.taken_pods()
            async with field.control({}, *ELECTION) as second:
                place.controller = second
                await place.assert_helped(uid, on, {"v0", "v1"})
    assert len(before) == 1
    (lease,) = [
        bytes(item)
        for item in (await place.client.list(LEASES, HOME)).items
        if b"harbourmaster" in bytes(item)
    ]
    assert msgspec.json.decode(lease)["metadata"]["name"] == "harbourmaster-controller"


@case("C40", alone=True, evictionsPerMinute=6)
async def no_plan_is_begun_by_halves(place):
    n1, n2 = await place.node("n1", 5), await place.node("n2", 2)
    await place.full(n1, *(f"a{number}" for number in range(5)))
    first = await place.critical("c", cpu=5)
    await place.until_bound(first, n1)
    await place.full(n2, "b0", "b1")
    second = await place.critical("d", cpu=2)
    await place.until_bound(second, n2)
    ends = {name: seen.at for name, seen in place.ends_of().items()}
    spent = max(at for name, at in ends.items() if name.startswith("a"))
    begun = [at for name, at in ends.items() if name.startswith("b")]
    # One was left of six, and there is another every ten seconds.
    assert min(begun) - spent > 5
    # Both go at once: had they not waited for each other, ten seconds would lie between.
    assert max(begun) - min(begun) < 8
    assert (
        await place.metric(
            'rescheduler_budget_remaining{dry_run="false",kind="evictions_per_minute"}'
        )
        < 6
    )


@case("C46", alone=True)
async def nobody_goes_while_no_scheduler_lives(place):
    on = await place.node()
    await place.full(on, "v0", cpu=4)
    lease = {
        "metadata": {"name": "kube-scheduler", "namespace": "kube-system"},
        "spec": {
            "holderIdentity": "gone",
            "leaseDurationSeconds": 15,
            "renewTime": micro(datetime.now(UTC) - timedelta(minutes=10)),
        },
    }
    await place.client.create(LEASES, lease, "kube-system")
    uid = await place.critical()
    await asyncio.sleep(4)
    await place.left_alone(uid, passes=False)
    assert await place.metric('rescheduler_circuit_open{dry_run="false"}') == 1
    renewed = {"spec": {"renewTime": micro(datetime.now(UTC))}}
    await place.client.patch(LEASES, "kube-scheduler", MergePatch(renewed), "kube-system")
    await place.assert_helped(uid, on, {"v0"})
    await place.client.delete(LEASES, "kube-scheduler", "kube-system")


def micro(when):
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@case("C46-gone", alone=True, attemptsPerPod=2, backoffSeconds=1, bindTimeoutSeconds=1)
async def without_a_scheduler_room_is_made_once(place):
    on = await place.node()
    await place.full(on, "v0", "v1", "v2", "v3")
    uid = await place.critical()
    await place.cluster.until(lambda: is_unschedulable(place.latest(uid)), why=place.why)
    plane = place.field.plane
    await asyncio.to_thread(plane.kill, "default-scheduler")
    try:
        await place.cluster.until(place.taken_pods, why=place.why)
        await asyncio.sleep(8)
        assert len(place.taken_pods()) <= 2
    finally:
        await asyncio.to_thread(plane.restart, "default-scheduler")
    await place.until_bound(uid, on)
    await place.clean()


def is_unschedulable(pod):
    conditions = pod.get("status", {}).get("conditions", ())
    return any(condition.get("reason") == "Unschedulable" for condition in conditions)


@case("C47", alone=True, allowPdbViolation=False)
async def a_budget_of_which_nobody_knows_the_state_allows_nothing(place):
    on = await place.node("n1", 1)
    await place.full(on, "a", labels=APP)
    await place.budget(budget("of-a", 0, APP), 1)
    pid = place.field.plane._group.record("kube-controller-manager").pid
    os.kill(pid, signal.SIGSTOP)
    try:
        there = {"key": "app", "operator": "Exists"}
        changed = {"spec": {"selector": {"matchLabels": APP, "matchExpressions": [there]}}}
        await place.client.patch(BUDGETS, "of-a", MergePatch(changed), place.namespace)
        uid = await place.critical()
        await place.left_alone(uid, "DoesNotFitAnyNode", passes=False)
        assert place.requests(f"case-{place.label}/pods") == []
    finally:
        os.kill(pid, signal.SIGCONT)
    await place.assert_helped(uid, on, {"a"})


@case("C47-late", proxied=True)
async def a_budget_that_changes_under_an_eviction_is_given_its_time(place):
    on = await place.node("n1", 1)
    await place.full(on, "a", labels=APP)
    await place.budget(budget("of-a", 0, APP), 1)
    pid = place.field.plane._group.record("kube-controller-manager").pid
    there = {"key": "app", "operator": "Exists"}
    changed = {"spec": {"selector": {"matchLabels": APP, "matchExpressions": [there]}}}
    asked = []

    async def intercept(method, path, body):
        if method == "POST" and path.endswith("/eviction") and not is_dry(body):
            if not asked:
                os.kill(pid, signal.SIGSTOP)
                await place.client.patch(BUDGETS, "of-a", MergePatch(changed), place.namespace)
            asked.append(time.monotonic())

    place.proxy.intercept(intercept)
    uid = await place.critical()
    try:
        await place.cluster.until(lambda: len(asked) >= 2, why=place.why)
        assert place.taken_pods() == set()
    finally:
        os.kill(pid, signal.SIGCONT)
    # The API server asks for ten seconds.
    assert asked[1] - asked[0] >= 9.5
    await place.assert_helped(uid, on, {"a"})
    verbs = {request["verb"] for request in place.requests(f"case-{place.label}/pods")}
    assert "delete" not in verbs
    assert await place.metric('rescheduler_pdb_violations_total{dry_run="false"}') == 0


@case("C49", victimGoneTimeoutSeconds=3, bindTimeoutSeconds=2)
async def who_does_not_go_is_not_waited_for_for_ever(place):
    n1, n2 = await place.node("n1", 1), await place.node("n2", 1)
    held = removable("a", n1)
    held["metadata"]["finalizers"] = ["example.com/held"]
    await place.pods(held)
    await place.full(n2, "b", grace=60)
    uid = await place.critical()
    try:
        await place.assert_helped(uid, n2, {"a", "b"})
        assert any(uid in text for text in place.reservation_texts(n1))
    finally:
        free = {"metadata": {"finalizers": None}}
        with contextlib.suppress(ApiError):
            await place.client.patch(PODS, "a", MergePatch(free), place.namespace)


@case("C53", victimGoneTimeoutSeconds=3, bindTimeoutSeconds=2)
async def who_takes_the_room_from_all_ends_the_attempt(place):
    on = await place.node()
    await place.full(on, "v0", "v1", "v2", "v3")
    anything = {"tolerations": [{"operator": "Exists"}], "nodeSelector": {CASE: place.label}}
    thieves = [pod(f"thief{at}", 1, priorityClassName=IMPORTANT, **anything) for at in range(8)]
    for thieve in thieves:
        await place.client.create(PODS, thieve, place.namespace)
    uid = await place.critical()
    await place.cluster.until(
        lambda: place.was_marked() and not place.marked_nodes(), why=place.why
    )
    assert len(place.taken_pods()) <= 3
    assert not place.is_bound(uid)
    taken = place.taken_pods()
    await asyncio.sleep(5)
    assert place.taken_pods() == taken


@case("C55", alone=True)
async def an_api_server_that_begins_anew_changes_nothing(place):
    on = await place.node("n1", 2)
    await place.full(on, "v0", "v1", labels=SLOW)
    uid = await place.critical(cpu=2)
    await place.cluster.until(place.taken_pods, why=place.why)
    await asyncio.to_thread(place.field.plane.kill, "kube-apiserver")
    await asyncio.to_thread(place.field.plane.restart, "kube-apiserver")
    await place.assert_helped(uid, on, {"v0", "v1"})


@case("C56", alone=True)
async def it_stops_at_once_when_it_is_told_to(place):
    on = await place.node("n1", 2)
    await place.full(on, "v0", "v1", labels=SLOW, grace=9)
    uid = await place.critical()
    await place.cluster.until(place.taken_pods, why=place.why)
    switch = {"metadata": {"name": KILL_SWITCH}, "data": {"enabled": "false"}}
    await place.client.create(CONFIG_MAPS, switch, HOME)
    await place.clean()
    second_uid = await place.critical("d", cpu=2)
    await asyncio.sleep(3)
    assert place.taken_pods() == {"v1"}
    assert not place.marked_nodes()
    await place.client.delete(CONFIG_MAPS, KILL_SWITCH, HOME)
    place.assert_untouched()
    assert uid != second_uid


@case("off-unanswered", manual=True)
async def where_it_is_switched_off_nodes_are_let_go_once_the_api_server_answers(place):
    """The controller begins while there is no API server, and asks again (rescheduler-spec 7)."""
    on = await place.node("n1", 1)
    await place.full(on, "v0")
    uid = await place.critical()
    taint = {"key": TAINT, "value": f"{OURS}01234567", "effect": "NoSchedule"}
    marks = {"metadata": {"annotations": {RESERVATIONS: "[]"}}, "spec": {"taints": [taint]}}
    await place.client.patch(NODES, on, MergePatch(marks))
    await place.cluster.until(place.marked_nodes)
    plane = place.field.plane
    await asyncio.to_thread(plane.kill, "kube-apiserver")
    async with place.field.control({"enabled": False}) as controller:
        await asyncio.to_thread(plane.restart, "kube-apiserver")
        await place.clean()
        assert any("selfsubjectaccessreviews: cannot connect" in line for line in controller.lines)
    assert not place.is_bound(uid)
    assert place.taken_pods() == set()


@case("C64", manual=True)
async def a_preemption_that_is_stuck_is_given_up_for_another_node(place):
    """Room is made on another node (rescheduler-spec 3.8, rule 3).

    The rescheduler runs in this process, where five minutes are one second.
    """
    n1, n2 = await place.node("n1", 1), await place.node("n2", 1)
    held = removable("a", n1)
    held["metadata"]["finalizers"] = ["example.com/held"]
    await place.pods(held)
    await place.full(n2, "b", priorityClassName=IMPORTANT)
    uid = await place.critical(annotated=False, priorityClassName="system-cluster-critical")
    await place.cluster.until(
        lambda: place.latest(uid).get("status", {}).get("nominatedNodeName") == n1, why=place.why
    )
    module = "harbourmaster.controller.rescheduling.controller"
    settings = msgspec.convert({"rescheduling": SETTINGS}, ControllerSettings)
    metrics = create_controller_metrics("0", CONTROLLERS)
    with (
        mock.patch("harbourmaster.rescheduling.flow_model.STUCK_SECONDS", 1.0),
        mock.patch(f"{module}.time", SimpleNamespace(time=lambda: time.time() + 300)),
    ):
        runtime = Runtime(settings, place.client, HOME, events=None, metrics=metrics, identity="a")
        async with leading(start(runtime)):
            try:
                await place.assert_helped(uid, n2, {"a", "b"})
            finally:
                free = {"metadata": {"finalizers": None}}
                await place.client.patch(PODS, "a", MergePatch(free), place.namespace)
    assert place.reason_of("a") == "PreemptionByScheduler"
    assert place.reason_of("b") == "EvictionByEvictionAPI"


test_rescheduling, test_no_controller_told_of_a_fault = CASES.tests()
