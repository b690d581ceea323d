"""What denies a policy: each rule, its path, its class, and the order of several errors."""

from __future__ import annotations

import pytest

from harbourmaster.policies.model import PREFERRED, REQUIRED
from harbourmaster.policies.validation import validate, validate_spec
from helpers.policy_parts import (
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
    located,
    near,
    node_terms,
    policy,
    preferences,
    requirement,
    tolerations,
)


def test_a_stored_policy_is_judged_by_its_spec_alone():
    stored = policy({"nodeName": "A_"}, name="Bad_Name")
    assert located(validate_spec(stored)) == [("spec.nodeName", INVALID, '"A_"')]


SELECTOR_FAULTS = [
    (expressions({"key": "a", "operator": "In"}), "matchExpressions[0].values", MISSING, None),
    (
        expressions(requirement(operator="NotIn", values=[])),
        "matchExpressions[0].values",
        MISSING,
        None,
    ),
    (expressions(requirement(operator="Exists")), "matchExpressions[0].values", FORBIDDEN, None),
    (
        expressions(requirement(operator="DoesNotExist")),
        "matchExpressions[0].values",
        FORBIDDEN,
        None,
    ),
    (expressions(requirement(operator="Gt")), "matchExpressions[0].operator", INVALID, '"Gt"'),
    (expressions({"key": "a"}), "matchExpressions[0].operator", INVALID, '""'),
    (
        expressions(requirement(), requirement(key="-a")),
        "matchExpressions[1].key",
        INVALID,
        '"-a"',
    ),
    (
        expressions(requirement(values=["x", "bad value!"])),
        "matchExpressions[0].values[1]",
        INVALID,
        '"bad value!"',
    ),
    (
        expressions(requirement(operator="NotIn", values=["-"])),
        "matchExpressions[0].values[0]",
        INVALID,
        '"-"',
    ),
    ({"matchLabels": {"a b": "c"}}, "matchLabels", INVALID, '"a b"'),
    ({"matchLabels": {"a": "b c"}}, "matchLabels", INVALID, '"b c"'),
]


@pytest.mark.parametrize(("selector", "field", "kind", "value"), SELECTOR_FAULTS)
@pytest.mark.parametrize("name", ["podSelector", "namespaceSelector"])
def test_a_faulty_selector_denies(name, selector, field, kind, value):
    errors = validate(cluster_policy({name: selector}))
    assert located(errors) == [(f"spec.{name}.{field}", kind, value)]


def test_the_namespace_selector_of_a_namespaced_policy_is_ignored():
    assert validate(policy({"namespaceSelector": expressions({"key": "-"})})) == ()


SPEC_FAULTS = [
    ({"nodeSelector": {"a b": "c"}}, "spec.nodeSelector", INVALID, '"a b"'),
    ({"nodeSelector": {"a": "c d"}}, "spec.nodeSelector", INVALID, '"c d"'),
    ({"nodeName": "Node_1"}, "spec.nodeName", INVALID, '"Node_1"'),
    (node_terms(), TERMS, MISSING, None),
    ({"affinity": {"nodeAffinity": {REQUIRED: {}}}}, TERMS, MISSING, None),
    (
        node_terms(expressions({"key": "a", "operator": "In"})),
        f"{TERMS}[0].matchExpressions[0].values",
        MISSING,
        None,
    ),
    (
        node_terms(expressions(requirement(operator="NotIn", values=[]))),
        f"{TERMS}[0].matchExpressions[0].values",
        MISSING,
        None,
    ),
    (
        node_terms({}, expressions(requirement(), requirement(operator="Exists"))),
        f"{TERMS}[1].matchExpressions[1].values",
        FORBIDDEN,
        None,
    ),
    (
        node_terms(expressions(requirement(operator="DoesNotExist"))),
        f"{TERMS}[0].matchExpressions[0].values",
        FORBIDDEN,
        None,
    ),
    (
        node_terms(expressions(requirement(operator="Gt", values=["1", "2"]))),
        f"{TERMS}[0].matchExpressions[0].values",
        MISSING,
        None,
    ),
    (
        node_terms(expressions(requirement(operator="Lt", values=[]))),
        f"{TERMS}[0].matchExpressions[0].values",
        MISSING,
        None,
    ),
    (
        node_terms(expressions(requirement(operator="Foo"))),
        f"{TERMS}[0].matchExpressions[0].operator",
        INVALID,
        '"Foo"',
    ),
    (
        node_terms(expressions(requirement(key="a b"))),
        f"{TERMS}[0].matchExpressions[0].key",
        INVALID,
        '"a b"',
    ),
    (
        node_terms(fields(requirement("spec.x"))),
        f"{TERMS}[0].matchFields[0].key",
        INVALID,
        '"spec.x"',
    ),
    (
        node_terms(fields(requirement("metadata.name", values=["a", "b"]))),
        f"{TERMS}[0].matchFields[0].values",
        MISSING,
        None,
    ),
    (
        node_terms(fields(requirement("metadata.name", "NotIn", []))),
        f"{TERMS}[0].matchFields[0].values",
        MISSING,
        None,
    ),
    (
        node_terms(fields(requirement("metadata.name", "Exists", []))),
        f"{TERMS}[0].matchFields[0].operator",
        INVALID,
        '"Exists"',
    ),
    (
        node_terms(fields(requirement("metadata.name", values=["A_"]))),
        f"{TERMS}[0].matchFields[0].values[0]",
        INVALID,
        '"A_"',
    ),
    (preferences({"weight": 0, "preference": {}}), f"{PREFERENCES}[0].weight", INVALID, "0"),
    (preferences({"weight": 101, "preference": {}}), f"{PREFERENCES}[0].weight", INVALID, "101"),
    (preferences({"preference": {}}), f"{PREFERENCES}[0].weight", INVALID, "0"),
    (
        preferences({"weight": 1, "preference": expressions({"key": "a", "operator": "In"})}),
        f"{PREFERENCES}[0].preference.matchExpressions[0].values",
        MISSING,
        None,
    ),
    (
        near({**VALID_POD_TERM, "labelSelector": expressions({"key": "a", "operator": "In"})}),
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
    (
        apart({"weight": -1, "podAffinityTerm": VALID_POD_TERM}),
        f"{APART}[0].weight",
        INVALID,
        "-1",
    ),
    (
        apart({"weight": 1, "podAffinityTerm": {"topologyKey": "-"}}),
        f"{APART}[0].podAffinityTerm.topologyKey",
        INVALID,
        '"-"',
    ),
    (
        tolerations({"key": "a b", "operator": "Exists"}),
        "spec.tolerations[0].key",
        INVALID,
        '"a b"',
    ),
    (
        tolerations({"operator": "Equal", "value": "x"}),
        "spec.tolerations[0].operator",
        INVALID,
        '"Equal"',
    ),
    (tolerations({"key": "a"}, {}), "spec.tolerations[1].operator", INVALID, '""'),
    (
        tolerations({"key": "a", "operator": "Exists", "value": "x"}),
        "spec.tolerations[0].operator",
        INVALID,
        '{key: "a", operator: "Exists", value: "x"}',
    ),
    (
        tolerations({"key": "a", "operator": "In", "value": "x"}),
        "spec.tolerations[0].operator",
        UNSUPPORTED,
        '"In"',
    ),
    (
        tolerations({"key": "a", "effect": "Foo"}),
        "spec.tolerations[0].effect",
        UNSUPPORTED,
        '"Foo"',
    ),
    (
        tolerations({"key": "a", "effect": "NoSchedule", "tolerationSeconds": 3}),
        "spec.tolerations[0].effect",
        INVALID,
        '"NoSchedule"',
    ),
    (
        tolerations({"key": "a", "tolerationSeconds": 0}),
        "spec.tolerations[0].effect",
        INVALID,
        '""',
    ),
    (tolerations({"key": "a", "value": "b c"}), "spec.tolerations[0].operator", INVALID, '"b c"'),
]


@pytest.mark.parametrize(("spec", "path", "kind", "value"), SPEC_FAULTS)
def test_a_fault_of_the_spec_denies(spec, path, kind, value):
    assert located(validate(policy(spec))) == [(path, kind, value)]


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
    assert located(validate(policy(near({"labelSelector": {}})))) == [
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
