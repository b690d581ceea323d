"""Application status says at which gate a pod of a member waits, and for what (krake-spec 7.7)."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from harbourmaster.api.resources import APP_VERSIONS, PODS, WORKLOAD_VERSIONS
from harbourmaster.controller.placement.gated_pods import find_gate
from harbourmaster.gates.waits import WAIT_FOR_KEY
from harbourmaster.lifecycle.model import AppVersion, AppVersionStatus, WorkloadEntry
from helpers.fake_api import FakeApi
from helpers.gated import GATE, PROD, keptn, pod, put
from helpers.lifecycle_objects import app_version, waiter_version

HELD = f"pod waiter-1 is held at the scheduling gate {GATE}: "
BEGUN = {"current_phase": "WorkloadPreDeployTasks", "status": "Progressing"}
TASKS = {"pre_deployment_tasks": ("warm",)}


@pytest.fixture
async def gate():
    """Return ``gate(pod, *versions)``, which says what is found in a cluster with these."""
    async with FakeApi() as api, api.client() as client:

        async def gate(held, *versions, forbidden=None):
            put(api, PODS, {**held, "metadata": {**held["metadata"], "labels": {"app": "web"}}})
            for version in versions:
                is_app = isinstance(version, AppVersion)
                resource = APP_VERSIONS if is_app else WORKLOAD_VERSIONS
                put(api, resource, msgspec.to_builtins(version))
            if forbidden:
                api.forbid("get", forbidden)
            return await find_gate(client, PROD, "app=web")

        yield gate


async def test_the_gate_of_another_controller_is_named(gate):
    held = pod(gates=("kueue.x-k8s.io/admission",))
    text = "pod waiter-1 is held at the scheduling gate kueue.x-k8s.io/admission"
    assert await gate(held) == text


async def test_a_pod_without_a_gate_is_not_held(gate):
    assert await gate(pod(gates=())) == ""


async def test_a_failed_check_is_named(gate):
    failed = {"status": "Failed", "pre_deployment_evaluation_status": "Failed"}
    version = waiter_version(
        spec={"pre_deployment_evaluations": ("few-errors",)},
        **BEGUN | failed,
        pre_deployment_status="Succeeded",
    )
    text = f"{HELD}Blocked: pre-deployment evaluations failed (no details)"
    assert await gate(pod(), version) == text


async def test_checks_that_run_are_named_with_objects_that_are_awaited(gate):
    held = pod(annotations={**keptn(), WAIT_FOR_KEY: "job/migrate"})
    text = f"{HELD}waits for pre-deployment tasks: warm Pending; waits for job/migrate"
    assert await gate(held, waiter_version(spec=TASKS, **BEGUN)) == text


async def test_checks_of_the_app_are_named(gate):
    app = app_version(status=AppVersionStatus(status="Progressing"), **TASKS)
    entry = WorkloadEntry(name="waiter", version="1.0")
    app = replace(app, spec=replace(app.spec, workloads=(entry,)))
    text = f"{HELD}waits for the checks of the app shop: pre-deployment tasks: warm Pending"
    assert await gate(pod(), waiter_version(), app) == text


async def test_without_a_version_or_the_right_to_read_it_the_text_is_general(gate):
    assert await gate(pod()) == f"{HELD}waits for its checks"
    version = waiter_version(spec=TASKS, **BEGUN)
    text = f"{HELD}waits for its checks"
    assert await gate(pod(), version, forbidden=WORKLOAD_VERSIONS) == text


async def test_a_pod_that_waits_for_objects_alone_names_them(gate):
    waits = {WAIT_FOR_KEY: "job/migrate", "gates.harbourmaster.dev/checks": "none"}
    assert await gate(pod(annotations=waits)) == f"{HELD}waits for job/migrate"
