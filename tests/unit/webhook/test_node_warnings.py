"""Warnings on pods that no node matches, after the policies were merged into them."""

from __future__ import annotations

import json

import pytest

from harbourmaster.webhook import engine as module
from harbourmaster.webhook.probe_pod import PROBE_LABEL
from harbourmaster.webhook.verdict import DENIED, GATED, MUTATED, UNMATCHED
from helpers.admission import APP_TYPE, ask, engine_of, keys, pod
from helpers.known_nodes import knowing, node, taint
from helpers.logs import captured_log
from helpers.objects import RESOURCES, cluster_policy, policy, required, review, workload

NO_NODE = "no-node-matches"
TO_DO = "pods stay Pending until a node matches"
WANTING = cluster_policy("web-on-ssd", nodeSelector={"disk": "ssd"})
TRACKED = keys(workload="cart", version="1", app="shop")
HDD, SSD = node("n1", {"disk": "hdd"}), node("n2", {"disk": "ssd"})
POLICY = "ClusterPodSchedulingPolicy web-on-ssd"
NONE = {"namespaces": [{"metadata": {"name": "ns1"}}]}


def asked(document, engine, **request):
    return ask(review(document, **request), engine)


def warnings_of(document, *policies, nodes=(HDD,), pools=None, request=None, **settings):
    """The warnings on the object where these are the nodes."""
    engine = knowing(engine_of((), *policies, **{**NONE, **settings}), *nodes, **(pools or {}))
    return asked(document, engine, **(request or {})).response.get("warnings", [])


@pytest.mark.parametrize("kind", sorted({*RESOURCES} - {"DaemonSet"}))
def test_what_a_policy_requires_and_no_node_has_is_told_with_the_policy(kind):
    text = f"harbourmaster: no node has disk=ssd ({POLICY}): {TO_DO}"
    assert warnings_of(workload(kind), WANTING) == [text]
    assert warnings_of(workload(kind), WANTING, nodes=(HDD, SSD)) == []


def test_the_answer_is_the_same_but_for_the_warning():
    engine = engine_of((), WANTING, **NONE)
    plain, warned = (asked(workload(), current) for current in (engine, knowing(engine, HDD)))
    assert warned.verdict.outcome == MUTATED
    assert warned.verdict.codes == (NO_NODE,)
    assert list(warned.response["auditAnnotations"]) == [NO_NODE]
    assert warned.response["patch"] == plain.response["patch"]
    assert warned.verdict.policies == plain.verdict.policies


@pytest.mark.parametrize(
    "spec", [{"nodeSelector": {"disk": "ssd"}}, {"affinity": required({"disk": "ssd"})}]
)
def test_what_the_pod_itself_requires_is_told_with_its_path(spec):
    text = f"harbourmaster: no node has disk=ssd (spec.template.spec): {TO_DO}"
    assert warnings_of(workload(**spec)) == [text]
    # The pod had it first.
    assert warnings_of(workload(**spec), WANTING) == [text]


def test_each_requirement_is_told_with_the_policy_that_wrote_it():
    first = cluster_policy("a", affinity=required({"disk": "ssd"}))
    second = policy("b", "ns1", affinity=required({"gpu": "yes"}))
    (text,) = warnings_of(workload(), first, second, nodes=(HDD, node("n2", {"gpu": "yes"})))
    assert "no node has disk=ssd (ClusterPodSchedulingPolicy a): " in text
    (text,) = warnings_of(workload(), first, second, nodes=(SSD, HDD))
    assert "no node has gpu=yes (PodSchedulingPolicy ns1/b): " in text
    (text,) = warnings_of(workload(), first, second, nodes=(SSD, node("n3", {"gpu": "yes"})))
    both = "PodSchedulingPolicy ns1/b, ClusterPodSchedulingPolicy a"
    assert f"no node has gpu=yes and disk=ssd ({both}): " in text


def test_a_policy_that_another_one_beats_is_not_the_one_that_is_told():
    beaten = policy("b", "ns1", nodeSelector={"disk": "hdd"})
    (text,) = warnings_of(workload(), WANTING, beaten)
    assert f"disk=ssd ({POLICY})" in text


NAMED = "its kubelet refuses the pod that names it"


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "CronJob"])
def test_a_node_that_is_named_and_does_not_match_is_told(kind):
    text = f'harbourmaster: node "n1" does not match disk=ssd ({POLICY}): {NAMED}'
    pools = {"ssd": {"labels": {"disk": "ssd"}}}
    debug = workload(kind, nodeName="n1", schedulerName="other")
    assert warnings_of(debug, WANTING, nodes=(HDD, SSD), pools=pools) == [text]
    # The constraints stay.
    engine = knowing(engine_of((), WANTING, **NONE), HDD, SSD)
    assert asked(debug, engine).verdict.outcome == MUTATED
    assert warnings_of(workload(kind, nodeName="n2"), WANTING, nodes=(HDD, SSD)) == []
    # It may have joined since.
    assert warnings_of(workload(kind, nodeName="n3"), WANTING, nodes=(HDD, SSD)) == []


def test_a_node_that_is_named_is_judged_by_labels_name_and_affinity_only():
    tainted = node("n1", {"disk": "ssd"}, taint())
    named = workload("Pod", nodeName="n1")
    assert warnings_of(named, WANTING, nodes=(tainted,)) == []
    zone = cluster_policy("z", affinity=required({"zone": "z1"}))
    (text,) = warnings_of(named, zone, nodes=(tainted,))
    assert "does not match zone=z1 (ClusterPodSchedulingPolicy z): " in text
    own = workload("Pod", nodeName="n1", nodeSelector={"disk": "hdd"})
    assert "disk=hdd (spec): " in warnings_of(own, nodes=(tainted,))[0]
    by_policy = cluster_policy("n", nodeName="n1", nodeSelector={"disk": "hdd"})
    assert warnings_of(workload("Pod"), by_policy, nodes=(tainted,)) != []


def test_taints_are_told():
    nodes = (node("n1", {}, taint()),)
    why = "untolerated taint example.com/dedicated=ml:NoSchedule"
    text = f"harbourmaster: every node that matches is excluded: {why}: {TO_DO}"
    assert warnings_of(workload("Pod"), nodes=nodes) == [text]
    tolerating = cluster_policy(tolerations=[{"operator": "Exists"}])
    assert warnings_of(workload("Pod"), tolerating, nodes=nodes) == []
    assert warnings_of(workload("Pod"), nodes=(*nodes, HDD)) == []


@pytest.mark.parametrize("kind", sorted({*RESOURCES} - {"DaemonSet", "Pod"}))
def test_a_template_is_warned_of_labels_and_not_of_taints(kind):
    tainted = node("n1", {"disk": "ssd"}, taint())
    assert warnings_of(workload(kind), nodes=(tainted,)) == []
    assert warnings_of(workload(kind), WANTING, nodes=(tainted,)) == []
    assert warnings_of(workload(kind), WANTING, nodes=(node("n1", {}, taint()),)) != []


def test_a_daemon_set_is_not_warned_after_a_deployment_with_the_same_pod():
    engine = knowing(engine_of((), WANTING, **NONE), HDD)
    assert asked(workload("Deployment"), engine).verdict.codes == (NO_NODE,)
    assert asked(workload("DaemonSet"), engine).verdict.codes == ()


class ComparisonError(Exception):
    """Raised in place of a comparison with nodes."""


def test_a_failed_comparison_costs_the_warning_only_and_is_logged_once(monkeypatch):
    engine = engine_of((), WANTING, **NONE)
    plain = asked(workload(), engine).response

    def failing(*_):
        raise ComparisonError

    monkeypatch.setattr(module, "node_warnings", failing)
    module._log_once.cache_clear()
    with captured_log() as stream:
        for _ in range(2):
            assert asked(workload(), knowing(engine, HDD)).response == plain
    (line,) = stream.getvalue().splitlines()
    assert b"comparison with nodes failed" in line
    assert b"ComparisonError" in line


@pytest.mark.parametrize("depth", [100, 600])
def test_unknown_fields_that_are_nested_deeply_cost_nothing(depth):
    nested = {}
    for _ in range(depth):
        nested = {"a": nested}
    document = workload(affinity={"x": nested})
    engine = engine_of((), WANTING, **NONE)
    plain, knows = (asked(document, current).response for current in (engine, knowing(engine, HDD)))
    assert knows.get("patch") == plain["patch"]


def test_a_pod_with_too_much_to_compare_is_not_judged():
    long = {f"example.com/{number}": "x" * 60 for number in range(100)}
    assert len(warnings_of(workload(nodeSelector={**long}))) == 0
    short = dict.fromkeys([*long][:40], "x")
    assert len(warnings_of(workload(nodeSelector=short))) == 1


def test_a_pod_that_requires_nothing_is_not_merged_to_compare_it(monkeypatch):
    monkeypatch.setattr("harbourmaster.webhook.engine.merged_fields", None)
    with captured_log() as stream:
        assert warnings_of(workload("Pod")) == []
    assert stream.getvalue() == b""


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeName": "n9"},
        {"schedulerName": "other"},
        # The API server refuses it, and says why.
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "a", "labelSelector": {"matchExpressions": [{"operator": "Odd"}]}}
        ]}}},
    ],
)  # fmt: skip
def test_a_pod_that_no_known_scheduler_places_is_not_judged(spec):
    assert warnings_of(workload(nodeSelector={"disk": "ssd"}, **spec)) == []


def test_a_pod_with_a_toleration_that_compares_is_not_judged():
    tolerations = [{"key": "a", "operator": "Gt", "value": "5"}]
    spec = {"nodeSelector": {"disk": "ssd"}, "tolerations": tolerations}
    assert warnings_of(workload("Pod", **spec)) == []
    assert len(warnings_of(workload(**spec))) == 1


def test_a_node_name_of_a_policy_is_judged_where_it_is_affinity():
    named = cluster_policy("pin", nodeName="n9")
    assert warnings_of(workload(), named) == []
    (text,) = warnings_of(workload(), named, namespaces=None)
    assert "no node has metadata.name=n9 (ClusterPodSchedulingPolicy pin): " in text


def test_a_pod_that_its_controller_made_for_a_node_is_not_judged():
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n9"]}]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert warnings_of(workload("Pod", affinity=affinity)) == []
    assert len(warnings_of(workload(affinity=affinity))) == 1


def test_a_pool_that_may_be_added_prevents_the_warning():
    assert warnings_of(workload(), WANTING, pools={"fast": {"labels": {"disk": "ssd"}}}) == []
    assert len(warnings_of(workload(), WANTING, pools={"slow": {"labels": {"disk": "hdd"}}})) == 1


def test_nothing_is_told_while_no_node_is_known():
    assert warnings_of(workload(), WANTING, nodes=()) == []
    assert "warnings" not in asked(workload(), engine_of((), WANTING, **NONE)).response


def test_a_pod_that_waits_at_its_gate_is_warned_too():
    engine = engine_of((), WANTING)
    for _ in range(2):
        answer = asked(pod(TRACKED), knowing(engine, HDD))
        assert answer.verdict.outcome == GATED
        assert answer.verdict.codes == (NO_NODE,)
        assert answer.gates
        assert asked(pod(TRACKED), knowing(engine, SSD)).verdict.codes == ()


def test_the_reason_why_a_pod_is_left_alone_stays():
    answer = asked(workload("Pod", nodeSelector={"disk": "ssd"}), knowing(engine_of(), HDD))
    assert answer.verdict.outcome == UNMATCHED
    assert answer.is_untouched
    assert answer.verdict.codes == (NO_NODE,)


def test_a_refusal_says_only_why():
    engine = engine_of((), gating="schedulerName", onForeignScheduler="deny")
    document = pod(TRACKED, schedulerName="other", nodeSelector={"disk": "ssd"})
    answer = asked(document, knowing(engine, HDD))
    assert answer.verdict.outcome == DENIED
    assert "warnings" not in answer.response


@pytest.mark.parametrize(
    "request_fields", [{"operation": "DELETE"}, {"operation": "UPDATE"}, {"subResource": "status"}]
)
def test_what_is_never_changed_is_never_judged(request_fields):
    assert warnings_of(workload("Pod"), WANTING, request=request_fields) == []


def test_the_pod_by_which_doctor_asks_is_not_judged():
    document = workload("Pod", {APP_TYPE: "x", PROBE_LABEL: "true"})
    assert warnings_of(document, request={"dryRun": True}) == []


def test_a_change_of_nodes_counts_at_once_for_what_was_asked_before():
    engine = engine_of((), WANTING, **NONE)
    for nodes, count in (((HDD,), 1), ((HDD, SSD), 0), ((HDD,), 1), ((), 0)):
        engine = knowing(engine, *nodes)
        for _ in range(2):
            assert len(asked(workload(), engine).verdict.codes) == count


def test_malformed_objects_are_answered_as_ever():
    document = workload(nodeSelector={"disk": 1})
    engine = engine_of((), WANTING, **NONE)
    plain, knows = (asked(document, current).response for current in (engine, knowing(engine, HDD)))
    assert json.dumps(plain) == json.dumps(knows)
