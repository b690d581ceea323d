"""Manifests of flows: owners of pods, apps, definitions, metrics, and pods that wait."""

from __future__ import annotations

import itertools
import uuid

from harbourmaster.api import resources
from harbourmaster.api.resources import PODS, Resource

RESOURCES = {
    variable.kind: variable
    for variable in vars(resources).values()
    if isinstance(variable, Resource)
}
OUTCOME = "kwok-outcome"
"""The label by which kwok lets pods fail, hang, be slow or never get ready."""
PROVIDER = "gauges"
IMAGE = "registry.example.com/ledger:3"
GATE = "keptn-prechecks-gate"


def of_kind(kind, name, spec=None, *, labels=None, annotations=None, **fields):
    """An object of any kind above, in its stored version."""
    metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
    manifest = {"apiVersion": RESOURCES[kind].api_version, "kind": kind, "metadata": metadata}
    return {**manifest, **({} if spec is None else {"spec": spec}), **fields}


def keptn(workload, version="1.0", **more):
    """Keptn's annotations; ``pre_deployment_tasks="a,b"`` and so on, ``app`` and ``metadata``."""
    given = {"workload": workload, "version": version, **more}
    return {
        f"keptn.sh/{key.replace('_', '-')}": value
        for key, value in given.items()
        if value is not None
    }


def template(name, annotations=None, *, labels=None, **spec):
    """A pod template."""
    return {
        "metadata": {
            "labels": {"example.com/part": name, **(labels or {})},
            "annotations": annotations or {},
        },
        "spec": {"containers": [{"name": "ledger", "image": IMAGE}], **spec},
    }


def owner(kind, name, annotations=None, *, above=None, labels=None, containers=None, **spec):
    """An owner of pods, with Keptn's annotations on them, and those of ``above`` on itself."""
    more = {} if containers is None else {"containers": containers}
    body = {
        "selector": {"matchLabels": {"example.com/part": name}},
        "template": template(name, annotations, labels=labels, **more),
    }
    if kind in {"Deployment", "ReplicaSet", "StatefulSet", "Rollout"}:
        body["replicas"] = 1
    if kind == "StatefulSet":
        body["serviceName"] = name
    return of_kind(kind, name, {**body, **spec}, annotations=above)


def deployment(name, annotations=None, **more):
    """A Deployment of one pod; see ``owner``."""
    return owner("Deployment", name, annotations, **more)


def with_gate(manifest):
    """Return the owner with our gate in its template, as admission adds it to pods."""
    manifest["spec"]["template"]["spec"]["schedulingGates"] = [{"name": GATE}]
    return manifest


def task_definition(name, outcome=None, *, labels=None, annotations=None, **spec):
    """A definition of a task whose Job kwok lets end as ``outcome`` says."""
    all_labels = {**({} if outcome is None else {OUTCOME: outcome}), **(labels or {})}
    return of_kind("KeptnTaskDefinition", name, spec, labels=all_labels, annotations=annotations)


def container_task(name, outcome=None, *, labels=None, annotations=None, **spec):
    """Return a task definition with a container that is tried once."""
    body = {"container": {"name": "task", "image": IMAGE}, "retries": 0, **spec}
    return task_definition(name, outcome, labels=labels, annotations=annotations, **body)


def evaluation_definition(name, metric, target, **spec):
    """A definition of one objective; by default it is tried once."""
    objectives = [{"keptnMetricRef": {"name": metric}, "evaluationTarget": target}]
    spec = {"retries": 1, "retryInterval": "1s", **spec}
    return of_kind("KeptnEvaluationDefinition", name, {"objectives": objectives, **spec})


def metric(name):
    """A metric; its value is the provider's."""
    spec = {"provider": {"name": PROVIDER}, "query": name, "fetchIntervalSeconds": 3600}
    return of_kind("KeptnMetric", name, spec)


def app(name, version, *workloads, revision=1):
    """An app of workloads, given as ``("name", "version")``."""
    entries = [{"name": workload, "version": its} for workload, its in workloads]
    spec = {"version": version, "revision": revision, "workloads": entries}
    return of_kind("KeptnApp", name, spec)


def app_context(name, **spec):
    """Return the context that an app adds; the keys are those of the spec."""
    return of_kind("KeptnAppContext", name, spec)


def without_outcome():
    """The patch after which a pod or a definition has no label for kwok."""
    return {"metadata": {"labels": {OUTCOME: None}}}


WAITED = "gates.harbourmaster.dev/waited"
CHECKS = "gates.harbourmaster.dev/checks"
_numbers = itertools.count(1)


def waits(*items, timeout=None, on_timeout=None):
    """The annotations of a pod that waits for these items."""
    wait_annotations = {
        "wait-for": ", ".join(items),
        "wait-timeout": timeout,
        "wait-on-timeout": on_timeout,
    }
    return {
        f"gates.harbourmaster.dev/{key}": value
        for key, value in wait_annotations.items()
        if value is not None
    }


def pod(name, *items, labels=None, annotations=None, limits=None, **spec):
    """A bare pod that waits for items; ``limits`` are options of ``waits``."""
    given = {**(waits(*items, **(limits or {})) if items else {}), **(annotations or {})}
    pod_template = template(name, given, labels=labels, **spec)
    manifest = of_kind("Pod", name, pod_template["spec"])
    manifest["metadata"] |= pod_template["metadata"]
    return manifest


def job(name, outcome=None, annotations=None, **spec):
    """A Job of one try, whose pod kwok lets end as ``outcome`` says."""
    labels = {} if outcome is None else {OUTCOME: outcome}
    pod_template = template(name, annotations, labels=labels, restartPolicy="Never")
    return of_kind("Job", name, {"backoffLimit": 0, "template": pod_template, **spec})


def service(name, **selector):
    """A Service; without a selector it gets no endpoints."""
    spec = {"ports": [{"port": 80}]}
    return of_kind("Service", name, {**spec, "selector": selector} if selector else spec)


def condition_of(text):
    """``Ready`` or ``Ready=False`` as a condition of a status."""
    name, _, status = text.partition("=")
    return {
        "type": name,
        "status": status or "True",
        "reason": "Tested",
        "message": "",
        "lastTransitionTime": "2026-11-21T18:00:00Z",
    }


async def until_waiting(flow, *parts):
    """Wait until each of these has one pod, and it waits at our gate."""
    return [(await flow.until_gated(part))[0] for part in parts]


async def pass_through(flow):
    """Let a pod go that waits for nothing that is there: what was due before it has been done."""
    name = f"passer-by-{next(_numbers)}"
    await flow.create(pod(name, "optional:configmap/nothing"))
    await flow.until_released(name)


async def stay_waiting(flow, *parts):
    """Assert that the pods of these wait, though each is looked at again and others go."""
    held = [pod for part in parts for pod in flow.pods(part)]
    assert held, f"no pods of {parts}"
    for obj in held:
        note = {"metadata": {"annotations": {"example.com/touched": uuid.uuid4().hex}}}
        await flow.change("Pod", obj["metadata"]["name"], note)
    await pass_through(flow)
    for obj in held:
        assert flow.find(PODS, obj["metadata"]["name"]) is not None, flow.describe()
        flow.assert_never_bound(obj)


async def until_noted(flow, reason, name, text):
    """Wait for an event on an object with this text, of any reason or of one; return its note."""

    def matching_events():
        like = {} if reason is None else {"reason": reason}
        return [event["note"] for event in flow.events(name, **like) if text in event["note"]]

    def why():
        return (
            f"{text!r} not in {[(event['reason'], event['note']) for event in flow.events(name)]}"
        )

    return (await flow.until(matching_events, why=why))[0]
