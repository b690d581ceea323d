"""Tests of policies that are accepted with a warning (kupid-spec 5.3)."""

from __future__ import annotations

import pytest

from harbourmaster.policies.advice import warn
from harbourmaster.policies.model import PREFERRED, REQUIRED
from harbourmaster.policies.validation import validate
from helpers.policies import (
    APART,
    NEAR,
    PREFERENCES,
    TERMS,
    VALID_POD_TERM,
    apart,
    cluster_policy,
    expressions,
    fields,
    near,
    node_terms,
    policy,
    preferences,
    requirement,
    tolerations,
)
from helpers.virtual_time import lines

NONE = requirement(operator="DoesNotExist", values=[])


def weighted_term(**term):
    return {"weight": 1, "podAffinityTerm": {**VALID_POD_TERM, **term}}


def ready(spec):
    """Return a cluster policy with selectors and an effect, so that only ``spec`` is odd."""
    base = {"podSelector": {}, "namespaceSelector": {}, "nodeName": "n"}
    return cluster_policy({**base, **spec})


NODE_EXPRESSIONS = f"{TERMS}[0].matchExpressions"
POD_TERM = f"{NEAR}[0]"


def odd(spec):
    """Return the only warning on a policy that is accepted."""
    policy = ready(spec)
    assert validate(policy) == ()
    (warning,) = warn(policy)
    return warning


@pytest.mark.parametrize(
    ("expression", "index", "part"),
    [
        (requirement(operator="Gt", values=["x"]), 0, "integer"),
        (requirement(operator="Lt", values=[str(2**63)]), 0, "integer"),
        (requirement(operator="Gt", values=["-1"]), 0, "integer"),
        (requirement(values=["b", "b c"]), 1, "label value"),
    ],
)
def test_a_value_that_no_scheduler_accepts_is_told(expression, index, part):
    warning = odd(node_terms(expressions(expression)))
    assert warning.startswith(f"{NODE_EXPRESSIONS}[0].values[{index}]: ")
    assert part in warning
    preference = odd(preferences({"weight": 1, "preference": expressions(expression)}))
    at = f"{PREFERENCES}[0].preference.matchExpressions[0].values[{index}]: "
    assert preference == warning.replace(f"{NODE_EXPRESSIONS}[0].values[{index}]: ", at)


SAME = requirement()
ODDITIES = [
    ({"schedulerName": "Junk!"}, "spec.schedulerName: ", '"Junk!"'),
    (
        near({**VALID_POD_TERM, "namespaceSelector": expressions(requirement(operator="zzz"))}),
        f"{POD_TERM}.namespaceSelector.matchExpressions[0].operator: ",
        "rejected",
    ),
    (
        near({**VALID_POD_TERM, "labelSelector": expressions(requirement(values=["b c"]))}),
        f"{POD_TERM}.labelSelector.matchExpressions[0].values[0]: ",
        "rejected",
    ),
    (
        apart(weighted_term(namespaceSelector={"matchLabels": {"a": "b c"}})),
        f"{APART}[0].podAffinityTerm.namespaceSelector.matchLabels: ",
        "rejected",
    ),
    (
        near({**VALID_POD_TERM, "labelSelector": {}, "matchLabelKeys": ["a", "b c"]}),
        f"{POD_TERM}.matchLabelKeys[1]: ",
        "rejected",
    ),
    (
        near({"topologyKey": "zone", "matchLabelKeys": ["a"]}),
        f"{POD_TERM}.matchLabelKeys[0]: ",
        "labelSelector is absent",
    ),
    (
        apart(weighted_term(labelSelector={}, matchLabelKeys=["a"], mismatchLabelKeys=["b", "a"])),
        f"{APART}[0].podAffinityTerm.mismatchLabelKeys[1]: ",
        "matchLabelKeys too",
    ),
    (
        {"podSelector": {"matchLabels": {"a": "x"}, **expressions(NONE)}},
        "spec.podSelector: ",
        '"a"',
    ),
    (
        near({**VALID_POD_TERM, "labelSelector": {"matchLabels": {"a": "y"}, **expressions(SAME)}}),
        f"{POD_TERM}.labelSelector: ",
        '"a"',
    ),
    (
        node_terms(fields(*(requirement("metadata.name", values=[name]) for name in "ab"))),
        f"{TERMS}[0].matchFields: ",
        '"metadata.name"',
    ),
]


@pytest.mark.parametrize(("spec", "start", "part"), ODDITIES)
def test_an_oddity_is_accepted_with_a_warning(spec, start, part):
    warning = odd(spec)
    assert warning.startswith(start)
    assert part in warning


@pytest.mark.parametrize(
    ("spec", "path", "first"),
    [
        (
            tolerations({"key": "a"}, {"key": "b"}, {"key": "a", "operator": None}),
            "spec.tolerations[2]",
            0,
        ),
        (
            {"podSelector": expressions(requirement(values=["x", "y", "x"]))},
            "spec.podSelector.matchExpressions[0].values[2]",
            0,
        ),
        (
            {"namespaceSelector": expressions(*(requirement(values=v) for v in ("xy", "yx")))},
            "spec.namespaceSelector.matchExpressions[1]",
            0,
        ),
        (node_terms(expressions(SAME, SAME)), f"{NODE_EXPRESSIONS}[1]", 0),
        (node_terms(expressions(SAME), expressions(SAME)), f"{TERMS}[1]", 0),
        (preferences({"weight": 1}, {"weight": 1}), f"{PREFERENCES}[1]", 0),
        (near(VALID_POD_TERM, {**VALID_POD_TERM, "namespaces": []}), f"{NEAR}[1]", 0),
        (apart(weighted_term(), weighted_term()), f"{APART}[1]", 0),
        (near({**VALID_POD_TERM, "namespaces": ["a", "b", "b"]}), f"{POD_TERM}.namespaces[2]", 1),
    ],
)
def test_what_is_repeated_is_told(spec, path, first):
    assert odd(spec) == f"{path}: repeats item {first} of the list"


@pytest.mark.parametrize(
    "requirements",
    [
        [requirement(values=["x"]), requirement(values=["y"])],
        [requirement(values=["x", "y"]), requirement(values=["y", "z"]), requirement(values=["z"])],
        [requirement(values=["x"]), requirement(operator="NotIn", values=["x"])],
        [requirement(operator="Exists", values=[]), NONE],
        [requirement(operator="Gt", values=["1"]), NONE],
        [requirement(operator="Gt", values=["5"]), requirement(operator="Lt", values=["6"])],
        [requirement(values=["3", "x"]), requirement(operator="Gt", values=["3"])],
        [requirement(values=["9"]), requirement(operator="Lt", values=["9"])],
    ],
)
def test_requirements_that_exclude_each_other_are_told(requirements):
    (warning,) = warn(ready(node_terms(expressions(*requirements))))
    assert warning.startswith(f'{NODE_EXPRESSIONS}: no node can satisfy all requirements on "a"')


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"schedulerName": "my-scheduler"},
        node_terms(expressions(requirement(values=["x", "y"]), requirement(operator="NotIn"))),
        node_terms(
            expressions(
                requirement(operator="Gt", values=["5"]), requirement(operator="Lt", values=["7"])
            )
        ),
        node_terms(
            expressions(requirement(values=["6"]), requirement(operator="Gt", values=["5"]))
        ),
        node_terms(expressions(requirement(operator="NotIn"), NONE)),
        node_terms(expressions(requirement()), expressions(requirement(values=["y"]))),
        node_terms({**expressions(requirement()), **fields(requirement("metadata.name"))}),
        near(VALID_POD_TERM, {**VALID_POD_TERM, "labelSelector": {}}),
        preferences({"weight": 1}, {"weight": 2}),
        tolerations({"key": "a"}, {"key": "a", "operator": "Equal"}),
    ],
)
def test_a_sound_policy_gets_no_warning(spec):
    assert warn(ready(spec)) == ()


@pytest.mark.parametrize("missing", ["podSelector", "namespaceSelector"])
def test_an_absent_selector_is_told(missing):
    (warning,) = warn(ready({missing: None}))
    assert warning.startswith(f"spec.{missing}: absent, so the policy matches nothing")


def test_a_namespaced_policy_needs_no_namespace_selector():
    assert warn(policy({"podSelector": {}, "nodeName": "n"})) == ()


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"nodeName": "", "nodeSelector": {}, "schedulerName": "", "tolerations": []},
        {"affinity": {}},
        {"affinity": {"nodeAffinity": {PREFERRED: []}, "podAffinity": {REQUIRED: []}}},
    ],
)
def test_a_policy_without_effect_is_told(spec):
    (warning,) = warn(policy({"podSelector": {}, **spec}))
    assert warning.startswith("spec: has no effect")


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeName": "n"},
        {"nodeSelector": {"a": "b"}},
        {"schedulerName": "s"},
        tolerations({"operator": "Exists"}),
        node_terms({}),
        preferences({"weight": 1}),
        near(VALID_POD_TERM),
        apart(weighted_term()),
    ],
)
def test_whatever_a_policy_sets_is_an_effect(spec):
    assert warn(policy({"podSelector": {}, **spec})) == ()


def test_a_policy_without_a_spec_matches_nothing_and_has_no_effect():
    assert len(warn(cluster_policy())) == 3


def test_a_warning_is_one_line_of_bounded_length():
    value = "line\n" * 1000
    deep = {**VALID_POD_TERM, "namespaceSelector": expressions(requirement(key=value))}
    warnings = warn(
        ready(
            {
                "schedulerName": value,
                **apart(*[{"weight": weight, "podAffinityTerm": deep} for weight in (1, 2)]),
            }
        )
    )
    assert len(warnings) == 5
    assert all(len(warning) <= 256 and warning.isprintable() for warning in warnings)


def test_warnings_beyond_a_dozen_are_only_counted():
    warnings = warn(ready(tolerations(*[{"key": "a"}] * 21)))
    assert len(warnings) == 13
    assert warnings[-1] == "8 more warnings were omitted"


def test_ten_thousand_requirements_on_one_key_are_no_trouble():
    def advise(count):
        values = [f"v{number}" for number in range(count)]
        excluding = [requirement(operator="NotIn", values=[value]) for value in values]
        large = ready(node_terms(expressions(requirement(values=values), *excluding)))
        assert validate(large) == ()
        assert len(warn(large)) == 1

    few, many = (lines(lambda count=count: advise(count)) for count in (2500, 10_000))
    # Quadratic would be 16 times.
    assert many < 6 * few
