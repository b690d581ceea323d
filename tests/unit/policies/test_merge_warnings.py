"""Tests of the warnings of a merge: conflicts with both sides, and broken policies."""

from __future__ import annotations

import pytest

from helpers.objects import cluster_policy, required, workload
from helpers.policies import expressions, merge_of, node_terms, one_of


def test_conflict_is_noted_with_both_sides_and_merged():
    result = merge_of(
        workload(affinity=required({"d": "other"})),
        cluster_policy(affinity=required({"d": "etcd"})),
    )
    assert result.codes == ["affinity-conflict"]
    assert result.warnings[0].text == (
        "ClusterPodSchedulingPolicy c1 requires d In [etcd], the pod d In [other]: "
        "no node can satisfy both"
    )
    assert (
        result.spec["affinity"]
        == node_terms(expressions(one_of("d", "etcd"), one_of("d", "other")))["affinity"]
    )


def test_conflict_is_noted_and_left_out_where_conflicts_are_skipped():
    result = merge_of(
        workload(affinity=required({"d": "other"})),
        cluster_policy(affinity=required({"d": "etcd"})),
        skip_conflicts=True,
    )
    assert result.codes == ["affinity-conflict"]
    assert result.warnings[0].text == (
        "ClusterPodSchedulingPolicy c1 requires d In [etcd], the pod d In [other]: "
        "the policy's requirements that exclude others are left out, the rest of the policy applies"
    )
    assert result.operations == []


def test_conflict_that_is_left_out_is_noted_again():
    policy = cluster_policy(affinity=required({"d": "etcd", "e": "1"}), nodeSelector={"a": "1"})
    once = merge_of(workload(affinity=required({"d": "other"})), policy, skip_conflicts=True)
    again = merge_of(once.document, policy, skip_conflicts=True)
    assert once.operations
    assert (again.operations, again.warnings) == ([], once.warnings)


def test_node_selector_of_an_earlier_policy_conflicts_as_the_pods_own():
    policies = [
        cluster_policy("c1", nodeSelector={"d": "other"}),
        cluster_policy("c2", affinity=required({"d": "etcd"})),
    ]
    (warning,) = merge_of(workload(), *policies).warnings
    assert warning.code == "affinity-conflict"
    assert warning.text.startswith("ClusterPodSchedulingPolicy c2 requires d In [etcd], ")
    assert "already required is d In [other]: " in warning.text


def test_pod_is_not_blamed_for_the_rule_of_an_earlier_policy():
    policies = [cluster_policy(f"c{i}", affinity=required({"d": f"{i}"})) for i in (1, 2)]
    (warning,) = merge_of(workload(affinity=required({"e": "1"})), *policies).warnings
    assert warning.text == (
        "ClusterPodSchedulingPolicy c2 requires d In [2], already required is d In [1]: "
        "no node can satisfy both"
    )


def selector_and_affinity(selector, affinity):
    return {"nodeSelector": {"d": selector}, "affinity": required({"d": affinity})}


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize(
    ("before", "policies", "text"),
    [
        (
            {"affinity": required({"d": "x"}, {"d": "z"})},
            [cluster_policy("c1", nodeSelector={"d": "y"})],
            "c1 requires d In [y] by its node selector, the pod d In [x]: ",
        ),
        (
            {},
            [
                cluster_policy("c1", affinity=required({"d": "x"})),
                cluster_policy("c2", nodeSelector={"e": "1", "d": "y"}),
            ],
            "c2 requires d In [y] by its node selector, already required is d In [x]: ",
        ),
        (
            {},
            [cluster_policy("c1", **selector_and_affinity("y", "x"))],
            "c1 requires d In [y] by its node selector, already required is d In [x]: ",
        ),
    ],
    ids=["of the pod", "of an earlier policy", "of the same policy"],
)
def test_node_selector_that_required_affinity_excludes_is_noted(before, policies, text, skip):
    result = merge_of(workload(**before), *policies, skip_conflicts=skip)
    (warning,) = result.warnings
    assert warning.code == "affinity-conflict"
    assert warning.text == f"ClusterPodSchedulingPolicy {text}no node can satisfy both"
    assert result.spec["nodeSelector"]["d"] == "y"
    assert merge_of(result.document, *policies, skip_conflicts=skip).operations == []


@pytest.mark.parametrize(
    "before",
    [
        {"affinity": required({"d": "x"}, {"d": "y"})},
        {"affinity": required({"d": "x"}, {"e": "1"})},
        {"nodeSelector": {"d": "y"}, "affinity": required({"d": "x"})},
    ],
    ids=["one term fits", "one term does not care", "the pod's own node selector"],
)
def test_node_selector_that_excludes_not_all_or_is_not_added_is_not_noted(before):
    assert merge_of(workload(**before), cluster_policy(nodeSelector={"d": "y"})).warnings == []


def test_conflict_is_noted_again_while_it_lasts():
    policy = cluster_policy(affinity=required({"d": "etcd"}))
    once = merge_of(workload(affinity=required({"d": "other"})), policy)
    again = merge_of(once.document, policy)
    assert (again.operations, again.warnings) == ([], once.warnings)


def test_note_is_one_line_whatever_the_pod_holds():
    pod = workload(affinity=required({"d": "x\ny"}))
    result = merge_of(pod, cluster_policy(affinity=required({"d": "etcd"})))
    assert result.warnings[0].text.isprintable()


BROKEN = cluster_policy(
    "bad", nodeSelector={"a b": "1"}, nodeName="n1", affinity=required({"z": "1"})
)


def test_broken_policy_is_skipped_with_a_note_and_the_others_apply():
    result = merge_of(
        workload(),
        cluster_policy("c1", nodeSelector={"a": "1"}),
        BROKEN,
        cluster_policy("c2", schedulerName="s2"),
    )
    assert result.codes == ["policy-invalid"]
    assert result.warnings[0].text.startswith(
        "ClusterPodSchedulingPolicy bad is skipped, it is invalid: spec.nodeSelector: "
    )
    assert result.paths == [
        "/spec/template/spec/nodeSelector",
        "/spec/template/spec/schedulerName",
    ]


def test_a_label_of_the_pod_that_beats_a_policy_is_noted():
    policies = [cluster_policy("c1", nodeSelector={"d": "etcd", "e": "1"})]
    result = merge_of(workload("Pod", nodeSelector={"d": "other"}), *policies)
    (warning,) = result.warnings
    assert warning.code == "node-selector-conflict"
    assert warning.text == (
        "ClusterPodSchedulingPolicy c1 requires d In [etcd] by its node selector, "
        "the pod d In [other]: the label is left out"
    )
    assert result.spec["nodeSelector"] == {"d": "other", "e": "1"}
    assert merge_of(result.document, *policies).warnings == result.warnings


def test_a_label_of_an_earlier_policy_that_beats_another_is_not_noted():
    policies = [cluster_policy(f"c{i}", nodeSelector={"d": f"{i}"}) for i in (1, 2)]
    template = merge_of(workload(), *policies)
    assert template.warnings == []
    # Also not in a pod that has it from its template.
    assert merge_of(workload("Pod", **template.spec), *policies).warnings == []
