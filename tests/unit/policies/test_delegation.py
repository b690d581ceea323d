"""Tests of the policies left to the API server, of their order, and of what is applied."""

from __future__ import annotations

import json

import pytest

from harbourmaster.cli.compile.run import registered_by
from harbourmaster.policies.compiled import compile_policy
from harbourmaster.policies.delegation import (
    HASHES_KEY,
    PARTS_KEY,
    SET_KEY,
    compile_objects,
    select,
)
from harbourmaster.policies.enforcement import (
    COMPILED_KEY,
    ENFORCEMENT_KEY,
    MODE_KEY,
    policy_hash,
)
from harbourmaster.policies.model import ON_TOO_LARGE
from harbourmaster.registration.settings import RegistrationSettings
from helpers.policies import (
    VALID_POD_TERM,
    cluster_policy,
    expressions,
    near,
    node_terms,
    policy,
    requirement,
    tolerations,
)

SPOT = {"key": "spot", "operator": "Exists"}
REGISTERED = registered_by(RegistrationSettings(), "harbourmaster-system")
ALL = {"podSelector": {}, "namespaceSelector": {}}


def asking(name, spec, enforcement="Both", make=cluster_policy, **annotations):
    """Return a policy with this enforcement mode."""
    annotations = {ENFORCEMENT_KEY: enforcement, **annotations}
    return make({**ALL, **spec}, name=name, annotations=annotations)


def choose(*policies, namespaces=(), **options):
    options = {"waiting_scheduler": "keptn-scheduler", **options}
    return select(map(compile_policy, policies), namespaces=namespaces, **options)


def reasons(*policies, **options):
    return [refusal.reason for refusal in choose(*policies, **options).refusals]


def names(*policies, **options):
    return [policy.rank[2] for policy in choose(*policies, **options).policies]


def test_policies_that_ask_are_chosen_in_the_order_in_which_they_apply():
    own = asking("a", {"tolerations": [SPOT]}, make=policy)
    policies = [
        own,
        asking("c", {"nodeSelector": {"a": "b"}}, "APIServer"),
        asking("b", {"schedulerName": "s"}),
        cluster_policy({**ALL, "nodeSelector": {"x": "y"}}, name="d"),
        asking("e", {"schedulerName": "s"}, **{MODE_KEY: "Audit"}),
    ]
    assert names(*policies, namespaces=("ns",)) == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"nodeName": "n1"}, "spec.nodeName: a gate that is added later"),
        ({"schedulerName": "keptn-scheduler"}, "spec.schedulerName: pods wait"),
        (near(VALID_POD_TERM, VALID_POD_TERM), "the same entry stands there twice"),
        (tolerations({"key": "a", "operator": "Bad"}), "it is invalid"),
        (node_terms(*[expressions(requirement(f"k{i}")) for i in range(17)]), "more than 16"),
        (node_terms(expressions(requirement(values=["v" * 63] * 70))), "a term of more than 16"),
        (tolerations(*[{**SPOT, "key": f"k{i}"} for i in range(33)]), "more than 32 tolerations"),
        (
            tolerations({**SPOT, "effect": "NoExecute", "tolerationSeconds": 2**53}),
            "tolerationSeconds beyond",
        ),
        (node_terms(expressions(requirement(values=["ä"]))), "characters other than ASCII"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_expressed_stays_with_the_webhook(spec, reason):
    [message] = reasons(asking("a", spec))
    assert reason in message


def test_a_namespaced_policy_needs_the_consent_of_an_administrator():
    own = asking("a", {"nodeSelector": {"a": "b"}}, make=policy)
    assert reasons(own) == ["namespace ns is not one of --policy-namespaces"]
    assert reasons(own, namespaces=("ns",)) == []


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"nodeSelector": {"a": "c"}}, "spec.nodeSelector[a]"),
        ({"schedulerName": "t"}, "spec.schedulerName"),
        ({"tolerations": [{**SPOT, "key": "other"}]}, "spec.tolerations"),
        (near({"topologyKey": "other"}), "spec.affinity.podAffinity"),
        (node_terms(expressions(requirement("z"))), "spec.affinity.nodeAffinity"),
    ],
)
def test_a_policy_is_not_compiled_before_one_of_the_webhook_that_it_meets(spec, field):
    everything = {
        "nodeSelector": {"a": "b"},
        "schedulerName": "s",
        "tolerations": [SPOT],
        "affinity": {
            **near(VALID_POD_TERM)["affinity"],
            **node_terms(expressions(requirement()))["affinity"],
        },
    }
    first = cluster_policy({**ALL, **spec}, name="a")
    [reason] = reasons(first, asking("b", everything))
    assert reason.startswith(f"{field}")
    assert "ClusterPodSchedulingPolicy a comes before it" in reason
    # The other way around, the API server is first, as the order has it.
    assert reasons(asking("a", everything), cluster_policy({**ALL, **spec}, name="b")) == []
    assert reasons(asking("a", spec), asking("b", everything)) == []


def test_policies_that_no_pod_has_both_of_do_not_meet():
    def spec_with_label(value):
        return {"podSelector": {"matchLabels": {"app": value}}, "nodeSelector": {"disk": value}}

    first = cluster_policy({**ALL, **spec_with_label("x")}, name="a")
    assert reasons(first, asking("b", spec_with_label("y"))) == []
    same = {**spec_with_label("x"), "nodeSelector": {"disk": "z"}}
    assert len(reasons(first, asking("b", same))) == 1


def test_a_refused_policy_counts_as_one_of_the_webhook():
    selector = {"nodeSelector": {"a": "b"}}
    refused = asking("a", {**selector, "nodeName": "n"})
    assert len(reasons(refused, asking("b", {"nodeSelector": {"a": "c"}}))) == 2


def objects_of(*policies):
    return compile_objects(choose(*policies).policies, REGISTERED)


def by_kind_and_name(objects):
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}


def test_every_part_has_a_policy_and_two_bindings_that_say_what_they_are():
    source = asking("a", {"nodeSelector": {"a": "b"}})
    objects = objects_of(source)
    assert [policy["metadata"]["labels"][COMPILED_KEY] for policy in objects.policies] == [
        *["policy"] * 3,
        "check",
    ]
    for admission_policy in objects.policies:
        annotations = admission_policy["metadata"]["annotations"]
        assert json.loads(annotations[HASHES_KEY]) == {source.reference: policy_hash(source)}
        assert annotations[SET_KEY] == objects.set
        assert annotations[PARTS_KEY] == "cronjobs,pods,templates"
    final, probe = by_kind_and_name(objects.final), by_kind_and_name(objects.probe)
    kind = "MutatingAdmissionPolicyBinding"
    for part in ("cronjobs", "pods", "templates"):
        for bindings, prefix, mark in (
            (final, "harbourmaster-compiled", "final"),
            (probe, "harbourmaster-compiled-probe", "probe"),
        ):
            bound = bindings[kind, f"{prefix}-{part}"]
            assert bound["spec"]["policyName"] == f"harbourmaster-compiled-{objects.set}-{part}"
            assert bound["metadata"]["labels"][COMPILED_KEY] == mark
    excluded = final[kind, "harbourmaster-compiled-pods"]["spec"]["matchResources"]
    values = [
        expression["values"] for expression in excluded["namespaceSelector"]["matchExpressions"]
    ]
    assert values == [
        ["kube-system", "kube-public", "kube-node-lease", "harbourmaster-system"],
        ["harbourmaster-probe"],
    ]


def test_another_spec_makes_another_set_and_the_same_bindings():
    first, second = (objects_of(asking("a", {"nodeSelector": {"a": value}})) for value in "bc")
    assert first.set != second.set
    assert by_kind_and_name(first.final).keys() == by_kind_and_name(second.final).keys()
    assert objects_of(asking("a", {"nodeSelector": {"a": "b"}})) == first


def test_pods_that_are_too_large_are_refused_by_policies_that_deny_them():
    selector = {"nodeSelector": {"a": "b"}}
    denies = asking("a", selector, **{ON_TOO_LARGE: "Deny"})
    bindings = by_kind_and_name(objects_of(denies, asking("b", selector)).final)
    kind = "ValidatingAdmissionPolicyBinding"
    actions = {
        name.rpartition("-")[2]: bound["spec"]["validationActions"]
        for (binding_kind, name), bound in bindings.items()
        if binding_kind == kind
    }
    assert actions == {"deny": ["Deny"], "warn": ["Warn"]}


def test_too_many_policies_are_refused_in_one_line():
    many = [
        asking(f"p{number:04}", {"nodeSelector": {f"k{number}": "v"}}) for number in range(1500)
    ]
    with pytest.raises(ValueError, match="let the webhook enforce some of the policies"):
        objects_of(*many)
