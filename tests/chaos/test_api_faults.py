"""Admission answers during all faults of the API server, and knows all changes afterwards.

Every case ends in the state of the first one, which has no fault. The processes are those of an
installation, each behind its own proxy, which counts its requests.
"""

from __future__ import annotations

import json
import time

import pytest

from harbourmaster.playground.api import client_context, request
from helpers.faults.api_proxy import Fault, busiest
from helpers.faults.proxied_installation import (
    LEASE,
    LONG,
    equals,
    note,
    proxied_installation,
    staleness,
    trespasses,
    until,
)
from helpers.faults.stored_objects import MUTATING, POLICIES, SECRET, VALIDATING, namespace
from helpers.load.reviews import Reviews, Steady
from helpers.objects import cluster_policy, policy, workload

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]

# Long enough for a leader to give up.
FAULT_SECONDS = 35.0 if LONG else LEASE.renew_deadline + 1.0
# Two in any second where they are sent; on the way here one may catch up with another.
PER_WINDOW, WINDOW = 2, 0.8
# Of another request: what fails is tried again after 0.05 s, 0.1 s, 0.2 s and so on.
OF_OTHERS = 6
# What an API server waits for a review by default.
PATIENCE_OF_A_REVIEW = 3.0
KNOWN = (
    "/api/v1/namespaces/north",
    f"{POLICIES}/clusterpodschedulingpolicies/step",
    f"{POLICIES}/namespaces/south/podschedulingpolicies/deleted",
)
WATCHED = ("namespaces", "podschedulingpolicies", "clusterpodschedulingpolicies")
OPT_IN = "keptn.sh/lifecycle-toolkit"
LABEL = "gates.harbourmaster.dev/enabled"
TOUCHED = "example.com/touched"
POD = workload("Pod", {"app": "web"})
SPARED = workload("Pod", {"app": "spared"})

# The node selector of a pod in each namespace; None where it is skipped with a warning.
STEP, TIER = "example.com/step", "example.com/tier"
BEFORE = {
    "north": {STEP: "before"},
    "south": {STEP: "before", "example.com/south": "yes"},
    "east": {STEP: "before", TIER: "gold"},
    "ending": {STEP: "before", TIER: "gold"},
    "fresh": None,
}
AFTER = {
    "north": {STEP: "after", "example.com/north": "yes"},
    "south": {STEP: "after"},
    "east": {STEP: "after"},
    "ending": None,
    "fresh": {STEP: "after", TIER: "gold"},
}
LABELLED_BEFORE = {"north": None, "south": "true"}
LABELLED_AFTER = {"north": "true", "south": None}


@pytest.fixture(scope="module")
def harbour(request, tmp_path_factory):
    with proxied_installation(request, tmp_path_factory, controllers=2) as installed:
        stored = installed.stored
        tier = {"namespaces": {TIER: "gold"}, "nodeSelector": {TIER: "gold"}}
        stored.put(f"{POLICIES}/clusterpodschedulingpolicies/tier", cluster_policy("tier", **tier))
        spared = {"pods": {"app": "spared"}, "nodeSelector": {"example.com/spared": "yes"}}
        spared = cluster_policy("spared", **spared)
        stored.put(f"{POLICIES}/clusterpodschedulingpolicies/spared", spared)
        yield installed


@pytest.fixture
def reviews(harbour):
    return Reviews(harbour.installation.webhooks[0])


@pytest.fixture
def fresh_watches(harbour, reviews):
    """All is as before the changes, and each watch has just brought something.

    Gives what is registered.
    """
    stored = harbour.stored
    for name in ("north", "south"):
        stored.put(f"/api/v1/namespaces/{name}", namespace(name))
    stored.mark("/api/v1/namespaces/south", OPT_IN, "enabled")
    for name in ("east", "ending"):
        stored.put(f"/api/v1/namespaces/{name}", namespace(name, labels={TIER: "gold"}))
    stored.remove_namespace("fresh")
    step(stored, "before")
    stored.remove(f"{POLICIES}/namespaces/north/podschedulingpolicies/made")
    given = policy("deleted", "south", nodeSelector={"example.com/south": "yes"})
    stored.put(f"{POLICIES}/namespaces/south/podschedulingpolicies/deleted", given)
    until(lambda: all(registered_webhooks(harbour)))
    touch(stored, (SECRET, MUTATING, VALIDATING))
    until(lambda: state(harbour, reviews), equals((BEFORE, LABELLED_BEFORE)))
    return registered_webhooks(harbour)


def registered_webhooks(harbour):
    """Return the webhooks of both configurations; None for a missing one."""
    configurations = [harbour.stored.find(path) for path in (MUTATING, VALIDATING)]
    return [configuration and configuration["webhooks"] for configuration in configurations]


def touch(stored, paths):
    """Have a watch bring each of the objects."""
    for path in paths:
        stored.mark(path, TOUCHED, str(time.monotonic()))


def step(stored, value):
    given = cluster_policy("step", pods={"app": "web"}, nodeSelector={STEP: value})
    stored.put(f"{POLICIES}/clusterpodschedulingpolicies/step", given)


def change(harbour):
    """One of everything that may happen to what is watched."""
    stored = harbour.stored
    step(stored, "after")
    made = policy("made", "north", nodeSelector={"example.com/north": "yes"})
    stored.put(f"{POLICIES}/namespaces/north/podschedulingpolicies/made", made)
    stored.remove(f"{POLICIES}/namespaces/south/podschedulingpolicies/deleted")
    stored.edit("/api/v1/namespaces/east", lambda it: it["metadata"]["labels"].pop(TIER))
    stored.remove_namespace("ending")
    stored.put("/api/v1/namespaces/fresh", namespace("fresh", labels={TIER: "gold"}))
    stored.mark("/api/v1/namespaces/north", OPT_IN, "enabled")
    stored.mark("/api/v1/namespaces/south", OPT_IN, None)
    stored.remove(MUTATING)


def state(harbour, reviews):
    """Return the decisions of the webhook, and the objects that the controller has written."""
    labels = {
        name: harbour.stored.find(f"/api/v1/namespaces/{name}")["metadata"]["labels"].get(LABEL)
        for name in LABELLED_BEFORE
    }
    return reviews.pods(BEFORE, app="web"), labels


def by_dry_run(harbour):
    """Return the patches of pods by dry runs, in the namespaces that exist."""
    names = [name for name, selector in AFTER.items() if selector is not None]
    return {name: harbour.stored.tried_pod(name, POD) for name in names}


def hold(harbour):
    """Let a fault last; no review is refused by a webhook whose caches are filled."""
    end = time.monotonic() + FAULT_SECONDS
    while time.monotonic() < end:
        for name in harbour.proxies:
            assert harbour.health(name, "readyz") == (200, "ok\n")
        time.sleep(0.5)


def nothing(harbour):
    change(harbour)


def kill_components(*components):
    def fault(harbour):
        for component in components:
            harbour.plane.kill(component)
        hold(harbour)
        for component in components:
            harbour.plane.restart(component)
        # Before most watches have come back.
        change(harbour)

    return fault


def failing(kind):
    def fault(harbour):
        with harbour.failing(kind):
            change(harbour)
            hold(harbour)

    return fault


def tear_watches(harbour):
    before = [proxy.torn for proxy in harbour.proxies.values()]
    failing(Fault.TEAR)(harbour)
    assert all(now.torn > then for now, then in zip(harbour.proxies.values(), before, strict=True))


def compact_history(harbour):
    """Nothing is left of the changes but their results: watches must find their versions gone."""
    before = [count_gone_errors(harbour, name) for name in harbour.proxies]
    with harbour.failing(Fault.AWAY):
        change(harbour)
        # Its memory of changes goes with it, and etcd's is cut off here.
        harbour.plane.kill("kube-apiserver")
        compact(harbour.plane)
        harbour.plane.restart("kube-apiserver")
    for name, then in zip(harbour.proxies, before, strict=True):
        until(lambda name=name, then=then: count_gone_errors(harbour, name) > then)


def count_gone_errors(harbour, name):
    return harbour.metric(name, 'harbourmaster_watch_failures_total{error="GoneError"')


def compact(plane):
    port = plane._components["etcd"].port
    etcd = client_context(plane.layout.pki, "etcd-client")
    state = json.loads(request(port, etcd, "POST", "/v3/kv/range", {"key": "AA=="}))
    revision = state["header"]["revision"]
    request(port, etcd, "POST", "/v3/kv/compaction", {"revision": revision, "physical": True})


FAULTS = {
    "nothing": (nothing, False),
    "api-server-killed": (kill_components("kube-apiserver"), True),
    "etcd-killed": (kill_components("etcd"), True),
    "both-killed": (kill_components("etcd", "kube-apiserver"), True),
    "compacted": (compact_history, False),
    "hang": (failing(Fault.HANG), True),
    "429-with-retry-after": (failing(Fault.REFUSE), True),
    "torn-watch": (tear_watches, False),
    "502-with-html": (failing(Fault.HTML), True),
    "reset": (failing(Fault.RESET), True),
}


def test_a_replica_that_hears_nothing_is_not_ready_and_still_answers(
    harbour, reviews, fresh_watches
):
    # Without gates: no owner changes here, so that their watches are silent without a fault.
    flags = ["--watch-stale-after-seconds=2", "--features=policies"]
    harbour.installation.restart("webhook", flags)
    try:
        with reviews.repeat(SPARED, "default") as ask, Steady(ask) as steady:
            with harbour.failing(Fault.HANG, names=["webhook"]):
                status, text = until(
                    lambda: harbour.health("webhook", "readyz"),
                    lambda answer: answer[1].count("what is known of ") == len(WATCHED),
                )[0]
                assert status == 503
                assert all(f"what is known of {name} is " in text for name in WATCHED)
                assert harbour.health("webhook", "healthz")[0] == 200
            # Few changes come by themselves, so some are made.
            until(
                lambda: (
                    touch(harbour.stored, KNOWN) or harbour.health("webhook", "readyz")[0] == 200
                )
            )
        assert steady.failures == []
    finally:
        harbour.installation.restart("webhook", [])


@pytest.mark.parametrize(("fault", "takes_the_lease"), FAULTS.values(), ids=FAULTS)
def test_after_a_fault_all_is_as_without_it(
    harbour, reviews, fresh_watches, fault, takes_the_lease
):
    asked = {name: len(proxy.asked) for name, proxy in harbour.proxies.items()}
    logged = {name: harbour.log_size(name) for name in harbour.controllers}
    leader, _ = until(harbour.leader)
    beginning = time.time()
    with reviews.repeat(SPARED, "default") as ask, Steady(ask) as steady:
        fault(harbour)
        _, seconds = until(lambda: state(harbour, reviews), equals((AFTER, LABELLED_AFTER)))
        until(lambda: by_dry_run(harbour), equals({name: it for name, it in AFTER.items() if it}))
        _, more = until(lambda: registered_webhooks(harbour), equals(fresh_watches))
    assert steady.failures == []
    assert steady.slowest < PATIENCE_OF_A_REVIEW
    until(harbour.leader)

    rates = {
        (name, *kind): most
        for name, proxy in harbour.proxies.items()
        for kind, most in busiest(proxy.asked[asked[name] :], WINDOW).items()
    }
    watches = {kind: most for kind, most in rates.items() if kind[1] == "watch"}
    assert {kind for kind, most in watches.items() if most > PER_WINDOW} == set()
    others = {kind: most for kind, most in rates.items() if kind not in watches}
    assert {kind for kind, most in others.items() if most > OF_OTHERS} == set()

    deeds = harbour.audit.deeds()
    assert [deed for deed in trespasses(deeds) if deed.begun > beginning] == []
    ages = [age for deed, age in staleness(deeds) if deed.begun > beginning]
    stops = list(harbour.stops(deeds, logged))
    assert all(age < LEASE.lease_duration for age in (*ages, *stops))
    assert stops or not takes_the_lease, f"{leader} went on"
    note(
        reviews=steady.answered,
        slowest=steady.slowest,
        restored=seconds,
        registered=seconds + more,
        busiest_watch=max(watches.values(), default=0),
        busiest_other=max(others.values(), default=0),
        oldest_work=max(ages, default=0),
        stopped_after=max(stops, default=0),
    )
