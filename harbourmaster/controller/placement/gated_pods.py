"""Finds a pod of an application that is held at a gate in its cluster, and reads for what."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.resources import APP_VERSIONS, PODS, WORKLOAD_VERSIONS
from harbourmaster.gates.workload import workload_of
from harbourmaster.kube.errors import ApiError
from harbourmaster.lifecycle.check_facts import Facts, with_version
from harbourmaster.lifecycle.gate_verdict import Case, GateWaitRules, sentence, verdict_on
from harbourmaster.lifecycle.gated_pods import decode_whole
from harbourmaster.lifecycle.model import AppVersion, WorkloadVersion
from harbourmaster.lifecycle.wait_items import WaitReport
from harbourmaster.lifecycle.workloads import names_of_pod, version_of_pod
from harbourmaster.placement.gated_pods import ObservedPod, describe_gate

if TYPE_CHECKING:
    from harbourmaster.kube.client import Client

_PODS: Final = 100
"""Pods of an object that are looked at."""
_NAMED: Final = 8
"""Pods that are named besides the first one."""
_decode_pod: Final = msgspec.json.Decoder(ObservedPod).decode
_decode_version: Final = msgspec.json.Decoder(WorkloadVersion).decode
_decode_app: Final = msgspec.json.Decoder(AppVersion).decode


async def find_gate(client: Client, namespace: str, selector: str) -> str:
    """Say at which gate a selected pod is held, and for what; empty if none is seen there."""
    page = await client.list(PODS, namespace, limit=_PODS, label_selector=selector)
    held = []
    for raw in page.items:
        # Another controller may have created a pod that cannot be read.
        with contextlib.suppress(msgspec.DecodeError):
            pod = _decode_pod(raw)
            if describe_gate(pod):
                held.append((pod, raw))
    if not held:
        return ""
    text = describe_gate(held[0][0], await describe_checks(client, held[0][1]))
    others = [pod.metadata.name for pod, _raw in held[1:]]
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    return f"{text}; so are {', '.join(others[:_NAMED])}{more}" if others else text


async def describe_checks(client: Client, raw: msgspec.Raw) -> str:
    """Say which checks hold a pod, as ``why`` does in its cluster; empty if that is unknown."""
    with contextlib.suppress(ApiError, msgspec.DecodeError):
        pod = decode_whole(raw)
        described = workload_of(pod.annotations, pod.labels)
        if described is None or not (pod.is_gated and pod.has_checks):
            return ""
        name = names_of_pod(described).version
        version = _decode_version(await client.get(WORKLOAD_VERSIONS, name, pod.namespace))
        facts, wait = Facts(unread=("KeptnAppVersion",)), WaitReport()
        shown = version_of_pod(described, version, None)
        case = Case(pod, described, shown, facts, GateWaitRules(), 0, wait)
        verdict = verdict_on(case)
        if verdict.code == "waits-for-app":
            page = await client.list(APP_VERSIONS, pod.namespace)
            apps = map(_decode_app, page.items)
            facts = with_version(Facts(), version, apps, lambda *_: None)
            verdict = verdict_on(case._replace(facts=facts))
        return "" if verdict.code == "released" else sentence(verdict.code, verdict.text)
    return ""
