"""``why`` on mistakes that skip checks, and on workloads without any check."""

from __future__ import annotations

import msgspec
import pytest

from harbourmaster.api.resources import NAMESPACES
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.why.model import Subject, WhyContext
from harbourmaster.cli.why.sections import checks
from harbourmaster.gates.waits import WAIT_FOR_KEY
from helpers.explanations import shown
from helpers.gated import CREATED, PROD, deployment, keptn, owner_ref, pod

TYPO = {"keptn.sh/pre-deployment-task": "migrate"}
OPT_IN = "keptn.sh/lifecycle-toolkit"


@pytest.fixture
def ask(api, client):
    async def section(obj, kind="Pod", *, opt_in="enabled", owners=()):
        api.put(NAMESPACES, {"metadata": {"name": PROD, "annotations": {OPT_IN: opt_in}}})
        above = tuple(subject(name, its) for its, name in owners)
        live = Installation(client, "harbourmaster-system")
        return await checks.section(WhyContext(subject(obj, kind), live, CREATED, above))

    return section


def subject(obj, kind):
    name = obj["metadata"]["name"]
    return Subject("v1", kind, PROD, name, msgspec.json.encode(obj))


def workload(annotations=None, **metadata):
    template = {"metadata": {"annotations": annotations or {}}}
    return {"metadata": {"name": "cart", **metadata}, "spec": {"template": template}}


async def test_a_pod_with_a_check_and_one_that_asks_for_none_have_nothing_to_tell(ask):
    assert await ask(pod(annotations=keptn(pre_deployment_tasks="a"))) is None
    assert await ask(pod(annotations={})) is None
    assert await ask(pod(annotations=TYPO), opt_in="disabled") is None


async def test_the_opt_in_of_the_namespace_is_told(ask, assert_golden):
    assert_golden(shown(await ask(pod(), opt_in="true")))


async def test_mistakes_of_a_pod_and_of_its_owners_are_told_and_copies_are_not(ask, assert_golden):
    above = [("ReplicaSet", deployment(annotations=TYPO)), ("Deployment", deployment("web"))]
    assert (await ask(pod(), owners=above)).state == "note"
    above[1] = ("Deployment", deployment("web", annotations=TYPO))
    section = await ask(pod(annotations=keptn(post_deployment_tasks=" , ")), owners=above)
    assert_golden(shown(section))
    assert len(section.detail.mistakes) == 2


async def test_a_pod_that_is_never_checked_is_told(ask, assert_golden):
    once = pod(owners=[owner_ref("Job", "once", "j-1", "batch/v1")])
    assert_golden([*shown(await ask(once)), *shown(await ask(workload(keptn()), "Job"))])


async def test_a_workload_is_told_of_its_template_and_of_having_no_checks(ask, assert_golden):
    mistyped = await ask(workload({**keptn(), **TYPO}), "Deployment")
    assert_golden([*shown(mistyped), *shown(await ask(workload(keptn()), "Deployment"))])
    inherited = deployment("cart", annotations=keptn(pre_deployment_tasks="a"))
    assert await ask(inherited, "Deployment") is None


@pytest.mark.parametrize("opt_in", ["enabled", "disabled"])
async def test_a_workload_whose_template_lacks_its_wait_is_told(ask, opt_in):
    wait = {WAIT_FOR_KEY: "job/migrate"}

    def stored_with(template):
        obj = workload(template)
        return {**obj, "metadata": {**obj["metadata"], "annotations": wait}}

    stored = stored_with({})
    section = await ask(stored, "Deployment", opt_in=opt_in)
    assert (section.state, section.code) == ("fault", "gate-wait-not-inherited")
    section = await ask(pod(annotations={}), opt_in=opt_in, owners=[("Deployment", stored)])
    assert section.code == "gate-wait-not-inherited"
    section = await ask(stored_with({WAIT_FOR_KEY: "job/seed"}), "Deployment")
    assert section.code == "gate-wait-shadowed"
    assert await ask(stored_with(wait), "Deployment", opt_in="disabled") is None


async def test_a_target_that_cannot_be_parsed_is_told(ask, assert_golden):
    objective = {"keptnMetricRef": {"name": "load"}, "evaluationTarget": "about 5"}
    obj = {"metadata": {"name": "ready"}, "spec": {"objectives": [objective]}}
    assert_golden(shown(await ask(obj, "KeptnEvaluationDefinition")))
    objective["evaluationTarget"] = ">5"
    assert await ask(obj, "KeptnEvaluationDefinition") is None
