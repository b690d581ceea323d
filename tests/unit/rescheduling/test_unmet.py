"""Requirements of pods that no node meets, compared with verdicts of the real scheduler."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import yaml

from harbourmaster.rescheduling import unmet as module
from harbourmaster.rescheduling.decoding import decode_pending
from harbourmaster.rescheduling.model import NodeTerm
from harbourmaster.rescheduling.unmet import HOST, Pool, decode_known, unmet
from helpers.fit_cases import CASES, ON_NODES, pod
from helpers.known_nodes import node, nodes_of, taint

DISK, ZONE = "example.com/disk", "topology.kubernetes.io/zone"
UNMET = yaml.load((Path(__file__).parents[2] / "fixtures/unmet.yaml").read_text(), yaml.CSafeLoader)
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def expression(key, operator, *values):
    return {"key": key, "operator": operator, **({"values": values} if values else {})}


def term(*expressions):
    return {"matchExpressions": expressions}


def needing(*terms, **more):
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return pod(affinity={"nodeAffinity": required}, **more)


def text_of_unmet(pod_json, *nodes, **pools):
    unmet_text = unmet(decode_pending(json.dumps(pod_json).encode()), nodes_of(*nodes, **pools))
    return None if unmet_text is None else unmet_text[0]


@pytest.mark.parametrize("case", UNMET, ids=lambda case: case["name"])
def test_what_no_node_has_is_named(case):
    pools = {f"pool-{number}": pool for number, pool in enumerate(case.get("pools", ()))}
    text = text_of_unmet(pod(**case["pod"]), *case.get("nodes", ()), **pools)
    assert text == case["text"]


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
