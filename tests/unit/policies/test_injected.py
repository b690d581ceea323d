"""What policies may set, by what they say; that it is all they set is a property."""

from __future__ import annotations

from harbourmaster.policies.compiled import compile_policy
from harbourmaster.policies.injected import REQUIRED_NODES, injectable_fields
from harbourmaster.policies.model import PREFERRED
from helpers.policy_parts import (
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
    """What policies with these specs may set."""
    found = [
        cluster_policy({"podSelector": {}, **spec}, name=f"p{number}")
        for number, spec in enumerate(specs)
    ]
    return injectable_fields(map(compile_policy, found))


def test_a_map_by_its_entries_and_a_list_by_its_items():
    found = of(
        {"nodeSelector": {"disk": "ssd"}, **tolerations(SPOT)},
        {"nodeSelector": {"disk": "hdd", "zone": "a"}, **tolerations(SPOT)},
    )
    assert found.entries == (
        (("nodeSelector",), "disk", "hdd"),
        (("nodeSelector",), "disk", "ssd"),
        (("nodeSelector",), "zone", "a"),
    )
    assert found.items == ((("tolerations",), SPOT),)
    assert found.paths == (("tolerations",), ("nodeSelector", "disk"), ("nodeSelector", "zone"))


def test_what_is_multiplied_as_a_whole():
    found = of(node_terms(expressions(requirement())))
    assert found.fields == found.paths == (REQUIRED_NODES,)


def test_the_lists_of_affinity():
    found = of(apart(WEIGHTED))
    assert found.items == ((("affinity", "podAntiAffinity", PREFERRED), WEIGHTED),)


def test_a_scheduler_and_the_default_that_it_replaces():
    found = of({"schedulerName": "packer"})
    assert found.scalars == (
        (("schedulerName",), "default-scheduler"),
        (("schedulerName",), "packer"),
    )


def test_a_node_also_where_it_turns_into_affinity():
    found = of({"nodeName": "n1"})
    assert found.scalars == ((("nodeName",), "n1"),)
    assert found.fields == (REQUIRED_NODES,)


def test_a_broken_policy_sets_nothing():
    broken = policy({"podSelector": {}, "nodeSelector": {"": "x"}, **tolerations(SPOT)})
    compiled = compile_policy(broken)
    assert compiled.fault
    assert not injectable_fields([compiled]).paths
    assert not injectable_fields([]).paths
