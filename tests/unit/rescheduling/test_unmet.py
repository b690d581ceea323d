"""Requirements of pods that no node meets, compared with verdicts of the real scheduler."""

from __future__ import annotations

import json

import msgspec
import pytest

from harbourmaster.rescheduling import unmet as module
from harbourmaster.rescheduling.decoding import decode_pending
from harbourmaster.rescheduling.model import NodeTerm
from harbourmaster.rescheduling.unmet import HOST, Pool, decode_known, unmet
from helpers.fit_cases import CASES, ON_NODES, pod
from helpers.known_nodes import node, nodes_of, taint

DISK, ZONE = "example.com/disk", "topology.kubernetes.io/zone"
SSD = pod(nodeSelector={DISK: "ssd"})
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def expression(key, operator, *values):
    return {"key": key, "operator": operator, **({"values": values} if values else {})}


def term(*expressions, fields=()):
    return {"matchExpressions": expressions, "matchFields": fields}


def needing(*terms, **more):
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return pod(affinity={"nodeAffinity": required}, **more)


def text_of_unmet(pod_json, *nodes, **pools):
    unmet_text = unmet(decode_pending(json.dumps(pod_json).encode()), nodes_of(*nodes, **pools))
    return None if unmet_text is None else unmet_text[0]


def term_by_name(*names, operator="In"):
    fields = [{"key": "metadata.name", "operator": operator, "values": [name]} for name in names]
    return term(fields=fields)


def fitting(case):
    node_of, _, pod_json = case.on("n1")
    return text_of_unmet(pod_json, node_of) is None


def test_pods_that_the_scheduler_placed_are_never_reported():
    placed = [case for case in CASES if case.fits]
    assert [case.name for case in placed if not fitting(case)] == []
    assert len(placed) > 100


def test_pods_that_the_scheduler_refused_by_labels_and_taints_are_reported_unless_by_a_cordon():
    differing = {case.name for case in ON_NODES if fitting(case) is not case.fits}
    assert len(differing) == 3
    assert all("cordon" in name for name in differing)


def test_no_verdict_is_given_before_a_node_is_known():
    assert text_of_unmet(SSD) is None
    assert text_of_unmet(SSD, pool={}) is None


@pytest.mark.parametrize(
    ("pending_pod", "text"),
    [
        (SSD, f"no node has {DISK}=ssd"),
        (needing(term(expression(DISK, "In", "a", "b"))), f"no node has {DISK} In [a, b]"),
        (
            needing(term(expression(DISK, "In", "a")), term(expression(ZONE, "In", "c"))),
            f"no node has {DISK}=a or {ZONE}=c",
        ),
        # Each of them is met by a node, and both by none.
        (
            pod(nodeSelector={DISK: "hdd", ZONE: "b"}),
            f"no node has {DISK}=hdd and {ZONE}=b",
        ),
        (
            needing(term(expression("example.com/gpu", "Gt", "8")), nodeSelector={ZONE: "b"}),
            "no node has example.com/gpu Gt [8]",
        ),
        (
            needing({}),
            "no node has what the required node affinity asks for",
        ),
        (needing(term_by_name("n9")), "no node has metadata.name=n9"),
        (pod(nodeSelector={HOST: "n9"}), f"no node has {HOST}=n9"),
    ],
)
def test_the_requirement_that_no_node_meets_is_named(pending_pod, text):
    assert (
        text_of_unmet(pending_pod, node("n1", {DISK: "hdd", ZONE: "a"}), node("n2", {ZONE: "b"}))
        == text
    )


@pytest.mark.parametrize(
    "pending_pod",
    [
        pod(nodeSelector={HOST: "n2.example.com"}),
        needing(term_by_name("n2")),
        needing(term_by_name("n1", operator="NotIn")),
        needing(term(expression(HOST, "NotIn", "n1.example.com"))),
        needing(term_by_name("n9"), term_by_name("n2")),
        needing(term_by_name("n9"), term(expression(HOST, "In", "n2.example.com"))),
    ],
)
def test_nodes_that_differ_in_their_names_only_are_told_apart(pending_pod):
    assert text_of_unmet(pending_pod, node("n1"), node("n2"), node("n3")) is None
    assert text_of_unmet(pending_pod, node("n1")) is not None


def test_taints_that_nothing_tolerates_are_named():
    tainted = node("n1", {DISK: "ssd"}, taint())
    taint_of = "untolerated taint example.com/dedicated=ml:NoSchedule"
    text = f"every node that matches is excluded: {taint_of}"
    assert text_of_unmet(pod(), tainted) == text
    assert text_of_unmet(SSD, tainted, node("n2")) == text
    assert text_of_unmet(pod(), tainted, node("n2")) is None


@pytest.mark.parametrize(
    "key",
    [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/memory-pressure",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "node.cilium.io/agent-not-ready",
        "startup-taint.cluster-autoscaler.kubernetes.io/driver",
    ],
)
def test_taints_that_come_and_go_are_ignored(key):
    assert text_of_unmet(pod(), node("n1", {}, taint("NoExecute", None, key))) is None


def test_the_taint_of_a_reservation_is_ignored_and_others_of_its_key_are_not():
    ours, others = (
        taint(value="resched.0123", key="CriticalAddonsOnly"),
        taint(value="true", key="CriticalAddonsOnly"),
    )
    assert text_of_unmet(pod(), node("n1", {}, ours)) is None
    assert text_of_unmet(pod(), node("n1", {}, others)) is not None


def test_a_pool_that_could_be_added_is_as_good_as_a_node():
    pool = {"labels": {DISK: "ssd"}}
    assert text_of_unmet(SSD, node(), pool=pool) is None
    assert (
        text_of_unmet(pod(nodeSelector={DISK: "nvme"}), node(), pool=pool)
        == f"no node has {DISK}=nvme"
    )
    tainted = pool | {"taints": [taint()]}
    assert "every node that matches is excluded" in text_of_unmet(SSD, node(), pool=tainted)
    tolerant = pod(nodeSelector={DISK: "ssd"}, tolerations=[{"operator": "Exists"}])
    assert text_of_unmet(tolerant, node(), pool=tainted) is None


def test_a_requirement_that_a_pool_meets_is_not_the_one_that_is_named():
    pending_pod = pod(nodeSelector={DISK: "ssd", "example.com/gpu": "a100"})
    assert (
        text_of_unmet(pending_pod, node(), pool={"labels": {DISK: "ssd"}})
        == "no node has example.com/gpu=a100"
    )


@pytest.mark.parametrize(
    ("pending_pod", "is_told"),
    [
        (pod(nodeSelector={ZONE: "x", "node.kubernetes.io/instance-type": "m"}), False),
        (needing(term(expression(ZONE, "In", "x"))), False),
        (needing(term(expression(ZONE, "In", "x"), expression(DISK, "In", "hdd"))), True),
        (pod(nodeSelector={"kubernetes.io.example.com/a": "x"}), True),
        (pod(nodeSelector={"example.com/family": "m5"}), False),
        (pod(nodeSelector={"kubernetes.io/arch": "arm64"}), True),
        (needing(term_by_name("n9")), True),
    ],
)
def test_labels_of_a_pool_are_open_where_it_says_nothing_of_a_common_one(pending_pod, is_told):
    labels = {DISK: "ssd", "example.com/family": "*", "kubernetes.io/arch": "amd64"}
    assert (text_of_unmet(pending_pod, node(), pool={"labels": labels}) is not None) is is_told


def test_an_unknown_key_of_a_pool_is_refused():
    for wrong in ({"label": {}}, {"taints": [{"key": "a", "efect": "NoExecute"}]}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, Pool)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"taints": [{"key": "a", "effect": "Never"}]}, Pool)


def test_only_what_matters_of_a_node_makes_another_one():
    first = {**node(), "status": {"conditions": []}}
    second = {**node(), "status": {"conditions": [{"type": "Ready"}]}}
    second["spec"] = {"unschedulable": True, "taints": [CORDON]}
    assert decode_known(json.dumps(first).encode()) == decode_known(json.dumps(second).encode())
    assert len(nodes_of(node("n1"), node("n2"), node("n3", {ZONE: "a"})).kinds) == 2


MANY = 150
DISTINCT = [node(f"n{number}", {"example.com/id": f"{number}"}, taint()) for number in range(MANY)]
SAME = [node(f"n{number}") for number in range(MANY)]
TOLERATIONS = [{"key": f"k{number}", "operator": "Exists"} for number in range(MANY)]


@pytest.fixture
def checks(monkeypatch):
    """Record each node that the search examines."""
    seen = []

    def record_node(pending, known_node, **options):
        seen.append(known_node)
        return real(pending, known_node, **options)

    real = module.static_reasons
    monkeypatch.setattr(module, "static_reasons", record_node)
    return seen


@pytest.mark.parametrize(
    "pending_pod",
    [
        needing(*(term(expression(DISK, "In", f"v{number}")) for number in range(MANY))),
        needing(term(expression(DISK, "In", *(f"v{number}" for number in range(MANY))))),
        pod(nodeSelector={f"example.com/{number}": "" for number in range(MANY)}),
        pod(tolerations=TOLERATIONS),
    ],
    ids=["terms", "values", "labels", "tolerations"],
)
def test_no_node_is_looked_at_where_there_is_too_much_to_compare(pending_pod, checks):
    assert text_of_unmet(pending_pod, *DISTINCT) is None
    assert checks == []
    assert text_of_unmet(pending_pod, *DISTINCT[:20]) is not None
    assert 0 < len(checks) <= 20_000


def test_nodes_that_are_alike_count_once_unless_their_names_are_asked_for(checks):
    many = [term(expression(DISK, "In", f"v{number}")) for number in range(MANY)]
    assert text_of_unmet(needing(*many), *SAME) is not None
    checks.clear()
    assert text_of_unmet(needing(*many, nodeSelector={HOST: "n"}), *SAME) is None
    assert checks == []


def test_labels_are_not_written_into_each_term(checks, monkeypatch):
    built = []

    def record_term(*fields):
        built.append(fields)
        return NodeTerm(*fields)

    monkeypatch.setattr(module, "NodeTerm", record_term)
    labels = {f"example.com/{number}": "" for number in range(50)}
    pending_pod = needing(
        *(term(expression(DISK, "Exists")) for _ in range(50)), nodeSelector=labels
    )
    assert text_of_unmet(pending_pod, node()) is not None
    assert sum(len(fields[0]) > 1 for fields in built if fields) <= 3


def test_only_the_requirements_in_the_text_are_returned():
    many = [term(expression(DISK, "In", f"v{number}")) for number in range(9)]
    pending = decode_pending(json.dumps(needing(*many)).encode())
    assert len(unmet(pending, nodes_of(node()))[1]) == 3
