"""Pods that wait for objects, the objects, and how tests see that they go or stay."""

from __future__ import annotations

import itertools
import uuid

from harbourmaster.api.resources import PODS
from helpers.flow.manifests import OUTCOME, of_kind, template

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

    def found():
        like = {} if reason is None else {"reason": reason}
        return [event["note"] for event in flow.events(name, **like) if text in event["note"]]

    def why():
        return (
            f"{text!r} not in {[(event['reason'], event['note']) for event in flow.events(name)]}"
        )

    return (await flow.until(found, why=why))[0]
