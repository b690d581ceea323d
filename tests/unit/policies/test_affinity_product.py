"""Required node affinity: the product of two lists of terms, with absorption.

These tests prove kupid-spec 3.5, 3.8.
"""

from __future__ import annotations

import json

import pytest

from harbourmaster.policies.affinity_product import (
    Conflict,
    compile_requirement,
    conjunction,
    node_terms,
    selector_conflict,
)
from harbourmaster.policies.requirements import EXPRESSIONS
from helpers.policies import expressions, fields, one_of


def product_and_conflict(pod, policy, node_selector=None, *, skip=False):
    """Return the terms, or None for a pod without terms, and the conflict."""
    product, conflict = conjunction(
        None if pod is None else node_terms(pod),
        compile_requirement(policy),
        node_selector or {},
        skip_conflicts=skip,
    )
    return (None if product is None else list(product.terms)), conflict


def terms(pod, policy, **options):
    return product_and_conflict(pod, policy, **options)[0]


ETCD = one_of("d", "etcd")
ZONE = one_of("zone", "a", "b")
A, B, C, D, E = (one_of(name.lower(), name) for name in "ABCDE")
NODE = one_of("metadata.name", "F")

EXAMPLES = {
    "A: the policy's requirement comes first": (
        [expressions(ZONE)],
        [expressions(ETCD)],
        [expressions(ETCD, ZONE)],
    ),
    "B: every pod term with every policy term, the pod's outside": (
        [expressions(A, B), expressions(C)],
        [expressions(D), {**expressions(E), **fields(NODE)}],
        [
            expressions(D, A, B),
            {**expressions(E, A, B), **fields(NODE)},
            expressions(D, C),
            {**expressions(E, C), **fields(NODE)},
        ],
    ),
    "C: the same on both sides": ([expressions(ETCD)], [expressions(ETCD)], [expressions(ETCD)]),
    "D: both sides although they exclude each other": (
        [expressions(one_of("d", "other"))],
        [expressions(ETCD)],
        [expressions(ETCD, one_of("d", "other"))],
    ),
    "E: the order of values says nothing": (
        [expressions(one_of("d", "b", "a"))],
        [expressions(one_of("d", "a", "b"))],
        [expressions(one_of("d", "b", "a"))],
    ),
    "F: an empty term of the pod": ([{}], [expressions(ETCD)], [expressions(ETCD)]),
    "F: an empty term of the policy": ([expressions(A)], [{}], [expressions(A)]),
    "G: fields and labels join in one term": (
        [fields(one_of("metadata.name", "node-7"))],
        [expressions(one_of("pool", "x"))],
        [{**fields(one_of("metadata.name", "node-7")), **expressions(one_of("pool", "x"))}],
    ),
    "fields that exclude each other": (
        [fields(one_of("metadata.name", "node-7"))],
        [fields(one_of("metadata.name", "node-8"))],
        [fields(one_of("metadata.name", "node-8"), one_of("metadata.name", "node-7"))],
    ),
    "repeated requirements of the pod collapse": (
        [expressions(A, A, B)],
        [expressions(C)],
        [expressions(C, A, B)],
    ),
    "a pod without terms takes the policy's, repeated or not": (
        None,
        [expressions(A), expressions(A)],
        [expressions(A), expressions(A)],
    ),
    "only those pod terms are multiplied that ask for less": (
        [expressions(A, ETCD), expressions(B)],
        [expressions(ETCD), expressions(D)],
        [expressions(A, ETCD), expressions(ETCD, B), expressions(D, B)],
    ),
    "equal result terms appear once": (
        [expressions(A), expressions(B)],
        [expressions(A, B)],
        [expressions(A, B)],
    ),
    "equal pod terms appear once": (
        [expressions(A, B), expressions(B, A)],
        [expressions(C)],
        [expressions(C, A, B)],
    ),
    "empty lists are left out": (
        [{"matchExpressions": [], "matchFields": None}],
        [expressions(ETCD)],
        [expressions(ETCD)],
    ),
}


@pytest.mark.parametrize(("pod", "policy", "expected"), EXAMPLES.values(), ids=EXAMPLES)
def test_example(pod, policy, expected):
    assert terms(pod, policy) == expected


def test_example_h_the_policy_applied_last_comes_first():
    pod = [expressions(one_of("pod", "1"))]
    first = terms(pod, [expressions(A)])
    assert terms(first, [expressions(B)]) == [expressions(B, A, one_of("pod", "1"))]


@pytest.mark.parametrize("skip", [False, True])
def test_pod_that_already_holds_all_is_returned_itself(skip):
    pod = node_terms([expressions(B, A), {**expressions(C, D), **fields(NODE)}])
    policy = compile_requirement([expressions(A), expressions(D)])
    assert conjunction(pod, policy, {}, skip_conflicts=skip)[0] is pod


def test_unknown_fields_of_terms_and_requirements_are_kept():
    requirement = {**A, "future": [1]}
    product = terms([{**expressions(requirement), "future": {"x": 1}}], [expressions(B)])
    assert product == [{**expressions(B, requirement), "future": {"x": 1}}]


def test_unknown_field_does_not_hinder_absorption():
    pod = [{**expressions(A), "future": 1}]
    assert terms(pod, [expressions(A)]) == pod


def test_requirement_with_an_unknown_field_is_another_requirement():
    requirement = {**A, "future": 1}
    assert terms([expressions(requirement)], [expressions(A)]) == [expressions(A, requirement)]


def test_terms_that_differ_in_an_unknown_field_both_stay():
    pod = [{**expressions(A), "future": 1}, {**expressions(A), "future": 2}]
    assert terms(pod, [expressions(B)]) == [
        {**expressions(B, A), "future": 1},
        {**expressions(B, A), "future": 2},
    ]


def test_inputs_are_not_changed():
    pod, policy = [{**expressions(A), "future": 1}], [expressions(B)]
    before = json.dumps([pod, policy])
    terms(pod, policy)
    terms(pod, policy, skip=True)
    assert json.dumps([pod, policy]) == before


# Conflicts

OTHER = expressions(one_of("d", "other"))


def value_in(*values):
    return "In", frozenset(values)


def conflict(policy, present, *, key="d", is_left_out=False):
    return Conflict((EXPRESSIONS, key), tuple(policy), tuple(present), is_left_out)


def etcd_or_other(*, is_left_out):
    return conflict([value_in("etcd")], [value_in("other")], is_left_out=is_left_out)


@pytest.mark.parametrize("skip", [False, True])
def test_conflict_names_both_sides(skip):
    reported = product_and_conflict([OTHER], [expressions(ETCD)], skip=skip)[1]
    assert reported == etcd_or_other(is_left_out=skip)


@pytest.mark.parametrize("skip", [False, True])
def test_node_selector_of_the_pod_conflicts_too(skip):
    reported = product_and_conflict(None, [expressions(ETCD)], {"d": "other"}, skip=skip)[1]
    assert reported == etcd_or_other(is_left_out=skip)
    assert product_and_conflict(None, [expressions(ETCD)], {"d": "etcd"}, skip=skip)[1] is None
    assert product_and_conflict(None, [expressions(ETCD)], {"e": "other"}, skip=skip)[1] is None


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize(
    ("pod", "policy"),
    [
        ([OTHER, expressions(A)], [expressions(ETCD)]),
        ([OTHER], [expressions(ETCD), expressions(A)]),
        ([OTHER], [expressions(ETCD), {}]),
        ([{}, OTHER], [expressions(ETCD)]),
        ([OTHER], [fields(one_of("d", "etcd"))]),
    ],
)
def test_one_pair_of_alternatives_that_fits_is_no_conflict(pod, policy, skip):
    assert product_and_conflict(pod, policy, skip=skip)[1] is None


def none_of(*values):
    return {"key": "d", "operator": "NotIn", "values": list(values)}


@pytest.mark.parametrize("skip", [False, True])
def test_requirements_that_only_together_exclude_are_a_conflict(skip):
    product, noted = product_and_conflict(
        [expressions(one_of("d", "x", "y"))],
        [expressions(none_of("x"), none_of("y"), A)],
        skip=skip,
    )
    excluded = [("NotIn", frozenset(value)) for value in "xy"]
    assert noted == conflict(excluded, [value_in("x", "y")], is_left_out=skip)
    kept = [A] if skip else [none_of("x"), none_of("y"), A]
    assert product == [expressions(*kept, one_of("d", "x", "y"))]


@pytest.mark.parametrize("skip", [False, True])
def test_conflict_that_lasts_names_the_side_that_is_not_the_policys(skip):
    pod = [expressions(ETCD, one_of("d", "other"))]
    assert product_and_conflict(pod, [expressions(ETCD)], skip=skip) == (
        pod,
        etcd_or_other(is_left_out=False),
    )


@pytest.mark.parametrize("skip", [False, True])
def test_terms_that_hold_the_policys_conflict_only_with_themselves(skip):
    pod = [expressions(A), expressions(B)]
    assert product_and_conflict(pod, [expressions(A), expressions(B)], skip=skip) == (pod, None)


def test_added_node_selector_conflicts_where_every_term_excludes_a_label_of_it():
    added = {"d": "etcd", "a": "x"}
    reported = selector_conflict([expressions(A), OTHER], added)
    assert reported == conflict([value_in("x")], [value_in("A")], key="a")
    assert selector_conflict([expressions(A), OTHER, expressions(B)], added) is None
    assert selector_conflict([expressions(A), OTHER, expressions(ETCD)], added) is None
    assert selector_conflict([fields(one_of("d", "other"))], added) is None


def test_skipping_leaves_out_what_the_pods_terms_exclude():
    pod = [OTHER]
    assert terms(pod, [expressions(ETCD, A)], skip=True) == [expressions(A, one_of("d", "other"))]
    assert terms(pod, [expressions(ETCD)], skip=True) == pod


def test_skipping_leaves_out_what_the_node_selector_excludes():
    selector = {"d": "other"}
    assert terms(None, [expressions(ETCD)], node_selector=selector, skip=True) is None
    assert terms(None, [expressions(ETCD, A)], node_selector=selector, skip=True) == [
        expressions(A)
    ]


def test_skipping_leaves_nothing_out_where_one_alternative_fits():
    policy = [expressions(ETCD, A), expressions(B)]
    assert terms([OTHER], policy, skip=True) == terms([OTHER], policy)


def test_skipping_takes_the_rest_of_each_alternative_where_none_fits():
    policy = [expressions(ETCD, A), expressions(ETCD, B)]
    assert terms([OTHER], policy, skip=True) == [
        expressions(A, one_of("d", "other")),
        expressions(B, one_of("d", "other")),
    ]


def test_skipping_leaves_out_excluded_fields():
    pod = [fields(one_of("metadata.name", "n1"))]
    policy = [{**fields(one_of("metadata.name", "n2")), **expressions(A)}]
    assert terms(pod, policy, skip=True) == [{**pod[0], **expressions(A)}]


@pytest.mark.parametrize("name", [name for name in EXAMPLES if "exclude" not in name])
def test_skipping_without_a_conflict_is_the_product(name):
    pod, policy, expected = EXAMPLES[name]
    product, noted = product_and_conflict(pod, policy, skip=True)
    assert noted is None
    assert set(node_terms(product).keys) == set(node_terms(expected).keys)


POOL = {value: expressions(one_of("a", value)) for value in "123"}


def test_skipping_drops_nothing_where_one_of_the_pods_alternatives_fits():
    pod, policy = [POOL["1"], POOL["2"]], [POOL["1"]]
    product, noted = product_and_conflict(pod, policy, skip=True)
    assert noted is None
    assert product == terms(pod, policy)


@pytest.mark.parametrize("skip", [False, True])
def test_a_policy_with_an_empty_term_is_kept_for_a_pod_without_terms(skip):
    policy = [{}, POOL["1"]]
    assert terms(None, policy, skip=skip) == policy


@pytest.mark.parametrize("pod", [None, [{}], [OTHER], [POOL["1"], POOL["2"]]])
def test_skipping_again_changes_nothing(pod):
    policy = [expressions(one_of("a", "2"), B), expressions(one_of("a", "3"), C)]
    once = terms(pod, policy, node_selector={"a": "1"}, skip=True)
    assert terms(once, policy, node_selector={"a": "1"}, skip=True) == once
