"""The operations that change a pod's affinity: few, on missing parents first, nothing lost.

These tests prove kupid-spec 3.6, 3.7.
"""

from __future__ import annotations

import pytest

from harbourmaster.policies.model import PREFERRED, REQUIRED
from helpers.objects import cluster_policy, required, workload
from helpers.policies import apart, expressions, merge_of, near, node_terms, one_of, preferences

AT = "/spec/template/spec/affinity"
TERM = required({"a": "1"})
TERMS = TERM["nodeAffinity"][REQUIRED]
SUBS = ("nodeAffinity", "podAffinity", "podAntiAffinity")


def merge(before, *policies):
    """Return the merge of policies into a pod; all arguments are affinities."""
    documents = [cluster_policy(f"c{i}", affinity=policy) for i, policy in enumerate(policies)]
    return merge_of(workload(affinity=before), *documents)


def operations(before, *policies):
    return [
        (operation["path"], operation["value"]) for operation in merge(before, *policies).operations
    ]


def after(before, *policies):
    return merge(before, *policies).spec["affinity"]


# Missing parents


def test_pod_without_a_spec_gets_one():
    document = {"apiVersion": "v1", "kind": "Pod"}
    result = merge_of(document, cluster_policy(affinity=TERM, nodeSelector={"a/b": "1"}))
    assert result.operations == [
        {"op": "add", "path": "/spec", "value": {"affinity": TERM, "nodeSelector": {"a/b": "1"}}}
    ]


@pytest.mark.parametrize("template", [{}, {"spec": None}, {"metadata": {}}])
def test_template_without_a_spec_gets_one(template):
    document = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": template}}
    result = merge_of(document, cluster_policy(nodeName="n1", affinity=TERM))
    assert result.operations == [
        {
            "op": "add",
            "path": "/spec/template/spec",
            "value": {"nodeName": "n1", "affinity": TERM},
        }
    ]


def test_object_without_a_spec_stays_so_where_nothing_is_merged():
    document = {"apiVersion": "v1", "kind": "Pod"}
    assert merge_of(document, cluster_policy()).operations == []


@pytest.mark.parametrize(
    ("before", "path", "value"),
    [
        (None, AT, TERM),
        ({}, f"{AT}/nodeAffinity", TERM["nodeAffinity"]),
        ({"nodeAffinity": None}, f"{AT}/nodeAffinity", TERM["nodeAffinity"]),
        ({"podAffinity": {}}, f"{AT}/nodeAffinity", TERM["nodeAffinity"]),
        ({"nodeAffinity": {}}, f"{AT}/nodeAffinity/{REQUIRED}", TERMS),
        ({"nodeAffinity": {REQUIRED: None}}, f"{AT}/nodeAffinity/{REQUIRED}", TERMS),
        ({"nodeAffinity": {PREFERRED: []}}, f"{AT}/nodeAffinity/{REQUIRED}", TERMS),
    ]
    + [
        (
            {"nodeAffinity": {REQUIRED: empty}},
            f"{AT}/nodeAffinity/{REQUIRED}/nodeSelectorTerms",
            TERMS["nodeSelectorTerms"],
        )
        for empty in ({}, {"nodeSelectorTerms": None}, {"nodeSelectorTerms": []}, {"future": 1})
    ],
)
def test_required_node_affinity_is_added_at_the_first_missing_parent(before, path, value):
    assert operations(before, TERM) == [(path, value)]


@pytest.mark.parametrize("sub", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize(
    ("list_name", "item"),
    [
        (REQUIRED, {"topologyKey": "zone"}),
        (PREFERRED, {"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}),
    ],
)
@pytest.mark.parametrize(
    ("before", "depth"),
    [
        ("absent", 0),
        ({}, 1),
        ({"sub": None}, 1),
        ({"sub": {}}, 2),
        ({"sub": {"list": None}}, 2),
        ({"sub": {"list": []}}, 2),
        ({"sub": {"list": [{}]}}, 3),
    ],
)
def test_pod_affinity_is_added_at_the_first_missing_parent(sub, list_name, item, before, depth):
    named = {"sub": sub, "list": list_name}
    if before == "absent":
        existing = None
    else:
        existing = {
            named[key]: value and {named[k]: v for k, v in value.items()}
            for key, value in before.items()
        }
    path = "/".join([AT, sub, list_name, "-"][: depth + 1])
    value = [{sub: {list_name: [item]}}, {list_name: [item]}, [item], item][depth]
    assert operations(existing, {sub: {list_name: [item]}}) == [(path, value)]


# What is there stays


def test_lists_are_appended_to_item_by_item():
    first, second, third = (
        {"weight": w, "preference": expressions(one_of("a", "1"))} for w in (1, 2, 3)
    )
    before = preferences({**first, "future": 1})["affinity"]
    path = f"{AT}/nodeAffinity/{PREFERRED}/-"
    assert operations(before, preferences(second, third)["affinity"]) == [
        (path, second),
        (path, third),
    ]


@pytest.mark.parametrize("sub", SUBS)
def test_other_parts_of_the_affinity_are_not_touched(sub):
    item = {"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}
    if sub == "nodeAffinity":
        item = {"weight": 1, "preference": expressions(one_of("a", "1"))}
    others = {name: {"future": 1} for name in SUBS if name != sub}
    merged = merge(others, {sub: {PREFERRED: [item]}})
    assert merged.paths == [f"{AT}/{sub}"]
    assert merged.spec["affinity"] == {**others, sub: {PREFERRED: [item]}}


# Lists are merged without duplicates


def preference(weight, key, value):
    return {"weight": weight, "preference": expressions(one_of(key, value))}


def test_preferred_node_affinity_is_merged_by_weight_and_preference():
    before = preferences(preference(10, "a", "A"))["affinity"]
    policy = preferences(
        preference(20, "a", "A"), preference(10, "a", "A"), preference(10, "b", "B")
    )["affinity"]
    expected = preferences(
        preference(10, "a", "A"), preference(20, "a", "A"), preference(10, "b", "B")
    )
    assert after(before, policy) == expected["affinity"]


def pod_term(topology, **more):
    return {"topologyKey": topology, "labelSelector": {"matchLabels": {"a": "b"}}, **more}


def weighted_term(weight, topology):
    return {"weight": weight, "podAffinityTerm": pod_term(topology)}


@pytest.mark.parametrize("sub", ["podAffinity", "podAntiAffinity"])
def test_pod_affinity_is_merged_without_exact_duplicates(sub):
    before = {sub: {REQUIRED: [pod_term("h")], PREFERRED: [weighted_term(5, "z")]}}
    policy = {
        sub: {
            REQUIRED: [pod_term("h"), pod_term("z")],
            PREFERRED: [weighted_term(5, "z"), weighted_term(6, "z")],
        }
    }
    assert after(before, policy) == policy


DUPLICATES = {
    "nodeAffinity": preferences(preference(1, "a", "A"), preference(1, "a", "A")),
    "podAffinity": near(pod_term("h"), pod_term("h")),
    "podAntiAffinity": apart(weighted_term(1, "h"), weighted_term(1, "h")),
}


@pytest.mark.parametrize("sub", SUBS)
@pytest.mark.parametrize("before", [None, {}, {"nodeAffinity": None}])
def test_part_that_the_pod_lacks_is_copied_with_its_duplicates(sub, before):
    policy = DUPLICATES[sub]["affinity"]
    once = merge(before, policy)
    assert once.spec["affinity"][sub] == policy[sub]
    assert merge(once.spec["affinity"], policy).operations == []


@pytest.mark.parametrize("sub", SUBS)
def test_part_that_the_pod_has_gets_no_duplicates(sub):
    policy = DUPLICATES[sub]["affinity"]
    (list_name,) = policy[sub]
    assert after({sub: {}}, policy)[sub] == {list_name: policy[sub][list_name][:1]}


@pytest.mark.parametrize("sub", SUBS)
def test_second_policy_adds_no_duplicates_to_what_the_first_brought(sub):
    policy = DUPLICATES[sub]["affinity"]
    assert after(None, policy, policy)[sub] == policy[sub]


def test_required_node_affinity_of_a_policy_makes_the_next_one_merge():
    first, second = TERM, DUPLICATES["nodeAffinity"]["affinity"]
    assert len(after(None, first, second)["nodeAffinity"][PREFERRED]) == 1


# Policies as the API would write them


def test_empty_fields_of_a_policy_are_not_copied():
    policy = {
        "nodeAffinity": {
            REQUIRED: {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [{"key": "a", "operator": "Exists", "values": []}],
                        "matchFields": [],
                    }
                ]
            }
        },
        "podAffinity": {REQUIRED: [{"topologyKey": "h", "namespaces": [], "matchLabelKeys": None}]},
    }
    assert after(None, policy) == {
        **node_terms(expressions({"key": "a", "operator": "Exists"}))["affinity"],
        **near({"topologyKey": "h"})["affinity"],
    }


@pytest.mark.parametrize("selector", [{}, {"matchLabels": {"a": ""}}])
def test_selectors_of_a_policy_are_copied_as_they_are(selector):
    policy = near({"topologyKey": "h", "labelSelector": selector, "namespaceSelector": selector})
    assert after(None, policy["affinity"]) == policy["affinity"]


def test_empty_map_of_labels_in_a_selector_is_left_out():
    policy = near({"topologyKey": "h", "labelSelector": {"matchLabels": {}}})["affinity"]
    assert after(None, policy) == near({"topologyKey": "h", "labelSelector": {}})["affinity"]
