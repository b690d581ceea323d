"""A mistake that skips checks is told on the objects, and its next step mends it."""

from __future__ import annotations

import re

import pytest

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import DEPLOYMENTS, WORKLOAD_VERSIONS
from helpers.flow.manifests import container_task, deployment, evaluation_definition, keptn

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

TYPO = "keptn.sh/pre-deployment-task"
MEANT = re.compile(r'did you mean "([^"]+)"\?')


async def test_a_misspelt_key_is_told_and_the_proposed_one_mends_it(flow, client):
    await flow.create(
        container_task("migrate"),
        deployment("ledger", {**keptn("ledger"), TYPO: "migrate"}),
    )
    event = await flow.until_told("GateKeyUnknown")
    assert event["regarding"]["kind"] == "Pod"
    assert event["type"] == "Warning"
    ended = await flow.until_told("WorkloadCompletedFinished", "ledger-ledger-1.0")
    assert "no checks: the workload names no task and no evaluation" in ended["note"]
    meant = MEANT.search(event["note"]).group(1)
    annotations = {TYPO: None, meant: "migrate", "keptn.sh/version": "2.0"}
    patch = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
    await client.patch(DEPLOYMENTS, "ledger", MergePatch(patch), flow.namespace)
    await flow.until_ended(WORKLOAD_VERSIONS, "ledger-ledger-2.0")
    ended = await flow.until_told("WorkloadCompletedFinished", "ledger-ledger-2.0")
    assert "no checks" not in ended["note"]
    assert len([each for each in flow.events() if each["reason"].startswith("GateKey")]) == 1


async def test_a_target_that_cannot_be_parsed_is_told_on_its_definition(flow):
    await flow.create(evaluation_definition("fast", "latency", "about 5"))
    event = await flow.until_told("EvaluationTargetInvalid", "fast")
    assert "spec.objectives[0].evaluationTarget" in event["note"]
