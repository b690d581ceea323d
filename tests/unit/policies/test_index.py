"""The set of all policies: which select a pod, in which order, at what cost.

These tests prove kupid-spec 2.1, 2.5.
"""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.api.selectors import Matcher
from harbourmaster.policies.compiled import compile_policy, undecodable_policy
from harbourmaster.policies.index import policy_set
from harbourmaster.policies.model import Policy
from helpers.objects import cluster_policy, policy
from helpers.oracles import satisfies
from helpers.policies import compile_all, one_of
from helpers.properties import cases
from helpers.virtual_time import lines


def selecting(document, **selectors):
    return {**document, "spec": {**document["spec"], **selectors}}


def references(matching):
    return [policy.reference.partition(" ")[2] for policy in matching]


def match(documents, namespace="ns1", namespace_labels=None, pod_labels=None):
    policies = policy_set(compile_all(*documents))
    return references(policies.match(namespace, namespace_labels or {}, pod_labels or {}))


# Selection


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (selecting(cluster_policy(), podSelector=None), []),
        (selecting(cluster_policy(), namespaceSelector=None), []),
        (selecting(policy(), podSelector=None), []),
        (cluster_policy(), ["c1"]),
        (policy(), ["ns1/p1"]),
        (policy(namespace="ns2"), []),
        (selecting(policy(), namespaceSelector={"matchLabels": {"no": "such"}}), ["ns1/p1"]),
        ({**cluster_policy(), "spec": None}, []),
    ],
)
def test_absent_selectors_match_nothing_and_empty_ones_everything(document, expected):
    assert match([document]) == expected


@pytest.mark.parametrize(
    ("namespace_labels", "pod_labels", "expected"),
    [
        ({"e": "p"}, {"a": "1"}, ["c1"]),
        ({"e": "q"}, {"a": "1"}, []),
        ({"e": "p"}, {"a": "2"}, []),
        ({"a": "1"}, {"e": "p"}, []),
        ({}, {}, []),
    ],
)
def test_cluster_policy_needs_both_selectors(namespace_labels, pod_labels, expected):
    documents = [cluster_policy(namespaces={"e": "p"}, pods={"a": "1"})]
    assert match(documents, "ns1", namespace_labels, pod_labels) == expected


def test_negative_selector_matches_a_pod_without_labels():
    expression = {**one_of("o", "1"), "operator": "NotIn"}
    document = selecting(policy(), podSelector={"matchExpressions": [expression]})
    assert match([document]) == ["ns1/p1"]
    assert match([document], pod_labels={"o": "1"}) == []


# Order


def test_cluster_policies_come_first_then_all_by_name():
    """The order of policies is fixed (kupid-spec 0)."""
    names = ["b", "a10", "a2", "Z", "c"]
    documents = [cluster_policy(name) for name in names] + [policy(name) for name in names]
    random.Random(1).shuffle(documents)  # noqa: S311
    by_name = ["Z", "a10", "a2", "b", "c"]
    assert match(documents) == by_name + [f"ns1/{name}" for name in by_name]


def test_order_does_not_depend_on_the_label_a_policy_is_found_by():
    documents = [
        cluster_policy("c3"),
        cluster_policy("c2", pods={"a": "1"}),
        cluster_policy("c1", namespaces={"e": "p"}),
    ]
    assert match(documents, "ns1", {"e": "p"}, {"a": "1"}) == ["c1", "c2", "c3"]


# Broken policies

BAD_SELECTOR = {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}


@pytest.mark.parametrize(
    ("document", "labels", "expected"),
    [
        (selecting(cluster_policy(), podSelector=BAD_SELECTOR), {"a": "1"}, ["c1"]),
        (selecting(cluster_policy(), namespaceSelector=BAD_SELECTOR), {}, ["c1"]),
        (selecting(policy(), podSelector=BAD_SELECTOR), {"a": "1"}, ["ns1/p1"]),
        (cluster_policy(pods={"a": "1"}, nodeSelector={"a b": ""}), {}, []),
        (cluster_policy(pods={"a": "1"}, nodeSelector={"a b": ""}), {"a": "1"}, ["c1"]),
        (selecting(cluster_policy(pods={"a": "1"}), namespaceSelector=BAD_SELECTOR), {}, []),
        (
            selecting(cluster_policy(namespaces={"e": "p"}), podSelector=BAD_SELECTOR),
            {"a": "1"},
            [],
        ),
        (selecting(cluster_policy(), podSelector=BAD_SELECTOR, namespaceSelector=None), {}, []),
    ],
)
def test_broken_policy_matches_what_its_intact_selectors_select(document, labels, expected):
    assert match([document], pod_labels=labels) == expected


def test_undecodable_policy_matches_all_it_could_reach():
    policies = policy_set(
        [
            undecodable_policy("ClusterPodSchedulingPolicy c1", None, "spec: bad"),
            undecodable_policy("PodSchedulingPolicy ns1/p1", "ns1", "spec: bad"),
        ]
    )
    assert references(policies.match("ns1", {}, {})) == ["c1", "ns1/p1"]
    assert references(policies.match("ns2", {}, {})) == ["c1"]
    assert policies.invalid == 2


@pytest.mark.parametrize(
    ("document", "namespace"), [(cluster_policy("c1"), None), (policy("p1"), "ns1")]
)
def test_undecodable_policy_ranks_as_if_it_were_sound(document, namespace):
    (sound,) = compile_all(document)
    assert undecodable_policy(sound.reference, namespace, "spec: bad").rank == sound.rank


def test_policies_are_counted_even_those_that_match_nothing():
    documents = [
        cluster_policy("c1"),
        selecting(cluster_policy("c2"), podSelector=None),
        policy("p1"),
        policy("p2", namespace="ns2", nodeSelector={"a b": ""}),
        selecting(policy("p3"), podSelector=None),
    ]
    policies = policy_set(compile_all(*documents))
    assert (policies.cluster_size, policies.namespaced_size, policies.invalid) == (2, 3, 1)


# The index against brute force

keys = st.sampled_from("abc")
values = st.sampled_from("123")
labels = st.dictionaries(keys, values, max_size=3)
expressions = st.one_of(
    st.fixed_dictionaries(
        {
            "key": keys,
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(values, min_size=1, max_size=3),
        }
    ),
    st.fixed_dictionaries({"key": keys, "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
)
selectors = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {},
        optional={
            "matchLabels": st.dictionaries(keys, values, max_size=2),
            "matchExpressions": st.lists(expressions, max_size=2),
        },
    ),
)
documents_of_both_kinds = st.lists(
    st.tuples(st.sampled_from([None, "ns1", "ns2"]), selectors, selectors), max_size=12
)


def selects(selector, labels_of_object):
    return (
        selector is not None
        and all(labels_of_object.get(k) == v for k, v in selector.get("matchLabels", {}).items())
        and all(
            satisfies(expression, labels_of_object)
            for expression in selector.get("matchExpressions", [])
        )
    )


@settings(max_examples=cases(200))
@given(documents_of_both_kinds, labels, labels)
def test_index_finds_what_trying_each_policy_finds(drawn, namespace_labels, pod_labels):
    documents = [
        selecting(
            cluster_policy(f"x{index:02}")
            if namespace is None
            else policy(f"x{index:02}", namespace),
            podSelector=pods,
            namespaceSelector=namespaces,
        )
        for index, (namespace, pods, namespaces) in enumerate(drawn)
    ]
    expected = [
        f"x{index:02}"
        for index, (namespace, pods, namespaces) in enumerate(drawn)
        if namespace is None and selects(namespaces, namespace_labels) and selects(pods, pod_labels)
    ] + [
        f"ns1/x{index:02}"
        for index, (namespace, pods, _) in enumerate(drawn)
        if namespace == "ns1" and selects(pods, pod_labels)
    ]
    assert match(documents, "ns1", namespace_labels, pod_labels) == expected


# Changes

changes = st.tuples(
    st.sampled_from("pqr"), st.sampled_from([None, "ns1", "ns2"]), st.none() | st.tuples(selectors)
)


def one_policy(name, namespace, selector):
    document = cluster_policy(name) if namespace is None else policy(name, namespace)
    (result,) = compile_all(selecting(document, podSelector=selector))
    return result


@pytest.mark.claim("W11")
@settings(max_examples=cases(200))
@given(st.lists(st.lists(changes, max_size=4), max_size=8), st.lists(labels, min_size=1))
def test_changed_set_is_one_made_anew_and_the_former_one_stays(batches, pods):
    """A change without a selector removes the policy of that name."""

    def answers(policies):
        sizes = (
            policies.cluster_size,
            policies.namespaced_size,
            policies.invalid,
            policies.references,
        )
        return sizes, [policies.match(name, {}, pod) for name in ("ns1", "ns2") for pod in pods]

    current, policies, before = {}, policy_set(()), []
    for batch in batches:
        before.append((policies, answers(policies)))
        latest = {(name, namespace): given for name, namespace, given in batch}
        removed = [
            current.pop(name_and_namespace)
            for name_and_namespace in latest
            if name_and_namespace in current
        ]
        added = {
            name_and_namespace: one_policy(*name_and_namespace, *given)
            for name_and_namespace, given in latest.items()
            if given
        }
        current |= added
        policies = policies.with_changes(removed, added.values())
        assert answers(policies) == answers(policy_set(current.values()))
    assert all(answers(former) == then for former, then in before)
    assert policies.with_changes(current.values(), ()).indexes == {}


# Cost


@pytest.fixture
def tried(monkeypatch):
    """Return a function that counts the selectors tried since its last call."""
    count = itertools.count()
    last = [0]
    matches = Matcher.matches

    def counting(self, selected_labels):
        next(count)
        return matches(self, selected_labels)

    def read():
        total = next(count) - last[0]
        last[0] += total + 1
        return total

    monkeypatch.setattr(Matcher, "matches", counting)
    return read


@pytest.fixture(scope="module")
def ten_thousand():
    """A compiled policy that tests copy many times."""
    (compiled_policy,) = compile_all(cluster_policy())
    return compiled_policy


def many(template, count, **selector_of):
    return policy_set(
        msgspec.structs.replace(
            template,
            reference=f"C c{index}",
            rank=(False, "", f"c{index:05}"),
            **{name: make(index) for name, make in selector_of.items()},
        )
        for index in range(count)
    )


def one_label(key, *values):
    return Matcher(one_of=((key, frozenset(values)),))


@pytest.mark.parametrize("scope", ["pods", "namespaces"])
def test_of_10000_policies_only_those_of_a_label_are_tried(ten_thousand, tried, scope):
    policies = many(ten_thousand, 10_000, **{scope: lambda index: one_label("a", f"v{index // 5}")})
    given_labels = {"pods": ({}, {"a": "v7"}), "namespaces": ({"a": "v7"}, {})}[scope]
    assert len(policies.match("ns1", *given_labels)) == 5
    assert tried() <= 2 * 5


def test_each_policy_is_filed_under_its_rarest_label(ten_thousand, tried):
    policies = many(
        ten_thousand,
        10_000,
        namespaces=lambda _: one_label("e", "p"),
        pods=lambda index: Matcher(
            one_of=(("tier", frozenset(("db",))), ("a", frozenset((f"v{index // 5}",)))),
            present=("tier",),
        ),
    )
    assert len(policies.match("ns1", {"e": "p"}, {"tier": "db", "a": "v7"})) == 5
    assert tried() <= 2 * 5


def test_policy_that_asks_for_the_presence_of_a_label_is_found_by_its_key(ten_thousand, tried):
    policies = many(ten_thousand, 10_000, pods=lambda index: Matcher(present=(f"k{index // 5}",)))
    assert len(policies.match("ns1", {}, {"k7": "any"})) == 5
    assert tried() <= 2 * 5


def test_policy_that_allows_several_values_is_found_once_by_any(ten_thousand, tried):
    policies = many(ten_thousand, 10_000, pods=lambda i: one_label("a", f"v{i}", f"w{i // 5}"))
    assert len(policies.match("ns1", {}, {"a": "w7"})) == 5
    assert len(policies.match("ns1", {}, {"a": "v7"})) == 1
    assert tried() <= 2 * 6


def test_policies_of_other_namespaces_are_not_tried(ten_thousand, tried):
    policies = policy_set(
        msgspec.structs.replace(ten_thousand, namespace=f"ns{index // 5}")
        for index in range(10_000)
    )
    assert len(policies.match("ns7", {}, {})) == 5
    assert tried() <= 5


def test_selector_with_many_requirements_is_compiled_and_filed():
    def file_and_match(count):
        requirements = [
            {"key": f"k{i}", "operator": "In", "values": [f"{i}", "x"]} for i in range(count)
        ]
        document = selecting(cluster_policy(), podSelector={"matchExpressions": requirements})
        policies = policy_set([compile_policy(msgspec.convert(document, Policy))])
        assert len(policies.match("ns1", {}, {f"k{i}": f"{i}" for i in range(count)})) == 1
        assert policies.match("ns1", {}, {f"k{i}": f"{i}" for i in range(count - 1)}) == ()

    few, many = (lines(lambda count=count: file_and_match(count)) for count in (2500, 10_000))
    # Quadratic would be 16 times.
    assert many < 6 * few


SHAPES = {
    "a value each": lambda index: {"pods": one_label("a", f"v{index}")},
    "a key each": lambda index: {"pods": one_label(f"k{index}", "v")},
    "many values each": lambda index: {
        "pods": one_label("a", *(f"v{index}-{number}" for number in range(32)))
    },
    "the same label": lambda index: {"pods": one_label("a", "v")},
    "no label": lambda index: {},
    "a namespace each": lambda index: {"namespace": f"ns{index}"},
}


@pytest.mark.claim("W11")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_change_costs_as_much_of_ten_policies_as_of_1000(ten_thousand, shape):
    def cost(count):
        compiled_policies = [
            msgspec.structs.replace(ten_thousand, **SHAPES[shape](index)) for index in range(count)
        ]
        policies = policy_set(compiled_policies)
        again = msgspec.structs.replace(compiled_policies[5])
        return lines(lambda: policies.with_changes([compiled_policies[5]], [again]))

    # What C copies is not counted.
    assert cost(1000) <= cost(10)


@pytest.mark.claim("W11")
def test_a_change_copies_no_part_of_the_index_that_it_does_not_touch(ten_thousand):
    compiled_policies = [
        msgspec.structs.replace(
            ten_thousand, namespace=f"ns{index // 10}", pods=one_label(f"k{index % 10}", "v")
        )
        for index in range(100)
    ]
    before = policy_set(compiled_policies)
    after = before.with_changes(
        [compiled_policies[42]], [msgspec.structs.replace(compiled_policies[42])]
    )
    assert [name for name in before.indexes if after.indexes[name] is not before.indexes[name]] == [
        "ns4"
    ]
    old, new = (policies.indexes["ns4"]["pod"] for policies in (before, after))
    assert [key for key in old if new[key] is not old[key]] == ["k2"]


def test_a_policy_with_very_many_values_is_filed_once(ten_thousand):
    values = [f"v{index}" for index in range(12_000)]
    compiled_policy = msgspec.structs.replace(ten_thousand, pods=one_label("a", *values))
    policies = policy_set([compiled_policy])
    assert len(policies.filed[compiled_policy]) == 1
    assert policies.match("ns1", {}, {"a": "v11999"}) == (compiled_policy,)
    assert policies.match("ns1", {}, {"a": "w"}) == ()
