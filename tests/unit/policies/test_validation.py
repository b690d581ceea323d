"""Tests of errors in a policy: each rule, its path, its class, and the order of several.

These tests prove kupid-spec 5.2.
"""

from __future__ import annotations

import pytest

from harbourmaster.policies.model import PREFERRED, REQUIRED
from harbourmaster.policies.validation import validate, validate_spec
from helpers.policies import (
    APART,
    FORBIDDEN,
    INVALID,
    MISSING,
    NEAR,
    PREFERENCES,
    TERMS,
    UNSUPPORTED,
    VALID_POD_TERM,
    apart,
    cluster_policy,
    expressions,
    fields,
    near,
    node_terms,
    places,
    policy,
    preferences,
    requirement,
    tolerations,
)


def test_a_stored_policy_is_judged_by_its_spec_alone():
    stored = policy({"nodeName": "A_"}, name="Bad_Name")
    assert places(validate_spec(stored)) == [("spec.nodeName", INVALID, '"A_"')]


COMMON_FAULTS = [
    ({"key": "a", "operator": "In"}, "values", MISSING, None),
    (requirement(operator="NotIn", values=[]), "values", MISSING, None),
    (requirement(operator="Exists"), "values", FORBIDDEN, None),
    (requirement(operator="DoesNotExist"), "values", FORBIDDEN, None),
    (requirement(operator="Foo"), "operator", INVALID, '"Foo"'),
    ({"key": "a"}, "operator", INVALID, '""'),
    (requirement(key="a b"), "key", INVALID, '"a b"'),
]
"""The faults of one requirement on the labels of pods or nodes."""
SELECTOR_FAULTS = [
    *COMMON_FAULTS,
    (requirement(operator="Gt"), "operator", INVALID, '"Gt"'),
    (requirement(values=["x", "bad value!"]), "values[1]", INVALID, '"bad value!"'),
    (requirement(operator="NotIn", values=["-"]), "values[0]", INVALID, '"-"'),
]
LABEL_FAULTS = [({"a b": "c"}, '"a b"'), ({"a": "b c"}, '"b c"')]
SELECTORS = pytest.mark.parametrize("name", ["podSelector", "namespaceSelector"])


@pytest.mark.parametrize(("faulty", "field", "kind", "value"), SELECTOR_FAULTS)
@SELECTORS
def test_a_faulty_expression_of_a_selector_denies(name, faulty, field, kind, value):
    errors = validate(cluster_policy({name: expressions(requirement(), faulty)}))
    assert places(errors) == [(f"spec.{name}.matchExpressions[1].{field}", kind, value)]


@pytest.mark.parametrize(("labels", "value"), LABEL_FAULTS)
@SELECTORS
def test_a_faulty_label_of_a_selector_denies(name, labels, value):
    errors = validate(cluster_policy({name: {"matchLabels": labels}}))
    assert places(errors) == [(f"spec.{name}.matchLabels", INVALID, value)]


def test_the_namespace_selector_of_a_namespaced_policy_is_ignored():
    assert validate(policy({"namespaceSelector": expressions({"key": "-"})})) == ()


NODE_FAULTS = [
    *COMMON_FAULTS,
    (requirement(operator="Gt", values=["1", "2"]), "values", MISSING, None),
    (requirement(operator="Lt", values=[]), "values", MISSING, None),
]


@pytest.mark.parametrize(("faulty", "field", "kind", "value"), NODE_FAULTS)
def test_a_faulty_expression_of_a_node_term_denies(faulty, field, kind, value):
    errors = validate(policy(node_terms({}, expressions(requirement(), faulty))))
    assert places(errors) == [(f"{TERMS}[1].matchExpressions[1].{field}", kind, value)]


@pytest.mark.parametrize(
    ("faulty", "field", "kind", "value"),
    [
        (requirement("spec.x"), "key", INVALID, '"spec.x"'),
        (requirement("metadata.name", values=["a", "b"]), "values", MISSING, None),
        (requirement("metadata.name", "NotIn", []), "values", MISSING, None),
        (requirement("metadata.name", "Exists", []), "operator", INVALID, '"Exists"'),
        (requirement("metadata.name", values=["A_"]), "values[0]", INVALID, '"A_"'),
    ],
)
def test_a_faulty_field_of_a_node_term_denies(faulty, field, kind, value):
    errors = validate(policy(node_terms(fields(faulty))))
    assert places(errors) == [(f"{TERMS}[0].matchFields[0].{field}", kind, value)]


@pytest.mark.parametrize(
    ("faulty", "field", "kind", "value"),
    [
        ({"key": "a b", "operator": "Exists"}, "key", INVALID, '"a b"'),
        ({"operator": "Equal", "value": "x"}, "operator", INVALID, '"Equal"'),
        ({}, "operator", INVALID, '""'),
        (
            {"key": "a", "operator": "Exists", "value": "x"},
            "operator",
            INVALID,
            '{key: "a", operator: "Exists", value: "x"}',
        ),
        ({"key": "a", "operator": "In", "value": "x"}, "operator", UNSUPPORTED, '"In"'),
        ({"key": "a", "value": "b c"}, "operator", INVALID, '"b c"'),
        ({"key": "a", "effect": "Foo"}, "effect", UNSUPPORTED, '"Foo"'),
        (
            {"key": "a", "effect": "NoSchedule", "tolerationSeconds": 3},
            "effect",
            INVALID,
            '"NoSchedule"',
        ),
        ({"key": "a", "tolerationSeconds": 0}, "effect", INVALID, '""'),
    ],
)
def test_a_faulty_toleration_denies(faulty, field, kind, value):
    errors = validate(policy(tolerations({"key": "a"}, faulty)))
    assert places(errors) == [(f"spec.tolerations[1].{field}", kind, value)]


NO_VALUES = expressions({"key": "a", "operator": "In"})
SPEC_FAULTS = [
    *(({"nodeSelector": faulty}, "spec.nodeSelector", INVALID, v) for faulty, v in LABEL_FAULTS),
    ({"nodeName": "Node_1"}, "spec.nodeName", INVALID, '"Node_1"'),
    (node_terms(), TERMS, MISSING, None),
    ({"affinity": {"nodeAffinity": {REQUIRED: {}}}}, TERMS, MISSING, None),
    (preferences({"weight": 0, "preference": {}}), f"{PREFERENCES}[0].weight", INVALID, "0"),
    (preferences({"weight": 101, "preference": {}}), f"{PREFERENCES}[0].weight", INVALID, "101"),
    (preferences({"preference": {}}), f"{PREFERENCES}[0].weight", INVALID, "0"),
    (
        preferences({"weight": 1, "preference": NO_VALUES}),
        f"{PREFERENCES}[0].preference.matchExpressions[0].values",
        MISSING,
        None,
    ),
    (
        near({**VALID_POD_TERM, "labelSelector": NO_VALUES}),
        f"{NEAR}[0].matchExpressions.matchExpressions[0].values",
        MISSING,
        None,
    ),
    (
        near({**VALID_POD_TERM, "labelSelector": {"matchLabels": {"a": "b c"}}}),
        f"{NEAR}[0].matchExpressions.matchLabels",
        INVALID,
        '"b c"',
    ),
    (near({**VALID_POD_TERM, "namespaces": ["a", "A_"]}), f"{NEAR}[0].namespace", INVALID, '"A_"'),
    (near(VALID_POD_TERM, {"topologyKey": "a b"}), f"{NEAR}[1].topologyKey", INVALID, '"a b"'),
    (apart({"weight": -1, "podAffinityTerm": VALID_POD_TERM}), f"{APART}[0].weight", INVALID, "-1"),
    (
        apart({"weight": 1, "podAffinityTerm": {"topologyKey": "-"}}),
        f"{APART}[0].podAffinityTerm.topologyKey",
        INVALID,
        '"-"',
    ),
]


@pytest.mark.parametrize(("spec", "path", "kind", "value"), SPEC_FAULTS)
def test_a_fault_of_the_spec_denies(spec, path, kind, value):
    assert places(validate(policy(spec))) == [(path, kind, value)]


ACCEPTED_SPECS = [
    None,
    {},
    {"podSelector": None, "affinity": None, "tolerations": None, "nodeSelector": None},
    {"podSelector": {"matchLabels": None, "matchExpressions": None}},
    {"podSelector": expressions(requirement(values=["", "x"]), requirement("x.y/z", "Exists", []))},
    {"nodeName": "", "nodeSelector": {"a": "", "b.c/d": "e"}},
    {"schedulerName": "Not A Valid Name!!"},
    node_terms({}),
    node_terms(expressions(requirement(operator="Gt", values=["x"]))),
    node_terms(expressions(requirement(values=["b c"]))),
    node_terms(fields(requirement("metadata.name", values=["node-1.example.com"]))),
    preferences({"weight": 1, "preference": {}}, {"weight": 100}),
    near({**VALID_POD_TERM, "namespaceSelector": expressions({"operator": "zzz"})}),
    near({**VALID_POD_TERM, "labelSelector": expressions(requirement(values=["b c"]))}),
    tolerations({"operator": "Exists"}),
    tolerations({"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": -1}),
    tolerations({"key": "a", "operator": "Equal", "effect": "PreferNoSchedule"}),
]


@pytest.mark.parametrize("spec", ACCEPTED_SPECS)
def test_a_spec_is_accepted(spec):
    assert validate(policy(spec)) == ()


def test_an_absent_topology_key_breaks_three_rules():
    path = f"{NEAR}[0].topologyKey"
    assert places(validate(policy(near({"labelSelector": {}})))) == [
        (path, MISSING, None),
        (path, INVALID, '""'),
        (path, INVALID, '""'),
    ]


def test_all_faults_of_a_toleration_value_are_one_error():
    (error,) = validate(policy(tolerations({"key": "a", "value": "-" * 64})))
    assert "; " in error.detail


def test_errors_come_in_the_order_of_the_spec():
    spec = {
        "namespaceSelector": {"matchLabels": {"-": ""}},
        "tolerations": [{"key": "-", "effect": "X", "operator": "Y", "tolerationSeconds": 1}],
        "affinity": {
            "podAntiAffinity": {PREFERRED: [{"podAffinityTerm": VALID_POD_TERM}]},
            "podAffinity": {
                REQUIRED: [
                    {
                        "topologyKey": "-",
                        "namespaces": ["-"],
                        "labelSelector": {"matchLabels": {"-": ""}},
                    }
                ]
            },
            "nodeAffinity": {
                PREFERRED: [{"preference": {}}],
                REQUIRED: {
                    "nodeSelectorTerms": [
                        {**fields({"key": "x", "operator": "X"}), **expressions({"key": "a"})}
                    ]
                },
            },
        },
        "nodeName": "-",
        "nodeSelector": {"-": ""},
        "podSelector": expressions(requirement("-", values=["-"]), {"key": "-", "operator": "In"}),
    }
    assert [error.path for error in validate(cluster_policy(spec, name="C"))] == [
        "metadata.name",
        "spec.podSelector.matchExpressions[0].key",
        "spec.podSelector.matchExpressions[0].values[0]",
        "spec.podSelector.matchExpressions[1].values",
        "spec.podSelector.matchExpressions[1].key",
        "spec.nodeSelector",
        "spec.nodeName",
        f"{TERMS}[0].matchExpressions[0].operator",
        f"{TERMS}[0].matchFields[0].operator",
        f"{TERMS}[0].matchFields[0].key",
        f"{PREFERENCES}[0].weight",
        f"{NEAR}[0].matchExpressions.matchLabels",
        f"{NEAR}[0].namespace",
        f"{NEAR}[0].topologyKey",
        f"{APART}[0].weight",
        "spec.tolerations[0].key",
        "spec.tolerations[0].effect",
        "spec.tolerations[0].operator",
        "spec.tolerations[0].effect",
        "spec.namespaceSelector.matchLabels",
    ]
