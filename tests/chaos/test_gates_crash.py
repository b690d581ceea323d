"""A flow whose controller dies before and after every write ends as if nothing had happened."""

from __future__ import annotations

import asyncio
import collections
import json
import os
import re
import time
from contextlib import asynccontextmanager
from functools import partial

import pytest

from harbourmaster.api.resources import (
    APP_CREATION_REQUESTS,
    APP_VERSIONS,
    APPS,
    CONFIG_MAPS,
    EVALUATIONS,
    JOBS,
    NAMESPACES,
    PODS,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from helpers.faults.crashing import LEASE, Plan, Undisturbed, live
from helpers.flow.manifests import (
    app,
    app_context,
    container_task,
    deployment,
    evaluation_definition,
    keptn,
    task_definition,
    with_gate,
)
from helpers.flow.namespace import Flow, gates, is_released
from helpers.processes import client_of
from helpers.schemas import apply_definitions

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(3600)]

IS_LONG = bool(os.environ.get("HARBOURMASTER_CHAOS_LONG"))
CALM = 120.0
LONGEST = 3000.0
"""Seconds for all lives together; the long form takes a quarter of an hour."""
FLAGS = {"lifecycle": {"promotionTasks": True}}
PARTS = {"cart": 1, "front": 2, "solo": 1}
"""Deployments and their pods: two of one app that a person made, one of an app that we make."""
PASSED = {"Succeeded", "Warning"}
COMPARED = (
    APPS,
    APP_VERSIONS,
    APP_CREATION_REQUESTS,
    WORKLOADS,
    WORKLOAD_VERSIONS,
    TASKS,
    TASK_DEFINITIONS,
    EVALUATIONS,
)
PASSING = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"-\d{5}\b"), "-DIGITS"),
)
"""Texts that differ between runs."""


def manifests():
    """The flow: checks of every kind at both levels."""
    checks = {
        "pre_deployment_tasks": "migrate",
        "post_deployment_tasks": "smoke",
        "pre_deployment_evaluations": "capacity",
        "post_deployment_evaluations": "latency",
    }
    resolved = {"gates.harbourmaster.dev/app-type": "single-service"}
    cart = deployment("cart", keptn("cart", app="shop", **checks))
    front = deployment(
        "front",
        # Its owner was not known to admission.
        {"gates.harbourmaster.dev/parent": "unresolved"},
        above=keptn("front", app="shop", pre_deployment_tasks="smoke"),
        replicas=PARTS["front"],
    )
    solo = deployment("solo", {**keptn("solo", app="solo"), **resolved})
    return [
        container_task("announce"),
        container_task("smoke"),
        task_definition("load-test", python={"inline": {"code": "print(1)"}}),
        evaluation_definition("capacity", "load", ">5"),
        evaluation_definition("latency", "load", "<50"),
        app_context(
            "shop",
            preDeploymentTasks=["announce"],
            preDeploymentEvaluations=["capacity"],
            postDeploymentTasks=["load-test"],
            postDeploymentEvaluations=["latency"],
            promotionTasks=["announce"],
            metadata={"team": "harbour"},
        ),
        app("shop", "1.0", ("cart", "1.0"), ("front", "1.0")),
        *map(with_gate, (cart, front, solo)),
    ]


def of_everyone():
    """Return the task definition of our namespace, which all namespaces use."""
    return task_definition("migrate", deno={"inline": {"code": "console.log(1)"}})


def outcome(flow):
    """Return a line for each object, without texts that differ between runs."""
    lines = [
        f"{resource.kind} {obj['metadata']['name']} "
        + json.dumps([obj.get("spec"), obj.get("status")], sort_keys=True)
        for resource in COMPARED
        for obj in flow.all(resource)
    ]
    for job in flow.all(JOBS):
        spec = job["spec"]
        ended = [condition["type"] for condition in job["status"].get("conditions", ())]
        left = [spec.get("ttlSecondsAfterFinished"), ended, _containers(spec)]
        lines.append(f"Job {job['metadata']['name']} {json.dumps(left)}")
    lines += [
        f"ConfigMap {config_map['metadata']['name']} {json.dumps(config_map['data'])}"
        for config_map in flow.all(CONFIG_MAPS)
        if config_map["metadata"]["name"].startswith("keptnfn-")
    ]
    lines += [f"{part}: {len(pods)} of {PARTS[part]} let go" for part, pods in released_pods(flow)]
    return sorted(_same(line.replace(flow.namespace, "NAMESPACE")) for line in lines)


def _containers(spec):
    return [
        [container["image"], container.get("env")]
        for container in spec["template"]["spec"]["containers"]
    ]


def _same(line):
    for pattern, name in PASSING:
        line = pattern.sub(name, line)
    return line


def released_pods(flow):
    return [(part, [pod for pod in flow.pods(part) if is_released(pod)]) for part in PARTS]


def has_ended(flow):
    """Whether nothing more is to be done."""
    versions = flow.all(APP_VERSIONS, {"status": {"status": "Succeeded"}})
    workloads = flow.all(WORKLOAD_VERSIONS, {"status": {"status": "Succeeded"}})
    jobs = flow.all(JOBS)
    return (
        len(versions) == 2
        and len(workloads) == len(PARTS)
        and all(len(pods) == PARTS[part] for part, pods in released_pods(flow))
        and all("ttlSecondsAfterFinished" in job["spec"] for job in jobs)
        and reasons(flow)["AppCompletedFinished"] == len(versions)
        and reasons(flow)["WorkloadCompletedFinished"] == len(workloads)
    )


def reasons(flow):
    """Return how often each event was emitted; parents come after their objects."""
    ours = (
        event
        for event in flow.events()
        if event["reportingController"].startswith("harbourmaster.dev/")
    )
    return collections.Counter(our["reason"] for our in ours)


def home_of(flow):
    return f"{flow.namespace}-home"


@asynccontextmanager
async def begin_flow(client, name):
    """A flow, with a namespace of ours for it."""
    flow = Flow(client, name)
    await client.create(NAMESPACES, {"metadata": {"name": home_of(flow)}})
    async with flow:
        await flow.create(of_everyone(), namespace=home_of(flow))
        await flow.measure_by_hand("load", "10")
        await flow.create(*manifests())
        yield flow


async def test_a_controller_that_dies_at_every_write_does_the_same(throwaway_control_plane):
    plane = await asyncio.to_thread(throwaway_control_plane)
    plane.add_nodes(1)
    apply_definitions(plane.kubectl)
    async with client_of(plane.kubeconfig) as client, begin_flow(client, "calm") as calm:
        undisturbed = Undisturbed()
        over = partial(calm.until, lambda: has_ended(calm), CALM)
        await live(plane.kubeconfig, home_of(calm), undisturbed, over, **FLAGS)
        expected = outcome(calm)
        plan = Plan(events=IS_LONG)
        lease = LEASE if IS_LONG else None
        async with begin_flow(client, "stormy") as stormy:

            def missing():
                return sorted({*outcome(stormy)} ^ {*expected})

            def why():
                return "\n".join(missing())

            over = partial(stormy.until, lambda: not missing(), LONGEST, why=why)
            started = time.monotonic()
            home = home_of(stormy)
            lives = await live(plane.kubeconfig, home, plan, over, lease=lease, **FLAGS)
            seconds = time.monotonic() - started
            assert_once(stormy)
            assert_in_order(stormy)
            # What is told is told after it is written, so that it may be lost, but never wrong.
            assert reasons(stormy).keys() <= reasons(calm).keys()
    assert kinds(plan.sent) == kinds(undisturbed.sent)
    before, after = (len(plan.deaths[moment]) for moment in ("before", "after"))
    assert lives > before > len(expected)
    print(  # noqa: T201 - figures to note
        f"\n{lives} lives in {seconds:.0f} s: {before} deaths before a write, {after} after one"
    )


def kinds(writes):
    """Return the distinct writes as verb, resource and subresource."""
    requests = (write.split(" ", 2)[:2] for write in writes if "/leases" not in write)
    return {(verb, *path.split("/namespaces/")[-1].split("/")[1::2]) for verb, path in requests}


def assert_once(flow):
    """Check that no object was created twice, not even after a deletion."""
    for resource in (TASKS, EVALUATIONS, JOBS, APP_VERSIONS, WORKLOAD_VERSIONS, WORKLOADS, APPS):
        made = {
            (version["metadata"]["uid"], name)
            for (kind, name), versions in flow._seen.items()
            if kind == resource
            for version in versions
        }
        assert len(made) == len(flow.all(resource)), f"{resource.kind}: {sorted(made)}"


def assert_in_order(flow):
    """Check that no pod lost its gate before the checks of its workload had passed."""
    for part in PARTS:
        (version,) = (
            candidate
            for candidate in flow.all(WORKLOAD_VERSIONS)
            if candidate["metadata"]["name"].endswith(f"-{part}-1.0")
        )
        passed = first(flow.history(WORKLOAD_VERSIONS, version["metadata"]["name"]), has_passed)
        for pod in flow.pods(part):
            free = first(
                flow.history(PODS, pod["metadata"]["name"]), lambda value: not gates(value)
            )
            assert passed < free


def has_passed(version):
    status = version.get("status", {})
    return {
        status.get("preDeploymentStatus"),
        status.get("preDeploymentEvaluationStatus"),
    } <= PASSED


def first(versions, is_so):
    """The resource version of the first that is so: all of one API server count together."""
    return next(
        int(version["metadata"]["resourceVersion"]) for version in versions if is_so(version)
    )
