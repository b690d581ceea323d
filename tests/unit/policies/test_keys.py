"""Tests of the equality of two parts of an affinity, and of two tolerations.

These tests prove kupid-spec 3.4, 3.6.
"""

from __future__ import annotations

import pytest

from harbourmaster.policies.keys import (
    node_term_key,
    pod_term_key,
    preferred_key,
    requirement_key,
    selector_key,
    toleration_key,
    weighted_pod_term_key,
)
from helpers.policies import one_of

A = one_of("a", "1", "2")
B = one_of("b", "1")
LABEL_KEYS = {"matchLabelKeys": ["hash"], "mismatchLabelKeys": ["tenant"]}

SAME = [
    (requirement_key, A, one_of("a", "2", "1")),
    (requirement_key, A, one_of("a", "1", "2", "1")),
    (requirement_key, {"key": "a", "operator": "Exists"}, {"operator": "Exists", "key": "a"}),
    (requirement_key, {"key": "a"}, {"key": "a", "operator": "", "values": []}),
    (requirement_key, {"key": "a"}, {"key": "a", "operator": None, "values": None}),
    (requirement_key, {"key": "a"}, {"key": "a", "future": None}),
    (requirement_key, {"key": "a", "x": {"p": 1, "q": 2}}, {"key": "a", "x": {"q": 2, "p": 1}}),
    (node_term_key, {"matchExpressions": [A, B]}, {"matchExpressions": [B, A]}),
    (node_term_key, {"matchExpressions": [A]}, {"matchExpressions": [A, A]}),
    (node_term_key, {}, {"matchExpressions": [], "matchFields": None}),
    (preferred_key, {"weight": 1, "preference": {}}, {"weight": 1}),
    (preferred_key, {"weight": 0, "preference": None}, {}),
    (
        preferred_key,
        {"weight": 1, "preference": {"matchExpressions": [A, B]}},
        {"weight": 1, "preference": {"matchExpressions": [B, A]}},
    ),
    (selector_key, {}, {"matchLabels": {}, "matchExpressions": []}),
    (selector_key, {}, {"matchLabels": None, "matchExpressions": None}),
    (selector_key, {"matchLabels": {"a": "1", "b": "2"}}, {"matchLabels": {"b": "2", "a": "1"}}),
    (selector_key, {"matchExpressions": [A, B]}, {"matchExpressions": [B, A]}),
    (pod_term_key, {"labelSelector": None}, {}),
    (pod_term_key, {"namespaces": []}, {}),
    (pod_term_key, {"namespaces": ["x", "y"]}, {"namespaces": ["y", "x"]}),
    (pod_term_key, {"matchLabelKeys": ["x", "y"]}, {"matchLabelKeys": ["y", "x"]}),
    (pod_term_key, {"mismatchLabelKeys": []}, {"mismatchLabelKeys": None}),
    # As the API server stores the term of a pod.
    (
        pod_term_key,
        {**LABEL_KEYS, "labelSelector": {"matchLabels": {"c": "d"}}},
        {
            **LABEL_KEYS,
            "labelSelector": {
                "matchLabels": {"c": "d"},
                "matchExpressions": [
                    {"key": "hash", "operator": "In", "values": ["1"]},
                    {"key": "tenant", "operator": "NotIn", "values": ["t"]},
                ],
            },
        },
    ),
    (pod_term_key, {"labelSelector": {"matchLabels": {}}}, {"labelSelector": {}}),
    (weighted_pod_term_key, {"weight": 1}, {"weight": 1, "podAffinityTerm": {}}),
    (toleration_key, {"key": "a", "value": ""}, {"key": "a"}),
    (toleration_key, {"key": "a", "effect": None}, {"key": "a"}),
]
DIFFERENT = [
    (requirement_key, A, one_of("b", "1", "2")),
    (requirement_key, A, one_of("a", "1")),
    (requirement_key, A, {**A, "operator": "NotIn"}),
    (requirement_key, A, {**A, "future": 1}),
    (requirement_key, {**A, "future": 1}, {**A, "future": 2}),
    (node_term_key, {"matchExpressions": [A]}, {"matchFields": [A]}),
    (node_term_key, {"matchExpressions": [A]}, {"matchExpressions": [A], "future": 1}),
    (preferred_key, {"weight": 1}, {"weight": 2}),
    (preferred_key, {"weight": 1}, {"weight": 1, "preference": {"matchFields": [A]}}),
    (preferred_key, {"weight": 1}, {"weight": 1, "future": 1}),
    (selector_key, None, {}),
    (selector_key, {"matchLabels": {"a": "1"}}, {"matchLabels": {"a": "2"}}),
    (selector_key, {"matchLabels": {"a": ""}}, {}),
    (selector_key, {}, {"future": 1}),
    (pod_term_key, {"labelSelector": {}}, {}),
    (pod_term_key, {"namespaceSelector": {}}, {}),
    (pod_term_key, {"namespaceSelector": {}}, {"labelSelector": {}}),
    (pod_term_key, {"topologyKey": "zone"}, {"topologyKey": "host"}),
    (pod_term_key, {"namespaces": ["x"]}, {"namespaces": ["y"]}),
    (pod_term_key, {"matchLabelKeys": ["x"]}, {"mismatchLabelKeys": ["x"]}),
    (
        pod_term_key,
        {**LABEL_KEYS, "labelSelector": {}},
        {
            **LABEL_KEYS,
            "labelSelector": {"matchExpressions": [{"key": "hash", "operator": "NotIn"}]},
        },
    ),
    (pod_term_key, {}, {"future": 1}),
    (weighted_pod_term_key, {"weight": 1}, {"weight": 2}),
    (
        weighted_pod_term_key,
        {"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}},
        {"weight": 1, "podAffinityTerm": {"topologyKey": "host"}},
    ),
    (weighted_pod_term_key, {"weight": 1}, {"weight": 1, "future": 1}),
    (toleration_key, {"key": "a", "operator": "Equal"}, {"key": "a"}),
    (toleration_key, {"key": "a"}, {"key": "b"}),
    (toleration_key, {"key": "a", "value": "1"}, {"key": "a", "value": "2"}),
    (toleration_key, {"effect": "NoSchedule"}, {"effect": "NoExecute"}),
    (toleration_key, {"tolerationSeconds": 0}, {}),
    (toleration_key, {"tolerationSeconds": 5}, {"tolerationSeconds": 6}),
    (toleration_key, {}, {"future": 1}),
]


@pytest.mark.parametrize(("key_of", "first", "second"), SAME)
def test_same(key_of, first, second):
    assert key_of(first) == key_of(second)
    assert hash(key_of(first)) == hash(key_of(second))


@pytest.mark.parametrize(("key_of", "first", "second"), DIFFERENT)
def test_different(key_of, first, second):
    assert key_of(first) != key_of(second)


def test_node_term_that_requires_more_has_a_larger_key():
    key = node_term_key({"matchExpressions": [A]})
    assert key < node_term_key({"matchExpressions": [B, A]})
    assert key < node_term_key({"matchExpressions": [A], "matchFields": [A]})
    assert key < node_term_key({"matchExpressions": [A], "future": 1})
