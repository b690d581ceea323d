"""Keys without effect are reported on the objects themselves, once, against a fake API server."""

from __future__ import annotations

import pytest

from harbourmaster.api.resources import EVALUATION_DEFINITIONS, PODS
from harbourmaster.controller.lifecycle import watches
from helpers.gated import PROD, keptn, owner_ref, pod, put
from helpers.lifecycle import await_signal, running

TYPO = {"keptn.sh/pre-deployment-task": "migrate"}
JOB = [owner_ref("Job", "once", "j-1", "batch/v1")]


pytestmark = pytest.mark.usefixtures("pod_owners")


def definition(*targets):
    objectives = [
        {"keptnMetricRef": {"name": f"m{index}"}, "evaluationTarget": target}
        for index, target in enumerate(targets)
    ]
    return {
        "metadata": {"name": "ready", "namespace": PROD, "uid": "e-1"},
        "spec": {"objectives": objectives},
    }


def reported_texts(world):
    return [(signal.reason, signal.text) for signal in world.signals.kept]


async def test_a_pod_with_and_one_without_a_gate_are_told_of_their_keys(api, client):
    put(api, PODS, pod("gated", {**keptn(), **TYPO}))
    put(api, PODS, pod("free", TYPO, gates=()))
    put(api, PODS, pod("sound", keptn()))
    async with running(client, watches.MISTAKES) as world:
        await world.until(lambda: len(world.signals.kept) == 2)
        expected = (
            'key "keptn.sh/pre-deployment-task" is unknown and has no effect: '
            'metadata.annotations: did you mean "keptn.sh/pre-deployment-tasks"?'
        )
        assert reported_texts(world) == [("GateKeyUnknown", expected)] * 2
        assert {signal.about for signal in world.signals.kept} == {"Pod gated", "Pod free"}
        assert all(signal.warning for signal in world.signals.kept)


async def test_a_pod_that_can_have_no_checks_and_an_empty_list_are_told(api, client):
    put(api, PODS, pod("bare", keptn(), owners=[], gates=()))
    async with running(client, watches.MISTAKES) as world:
        await await_signal(world, "GateOwnerUnsupported")
        put(api, PODS, pod("job", keptn(pre_deployment_tasks=" , "), owners=JOB, gates=()))
        await await_signal(world, "GateListEmpty")
        reasons = [signal.reason for signal in world.signals.kept]
        assert sorted(reasons) == [
            "GateListEmpty",
            "GateOwnerUnsupported",
            "GateOwnerUnsupported",
        ]


async def test_a_deployment_time_out_that_is_no_duration_harms_no_other_pod(api, client):
    put(api, PODS, pod("gated", {**keptn(), "gates.harbourmaster.dev/deployment-timeout": "soon"}))
    put(api, PODS, pod("other", {**keptn(), **TYPO}))
    async with running(client, watches.MISTAKES) as world:
        await await_signal(world, "GateTimeoutInvalid")
        await await_signal(world, "GateKeyUnknown")
        assert len(world.signals.kept) == 2


async def test_a_mistake_is_told_once_until_it_changes(api, client):
    put(api, PODS, pod("gated", {**keptn(), **TYPO}))
    async with running(client, watches.MISTAKES) as world:
        await await_signal(world, "GateKeyUnknown")
        put(api, PODS, pod("gated", {**keptn(), **TYPO}, labels={"a": "b"}))
        put(api, PODS, pod("gated", {**keptn(), **TYPO, "keptn.sh/stage": "dev"}))
        await world.until(lambda: len(world.signals.kept) == 2)
        assert "keptn.sh/stage" in world.signals.kept[-1].text


async def test_pods_of_namespaces_without_gates_are_told_nothing(api, client):
    put(api, PODS, pod("gated", {**keptn(), **TYPO}))
    put(api, EVALUATION_DEFINITIONS, definition("about 5"))
    names = (watches.MISTAKES, watches.EVALUATION_DEFINITIONS)
    async with running(client, *names, has_gates=lambda _name: False) as world:
        await await_signal(world, "EvaluationTargetInvalid")
        assert len(world.signals.kept) == 1


async def test_a_target_that_cannot_be_parsed_is_told_on_its_definition(api, client):
    put(api, EVALUATION_DEFINITIONS, definition(">5", "about 5"))
    async with running(client, watches.EVALUATION_DEFINITIONS) as world:
        await await_signal(world, "EvaluationTargetInvalid")
        (event,) = world.signals.kept
        assert event.about == "KeptnEvaluationDefinition ready"
        assert event.text.startswith("spec.objectives[1].evaluationTarget: Invalid value")
        put(api, EVALUATION_DEFINITIONS, definition(">5", "=>5"))
        await world.until(lambda: len(world.signals.kept) == 2)
        assert world.signals.kept[-1].text.endswith("did you mean '>=5'?")
