"""Steps that lead to our own commands, and causes that only a fake API server has.

The commands run as they are printed; of those of kubectl, which needs a real API server, the
objects exist. All other codes are in tests/cluster/test_step_effects.py.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from harbourmaster.api.resources import (
    ANALYSIS_VALUE_TEMPLATES,
    APPLICATIONS,
    DEPLOYMENTS,
    EVALUATION_DEFINITIONS,
    KEPTN_METRICS,
    LEASES,
    METRICS_PROVIDERS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    POLICIES,
    REPLICA_SETS,
    TASKS,
    VALIDATING_WEBHOOKS,
    WORKLOAD_VERSIONS,
)
from harbourmaster.cli.installed import WEBHOOK
from harbourmaster.cli.live import reader
from harbourmaster.cli.live.reader import Caller
from harbourmaster.cli.main import main
from harbourmaster.cli.why.commands import KINDS
from harbourmaster.cli.why.render import NOTHING, STEPS
from harbourmaster.gates.waits import WAIT_FOR_KEY
from harbourmaster.placement.manifests import ManifestOwner
from harbourmaster.registration import break_glass
from helpers.explanations import NAMESPACE, put_owner, reference, registration, template
from helpers.explanations import pod as running_pod
from helpers.gated import CHECKED, PROD, PROVISIONAL, gates, keptn, pod, put
from helpers.lifecycle_objects import owners
from helpers.objects import policy
from helpers.rescheduling.objects import critical, node, removable
from helpers.step_causes import CAUSES
from helpers.steps import commands_in

HOME = "harbourmaster-system"
OPTED_IN = {"keptn.sh/lifecycle-toolkit": "enabled"}
WAITER = ("pod", f"{PROD}/waiter-1")
CART = ("pod", f"{NAMESPACE}/cart-1")
ELSEWHERE = {
    "superseded": "test_the_advised_command_helps_a_statefulset_after_a_failed_check",
}
"""Codes whose causes take many turns, by the tests of tests/cluster that run their steps."""


class Case(NamedTuple):
    """``make(api, folder)`` makes the cause, ``about`` are the words after ``why``.

    The outputs of the commands match ``says``, or afterwards the gates of the pod are gone, or the
    code is no more.
    """

    make: object
    about: tuple = WAITER
    says: str = ""
    released: bool = False


def version(**status):
    spec = {"app": "shop", "version": "1.0", "workloadName": "shop-waiter"}
    spec["resourceReference"] = {"uid": "rs-1", "kind": "ReplicaSet", "name": "waiter-rs"}
    metadata = {"name": "shop-waiter-1.0", "namespace": PROD, **owners()}
    return {"metadata": metadata, "spec": spec, "status": status}


def waits(obj, known=None, **more):
    def make(api, _):
        put(api, PODS, {**obj, **more})
        if known:
            put(api, WORKLOAD_VERSIONS, known)

    return make


def in_scheduler(api, _):
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    held = pod(gates=())
    held["spec"]["schedulerName"] = "keptn-scheduler"
    held["status"]["conditions"] = [condition]
    waits(held, version(**CHECKED))(api, _)


def put_lease(api, renewed):
    lease = {"holderIdentity": "harbourmaster-1", "leaseDurationSeconds": 15}
    metadata = {"name": "harbourmaster-controller", "namespace": HOME}
    api.put(LEASES, {"metadata": metadata, "spec": {**lease, "renewTime": renewed}})


def unled(api, _):
    waits(pod(), version(**CHECKED))(api, _)
    put_lease(api, "2026-03-01T10:00:00.000000Z")
    metadata = {"name": "harbourmaster-controller", "namespace": HOME}
    api.put(DEPLOYMENTS, {"metadata": metadata, "spec": {"replicas": 0}})


def ungated(**annotations):
    """A Deployment's pod that has keys for checks and no gate."""

    def make(api, _):
        held = running_pod(owner=reference("ReplicaSet", "cart"), nodeName="n1")
        held["metadata"]["annotations"] = keptn("cart", pre_deployment_tasks="migrate")
        api.put(PODS, {**held, "status": {"phase": "Running"}})
        put_owner(api, REPLICA_SETS, template(), ownerReferences=[reference("Deployment", "cart")])
        put_owner(api, DEPLOYMENTS, template())
        api.put(NAMESPACES, {"metadata": {"name": NAMESPACE, "annotations": OPTED_IN}})
        stored = registration(failurePolicy="Ignore")
        if annotations:
            state = break_glass.BreakGlass(by="ada", reason="fire")
            stored = break_glass.with_break_glass(registration(failurePolicy="Fail"), state)
            checks = {"metadata": {"name": "harbourmaster"}, "webhooks": []}
            api.put(VALIDATING_WEBHOOKS, break_glass.with_break_glass(checks, state))
        api.put(MUTATING_WEBHOOKS, stored)
        put_lease(api, "2026-03-01T10:00:30.000000Z")

    return make


def failing_scheduler(api, _):
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError"}
    condition["message"] = "no answer"
    held = running_pod()
    held["status"]["conditions"] = [condition]
    api.put(PODS, held)


def stored_target(api, _):
    objective = {"keptnMetricRef": {"name": "errors"}, "evaluationTarget": "95%"}
    metadata = {"name": "rate", "namespace": NAMESPACE}
    api.put(EVALUATION_DEFINITIONS, {"metadata": metadata, "spec": {"objectives": [objective]}})


def placed(**status):
    """A pod of an application with that status, or of one that is not in this cluster."""

    def make(api, _):
        metadata = {"name": "web", "namespace": NAMESPACE, "generation": 1}
        uid = "none"
        if status:
            spec = {"manifests": []}
            stored = api.put(APPLICATIONS, {"metadata": metadata, "spec": spec, "status": status})
            uid = stored["metadata"]["uid"]
        held = running_pod(labels=ManifestOwner(uid, NAMESPACE, "web").labels, nodeName="n1")
        api.put(PODS, held)

    return make


def of_condition(reason, **more):
    condition = {"type": "Scheduled", "status": "False", "reason": reason, "message": "no cluster"}
    return placed(conditions=[condition], **more)


def full_nodes(*victims, cpu=1):
    """A critical pod that waits, and a node with these pods."""

    def make(api, _):
        api.put(NODES, node("n1", 2))
        api.put(NAMESPACES, {"metadata": {"name": "kube-system"}})
        for name in victims:
            obj = removable(name, "n1", 1)
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            api.put(
                PODS,
                {**obj, "metadata": {**obj["metadata"], "namespace": NAMESPACE}, "status": ready},
            )
        held = critical("dns", "a", cpu)
        held["spec"].pop("nodeSelector")
        held["metadata"]["namespace"] = "kube-system"
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        api.put(PODS, {**held, "status": {"phase": "Pending", "conditions": [condition]}})

    return make


def denied(api, folder):
    """A pod with an unknown key, where the webhook's settings deny that."""
    args = ["webhook", "--on-unknown-keys=Deny"]
    spec = {"template": {"spec": {"containers": [{"name": "webhook", "args": args}]}}}
    api.put(DEPLOYMENTS, {"metadata": {"name": WEBHOOK, "namespace": HOME}, "spec": spec})
    api.put(NAMESPACES, {"metadata": {"name": NAMESPACE, "annotations": OPTED_IN}})
    held = {"apiVersion": "v1", "kind": "Pod", **running_pod()}
    held["metadata"]["annotations"] = {"keptn.sh/workloads": "cart"}
    (folder / "manifest.json").write_text(json.dumps(held))


def waits_late(api, _):
    """A Deployment that the webhook did not see; its template lacks the wait."""
    api.put(NAMESPACES, {"metadata": {"name": NAMESPACE, "annotations": OPTED_IN}})
    put_owner(api, DEPLOYMENTS, template(), annotations={WAIT_FOR_KEY: "job/migrate"})


def without_pods(api, _):
    api.put(NAMESPACES, {"metadata": {"name": NAMESPACE, "annotations": OPTED_IN}})
    put_owner(api, DEPLOYMENTS, template())
    made = api.get(DEPLOYMENTS, "cart", NAMESPACE)
    made["spec"]["selector"] = {"matchLabels": {"app": "cart"}}


def an(resource, name, spec, status=None, before=None):
    """Put an object of the namespace, after what ``before`` makes."""

    def make(api, folder):
        if before:
            before(api, folder)
        metadata = {"name": name, "namespace": NAMESPACE}
        api.put(resource, {"metadata": metadata, "spec": spec, "status": status or {}})

    return make


ASKS = {"provider": {"name": "prom"}, "query": "up"}
provider = an(METRICS_PROVIDERS, "prom", {"type": "prometheus"})
failing = an(KEPTN_METRICS, "errors", ASKS, {"errMsg": "no answer"}, provider)
RATE = {"objectives": [{"keptnMetricRef": {"name": "errors"}, "evaluationTarget": "<5"}]}
CHECKED_VERSION = {
    "app": "shop",
    "version": "1.0",
    "workloadName": "shop-cart",
    "resourceReference": {"uid": "rs-1", "kind": "ReplicaSet", "name": "cart-7c9"},
}
PASSED = dict.fromkeys(("preDeploymentStatus", "preDeploymentEvaluationStatus"), "Succeeded")


def deploying(**status):
    whole = {"currentPhase": "WorkloadDeploy", **PASSED, **status}
    return an(WORKLOAD_VERSIONS, "shop-cart-1.0", CHECKED_VERSION, whole)


def new_metric(api, folder):
    an(KEPTN_METRICS, "errors", ASKS, {}, provider)(api, folder)
    stored = api.get(KEPTN_METRICS, "errors", NAMESPACE)["metadata"]
    stored["creationTimestamp"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def space(held=False, label="true"):
    def make(api, _):
        labels = {"gates.harbourmaster.dev/enabled": label}
        metadata = {"name": NAMESPACE, "annotations": OPTED_IN, "labels": labels}
        api.put(NAMESPACES, {"metadata": metadata})
        if held:
            gated = running_pod(schedulingGates=[{"name": "keptn-prechecks-gate"}])
            gated["metadata"]["annotations"] = keptn("cart", pre_deployment_tasks="migrate")
            api.put(PODS, gated)

    return make


def selecting(value, **given):
    def make(api, _):
        api.put(PODS, running_pod(**given))
        api.put(POLICIES, policy("mine", NAMESPACE, pods={"app": "cart"}, nodeSelector=value))

    return make


def not_placed_by(reason, kind):
    condition = {"type": kind, "status": "False", "reason": reason, "message": "it says so"}
    there = {"scheduledTo": {"name": "de"}, "runningOn": {"name": "de"}}
    return placed(conditions=[condition], **there)


def placement_off(api, folder):
    placed(phase="Pending")(api, folder)
    metadata = {"name": "harbourmaster-controller", "namespace": HOME}
    container = {"name": "controller", "args": ["controller"]}
    spec = {"template": {"spec": {"containers": [container]}}}
    api.put(DEPLOYMENTS, {"metadata": metadata, "spec": spec})


WEB = ("application", f"{NAMESPACE}/web")
MINE = ("podschedulingpolicy", f"{NAMESPACE}/mine")


def waits_by_another_word(api, _):
    labels = {"metadata": {"name": NAMESPACE, "labels": {WAIT_FOR_KEY: "require"}}}
    api.put(NAMESPACES, labels)
    put_owner(api, DEPLOYMENTS, template())


DNS = ("pod", "kube-system/dns")
REVIEW = ("review", "review.json")


def recorded(version="v1", **request):
    """A recorded review of this request."""

    def make(_, folder):
        review = {"apiVersion": f"admission.k8s.io/{version}", "kind": "AdmissionReview"}
        whole = {"uid": "1", "operation": "CREATE", "namespace": NAMESPACE, **request}
        (folder / "review.json").write_text(json.dumps({**review, "request": whole}))

    return make


def forbidden(api, _):
    template_spec = {"provider": {"name": "prom", "namespace": "other"}, "query": "up"}
    metadata = {"name": "errors", "namespace": NAMESPACE}
    api.put(ANALYSIS_VALUE_TEMPLATES, {"metadata": metadata, "spec": template_spec})
    api.forbid("*", METRICS_PROVIDERS)


def staged(state):
    """A pod that waits for the second stage of its version."""
    stage = {"number": 1, "of": 2, "state": state, "message": "task probe failed", "wanted": 4}
    known = version(**CHECKED, stage=stage)
    known["spec"]["stages"] = "1"
    return waits(pod(labels={"gates.harbourmaster.dev/staged": "true"}), known)


CASES = {
    "stage-held": Case(staged("Held"), says="stage 2 of 2 is released for "),
    "stage-pending": Case(staged("Releasing"), says="stage 2 of 2 is released for "),
    "waits-in-scheduler": Case(in_scheduler),
    "waits-for-owner": Case(waits(pod(annotations={**keptn(), **PROVISIONAL})), released=True),
    "waits-for-version": Case(waits(pod()), released=True),
    "orphaned": Case(waits(pod(owners=[])), released=True),
    "not-led": Case(unled),
    "not-reviewed": Case(ungated(), CART, says="FAULT"),
    "break-glass": Case(ungated(open="yes"), CART, says="break-glass mode is off|restored"),
    "waits": Case(failing_scheduler, CART),
    "evaluation-target-invalid": Case(
        stored_target, ("keptnevaluationdefinition", f"{NAMESPACE}/rate")
    ),
    "moving": Case(
        placed(scheduledTo={"name": "de"}, runningOn={"name": "sk"}), CART, says="runs on 'sk'"
    ),
    "unplaced": Case(placed(phase="Pending"), CART, says="is not placed"),
    "refused": Case(of_condition("NoSuitableTarget"), CART, says="no cluster"),
    "unknown": Case(placed(), CART, says="web not found"),
    "no-room": Case(full_nodes(cpu=9), DNS, says="room cannot be made"),
    "room-can-be-made": Case(full_nodes("a", "b"), DNS, says="1. n1"),
    "unplanned": Case(full_nodes("a", "b"), DNS, says="1. n1"),
    "unread": Case(forbidden, ("analysisvaluetemplate", f"{NAMESPACE}/errors")),
    "gate-wait-not-inherited": Case(waits_late, ("deployment", f"{NAMESPACE}/cart")),
    "no-pods": Case(without_pods, ("deployment", f"{NAMESPACE}/cart")),
    "not-deployed": Case(not_placed_by("NotFound", "Deployed"), WEB),
    "not-ready": Case(not_placed_by("ObjectsNotReady", "Ready"), WEB),
    "not-checked": Case(
        not_placed_by("CheckFailed", "Checked"), WEB, says="no check that it names has failed"
    ),
    "placement-off": Case(placement_off, WEB),
    "deployment-pending": Case(deploying(), ("kwv", f"{NAMESPACE}/shop-cart-1.0")),
    "deployment-failed": Case(
        deploying(deploymentStatus="Failed"), ("kwv", f"{NAMESPACE}/shop-cart-1.0")
    ),
    "task-stuck": Case(
        an(
            TASKS,
            "t",
            {"taskDefinition": "d"},
            {"status": "Progressing", "reason": "Unschedulable"},
        ),
        ("task", f"{NAMESPACE}/t"),
    ),
    "metric-unavailable": Case(
        an(EVALUATION_DEFINITIONS, "rate", RATE, before=failing),
        ("ked", f"{NAMESPACE}/rate"),
        says="no answer",
    ),
    "metric-failing": Case(failing, ("metric", f"{NAMESPACE}/errors")),
    "value-pending": Case(new_metric, ("metric", f"{NAMESPACE}/errors")),
    "provider-missing": Case(an(KEPTN_METRICS, "errors", ASKS), ("metric", f"{NAMESPACE}/errors")),
    "label-missing": Case(space(label=""), ("namespace", NAMESPACE)),
    "pods-wait": Case(space(held=True), ("namespace", NAMESPACE), says="cart-1"),
    "overridden": Case(selecting({"disk": "hdd"}, nodeSelector={"disk": "ssd"}), MINE),
    "not-applied": Case(selecting({"zone": "a"}), MINE, says="cart-1"),
    "gate-wait-label": Case(waits_by_another_word, ("deployment", f"{NAMESPACE}/cart")),
    "denied": Case(denied, ("-f", "manifest.json"), says=""),
    "invalid": Case(
        recorded(
            kind={"group": POLICIES.group, "version": POLICIES.version, "kind": POLICIES.kind},
            object={"metadata": {"name": "p"}, "spec": {"podSelector": {}, "nodeName": "no name"}},
        ),
        REVIEW,
        says="nodeName",
    ),
    "malformed": Case(recorded(version="v2"), REVIEW, says="does not understand"),
    "skipped": Case(
        recorded(kind={"group": "", "version": "v1", "kind": "Secret"}), REVIEW, says="not handled"
    ),
}


async def known_time(_):
    """The API server's time, which this one does not tell."""
    return Caller("ada", datetime.fromisoformat("2026-03-01T10:00:40Z"), is_known=True)


def object_of(command):
    """The resource, namespace and name of an argument KIND/NAME of kubectl; None without one."""
    words = shlex.split(command)
    named = next((word for word in words if re.fullmatch(r"[a-z.]+/[\w.-]+", word)), None)
    if named is None:
        return None
    kind, _, name = named.partition("/")
    return KINDS[kind.partition(".")[0]][0], name, words[words.index("-n") + 1]


@pytest.fixture
def run(api, why, tmp_path, capsys, monkeypatch):
    """Return ``run(command)``: what one of ours prints, or for kubectl, its object."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))

    async def run(command):
        command = command.replace("--context NAME", "--context it")
        program, *words = shlex.split(command)
        if program == "kubectl":
            if key := object_of(command):
                api.get(*key)
            return ""
        await asyncio.to_thread(main, words)
        return "".join(capsys.readouterr())

    return run


@pytest.fixture
def section_with(why):
    """Return ``section_with(code, about)``: the section of that code, None without one."""

    async def ask(code, about):
        exit_code, out, err = await why(*about, "-o", "json")
        assert exit_code == 0, err
        sections = json.loads(out)["sections"]
        return next((section for section in sections if section["code"] == code), None)

    return ask


@pytest.mark.parametrize("code", sorted(CASES))
async def test_the_step_leads_on(api, section_with, run, tmp_path, monkeypatch, code):
    make, about, says, released = CASES[code]
    if code == "unplanned":
        monkeypatch.setattr("harbourmaster.cli.why.sections.rescheduling.PATIENCE", 0)
    monkeypatch.setattr(reader, "caller", known_time)
    monkeypatch.chdir(tmp_path)
    make(api, tmp_path)
    section = await section_with(code, about)
    assert section is not None
    step = section["next"]
    commands = commands_in(step)
    assert commands, step
    printed = [await run(command) for command in commands]
    assert re.search(says, "\n".join(printed)), printed
    if released:
        assert gates(api) == [], (commands, printed)


def test_each_code_with_a_step_is_made():
    with_step = {code for code, step in STEPS.items() if step != NOTHING}
    tables = [*CASES, *CAUSES, *ELSEWHERE]
    assert len(tables) == len(set(tables))
    assert with_step - set(tables) == set()
    assert set(tables) - with_step == set()
