from __future__ import annotations

import pytest
from msgspec.structs import replace

from harbourmaster.api.decoding import MalformedError
from harbourmaster.rescheduling.requests import (
    Asking,
    Container,
    Resources,
    ResourceStatus,
    allocatable,
    effective,
)


def asking(*, whole=None, overhead=None, **requests):
    container = Container("main", Resources(requests))
    return Asking((container,), whole=whole and Resources(**whole), overhead=overhead)


@pytest.mark.parametrize(
    ("quantity", "milli"),
    [
        ("1", 1000),
        (1, 1000),
        (0.5, 500),
        ("1m", 1),
        ("0.1m", 1),
        ("1u", 1),
        ("1.0000001", 1001),
        ("1e3", 1_000_000),
        ("1Ki", 1_024_000),
        ("+2", 2000),
        (".5", 500),
        (" 1 ", 1000),
        ("1e300", 10**303),
        ("9" * 100, int("9" * 100) * 1000),
        ("1E", 10**21),
        ("100Ei", (2**63 - 1) * 1000),
    ],
)
def test_cpu_in_milli(quantity, milli):
    assert effective(asking(cpu=quantity)) == (("cpu", milli),)
    assert allocatable({"cpu": quantity}) == {"cpu": milli if milli < 2**63 else 0}


@pytest.mark.parametrize(
    ("quantity", "number"), [("1", 1), ("1m", 1), ("1001m", 2), ("1.5Ki", 1536), ("1e-9", 1)]
)
def test_all_else_in_whole_numbers(quantity, number):
    assert effective(asking(memory=quantity)) == (("memory", number),)
    assert allocatable({"memory": quantity, "pods": quantity}) == {
        "memory": number,
        "pods": number,
    }


@pytest.mark.parametrize("quantity", ["0", 0, "0m", "-0", "0Gi", 0.0])
def test_zero_is_not_asked_for(quantity):
    assert effective(asking(cpu=quantity)) == ()


def test_resources_are_in_order_and_unknown_ones_left_out():
    given = asking(
        **{
            "memory": "1",
            "cpu": "1m",
            "pods": "7",
            "storage": "1Gi",
            "hugepages-2Mi": "2Mi",
            "example.com/gpu": "1",
            "ephemeral-storage": "1",
            "attachable-volumes-x": "1",
        }
    )
    assert [name for name, _ in effective(given)] == [
        "attachable-volumes-x",
        "cpu",
        "ephemeral-storage",
        "example.com/gpu",
        "hugepages-2Mi",
        "memory",
    ]


@pytest.mark.parametrize(
    ("quantity", "fault"),
    [
        ("", "'' is not a quantity"),
        ("much", "'much' is not a quantity"),
        ("1 Gi", "'1 Gi' is not a quantity"),
        ("0x10", "'0x10' is not a quantity"),
        ("1e999999", "'1e999999' is out of range"),
        ("9" * 5000, "'999"),
        (float("inf"), "'inf' is not a quantity"),
        pytest.param(10**5000, "", id="an integer without end"),
        ("-1", "must not be negative"),
        ("-1m", "must not be negative"),
        (-1, "must not be negative"),
    ],
)
def test_bad_quantities_are_refused_with_a_reason(quantity, fault):
    places = (
        ("spec.containers[0].resources.requests.cpu", asking(cpu=quantity)),
        ("spec.overhead.cpu", asking(overhead={"cpu": quantity})),
        ("spec.resources.requests.cpu", asking(whole={"requests": {"cpu": quantity}})),
        ("spec.resources.limits.cpu", asking(whole={"limits": {"cpu": quantity}})),
    )
    for at, given in places:
        with pytest.raises(MalformedError) as error:
            effective(given)
        assert str(error.value).startswith(f"{at}: {fault}")
        assert len(str(error.value)) < 300


def test_a_node_may_have_less_than_nothing():
    assert allocatable({"cpu": "-1", "memory": "-1"}) == {"cpu": -1000, "memory": -1}
    assert allocatable(None) == {}


def test_resources_that_a_pod_does_not_ask_for_as_a_whole_are_not_replaced():
    given = asking(
        whole={"requests": {"cpu": "2", "example.com/gpu": "9"}},
        **{"cpu": "1", "memory": "5", "example.com/gpu": "1"},
    )
    assert effective(given) == (("cpu", 2000), ("example.com/gpu", 1), ("memory", 5))


def test_amounts_beyond_64_bits_count_as_zero():
    most, more = str(2**63 - 1), str(2**63)
    given = {"memory": most, "example.com/gpu": more, "cpu": most}
    assert allocatable(given) == {"memory": 2**63 - 1, "example.com/gpu": 0, "cpu": 0}


def test_an_infeasible_resize_counts_allocated_resources():
    held = ResourceStatus(resources=Resources({"cpu": "1"}))
    given = asking(whole={"requests": {"cpu": "3", "memory": "9"}}, cpu="2", memory="5")
    resized = replace(given, held_whole=held, is_infeasible=True)
    assert effective(resized) == (("cpu", 1000),)
    assert effective(replace(resized, is_infeasible=False)) == (("cpu", 3000), ("memory", 9))


def test_only_what_is_in_use_by_name_counts():
    asked = Resources({"cpu": "1", "memory": "5"})
    in_use = ResourceStatus("main", Resources({"cpu": "2"}), {"memory": "7"})
    given = Asking((Container("main", asked), Container("more", asked)), held=(in_use,))
    assert effective(given) == (("cpu", 3000), ("memory", 12))
    infeasible = Asking(given.containers, held=given.held, is_infeasible=True)
    assert effective(infeasible) == (("cpu", 3000), ("memory", 12))
