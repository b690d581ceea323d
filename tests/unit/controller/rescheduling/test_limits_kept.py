"""The next leader knows what was spent of the eviction budgets."""

from __future__ import annotations

import json

import pytest

from harbourmaster.api.resources import LEASES
from helpers.evicting import HOME, budget, event_reasons, full, leading, refused_by_budget, until
from helpers.fake_store import StatusError

LEASE = "harbourmaster-controller"
SPENT = "rescheduler.harbourmaster.dev/spent-budgets"


@pytest.fixture
def api(api):
    api.put(LEASES, {"metadata": {"name": LEASE, "namespace": HOME}, "spec": {}})
    return api


def read_spent(api):
    """Return the spent budgets that the Lease records, or None without a record."""
    text = (api.get(LEASES, LEASE, HOME)["metadata"].get("annotations") or {}).get(SPENT)
    return None if text is None else json.loads(text)


def note(api, text):
    """Record a text as the spent budgets on the Lease."""
    lease = api.get(LEASES, LEASE, HOME)
    api.put(LEASES, {**lease, "metadata": {**lease["metadata"], "annotations": {SPENT: text}}})


def order(api, *parts):
    """Return the path endings of the writes that end in one of the parts, in order."""
    paths = [request.path for request in api.requests if request.method != "GET"]
    return [part for path in paths for part in parts if path.endswith(part)]


async def test_what_is_spent_is_written_once_for_a_plan_and_before_its_evictions(
    api, make_controller
):
    full(api, cpu="2")
    async with leading(make_controller()):
        await until(lambda: len(api.evictions) == 2)
    paths = order(api, f"/leases/{LEASE}", "/eviction")
    # Two dry runs come first.
    assert paths == ["/eviction", "/eviction", f"/leases/{LEASE}", "/eviction", "/eviction"]
    assert read_spent(api)["evictions_per_hour"] == pytest.approx(2, abs=0.1)


async def test_after_a_restart_the_budgets_are_not_full_again(api, make_controller):
    full(api)
    limits = {"evictionsPerHour": 1}
    async with leading(make_controller(**limits)):
        await until(api.evicted_names)
    api.add_critical("d")
    async with leading(make_controller(**limits)):
        await until(lambda: "RescheduleDelayed" in event_reasons(api))
    assert len(api.evictions) == 1


async def test_what_was_spent_long_ago_is_no_longer_missing(api, make_controller):
    note(api, json.dumps({"at": 0, "evictions_per_hour": 1, "unknown": 7}))
    full(api)
    async with leading(make_controller(evictionsPerHour=1)):
        await until(api.evicted_names)


@pytest.mark.parametrize("text", ["x", "[]", '{"evictions_per_hour": "1"}'])
async def test_an_unreadable_record_counts_as_all_of_it_spent(api, make_controller, text):
    note(api, text)
    full(api)
    async with leading(make_controller()):
        await until(lambda: "RescheduleDelayed" in event_reasons(api))
    assert api.evictions == []


async def test_nothing_is_evicted_that_cannot_be_recorded(api, make_controller):
    full(api)
    answer = api._do

    def do(seen, resource, *rest):
        if resource is LEASES and seen.method == "PUT":
            raise StatusError(403, "leases is forbidden")
        return answer(seen, resource, *rest)

    api._do = do
    async with leading(make_controller()):
        await until(lambda: order(api, f"/leases/{LEASE}"))
        assert api.evictions == []
        api._do = answer
        await until(api.evicted_names)
    assert read_spent(api)["evictions_per_hour"] == pytest.approx(1, abs=0.1)


async def test_a_violation_that_was_not_planned_is_recorded_first(api, make_controller):
    budget(api, allowed=1)
    full(api)
    api.add_pod("v2", cpu="100m")
    api.answers["v1"] = [refused_by_budget()]
    async with leading(make_controller(evictTimeoutSeconds=0.01)):
        await until(lambda: api.evictions)
    assert read_spent(api) is not None


async def test_a_violation_that_could_not_be_recorded_is_not_spent(api, make_controller):
    api.add_node()
    for name in ("v0", "v1"):
        api.add_pod(name, labels={"app": name})
    budget(api, "of-v0", allowed=0, labels={"app": "v0"})
    budget(api, "of-v1", allowed=1, labels={"app": "v1"})
    api.add_critical(cpu="2")
    api.answers["v0"] = api.answers["v1"] = [refused_by_budget()]
    refused, answer = [], api._do

    def do(seen, resource, *rest):
        if resource is LEASES and seen.method == "PUT" and api.deletions and len(refused) < 3:
            refused.append(seen)
            raise StatusError(409, "the object has been modified")
        return answer(seen, resource, *rest)

    api._do = do
    async with leading(make_controller(evictTimeoutSeconds=0.3)):
        await until(lambda: len(api.deletions) == 2)
    assert len(refused) == 3
    assert read_spent(api)["pdb_violations_per_hour"] == pytest.approx(2, abs=0.1)
