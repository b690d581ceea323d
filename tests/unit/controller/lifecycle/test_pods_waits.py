"""Gated pods that wait for objects: their release, their annotations, and their events."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from harbourmaster.api.resources import CONFIG_MAPS, PODS
from harbourmaster.api.times import parse_rfc3339
from harbourmaster.controller.lifecycle import caches, wait_watches, watches
from harbourmaster.controller.lifecycle.settings import LifecycleSettings
from harbourmaster.controller.lifecycle.wait_events import WaitEventReconciler
from harbourmaster.lifecycle import gated_pods
from harbourmaster.lifecycle.gated_pods import versions_of_pod
from helpers.gated import (
    CREATED,
    GATE,
    MINE,
    PROD,
    PROVISIONAL,
    REMOVED,
    annotations_of,
    gates,
    make,
    pod,
    put,
    tick,
    waiting,
)
from helpers.lifecycle import running

KEY = "gates.harbourmaster.dev/"
WAITED = f"{KEY}waited"
RELEASED = f"{KEY}released"
OURS = "keptn-scheduler"
AT_ONCE = 18
ON_TIMEOUT = ("Keep", "Release", "Fail")


pytestmark = pytest.mark.usefixtures("pod_owners")


def waits(*items, checks=False, **limits):
    """Return annotations; without ``checks``, those of a pod that waits for objects alone."""
    annotations = {
        f"{KEY}wait-for": ",".join(items),
        **({} if checks else {f"{KEY}checks": "none"}),
    }
    return annotations | {
        f"{KEY}wait-{key.replace('_', '-')}": value for key, value in limits.items()
    }


def waiter(name, annotations, **options):
    """Return a pod without an owner."""
    return pod(name, annotations, owners=[], **options)


def config_map(api, name="settings"):
    put(api, CONFIG_MAPS, {"metadata": {"name": name, "namespace": PROD}})


def late(seconds):
    """Return a clock that shows some seconds after the creation of the pods."""
    return lambda: parse_rfc3339(CREATED) + timedelta(seconds=seconds)


async def test_pods_that_wait_make_no_requests(api, client):
    make(api, *(waiter(f"p{number}", waits("cm/settings", timeout="1h")) for number in range(20)))
    async with running(client, watches.GATES) as world:
        await world.until(lambda: world.caches.wait_watches.reports(PROD))
        config_map(api, "other")
        make(api, waiter("other", waits("cm/other")))
        await world.until(lambda: "other" not in waiting(api))
    assert len(waiting(api)) == 20
    assert [seen.path.rpartition("/")[2] for seen in api.seen("patch")] == ["other"]


@pytest.mark.claim("O25")
async def test_pods_of_one_condition_go_by_one_patch_each_and_leave_turns_to_others(
    api, client, monkeypatch
):
    decoded = Counter()

    def decode(raw, *rest, **options):
        decoded[msgspec.json.decode(raw)["metadata"]["name"]] += 1
        return gated_pods.decode_pod(raw, *rest, **options)

    monkeypatch.setattr(caches, "decode_pod", decode)
    crowd = [f"p{number}" for number in range(100)]
    make(api, *(waiter(name, waits("cm/settings")) for name in crowd))
    workers = LifecycleSettings().workers
    async with running(client, watches.GATES, workers=workers) as world:
        await world.until(lambda: world.caches.wait_watches.reports(PROD))
        decoded.clear()
        api.fail_next("patch", f"/{PROD}/pods/p", None, kind="hang")
        config_map(api)
        # Three quarters of the workers, as the benchmark of releases has them.
        await api.until_seen("patch", f"/{PROD}/pods/p", count=AT_ONCE)
        alone = waiter("alone", waits("cm/settings"))
        alone["metadata"]["namespace"] = "quiet"
        api.put(CONFIG_MAPS, {"metadata": {"name": "settings", "namespace": "quiet"}})
        api.put(PODS, alone)
        await api.until_seen("patch", "/quiet/pods/alone")
        assert len(api.seen("patch", f"/{PROD}/pods/p")) == AT_ONCE
        api.heal()
        pods = world.caches.pods.store
        await world.until(lambda: not any(pod.is_ours for pod in pods.values()))
    patched = Counter(seen.path.rpartition("/")[2] for seen in api.seen("patch"))
    assert patched == dict.fromkeys([*crowd, "alone"], 1)
    assert api.seen("get") == []
    # What the watch shows of a release is read once.
    assert decoded.items() >= dict.fromkeys(crowd, 1).items()


async def test_no_cycle_is_searched_for_pods_that_are_about_to_go(api, client, monkeypatch):
    made = []
    right = wait_watches.wait_cycles
    monkeypatch.setattr(
        wait_watches, "wait_cycles", lambda *given: made.append(given) or right(*given)
    )
    make(api, waiter("goes", waits("cm/settings")), waiter("stays", waits("cm/none")))
    config_map(api)
    async with running(client) as world:
        told = WaitEventReconciler(world.context)
        await world.until(lambda: world.caches.wait_watches._items)
        reports = world.caches.wait_watches.reports(PROD)
        await world.until(
            lambda: "Met" in {report.state for report in reports.values()} or tick(world)
        )
        for name, count in (("goes", 0), ("stays", 1)):
            (key, *_) = versions_of_pod(world.caches.pods.store.get(f"{PROD}/{name}"))
            await told.reconcile("/".join(key))
            assert len(made) == count


@pytest.mark.parametrize("on_timeout", ON_TIMEOUT)
async def test_what_a_time_out_does_and_that_it_is_told_once(api, client, on_timeout):
    make(api, waiter("one", waits("cm/settings", timeout="10m", on_timeout=on_timeout)))
    async with running(client, watches.GATES, now=late(601)) as world:
        await world.until(lambda: world.signals.kept or tick(world))
        (told,) = world.signals.kept
        assert told.reason == "GateExpired"
        assert "longer than 10m" in told.text
        config_map(api)
        if on_timeout == "Fail":
            config_map(api, "second")
            make(api, waiter("two", waits("cm/second")))
            await world.until(lambda: "two" not in waiting(api))
            assert gates(api, "one") == [GATE]
            assert annotations_of(api, "one")[WAITED] == "timed-out"
        else:
            await world.until(lambda: waiting(api) == [])
        assert [signal.reason for signal in world.signals.kept] == ["GateExpired"]
    released = annotations_of(api, "one").get(RELEASED)
    assert released == ("expired" if on_timeout == "Release" else None)


async def test_a_failed_wait_stays_failed_for_the_next_controller(api, client):
    given = {**waits("cm/settings", timeout="10m", on_timeout="Fail"), WAITED: "timed-out"}
    config_map(api)
    make(api, waiter("one", given), waiter("two", waits("cm/settings")))
    async with running(client, watches.GATES, now=late(1)) as world:
        await world.until(lambda: waiting(api) == ["one"])
    assert not api.seen("patch", "/pods/one")


async def test_the_time_out_is_looked_at_by_itself(api, client):
    # Its time is over in a moment, and nothing else happens until then.
    begun = datetime.now(UTC)
    start = parse_rfc3339(CREATED) + timedelta(seconds=599.8)
    make(api, waiter("one", waits("cm/settings", timeout="10m", on_timeout="Release")))
    clock = lambda: start + (datetime.now(UTC) - begun)  # noqa: E731 - it passes as ours does
    async with running(client, watches.GATES, now=clock) as world:
        await world.until(lambda: waiting(api) == [] or tick(world))
    assert annotations_of(api, "one")[RELEASED] == "expired"


@pytest.mark.parametrize("has_gates", [True, False])
async def test_a_provisional_pod_without_checks_waits_for_objects_alone(api, client, has_gates):
    make(api, pod("one", {**PROVISIONAL, **waits("cm/settings", checks=True)}))
    async with running(client, *MINE, has_gates=lambda _name: has_gates) as world:
        await world.until(lambda: annotations_of(api, "one").get(f"{KEY}checks") == "none")
        assert gates(api, "one") == [GATE]
        config_map(api)
        await world.until(lambda: waiting(api) == [])


async def test_in_a_scheduler_the_pod_is_marked_once_and_left_alone(api, client):
    waiting_pod = waiter("one", waits("cm/settings"), gates=())
    waiting_pod["spec"]["schedulerName"] = OURS
    make(api, waiting_pod)
    async with running(client, watches.GATES, scheduler={}) as world:
        await world.until(lambda: world.caches.wait_watches.reports(PROD))
        assert WAITED not in annotations_of(api, "one")
        config_map(api)
        await world.until(lambda: annotations_of(api, "one").get(WAITED) == "met")
        await world.until(lambda: not world.caches.wait_watches._items)
    assert len(api.seen("patch", "/pods/one")) == 1
    assert REMOVED not in annotations_of(api, "one")


async def test_a_pod_that_is_changed_meanwhile_goes_all_the_same(api, client):
    config_map(api)
    make(api, waiter("one", waits("cm/settings")))
    api.fail_next("patch", "/pods/one", status=409)
    async with running(client, watches.GATES) as world:
        await world.until(lambda: waiting(api) == [])
