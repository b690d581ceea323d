"""Whole flows of both kinds of version, killed or hindered before and after every write."""

from __future__ import annotations

import contextlib
from collections import Counter

import msgspec
import pytest
from aiohttp import ServerDisconnectedError
from msgspec.structs import replace

from harbourmaster.api.resources import (
    APP_VERSIONS,
    EVALUATION_DEFINITIONS,
    EVALUATIONS,
    REPLICA_SETS,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOAD_VERSIONS,
)
from harbourmaster.controller.lifecycle.app_versions import AppVersionReconciler
from harbourmaster.controller.lifecycle.workload_versions import WorkloadVersionReconciler
from harbourmaster.kube.errors import ApiError
from harbourmaster.lifecycle.model import AppVersion, ResourceReference, WorkloadVersion
from harbourmaster.lifecycle.reruns import failed_checks
from helpers.fake_store import StatusError
from helpers.phased import CHECKS, NOW, app_version, workload_version
from helpers.signals import RecordedSignals
from helpers.simulated_server import (
    KilledError,
    Mirrored,
    Server,
    evaluation_definition,
    owner,
    task_definition,
)

VERSIONS = (APP_VERSIONS, WORKLOAD_VERSIONS)
RERUN = "gates.harbourmaster.dev/rerun"
TWO = [("cart", "2.0"), ("till", "2.0")]


def a_shop(failing=()):
    """Return a server with an app of two workloads, whose phases have checks; some fail."""
    server = Server()
    for check in ("migrate", "seed", "announce", "promote"):
        server.put(TASK_DEFINITIONS, task_definition(check))
    for check in ("load", "errors"):
        server.put(EVALUATION_DEFINITIONS, evaluation_definition(check))
    checks = {**CHECKS, "pre_deployment_tasks": ("migrate", "seed")}
    server.put(APP_VERSIONS, app_version(workloads=TWO, promotion_tasks=("promote",), **checks))
    for name, _ in TWO:
        server.put(REPLICA_SETS, owner(name, uid=f"rs-{name}"))
        version = workload_version(f"shop-{name}-2.0", **checks)
        reference = ResourceReference(uid=f"rs-{name}", kind="ReplicaSet", name=name)
        spec = replace(version.spec, workload_name=f"shop-{name}", resource_reference=reference)
        server.put(WORKLOAD_VERSIONS, replace(version, spec=spec))
    server.failing = set(failing)
    return server


def play(server):
    """Act as other controllers: finish the children, and get released pods ready."""
    for resource, field, definition in (
        (TASKS, "status", "taskDefinition"),
        (EVALUATIONS, "overallStatus", "evaluationDefinition"),
    ):
        for obj in server.all(resource):
            is_failing = obj["spec"][definition] in server.failing
            if not obj.get("status"):
                state = {field: "Failed" if is_failing else "Succeeded"}
                server.change(resource, obj["metadata"]["name"], status=state)
    for obj in server.all(WORKLOAD_VERSIONS):
        name = obj["spec"]["resourceReference"]["name"]
        stored = server.get(REPLICA_SETS, name)
        is_let_go = obj.get("status", {}).get("deploymentStatus") == "Progressing"
        if is_let_go and "availableReplicas" not in stored["status"]:
            server.put(REPLICA_SETS, owner(name, uid=f"rs-{name}", availableReplicas=2))


async def life(server, signals):
    """Run both reconcilers until nothing is left to do, or until they are killed."""
    both = Mirrored(
        server,
        AppVersionReconciler,
        WorkloadVersionReconciler,
        now=lambda: NOW,
        signals=signals,
        settings={"promotion_tasks": True},
    )
    for _ in range(60):
        before = (len(server.requests), server.objects.version)
        for reconciler in both.reconcilers:
            for key in sorted(reconciler.map_changes(None)):
                # What fails is tried again, as the queue does.
                with contextlib.suppress(ApiError):
                    await reconciler.reconcile(key)
                both.sync()
        play(server)
        both.sync()
        if (len(server.requests), server.objects.version) == before:
            return
    raise AssertionError("it never ends")


async def flow(server, signals):
    """Restart the reconcilers until a run ends by itself; return the number of killed runs."""
    for lives in range(5):
        try:
            await life(server, signals)
        except* KilledError:
            server.is_dead = False
        else:
            return lives
    raise AssertionError("it never ends")


def outline(server, *, states_only=False):
    """Return the statuses and the children, without the counters of writes.

    Who fails does so at once, and how far others are by then is chance: hence ``states_only``.
    """
    statuses = {
        obj["metadata"]["name"]: {
            key: value
            for key, value in obj["status"].items()
            if not (states_only and isinstance(value, list))
        }
        for resource in VERSIONS
        for obj in server.all(resource)
    }
    children = sorted(
        obj["metadata"]["name"] for resource in (TASKS, EVALUATIONS) for obj in server.all(resource)
    )
    return statuses, children


def count_reasons(signals):
    return Counter((signal.about, signal.reason) for signal in signals.kept)


async def run_undisturbed(failing=()):
    server, signals = a_shop(failing), RecordedSignals()
    await flow(server, signals)
    return server, signals


def kill(server, at, moment):
    def fault(number, now):
        if (number, now) == (at, moment):
            server.is_dead = True
            raise KilledError

    server.fault = fault


def hinder(server, at, moment):
    def fault(number, now):
        if (number, now) == (at, moment):
            raise StatusError(500, "broken") if now == "before" else ServerDisconnectedError

    server.fault = fault


def ask_for_rerun(server):
    """Ask as admission stores it: each failed version is to repeat its failed checks."""
    for resource, kind in ((APP_VERSIONS, AppVersion), (WORKLOAD_VERSIONS, WorkloadVersion)):
        for obj in server.all(resource):
            version = msgspec.convert(obj, kind)
            if checks := ",".join(failed_checks(version)):
                notes = {f"{RERUN}-by": "jane", f"{RERUN}-checks": checks, f"{RERUN}-reason": "why"}
                metadata = {**obj["metadata"], "labels": {RERUN: "1"}, "annotations": notes}
                server.change(resource, version.metadata.name, metadata=metadata)


async def run_again(failing_then, fault=None):
    """Run a shop whose evaluations failed again; ``fault`` disturbs its second run."""
    server, signals = a_shop(("load",)), RecordedSignals()
    await flow(server, signals)
    first = set(outline(server)[1])
    server.failing = set(failing_then)
    ask_for_rerun(server)
    begun = len(server.writes())
    if fault is not None:
        disturb, at, moment = fault
        disturb(server, begun + at, moment)
    signals.kept.clear()
    await flow(server, signals)
    return server, signals, set(outline(server)[1]) - first, len(server.writes()) - begun


@pytest.mark.parametrize("failing_then", [(), ("load",)], ids=["passes", "fails again"])
async def test_failed_checks_are_repeated_once_for_each_request(failing_then):
    server, signals, new_children, _ = await run_again(failing_then)
    states = {name: status.get("status") for name, status in outline(server)[0].items()}
    (app,) = (name for name in states if "6b86b273" in name)
    if failing_then:
        # The request is spent: nothing but the evaluation of the app ran again.
        assert (states[app], len(new_children)) == ("Failed", 1)
        assert [told.reason for told in signals.kept].count("RepeatChecksStarted") == 1
        return
    assert set(states.values()) == {"Succeeded"}
    (told,) = (told for told in signals.kept if told.reason == "RepeatChecksStarted")
    assert (told.obj.metadata.name, told.warning) == (app, None)
    assert told.text == "failed checks are repeated for jane: why"


async def test_a_fault_at_any_write_of_a_rerun_changes_nothing_of_it():
    whole, _, new_children, count = await run_again(())
    assert count > 5
    for disturb in (kill, hinder):
        for moment in ("before", "after"):
            for at in range(count):
                server, signals, children, _ = await run_again((), (disturb, at, moment))
                assert outline(server)[0] == outline(whole)[0], (disturb, at, moment)
                assert children == new_children
                assert signals.reasons.count("RepeatChecksStarted") <= 1


@pytest.mark.parametrize("disturb", [kill, hinder])
@pytest.mark.parametrize(
    "failing",
    [
        (),
        ("load",),
        *(pytest.param((name,), marks=pytest.mark.full) for name in ("migrate", "announce")),
        *(pytest.param((name,), marks=pytest.mark.full) for name in ("errors", "promote")),
    ],
)
async def test_a_fault_at_any_write_changes_nothing_but_what_is_told(disturb, failing):
    whole, all_told = await run_undisturbed(failing)
    count = len(whole.writes())
    assert count > 2
    for moment in ("before", "after"):
        # A kill between several creations lets some of them be tried again.
        for at in range(count):
            server, signals = a_shop(failing), RecordedSignals()
            disturb(server, at, moment)
            await flow(server, signals)
            (states, children), (ends, all_children) = (
                outline(api_server, states_only=bool(failing)) for api_server in (server, whole)
            )
            assert states == ends, (at, moment)
            # What failed meanwhile needs no others.
            assert children == all_children or (failing and set(children) < set(all_children))
            more = count_reasons(signals) - count_reasons(all_told)
            # Nothing is told twice; a fault of the server may be told besides.
            assert {reason for _, reason in more} <= {"CreateTaskFailed", "CreateEvaluationFailed"}
    assert len(set(outline(whole)[1])) == len(outline(whole)[1])
