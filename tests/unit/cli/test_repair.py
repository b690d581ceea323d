"""The repairs that ``harbourmaster repair`` finds, may make, and must wait for."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from harbourmaster.cli.repair.plan import (
    Lack,
    Observed,
    StoredPod,
    Workload,
    disruptions,
    is_complete,
    items_of,
    lack_of,
    why_budgets_forbid,
    why_not,
    why_not_placed,
)
from harbourmaster.cli.repair.run import Pace
from harbourmaster.policies.index import policy_set
from harbourmaster.rescheduling.decoding import decode_budget, decode_node, decode_present
from harbourmaster.webhook.cases import DEFAULTS
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.snapshot import Namespace, Snapshot
from helpers.objects import cluster_policy, policy, required, workload
from helpers.oracles import NODE_REQUIRED
from helpers.policies import compile_all, kind_of
from helpers.virtual_time import run_virtually

GATED = {"schedulingGates": [{"name": "example.com/gate"}]}
TOLERATION = {"key": "pool", "operator": "Exists"}
ALL = cluster_policy(
    nodeSelector={"pool": "a"}, tolerations=[TOLERATION], affinity=required({"zone": "z"})
)
CART = Workload("apps", "Deployment", "ns1", "cart")


def lack(document, *policies, labels=None):
    namespaces = {"ns1": Namespace({"kubernetes.io/metadata.name": "ns1", **(labels or {})})}
    engine = Engine(Snapshot(policy_set(compile_all(*policies)), namespaces), DEFAULTS)
    return lack_of(kind_of(document), msgspec.json.encode(document), "ns1", engine)


def set_fields(lacking):
    return [operation["path"].removeprefix("/spec/") for operation in lacking.operations]


def test_a_pod_with_all_that_policies_set_lacks_nothing():
    pod = workload("Pod", nodeSelector={"pool": "b"}, tolerations=[TOLERATION])
    assert lack(pod, cluster_policy(nodeSelector={"pool": "a"}, tolerations=[TOLERATION])) is None


def test_a_pod_of_a_daemonset_lacks_no_node_constraints():
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "a", "uid": "u"}
    document = workload("Pod", nodeName="n1")
    document["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    assert lack(document, ALL).fields == ("tolerations",)
    assert lack(document, cluster_policy(nodeSelector={"pool": "a"})) is None


def cluster_node(name, *, taint=None, **labels):
    taints = [{"key": taint, "effect": "NoSchedule"}] if taint else []
    conditions = [{"type": "Ready", "status": "True"}]
    document = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {"conditions": conditions},
    }
    return decode_node(msgspec.json.encode(document))


NODES = (
    cluster_node("n1", pool="a"),
    cluster_node("n2", taint="node.kubernetes.io/unschedulable"),
    cluster_node("n3", taint="dedicated", pool="a"),
)


@pytest.mark.parametrize(
    ("spec", "places", "is_daemon", "why"),
    [
        ({}, "n1 n2", True, ""),
        ({}, "n1 n3", True, "node n3 would get no new pod of it: untolerated taint dedicated"),
        ({"nodeSelector": {"pool": "a"}}, "n1 n2", True, "node n2 would get no new pod of it: "),
        ({"nodeSelector": {"pool": "a"}}, "n1", True, ""),
        ({"nodeSelector": {"pool": "a"}}, "n2", False, ""),
        ({"nodeSelector": {"pool": "b"}}, "n2", False, "node n1 would get no new pod of it: "),
        ({}, "n3", False, ""),
    ],
)
def test_no_restart_leaves_fewer_pods_than_before(spec, places, is_daemon, why):
    members = [stored_pod(node, node=node).pod for node in places.split()]
    raw = msgspec.json.encode(workload("Pod", **spec))
    answered = why_not_placed(raw, NODES, members, is_daemon=is_daemon)
    assert answered.startswith(why)
    assert bool(answered) == bool(why)


def test_pods_that_are_not_ready_and_unknown_nodes_are_no_reason_against_a_restart():
    raw, ill = msgspec.json.encode(workload("Pod")), stored_pod("a", node="n3", ready=False)
    assert why_not_placed(raw, NODES, [ill.pod], is_daemon=True) == ""
    for is_daemon in (True, False):
        assert why_not_placed(raw, (), [stored_pod("a").pod], is_daemon=is_daemon) == ""


def test_a_running_pod_is_never_patched():
    lacking = lack(workload("Pod", nodeName="n1", **GATED), ALL)
    assert lacking.operations == ()
    assert lacking.fields == lacking.rest == ("affinity", "nodeSelector", "tolerations")
    assert lacking.policies == ("ClusterPodSchedulingPolicy c1",)


def test_a_pod_without_a_node_gets_tolerations_only():
    lacking = lack(workload("Pod"), ALL)
    assert set_fields(lacking) == ["tolerations"]
    assert lacking.rest == ("affinity", "nodeSelector")


def test_a_gated_pod_gets_all_that_the_api_server_takes():
    lacking = lack(workload("Pod", **GATED), ALL)
    assert set_fields(lacking) == ["affinity", "nodeSelector", "tolerations"]
    assert lacking.rest == ()


@pytest.mark.parametrize(
    ("own", "terms", "is_taken"),
    [
        pytest.param([{"a": "1"}], [{"zone": "z"}], True, id="one more requirement"),
        pytest.param([{"a": "1"}, {"b": "1"}], [{"zone": "z"}], True, id="in each term"),
        pytest.param([{"a": "1"}], [{"zone": "z"}, {"zone": "y"}], False, id="one more term"),
        pytest.param([], [{"zone": "z"}, {"zone": "y"}], True, id="the first terms"),
    ],
)
def test_terms_of_a_gated_pod_are_only_made_stricter(own, terms, is_taken):
    given = {"affinity": required(*own)} if own else {}
    lacking = lack(workload("Pod", **GATED, **given), cluster_policy(affinity=required(*terms)))
    assert bool(lacking.operations) == is_taken
    assert lacking.rest == (() if is_taken else ("affinity",))


def test_what_a_gated_pod_cannot_get_is_left_out_of_its_patch():
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    affinity = {
        **required({"zone": "z"}),
        "podAntiAffinity": {NODE_REQUIRED: [term]},
    }
    lacking = lack(workload("Pod", **GATED), cluster_policy(affinity=affinity))
    (operation,) = lacking.operations
    assert list(operation["value"]) == ["nodeAffinity"]
    assert lacking.rest == ("affinity",)


def test_terms_that_the_api_server_rewrote_are_not_compared():
    key = NODE_REQUIRED
    term = {"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["hash"]}
    rule = cluster_policy(affinity={"podAntiAffinity": {key: [term]}})
    hashed = {"key": "hash", "operator": "In", "values": ["1"]}
    stored = {**term, "labelSelector": {"matchExpressions": [hashed]}}
    assert lack(workload("Pod", affinity={"podAntiAffinity": {key: [stored]}}), rule) is None
    assert lack(workload("Pod"), rule).rest == ("affinity",)


def test_policies_of_other_namespaces_and_pods_do_not_count():
    unrelated = [
        policy(namespace="ns2", nodeSelector={"a": "b"}),
        cluster_policy(pods={"app": "no"}),
    ]
    assert lack(workload("Pod"), *unrelated) is None


def test_a_template_is_never_patched():
    lacking = lack(workload("Deployment"), ALL)
    assert (lacking.operations, lacking.rest) == ((), lacking.fields)


def observe_pods(*pods, templates=(), budgets=()):
    return Observed(pods, templates, budgets)


def stored_pod(name, of=CART, *, ready=True, deleted=False, lack=None, node="n1"):
    ready = [{"type": "Ready", "status": "True" if ready else "False"}]
    metadata = {"name": name, "namespace": "ns1", "uid": name, "labels": {"app": "cart"}}
    if deleted:
        metadata["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    status = {"phase": "Running" if node else "Pending", "conditions": ready}
    raw = {"metadata": metadata, "spec": {"nodeName": node}, "status": status}
    return StoredPod(decode_present(msgspec.json.encode(raw)), of, "1", lack)


REST = Lack(("nodeSelector",), ("P",), rest=("nodeSelector",))
TIGHTER = Lack(("nodeSelector",), ("P",), operations=({"op": "add"},))
TOLERATED = Lack(("tolerations",), ("P",), operations=({"op": "add"},))
BARE = Workload("", "Pod", "ns1", "p")
JOB = Workload("batch", "Job", "ns1", "job")


@pytest.mark.parametrize(
    ("of", "lack", "action"),
    [
        (CART, REST, "restart"),
        (CART, TIGHTER, "tighten"),
        (CART, TOLERATED, "tolerate"),
        (BARE, TOLERATED, "tolerate"),
        (BARE, REST, "list"),
        (JOB, REST, "list"),
        (Workload("apps", "ReplicaSet", "ns1", "r"), REST, "list"),
        (Workload("argoproj.io", "Rollout", "ns1", "r"), REST, "list"),
        # A namesake of another group.
        (Workload("example.com", "StatefulSet", "ns1", "r"), REST, "list"),
        (CART, Lack((), ("P",), refusal="too large"), "list"),
    ],
)
def test_only_workloads_that_the_command_can_restart_are_restarted(of, lack, action):
    (item,) = items_of(observe_pods(stored_pod("a", of, lack=lack)), {}, {})
    assert (item.action, item.done) == (action, False)
    assert bool(item.why) == (action == "list")


def test_pods_that_are_alike_are_one_item_and_templates_are_told_once():
    pods = (stored_pod("b", lack=REST), stored_pod("a", lack=REST), stored_pod("c"))
    cron = Workload("batch", "CronJob", "ns1", "cron")
    items = items_of(observe_pods(*pods, templates=((CART, REST), (cron, REST))), {}, {})
    assert [(item.kind, item.pods) for item in items] == [
        ("Deployment", ("a", "b")),
        ("CronJob", ()),
    ]


def test_the_report_says_which_pods_are_repaired_and_why_others_are_not():
    neighbour = CART._replace(name="other")
    pods = (
        stored_pod("a", lack=TIGHTER),
        stored_pod("b", lack=TIGHTER),
        stored_pod("c", lack=REST),
        stored_pod("d", neighbour, lack=REST),
    )
    patched = {"a": (None, ""), "b": (TIGHTER, "still without nodeSelector")}
    items = items_of(observe_pods(*pods), patched, {CART: "", neighbour: "it is paused"})
    assert [(item.pods, item.done, item.why) for item in items] == [
        (("a",), True, ""),
        (("b",), False, "still without nodeSelector"),
        (("c",), True, ""),
        (("d",), False, "it is paused"),
    ]
    assert str(items[0]) == ("Deployment ns1/cart: 1 pod (a) without nodeSelector of P: tightened")


def make_workload(kind="Deployment", *, status=None, generation=1, **spec):
    metadata = {"name": "cart", "namespace": "ns1", "generation": generation}
    return {"kind": kind, "metadata": metadata, "spec": spec, "status": status or {}}


def rolling_update(**limits):
    return {"type": "RollingUpdate", "rollingUpdate": limits}


@pytest.mark.parametrize(
    ("workload", "most"),
    [
        (make_workload(strategy=rolling_update(maxUnavailable="25%"), replicas=9), 2),
        (make_workload(strategy=rolling_update(maxUnavailable=0, maxSurge=1), replicas=9), 1),
        (make_workload(strategy={"type": "Recreate"}, replicas=3), 3),
        (make_workload(strategy={"type": "RollingUpdate"}, replicas=8), 2),
        (
            make_workload(
                "StatefulSet", updateStrategy=rolling_update(maxUnavailable=3), replicas=9
            ),
            3,
        ),
        (make_workload("StatefulSet", updateStrategy={"type": "RollingUpdate"}, replicas=9), 1),
        (
            make_workload(
                "DaemonSet",
                updateStrategy=rolling_update(maxUnavailable="25%"),
                status={"desiredNumberScheduled": 9},
            ),
            3,
        ),
    ],
)
def test_a_restart_disrupts_as_many_pods_as_its_strategy_allows(workload, most):
    assert disruptions(workload) == most


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (make_workload(paused=True), "paused"),
        (make_workload("DaemonSet", updateStrategy={"type": "OnDelete"}), "OnDelete"),
        (make_workload("StatefulSet", updateStrategy=rolling_update(partition=2)), "partition"),
        (make_workload(strategy=rolling_update(maxUnavailable=1)), ""),
        (make_workload("StatefulSet", updateStrategy=rolling_update(partition=0)), ""),
    ],
)
def test_workloads_that_would_not_replace_their_pods_are_not_restarted(workload, words):
    reason = why_not(workload)
    assert words in reason
    assert bool(words) == bool(reason)


DONE = {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}


@pytest.mark.parametrize(
    ("workload", "is_so"),
    [
        (make_workload(replicas=2, status=DONE), True),
        (make_workload(replicas=2, status=DONE, generation=2), False),
        (make_workload(replicas=2, status={**DONE, "replicas": 3}), False),
        (make_workload(replicas=2, status={**DONE, "availableReplicas": 1}), False),
        (make_workload("StatefulSet", replicas=2, status={**DONE, "updatedReplicas": 1}), False),
        (
            make_workload(
                "DaemonSet",
                status={
                    "observedGeneration": 1,
                    "desiredNumberScheduled": 2,
                    "updatedNumberScheduled": 2,
                    "numberAvailable": 1,
                },
            ),
            False,
        ),
    ],
)
def test_a_rollout_is_complete_when_all_pods_are_new_and_available(workload, is_so):
    assert is_complete(workload) == is_so


def budget(allowed=1, desired=2, name="cart", **status):
    spec = {"selector": {"matchLabels": {"app": "cart"}}}
    counts = {"disruptionsAllowed": allowed, "desiredHealthy": desired, "currentHealthy": 3}
    metadata = {"name": name, "namespace": "ns1", "generation": 1}
    status = {**counts, "observedGeneration": 1, **status}
    return decode_budget(
        msgspec.json.encode({"metadata": metadata, "spec": spec, "status": status})
    )


THREE = (stored_pod("a"), stored_pod("b"), stored_pod("c"))


@pytest.mark.parametrize(
    ("pods", "budgets", "needed", "is_allowed"),
    [
        pytest.param(THREE, (), 3, True, id="no budget"),
        pytest.param(THREE, (budget(),), 1, True, id="one allowed"),
        pytest.param(THREE, (budget(),), 2, False, id="the strategy disrupts more"),
        pytest.param(THREE, (budget(0),), 1, False, id="none allowed"),
        pytest.param(
            (*THREE[:2], stored_pod("c", ready=False)),
            (budget(),),
            1,
            False,
            id="unready, not counted",
        ),
        pytest.param(
            (*THREE[:2], stored_pod("c", deleted=True)), (budget(),), 1, False, id="just deleted"
        ),
        pytest.param(
            (stored_pod("a", node="", ready=False),), (budget(0),), 1, True, id="only pending pods"
        ),
        pytest.param(THREE, (budget(observedGeneration=0),), 1, False, id="status outdated"),
        pytest.param(THREE, (budget(), budget(name="two")), 1, False, id="two budgets"),
        pytest.param(THREE, (budget(2, 1),), 9, False, id="all pods at one time"),
    ],
)
def test_budgets_hold_although_another_disruption_has_just_begun(pods, budgets, needed, is_allowed):
    reason = why_budgets_forbid(
        observe_pods(*pods, budgets=budgets), [pod.pod for pod in pods], needed
    )
    assert bool(reason) != is_allowed
    assert is_allowed or reason.startswith("PodDisruptionBudget cart")


@pytest.mark.parametrize(
    ("pods", "budgets", "step"),
    [
        (THREE, (budget(0),), "run the command again later"),
        (THREE, (budget(0, 3),), "lower its minAvailable, raise its maxUnavailable"),
        (THREE, (budget(1, 2), budget(1, 2, "two")), "keep one"),
        ((*THREE, stored_pod("d", ready=False)), (budget(0, 3),), "run the command again later"),
    ],
)
def test_a_budget_that_can_never_allow_it_is_told_with_what_has_to_change(pods, budgets, step):
    members = [pod.pod for pod in pods]
    assert f": {step}" in why_budgets_forbid(observe_pods(*pods, budgets=budgets), members, 1)


def test_changes_begin_at_the_rate_that_is_asked_for():
    async def spend():
        pace, loop = Pace(60), asyncio.get_running_loop()
        begin = loop.time()
        for _ in range(4):
            await pace.wait()
        return loop.time() - begin

    assert run_virtually(spend()) == pytest.approx(3)
