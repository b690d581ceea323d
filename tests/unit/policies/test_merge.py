"""Policies merged into a pod, field by field; the pod's own values win (kupid-spec 3, 3.4, 3.8)."""

from __future__ import annotations

import pytest

from harbourmaster.policies.tolerations import DEFAULTS
from helpers.objects import RESOURCES, cluster_policy, required, workload
from helpers.oracles import NODE_REQUIRED
from helpers.policies import expressions, fields, merge_of, node_terms, one_of, pod_spec

# Simple fields


@pytest.mark.parametrize(
    ("before", "policy", "after"),
    [
        (None, {"c": "d"}, {"c": "d"}),
        ({}, {"c": "d"}, {"c": "d"}),
        ({"a": "x", "z": "1"}, {"a": "b", "c": "d"}, {"a": "x", "z": "1", "c": "d"}),
        ({"a": "x"}, {"a": "b"}, {"a": "x"}),
        ({"a": ""}, {"a": "b"}, {"a": ""}),
        ({"a": "x"}, {}, {"a": "x"}),
        ({"a": "x"}, None, {"a": "x"}),
    ],
)
def test_node_selector_adds_the_keys_that_the_pod_lacks(before, policy, after):
    result = merge_of(workload(nodeSelector=before), cluster_policy(nodeSelector=policy))
    assert result.spec["nodeSelector"] == after
    assert bool(result.operations) is (after != before)


@pytest.mark.parametrize("policy", [{}, None])
def test_empty_node_selector_of_a_policy_adds_none(policy):
    assert "nodeSelector" not in merge_of(workload(), cluster_policy(nodeSelector=policy)).spec


@pytest.mark.parametrize(
    ("before", "policy", "after"),
    [({}, "n1", "n1"), ({"nodeName": None}, "n1", "n1"), ({"nodeName": ""}, "n1", "n1")]
    + [({"nodeName": "x"}, policy, "x") for policy in ("n1", "", None)],
)
def test_node_name_is_set_where_the_pod_has_none(before, policy, after):
    result = merge_of(workload(**before), cluster_policy(nodeName=policy))
    assert result.spec["nodeName"] == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, "s1"),
        ({"schedulerName": None}, "s1"),
        ({"schedulerName": ""}, "s1"),
        ({"schedulerName": "s2"}, "s2"),
    ],
)
@pytest.mark.parametrize("is_unset", [True, False])
def test_scheduler_name_is_set_where_the_pod_has_none(before, after, is_unset):
    result = merge_of(
        workload(**before),
        cluster_policy(schedulerName="s1"),
        treat_default_scheduler_as_unset=is_unset,
    )
    assert result.spec["schedulerName"] == after


def test_default_scheduler_counts_as_unset():
    result = merge_of(
        workload(schedulerName="default-scheduler"), cluster_policy(schedulerName="s1")
    )
    assert result.spec["schedulerName"] == "s1"


def test_default_scheduler_counts_as_set_where_that_is_switched_off():
    result = merge_of(
        workload(schedulerName="default-scheduler"),
        cluster_policy(schedulerName="s1"),
        treat_default_scheduler_as_unset=False,
    )
    assert result.operations == []


def test_policy_that_names_the_default_scheduler_wins_over_later_ones():
    policies = [
        cluster_policy("c1", schedulerName="default-scheduler"),
        cluster_policy("c2", schedulerName="s2"),
    ]
    assert merge_of(workload(schedulerName="default-scheduler"), *policies).operations == []
    assert merge_of(workload(), *policies).spec["schedulerName"] == "default-scheduler"


def test_first_policy_wins():
    policies = [
        cluster_policy("c1", nodeName="n1", schedulerName="s1", nodeSelector={"a": "1"}),
        cluster_policy("c2", nodeName="n2", schedulerName="s2", nodeSelector={"a": "2", "b": "2"}),
    ]
    spec = merge_of(workload(), *policies).spec
    assert (spec["nodeName"], spec["schedulerName"]) == ("n1", "s1")
    assert spec["nodeSelector"] == {"a": "1", "b": "2"}


# Tolerations

ETCD = {"key": "d", "operator": "Equal", "value": "etcd", "effect": "NoExecute"}
EXISTS = {"key": "x", "operator": "Exists"}
NO_OPERATOR = {"key": "d", "value": "etcd", "effect": "NoExecute"}
FIVE_SECONDS = {**ETCD, "tolerationSeconds": 5}


@pytest.mark.parametrize(
    ("before", "policy", "after"),
    [
        (None, [ETCD], [ETCD]),
        ([], [ETCD], [ETCD]),
        ([EXISTS], [ETCD], [EXISTS, ETCD]),
        ([ETCD], [ETCD], [ETCD]),
        ([NO_OPERATOR], [ETCD], [NO_OPERATOR, ETCD]),
        ([FIVE_SECONDS], [ETCD], [FIVE_SECONDS, ETCD]),
        (None, [ETCD, ETCD], [ETCD]),
        ([EXISTS], [ETCD, EXISTS, ETCD], [EXISTS, ETCD]),
        ([ETCD, ETCD], [EXISTS], [ETCD, ETCD, EXISTS]),
        ([{**ETCD, "future": 1}], [ETCD], [{**ETCD, "future": 1}, ETCD]),
        ([{**EXISTS, "value": ""}], [EXISTS], [{**EXISTS, "value": ""}]),
        ([EXISTS], [], [EXISTS]),
    ],
)
def test_tolerations_are_appended_once(before, policy, after):
    result = merge_of(workload(tolerations=before), cluster_policy(tolerations=policy))
    assert result.spec["tolerations"] == after


def test_tolerations_of_several_policies_are_appended_in_order_and_once():
    policies = [
        cluster_policy("c1", tolerations=[ETCD]),
        cluster_policy("c2", tolerations=[EXISTS]),
    ]
    result = merge_of(workload(), *policies, cluster_policy("c3", tolerations=[ETCD]))
    assert result.spec["tolerations"] == [ETCD, EXISTS]


NOT_READY, UNREACHABLE = DEFAULTS.values()
SOON = [{**toleration, "tolerationSeconds": 30} for toleration in DEFAULTS.values()]
WIDE = {"operator": "Exists"}


def merged_tolerations(own, *policies, **options):
    """The tolerations of a pod, which no second pass changes."""
    policies = [
        cluster_policy(f"c{index}", tolerations=items) for index, items in enumerate(policies)
    ]
    result = merge_of(workload("Pod", tolerations=own), *policies, **options)
    assert merge_of(result.document, *policies, **options).operations == []
    return result.spec["tolerations"]


@pytest.mark.parametrize(
    ("own", "policies", "after"),
    [
        # Each policy that covers a taint, in any way.
        ([NOT_READY, UNREACHABLE], [SOON], SOON),
        ([NOT_READY, UNREACHABLE], [SOON[:1]], [UNREACHABLE, SOON[0]]),
        ([NOT_READY, UNREACHABLE], [[WIDE]], [WIDE]),
        (
            [NOT_READY, UNREACHABLE],
            [[{**WIDE, "effect": "NoExecute", "tolerationSeconds": 5}]],
            [{**WIDE, "effect": "NoExecute", "tolerationSeconds": 5}],
        ),
        ([EXISTS, NOT_READY], [[{"key": NOT_READY["key"]}]], [EXISTS, {"key": NOT_READY["key"]}]),
        ([NOT_READY], [[EXISTS], SOON[:1]], [EXISTS, SOON[0]]),
        # What was appended before it could replace.
        ([NOT_READY, SOON[0]], [SOON[:1]], [SOON[0]]),
        # The first policy wins, also one that asks for the default.
        ([UNREACHABLE], [[UNREACHABLE], SOON[1:]], [UNREACHABLE, SOON[1]]),
        ([UNREACHABLE], [[WIDE], [UNREACHABLE], SOON[1:]], [WIDE, UNREACHABLE, SOON[1]]),
        ([UNREACHABLE], [[WIDE, UNREACHABLE]], [WIDE, UNREACHABLE]),
        # The pod's own counts: it comes before, or is not the default.
        ([SOON[0], NOT_READY], [[WIDE]], [SOON[0], NOT_READY, WIDE]),
        ([SOON[1]], [[UNREACHABLE]], [SOON[1], UNREACHABLE]),
        (
            [{**NOT_READY, "tolerationSeconds": 301}],
            [[WIDE]],
            [{**NOT_READY, "tolerationSeconds": 301}, WIDE],
        ),
        ([{**NOT_READY, "effect": ""}], [SOON[:1]], [{**NOT_READY, "effect": ""}, SOON[0]]),
        # Others, and those that do not match the taint.
        ([NOT_READY], [[EXISTS]], [NOT_READY, EXISTS]),
        (
            [NOT_READY],
            [[{**WIDE, "effect": "NoSchedule"}]],
            [NOT_READY, {**WIDE, "effect": "NoSchedule"}],
        ),
        (
            [NOT_READY],
            [[{"key": NOT_READY["key"], "operator": "Equal", "value": "x"}]],
            [NOT_READY, {"key": NOT_READY["key"], "operator": "Equal", "value": "x"}],
        ),
    ],
)
def test_a_policy_replaces_the_default_tolerations_that_it_covers(own, policies, after):
    assert merged_tolerations(own, *policies) == after


def test_default_tolerations_stay_in_templates_and_where_that_is_switched_off():
    own = [NOT_READY, UNREACHABLE]
    for kind in ("Deployment", "CronJob"):
        template = merge_of(workload(kind, tolerations=own), cluster_policy(tolerations=SOON))
        assert template.spec["tolerations"] == [*own, *SOON]
    kept = merged_tolerations(own, SOON, treat_default_tolerations_as_unset=False)
    assert kept == [*own, *SOON]


# All fields together


EVERYTHING = {
    "nodeName": "n1",
    "nodeSelector": {"a/b": "1"},
    "schedulerName": "s1",
    "tolerations": [ETCD],
    "affinity": required({"zone": "z1"}),
}


@pytest.mark.parametrize("kind", RESOURCES)
def test_all_five_fields_are_set_in_every_kind(kind):
    pod = workload(kind)
    result = merge_of(pod, cluster_policy(**EVERYTHING))
    assert result.spec == {**pod_spec(pod), **EVERYTHING}


@pytest.mark.parametrize(
    "before",
    [
        {},
        {"affinity": {}, "nodeSelector": {}, "tolerations": [], "nodeName": ""},
        {"affinity": None, "nodeSelector": None, "tolerations": None, "schedulerName": None},
        {
            "affinity": required({"b": "1"}, {"c": "1"}),
            "nodeSelector": {"c": "2"},
            "tolerations": [EXISTS],
        },
    ],
)
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("as_field", [False, True])
def test_second_pass_changes_nothing(before, skip, as_field):
    policies = [
        cluster_policy("c1", **EVERYTHING),
        cluster_policy("c2", affinity=required({"q": "1"}, {"r": "1"}), tolerations=[ETCD, EXISTS]),
        cluster_policy("c3", affinity=required({"q": "2"}), nodeSelector={"q": "3", "c": "4"}),
    ]
    options = {"skip_conflicts": skip, "node_name_as_field": as_field}
    once = merge_of(workload(**before), *policies, **options)
    assert once.operations
    assert merge_of(once.document, *policies, **options).operations == []


def test_empty_policy_changes_nothing():
    spec = {"nodeName": "", "nodeSelector": {}, "schedulerName": "", "tolerations": []}
    result = merge_of(workload(), cluster_policy(**spec, affinity={"nodeAffinity": {}}))
    assert (result.operations, result.warnings) == ([], [])


def test_nothing_to_merge_changes_nothing():
    result = merge_of(workload())
    assert (result.operations, result.warnings) == ([], [])


# A node name for pods that may not have one

NODE_1 = one_of("metadata.name", "n1")
GATED = {"schedulingGates": [{"name": "example.com/gate"}]}


def test_node_name_becomes_a_field_of_required_node_affinity():
    result = merge_of(workload(**GATED), cluster_policy(nodeName="n1"), node_name_as_field=True)
    assert "nodeName" not in result.spec
    assert result.spec["affinity"] == node_terms(fields(NODE_1))["affinity"]


def test_node_name_as_a_field_is_anded_to_the_terms_of_pod_and_policy():
    result = merge_of(
        workload(affinity=required({"a": "1"})),
        cluster_policy(nodeName="n1", affinity=required({"b": "1"})),
        node_name_as_field=True,
    )
    terms = result.spec["affinity"]["nodeAffinity"][NODE_REQUIRED]["nodeSelectorTerms"]
    assert terms == [{**expressions(one_of("b", "1"), one_of("a", "1")), **fields(NODE_1)}]


def test_node_name_of_the_pod_wins_over_one_as_a_field():
    pod = workload(nodeName="own")
    assert merge_of(pod, cluster_policy(nodeName="n1"), node_name_as_field=True).operations == []


def test_first_node_name_as_a_field_wins():
    policies = [cluster_policy("c1", nodeName="n1"), cluster_policy("c2", nodeName="n2")]
    result = merge_of(workload(), *policies, node_name_as_field=True)
    assert result.spec["affinity"] == node_terms(fields(NODE_1))["affinity"]
    assert result.warnings == []


def test_node_name_as_a_field_that_the_pod_excludes_is_noted():
    pod = workload(**node_terms(fields(one_of("metadata.name", "n7"))))
    policy = cluster_policy(nodeName="n1")
    result = merge_of(pod, policy, node_name_as_field=True)
    assert result.codes == ["affinity-conflict"]
    assert result.operations
    skipped = merge_of(pod, policy, node_name_as_field=True, skip_conflicts=True)
    assert skipped.codes == ["affinity-conflict"]
    assert skipped.operations == []


# A scheduler for pods that wait

KEEPS = {"waiting_scheduler": "waiting", "keeps_scheduler": True}
PLAIN = {"waiting_scheduler": "waiting"}


@pytest.mark.parametrize("before", [{}, {"schedulerName": "default-scheduler"}])
def test_scheduler_name_is_left_out_where_the_pod_waits_with_one(before):
    policies = [cluster_policy("c1", schedulerName="s1"), cluster_policy("c2", schedulerName="s2")]
    result = merge_of(workload(**before), *policies, **KEEPS)
    assert result.operations == []
    (warning,) = result.warnings
    assert warning.code == "policy-scheduler-name"
    assert warning.text == (
        "schedulerName s1 of ClusterPodSchedulingPolicy c1 is left out: "
        "pods wait for their checks with waiting"
    )


@pytest.mark.parametrize("own", ["waiting", "s3"])
def test_nobody_is_told_of_a_scheduler_name_that_the_pod_has_kept_anyway(own):
    result = merge_of(workload(schedulerName=own), cluster_policy(schedulerName="s1"), **KEEPS)
    assert (result.operations, result.warnings) == ([], [])


def test_the_scheduler_that_pods_wait_with_is_not_left_out_but_there_already():
    result = merge_of(workload(), cluster_policy(schedulerName="waiting"), **KEEPS)
    assert (result.operations, result.warnings) == ([], [])


def test_at_a_gate_only_the_scheduler_that_pods_wait_with_is_left_out():
    assert merge_of(workload(), cluster_policy(schedulerName="s1"), **PLAIN).spec[
        "schedulerName"
    ] == ("s1")
    policies = [
        cluster_policy("c1", schedulerName="waiting"),
        cluster_policy("c2", schedulerName="s2"),
    ]
    result = merge_of(workload(), *policies, **PLAIN)
    assert result.operations == []
    assert result.codes == ["policy-scheduler-name"]
