"""Policies whose required node affinity would grow beyond the bounds."""

from __future__ import annotations

import itertools

import pytest

from helpers.objects import cluster_policy, required, workload
from helpers.oracles import NODE_REQUIRED
from helpers.policies import merge_of, one_of

EXISTS = {"key": "x", "operator": "Exists"}


def product_of(count):
    return [
        cluster_policy(f"c{index:02}", affinity=required(*({f"k{index}": v} for v in "123")))
        for index in range(count)
    ]


def term_count(result):
    return len(result.spec["affinity"]["nodeAffinity"][NODE_REQUIRED]["nodeSelectorTerms"])


@pytest.mark.parametrize("skip", [False, True])
def test_of_twenty_policies_with_three_terms_the_first_five_apply(skip):
    policies = product_of(20)
    once = merge_of(workload(), *policies, skip_conflicts=skip)
    assert term_count(once) == 3**5
    first = once.spec["affinity"]["nodeAffinity"][NODE_REQUIRED]["nodeSelectorTerms"][0]
    assert {r["key"] for r in first["matchExpressions"]} == {f"k{index}" for index in range(5)}
    assert once.codes == ["affinity-too-large"] * 15
    skipped = [warning.text for warning in once.warnings]
    for policy, text in zip(policies[5:], skipped, strict=True):
        name = policy["metadata"]["name"]
        assert text == (
            f"required node affinity of ClusterPodSchedulingPolicy {name} is skipped: "
            "it would make 729 terms, more than 512"
        )
    again = merge_of(once.document, *policies, skip_conflicts=skip)
    assert again.operations == []
    assert again.warnings == once.warnings


def test_other_fields_of_a_policy_whose_affinity_is_too_large_apply():
    wide = cluster_policy(
        affinity=required(*({"a": str(index)} for index in range(513))),
        nodeSelector={"b": "1"},
        tolerations=[EXISTS],
    )
    result = merge_of(workload(), wide)
    assert result.codes == ["affinity-too-large"]
    assert result.paths == ["/spec/template/spec/nodeSelector", "/spec/template/spec/tolerations"]


def test_policy_of_few_terms_applies_after_one_that_is_too_large():
    policies = [*product_of(6), cluster_policy("c99", affinity=required({"last": "1"}))]
    result = merge_of(workload(), *policies)
    assert result.codes == ["affinity-too-large"]
    assert term_count(result) == 3**5
    terms = result.spec["affinity"]["nodeAffinity"][NODE_REQUIRED]["nodeSelectorTerms"]
    assert all(one_of("last", "1") in term["matchExpressions"] for term in terms)


def test_policy_that_fits_once_a_later_one_made_terms_equal_is_applied():
    keys = [f"k{index}" for index in range(9)]
    subsets = itertools.chain(*(itertools.combinations(keys, size) for size in range(1, 5)))
    pod = workload(affinity=required(*(dict.fromkeys(subset, "1") for subset in subsets)))
    wide = cluster_policy("c1", affinity=required({"p": "1"}, {"p": "2"}, {"p": "3"}))
    narrow = cluster_policy("c2", affinity=required(dict.fromkeys(keys, "1")))
    assert merge_of(pod, wide).codes == ["affinity-too-large"]
    result = merge_of(pod, wide, narrow)
    assert result.warnings == []
    assert term_count(result) == 3
    assert merge_of(result.document, wide, narrow).operations == []


def test_policy_whose_parts_are_all_too_large_is_noted_once():
    near = workload(affinity=required(*({"a": f"{i}{'x' * 1024}"} for i in range(240))))
    policy = cluster_policy(affinity=required({"b": "1" * 60}), nodeName="n" * 60)
    assert merge_of(near, cluster_policy(nodeName="n" * 60), node_name_as_field=True).warnings
    assert merge_of(near, policy, node_name_as_field=True).codes == ["affinity-too-large"]
