"""Each rule by which a policy's wish comes true or not, and each way not to select a pod."""

from __future__ import annotations

import json

import msgspec
import pytest

from harbourmaster.policies.compiled import compile_policy, undecodable_policy
from harbourmaster.policies.explain import ExplainedPolicy, explain
from harbourmaster.policies.merge import MergeOptions
from harbourmaster.policies.model import Policy
from harbourmaster.policies.pods import KINDS
from harbourmaster.policies.tolerations import DEFAULTS
from helpers.objects import cluster_policy, policy, required, workload
from helpers.policies import fields, node_terms, one_of

POD = KINDS["", "v1", "Pod"]
LABELS = {"app": "web", "tier": "back"}
GATED = MergeOptions(node_name_as_field=True)
POOL = {"key": "pool", "operator": "Exists"}


def candidates(*documents):
    sources = [msgspec.convert(document, Policy) for document in documents]
    return [ExplainedPolicy(compile_policy(source), source) for source in sources]


def explain_documents(*documents, options=None, namespace_labels=None, **spec):
    pod = POD.read(json.dumps(workload("Pod", LABELS, **spec)).encode())
    explained_policies = candidates(*documents)
    return explain(
        pod, "/spec", "ns1", namespace_labels or {}, explained_policies, options or MergeOptions()
    )


def rules(report):
    return [
        (contribution.rule, contribution.path, contribution.by)
        for contribution in report.contributions
    ]


def test_a_label_is_added_found_kept_or_lost():
    wish = {"disk": "ssd"}
    first, second = cluster_policy("a", nodeSelector=wish), cluster_policy("b", nodeSelector=wish)
    third = policy("c", nodeSelector={"disk": "hdd"})
    path, a = 'spec.nodeSelector["disk"]', "ClusterPodSchedulingPolicy a"
    explanation = explain_documents(third, second, first)
    assert [rules(report) for report in explanation.policies] == [
        [("added", path, ())],
        [("already-there", path, (a,))],
        [("won-by", path, (a,))],
    ]
    (field,) = explanation.fields
    assert (field.value, field.set_by) == ("ssd", (a,))
    assert field.asked_by == ("ClusterPodSchedulingPolicy b",)
    own = explain_documents(third, nodeSelector={"disk": "nvme"}).policies[0].contributions[0]
    assert (own.rule, own.value, own.present, own.by) == ("kept-own", "hdd", "nvme", ("",))


def test_default_scheduler_is_replaced_and_another_is_kept():
    explanation = explain_documents(
        cluster_policy("a", schedulerName="s"), schedulerName="default-scheduler"
    )
    assert explanation.policies[0].contributions[0].rule == "replaced"
    assert explanation.policies[0].contributions[0].present == "default-scheduler"
    as_kupid = MergeOptions(treat_default_scheduler_as_unset=False)
    for name, options in (("mine", None), ("default-scheduler", as_kupid)):
        policies = cluster_policy("a", schedulerName="s")
        kept = explain_documents(policies, schedulerName=name, options=options)
        assert kept.policies[0].contributions[0].rule == "kept-own"


def test_a_replaced_default_toleration_is_told_with_what_counts():
    (nr, un), own = DEFAULTS.values(), {"key": "x", "operator": "Exists"}
    wide = {"operator": "Exists", "tolerationSeconds": 9, "effect": "NoExecute"}
    explanation = explain_documents(
        cluster_policy("a", tolerations=[POOL]),
        cluster_policy("b", tolerations=[wide]),
        cluster_policy("c", tolerations=[un]),
        tolerations=[nr, own, un],
    )
    pool, replaced, late = (report.contributions[0] for report in explanation.policies)
    assert (pool.rule, pool.path) == ("added", "spec.tolerations[1]")
    assert (replaced.rule, replaced.path) == ("replaced", "spec.tolerations[2]")
    assert (replaced.value, replaced.present) == (wide, [nr, un])
    assert (late.rule, late.path) == ("added", "spec.tolerations[3]")
    assert late.why == f"tolerations[2] counts for {un['key']}"
    assert "".join(field.set_by[0][-1:] for field in explanation.fields) == "abc"


def test_a_toleration_after_the_pods_own_is_told_to_have_no_effect():
    key = "node.kubernetes.io/unreachable"
    own = {"key": key, "operator": "Exists", "tolerationSeconds": 60, "effect": "NoExecute"}
    policy = cluster_policy("a", tolerations=[{**own, "tolerationSeconds": 30}])
    for tolerations, rule in (
        ([own], "added"),
        ([own, {**own, "tolerationSeconds": 30}], "already-there"),
    ):
        ((contribution,),) = (
            report.contributions
            for report in explain_documents(policy, tolerations=tolerations).policies
        )
        assert (contribution.rule, contribution.path) == (rule, "spec.tolerations[1]")
        assert contribution.why == f"tolerations[0] counts for {key}"


def test_a_scheduler_is_left_out_where_pods_wait_with_another():
    options = MergeOptions(waiting_scheduler="gate", keeps_scheduler=True)
    first, second = cluster_policy("a", schedulerName="s"), cluster_policy("b", schedulerName="t")
    explanation = explain_documents(
        first, second, schedulerName="default-scheduler", options=options
    )
    (left,), (lost,) = (report.contributions for report in explanation.policies)
    assert left.rule == "left-out"
    assert "pods wait for their checks with gate" in left.why
    assert (lost.rule, lost.by) == ("won-by", ("ClusterPodSchedulingPolicy a",))


def test_a_node_name_of_a_gated_pod_becomes_affinity_once():
    first, second = cluster_policy("a", nodeName="n1"), cluster_policy("b", nodeName="n2")
    explanation = explain_documents(first, second, options=GATED)
    assert [contribution.rule for contribution in explanation.policies[0].contributions] == [
        "added",
        "as-affinity",
    ]
    assert [contribution.rule for contribution in explanation.policies[1].contributions] == [
        "won-by"
    ]
    assert [field.path.rpartition(".")[2] for field in explanation.fields] == ["nodeSelectorTerms"]


def test_a_node_name_that_is_affinity_already_is_asked_for_by_its_policy():
    there = node_terms(fields(one_of("metadata.name", "n1")))
    explanation = explain_documents(cluster_policy("a", nodeName="n1"), options=GATED, **there)
    assert [contribution.rule for contribution in explanation.policies[0].contributions] == [
        "as-affinity"
    ]
    (field,) = explanation.fields
    assert (field.set_by, field.asked_by) == (("",), ("ClusterPodSchedulingPolicy a",))


def test_a_node_name_that_is_left_out_of_affinity_is_said_to_be():
    node_affinity = node_terms(fields(one_of("metadata.name", "n2")))
    options = MergeOptions(node_name_as_field=True, skip_conflicts=True)
    explanation = explain_documents(
        cluster_policy("a", nodeName="n1"), options=options, **node_affinity
    )
    (left,) = explanation.policies[0].contributions
    assert (left.rule, left.path) == ("left-out", "spec.nodeName")
    assert "metadata.name" in left.why
    assert explanation.fields[0].asked_by == ()


def test_a_template_is_not_called_a_pod():
    template = KINDS["apps", "v1", "Deployment"].read(
        json.dumps(workload("Deployment", LABELS)).encode()
    )
    asked = (template, "/spec/template/spec", "ns1", {})
    others = candidates(cluster_policy("a", pods={"app": "db"}), policy("b", "ns2"))
    explanation = explain(*asked, others, MergeOptions(), whose="the template")
    assert [report.mismatch.present for report in explanation.policies] == [
        'the template has "web"',
        "the template is in ns1",
    ]


def test_required_terms_are_added_multiplied_or_implied():
    zone = cluster_policy("a", affinity=required({"zone": "x"}))
    disk = cluster_policy("b", affinity=required({"disk": "ssd"}))
    again = cluster_policy("c", affinity=required({"zone": "x"}))
    explanation = explain_documents(zone, disk, again)
    assert [report.contributions[0].rule for report in explanation.policies] == [
        "added",
        "multiplied",
        "already-there",
    ]
    (field,) = explanation.fields
    assert field.set_by == ("ClusterPodSchedulingPolicy a", "ClusterPodSchedulingPolicy b")
    assert len(field.value[0]["matchExpressions"]) == 2


def test_a_conflict_is_told_of_the_policy_that_brings_it():
    wish = cluster_policy("a", affinity=required({"disk": "ssd"}))
    tolerating = cluster_policy("b", tolerations=[POOL])
    explanation = explain_documents(wish, tolerating, nodeSelector={"disk": "hdd"})
    assert [[warning.code for warning in report.warnings] for report in explanation.policies] == [
        ["affinity-conflict"],
        [],
    ]
    options = MergeOptions(skip_conflicts=True)
    left = explain_documents(wish, tolerating, nodeSelector={"disk": "hdd"}, options=options)
    (contribution,) = left.policies[0].contributions
    assert contribution.rule == "left-out"
    assert "are left out" in contribution.why


def test_items_of_lists_are_told_one_by_one():
    toleration = {"key": "other", "operator": "Exists"}
    explanation = explain_documents(
        cluster_policy("a", tolerations=[POOL, toleration]), tolerations=[toleration]
    )
    assert rules(explanation.policies[0]) == [
        ("added", "spec.tolerations[1]", ()),
        ("already-there", "spec.tolerations[0]", ("",)),
    ]


def test_a_broken_policy_is_told_and_contributes_nothing():
    broken = cluster_policy("a", tolerations=[{"key": "no key!", "operator": "Exists"}])
    explanation = explain_documents(broken, cluster_policy("b", nodeSelector={"disk": "ssd"}))
    report = explanation.policies[0]
    assert report.matched
    assert report.fault.startswith("spec.tolerations[0].key")
    assert report.contributions == ()
    assert [warning.code for warning in report.warnings] == ["policy-invalid"]
    assert explanation.policies[1].contributions


def test_one_that_cant_be_decoded_needs_no_source():
    stand_in = undecodable_policy("PodSchedulingPolicy ns2/p", "ns2", "spec: expected object")
    pod = POD.read(json.dumps(workload("Pod", LABELS)).encode())
    explanation = explain(pod, "/spec", "ns1", {}, [ExplainedPolicy(stand_in)], MergeOptions())
    assert explanation.policies[0].mismatch.path == "metadata.namespace"
    explanation = explain(pod, "/spec", "ns2", {}, [ExplainedPolicy(stand_in)], MergeOptions())
    assert explanation.policies[0].fault == "spec: expected object"


ABSENT = "is absent, so it selects nothing; an empty selector selects everything"
EXPRESSIONS = [
    {"key": "app", "operator": "Exists"},
    {"key": "tier", "operator": "NotIn", "values": ["back"]},
]


@pytest.mark.parametrize(
    ("selectors", "told"),
    [
        ({"podSelector": None}, f"spec.podSelector {ABSENT}"),
        ({"namespaceSelector": None}, f"spec.namespaceSelector {ABSENT}"),
        (
            {"podSelector": {"matchLabels": {"app": "web", "tier": "front"}}},
            'spec.podSelector.matchLabels["tier"] wants "front", the pod has "back"',
        ),
        (
            {"podSelector": {"matchLabels": {"role": "main"}}},
            'spec.podSelector.matchLabels["role"] wants "main", the pod has no label role',
        ),
        (
            {"podSelector": {"matchExpressions": EXPRESSIONS}},
            'spec.podSelector.matchExpressions[1] wants tier NotIn ["back"], the pod has "back"',
        ),
        (
            {"podSelector": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}},
            "spec.podSelector.matchExpressions[0] wants x Exists, the pod has no label x",
        ),
        (
            {"namespaceSelector": {"matchLabels": {"team": "a"}}, "podSelector": None},
            'spec.namespaceSelector.matchLabels["team"] wants "a", the namespace has "b"',
        ),
    ],
)
def test_the_first_part_that_fails_is_named_as_it_stands_in_the_manifest(selectors, told):
    document = cluster_policy("a")
    document["spec"].update(selectors)
    explanation = explain_documents(document, namespace_labels={"team": "b"})
    assert str(explanation.policies[0].mismatch) == told


def test_matching_ones_come_first_in_the_order_in_which_they_apply():
    here, elsewhere = policy("a", nodeName="n"), policy("a", namespace="ns2", nodeName="n")
    never = cluster_policy("a", pods={"app": "db"})
    explanation = explain_documents(elsewhere, here, never, cluster_policy("z"))
    assert [(report.reference, report.matched) for report in explanation.policies] == [
        ("ClusterPodSchedulingPolicy z", True),
        ("PodSchedulingPolicy ns1/a", True),
        ("ClusterPodSchedulingPolicy a", False),
        ("PodSchedulingPolicy ns2/a", False),
    ]
