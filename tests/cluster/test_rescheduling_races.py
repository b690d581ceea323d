"""Concurrent actions of others: C25-C29, C45, C50-C52, C54, C61-C63 (rescheduler-spec 8.3)."""

from __future__ import annotations

import asyncio

import msgspec

from harbourmaster.api.resources import DAEMON_SETS, PODS, REPLICA_SETS, Resource
from harbourmaster.kube.errors import ApiError
from helpers.cluster import rule
from helpers.rescheduling.cases import Cases
from helpers.rescheduling.objects import (
    ANNOTATION,
    BUSINESS,
    CASE,
    IMPORTANT,
    NEVER,
    TOLERATED,
    budget,
    critical,
    pod,
    removable,
)
from helpers.rescheduling.toy_kubelet import APART, NODES, SLOW, UNREADY

CASES = Cases()
case = CASES.case
JSON = "application/json"
SYSTEM = "system-cluster-critical"
ADMISSION = "admissionregistration.k8s.io"
GUARDS = Resource(
    ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False
)
GUARD_BINDINGS = Resource(
    ADMISSION,
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
APP = {"app": "a"}


@case("C25")
async def the_scheduler_s_own_preemption_is_left_to_it(place):
    on = await place.node("n1", 2)
    await place.full(on, "v0", "v1", labels=SLOW, grace=6)
    uid = await place.critical(annotated=False, priorityClassName=SYSTEM)
    await place.until_bound(uid, on)
    assert len(place.taken_pods()) == 1
    (victim,) = place.taken_pods()
    assert place.reason_of(victim) == "PreemptionByScheduler"
    assert place.grace_of(victim) == 6
    assert not place.was_marked()
    assert place.requests(f"case-{place.label}/") == []
    place.assert_untouched()


@case("C26")
async def who_preempts_nobody_is_helped(place):
    on = await place.node()
    await place.full(on, "v0", cpu=4)
    uid = await place.critical(annotated=False, priorityClassName=NEVER)
    await place.assert_helped(uid, on, {"v0"})
    assert place.reason_of("v0") == "EvictionByEvictionAPI"


async def crowd_node(place):
    """A node that the pods of a ReplicaSet fill, and an add-on that needs the room of two; both."""
    on = await place.node()
    template = pod("x", 1, labels={**APART, **APP}, nodeSelector={CASE: place.label})
    replica_set = {
        "metadata": {"name": "r", "labels": APP},
        "spec": {
            "replicas": 4,
            "selector": {"matchLabels": APP},
            "template": {"metadata": {"labels": {**APART, **APP}}, "spec": template["spec"]},
        },
    }
    await place.client.create(REPLICA_SETS, replica_set, place.namespace)
    await place.cluster.until(lambda: len(running(place, on)) == 4, why=place.why)
    return on, await place.critical(cpu=2, annotated=False, priorityClassName=NEVER)


@case("C27")
async def who_takes_the_place_of_the_evicted_waits(place):
    on, uid = await crowd_node(place)
    await place.assert_helped(uid, on, await two_taken(place))
    assert len(running(place, on)) == 2
    replacements = [
        pod
        for pod in place.cluster.all(PODS)
        if pod["metadata"]["namespace"] == place.namespace and "nodeName" not in pod["spec"]
    ]
    assert len(replacements) == 2


@case("C27-without", manual=True)
async def without_us_they_take_the_place_again(place):
    on, uid = await crowd_node(place)
    before = {pod["metadata"]["uid"] for pod in running(place, on)}
    for name in sorted(obj["metadata"]["name"] for obj in running(place, on))[:2]:
        await place.delete(name)
        await asyncio.sleep(1)

    def are_replaced():
        uids = {pod["metadata"]["uid"] for pod in running(place, on)}
        return len(uids) == 4 and len(uids - before) == 2

    await place.cluster.until(are_replaced, why=place.why)
    assert not place.is_bound(uid)


async def two_taken(place):
    await place.cluster.until(lambda: len(place.taken_pods()) == 2, why=place.why)
    return place.taken_pods()


def running(place, on):
    """The pods of a case that have the node and run."""
    return [
        pod
        for pod in place.cluster.all(PODS)
        if pod["metadata"]["namespace"] == place.namespace
        and pod["spec"].get("nodeName") == on
        and pod["status"].get("phase") == "Running"
    ]


async def one_of_two_budgets(place):
    on = await place.node("n1", 2)
    await place.full(on, "m", cpu=2, labels=APP)
    for name in ("first", "second"):
        await place.budget(budget(name, 0, APP), 1)
    return on


@case("C28")
async def one_of_two_budgets_is_never_evicted(place):
    await one_of_two_budgets(place)
    n2 = await place.node("n2", 2)
    await place.full(n2, "b", cpu=2, grace=60)
    uid = await place.critical(cpu=2)
    await place.assert_helped(uid, n2, {"b"})
    assert place.requests(f"case-{place.label}/pods/m") == []


@case("C28-alone", allowPdbViolation=False)
async def one_of_two_budgets_stays_where_none_may_be_violated(place):
    await one_of_two_budgets(place)
    uid = await place.critical(cpu=2)
    await place.left_alone(uid, "DoesNotFitAnyNode")
    assert place.requests(f"case-{place.label}/pods/m") == []


async def one_that_is_not_ready(place, policy):
    on = await place.node("n1", 1)
    await place.full(on, "u", labels={**APP, **UNREADY})
    await place.budget(budget("of-u", 1, APP, unhealthyPodEvictionPolicy=policy), 0)
    uid = await place.critical()
    await place.assert_helped(uid, on, {"u"})


@case("C29")
async def one_that_is_not_ready_may_go_where_its_budget_says_so(place):
    await one_that_is_not_ready(place, "AlwaysAllow")
    assert place.reason_of("u") == "EvictionByEvictionAPI"


@case("C29-healthy")
async def one_that_is_not_ready_is_protected_where_too_few_are(place):
    await one_that_is_not_ready(place, "IfHealthyBudget")
    assert place.reason_of("u") == "DeletionByRescheduler"


@case("C45", shortenPreemption=True)
async def the_scheduler_s_preemption_may_be_made_faster(place):
    on = await place.node("n1", 2)
    await place.full(on, "v0", "v1", labels=SLOW, grace=60)
    uid = await place.critical(annotated=False, priorityClassName=SYSTEM)
    await place.cluster.until(place.taken_pods, why=place.why)
    # Others come and go on the node, by which the scheduler looks at it again.
    for name in ("passer-by-1", "passer-by-2", "passer-by-3"):
        await place.pods(removable(name, on, cpu=None, priorityClassName=IMPORTANT))
        await asyncio.sleep(1)
        await place.delete(name)
    await place.until_bound(uid, on)
    (victim,) = place.taken_pods()
    seen = place.cluster.history(place.ends_of()[victim].object["metadata"]["uid"])
    graces = [event.object["metadata"].get("deletionGracePeriodSeconds") for event in seen]
    assert [fromkey for fromkey in dict.fromkeys(graces) if fromkey] == [60, 10]
    reasons = {
        condition["reason"]
        for event in seen
        for condition in event.object["status"].get("conditions", ())
        if condition["type"] == "DisruptionTarget"
    }
    assert reasons == {"PreemptionByScheduler"}
    asked = place.requests(f"{place.namespace}/pods/{victim}")
    assert [request["verb"] for request in asked] == ["delete"]
    assert not place.was_marked()


@case("C50")
async def what_admission_refuses_is_not_done_by_another_way(place):
    n1, n2 = await place.node("n1", 1), await place.node("n2", 1)
    await place.full(n1, "a")
    await place.full(n2, "b", grace=60)
    await refuse_evictions(place, "a")
    uid = await place.critical()
    await place.assert_helped(uid, n2, {"b"})
    verbs = {
        (request["verb"], request["requestURI"].rpartition("/")[2].partition("?")[0])
        for request in place.requests(f"case-{place.label}/pods/a")
    }
    assert verbs <= {("create", "eviction")}


async def refuse_evictions(place, name):
    """Let the API server refuse evictions of this pod."""
    names = {"matchLabels": {"kubernetes.io/metadata.name": place.namespace}}
    guard = {
        "metadata": {"name": place.label},
        "spec": {
            "matchConstraints": {
                "resourceRules": [rule(["pods/eviction"])],
                "namespaceSelector": names,
            },
            "validations": [{"expression": f"object.metadata.name != '{name}'"}],
        },
    }
    binding = {
        "metadata": {"name": place.label},
        "spec": {"policyName": place.label, "validationActions": ["Deny"]},
    }
    await place.client.create(GUARDS, guard)
    await place.client.create(GUARD_BINDINGS, binding)
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": place.namespace},
        "deleteOptions": {"dryRun": ["All"]},
    }
    path, body = PODS.path(place.namespace, name, "eviction"), msgspec.json.encode(eviction)
    async with asyncio.timeout(30):
        while True:
            try:
                await place.client.request("POST", path, body=body, content_type=JSON)
            except ApiError:
                return
            # It counts some moments after it is there.
            await asyncio.sleep(0.1)


@case("C51")
async def who_is_critical_elsewhere_is_not_helped_but_stays(place):
    n1 = await place.node("n1", 1)
    n2 = await place.node("n2", 1, labels={"example.com/other": "1"})
    await place.full(n1, "strong", priorityClassName="system-node-critical")
    await place.full(n2, "v0")
    elsewhere = critical("elsewhere", place.label, selector={"example.com/other": "1"})
    second = await place.want_pod(elsewhere, place.namespace)
    uid = await place.critical(selector={"kubernetes.io/hostname": n1})
    await place.left_alone(uid, "DoesNotFitAnyNode")
    assert not place.is_bound(second)


async def saturate_node(place):
    """A node full of equals of a DaemonSet's pod that waits; the node, and that pod's uid."""
    on = await place.node()
    await place.full(on, "v0", "v1", "v2", "v3")
    labels = {"example.com/set": place.label}
    spec = pod("x", 1, tolerations=[TOLERATED], nodeSelector={CASE: place.label})["spec"]
    daemon_set = {
        "metadata": {"name": place.label},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": {ANNOTATION: ""}},
                "spec": spec,
            },
        },
    }
    await place.client.create(DAEMON_SETS, daemon_set, "kube-system")

    def its_pod():
        uids = [
            pod["metadata"]["uid"]
            for pod in place.cluster.all(PODS)
            if labels.items() <= pod["metadata"].get("labels", {}).items()
        ]
        return uids[0] if uids else None

    place.remember()
    return on, await place.cluster.until(its_pod, why=place.why)


async def delete_daemon_set(place, uid):
    """Take the DaemonSet away."""
    await place.client.delete(DAEMON_SETS, place.label, "kube-system", propagation="Background")
    place._critical[uid] = ("kube-system", place.latest(uid)["metadata"]["name"])


@case("C52")
async def a_daemon_set_gets_its_place_among_equals(place):
    on, uid = await saturate_node(place)
    await place.assert_helped(uid, on, {"v3"})
    await delete_daemon_set(place, uid)


@case("C52-without", manual=True)
async def without_us_the_daemon_set_waits(place):
    _, uid = await saturate_node(place)

    def is_told():
        conditions = place.latest(uid)["status"].get("conditions", ())
        return any(condition.get("reason") == "Unschedulable" for condition in conditions)

    await place.cluster.until(is_told, why=place.why)
    await asyncio.sleep(3)
    assert not place.is_bound(uid)
    assert place.taken_pods() == set()
    await delete_daemon_set(place, uid)


@case("C54")
async def a_node_that_goes_away_ends_its_plan(place):
    n1, n2 = await place.node("n1", 1), await place.node("n2", 1)
    await place.full(n1, "a", labels=SLOW, grace=9)
    await place.full(n2, "b", grace=60)
    uid = await place.critical()
    await place.cluster.until(lambda: "a" in place.taken_pods(), why=place.why)
    await place.client.delete(NODES, n1)
    await place.assert_helped(uid, n2, {"a", "b"})


def replica_set(template, labels):
    """A ReplicaSet of one pod."""
    metadata = {**template["metadata"], "labels": labels}
    return {
        "metadata": {"name": template["metadata"]["name"]},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": metadata, "spec": template["spec"]},
        },
    }


async def orders_that_come_back(place):
    """A node with a pod that fits on no other one, and that preempts add-ons; the node."""
    on = await place.node("n1", 4)
    here = {"kubernetes.io/hostname": on}
    template = pod("orders", 3, priorityClassName=BUSINESS, nodeSelector=here)
    labels = {**APP, "case": place.label}
    await place.client.create(REPLICA_SETS, replica_set(template, labels), place.namespace)
    await place.cluster.until(lambda: running(place, on), why=place.why)
    return on


@case("C61")
async def who_would_come_back_and_preempt_stays_though_smaller(place):
    await orders_that_come_back(place)
    n2 = await place.node("n2", 4)
    await place.full(n2, "batch", cpu=3.5)
    uid = await place.critical(cpu=2)
    await place.assert_helped(uid, n2, {"batch"})


@case("C62")
async def no_room_is_made_of_who_would_come_back(place):
    await orders_that_come_back(place)
    uid = await place.critical(cpu=2)
    await place.left_alone(uid, "DoesNotFitAnyNode")


@case("C63", backoffSeconds=600)
async def who_loses_its_room_at_once_waits(place):
    on = await place.node("n1", 1)
    await place.full(on, "v0")
    place.remember()
    template = critical(f"c-{place.label}", place.label)
    labels = {"example.com/addon": place.label}
    await place.client.create(REPLICA_SETS, replica_set(template, labels), "kube-system")

    def addon(*, is_bound):
        of_addon = (
            pod["metadata"]
            for pod in place.cluster.all(PODS)
            if labels.items() <= pod["metadata"].get("labels", {}).items()
            and ("nodeName" in pod["spec"]) is is_bound
            and "deletionTimestamp" not in pod["metadata"]
        )
        return next(of_addon, None)

    first = await place.cluster.until(lambda: addon(is_bound=True), why=place.why)
    await place.until_event(first["uid"], "RescheduleSucceeded")
    await place.full(on, "v1")
    place.remember()
    await place.delete(first["name"], "kube-system", uid=first["uid"])
    second = await place.cluster.until(lambda: addon(is_bound=False), why=place.why)
    await place.until_event(second["uid"], "RescheduleRepeated")
    assert place.taken_pods() == {"v0"}
    await place.client.delete(
        REPLICA_SETS, f"c-{place.label}", "kube-system", propagation="Background"
    )
    place._critical[second["uid"]] = ("kube-system", second["name"])


test_rescheduling, test_no_controller_told_of_a_fault = CASES.tests()
