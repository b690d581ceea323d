"""Tests of the fields that policies can set; a property test proves that the list is complete."""

from __future__ import annotations

from harbourmaster.policies.compiled import compile_policy
from harbourmaster.policies.model import PREFERRED
from harbourmaster.policies.owned_fields import REQUIRED_NODES, injectable_fields
from helpers.policies import (
    VALID_POD_TERM,
    apart,
    cluster_policy,
    expressions,
    node_terms,
    policy,
    requirement,
    tolerations,
)

SPOT = {"key": "spot", "operator": "Exists"}
WEIGHTED = {"weight": 1, "podAffinityTerm": VALID_POD_TERM}


def of(*specs):
    """Return the fields that policies with these specs can set."""
    policies = [
        cluster_policy({"podSelector": {}, **spec}, name=f"p{number}")
        for number, spec in enumerate(specs)
    ]
    return injectable_fields(map(compile_policy, policies))


def test_a_map_by_its_entries_and_a_list_by_its_items():
    injectable = of(
        {"nodeSelector": {"disk": "ssd"}, **tolerations(SPOT)},
        {"nodeSelector": {"disk": "hdd", "zone": "a"}, **tolerations(SPOT)},
    )
    assert injectable.entries == (
        (("nodeSelector",), "disk", "hdd"),
        (("nodeSelector",), "disk", "ssd"),
        (("nodeSelector",), "zone", "a"),
    )
    assert injectable.items == ((("tolerations",), SPOT),)
    assert injectable.paths == (
        ("tolerations",),
        ("nodeSelector", "disk"),
        ("nodeSelector", "zone"),
    )


def test_what_is_multiplied_as_a_whole():
    injectable = of(node_terms(expressions(requirement())))
    assert injectable.fields == injectable.paths == (REQUIRED_NODES,)


def test_the_lists_of_affinity():
    injectable = of(apart(WEIGHTED))
    assert injectable.items == ((("affinity", "podAntiAffinity", PREFERRED), WEIGHTED),)


def test_a_scheduler_and_the_default_that_it_replaces():
    injectable = of({"schedulerName": "packer"})
    assert injectable.scalars == (
        (("schedulerName",), "default-scheduler"),
        (("schedulerName",), "packer"),
    )


def test_a_node_also_where_it_turns_into_affinity():
    injectable = of({"nodeName": "n1"})
    assert injectable.scalars == ((("nodeName",), "n1"),)
    assert injectable.fields == (REQUIRED_NODES,)


def test_a_broken_policy_sets_nothing():
    broken = policy({"podSelector": {}, "nodeSelector": {"": "x"}, **tolerations(SPOT)})
    compiled = compile_policy(broken)
    assert compiled.fault
    assert not injectable_fields([compiled]).paths
    assert not injectable_fields([]).paths
