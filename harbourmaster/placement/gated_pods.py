"""Finds pods of an application that wait at a scheduling gate (krake-spec 7.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from harbourmaster.gates.gate import GATE
from harbourmaster.gates.waits import WAIT_FOR_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHOWN: Final = 256
"""Characters of the annotation of a pod that are shown."""


class _Name(Struct, frozen=True, gc=False):
    name: str = ""


class _Metadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class _Spec(Struct, frozen=True, rename="camel"):
    scheduling_gates: tuple[_Name, ...] | None = None


class ObservedPod(Struct, frozen=True):
    """The parts of a pod of a member cluster that say whether it waits at a gate."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


def pod_selector(manifest: Mapping[str, Any]) -> str:
    """Return the label selector of the pods of an object; empty if it names none."""
    spec, metadata = manifest.get("spec"), manifest.get("metadata")
    if manifest.get("kind") == "Job" and isinstance(metadata, dict):
        return f"job-name={metadata.get('name')}"
    selector = spec.get("selector") if isinstance(spec, dict) else None
    labels = selector.get("matchLabels") if isinstance(selector, dict) else None
    if not isinstance(labels, dict):
        return ""
    return ",".join(f"{key}={value}" for key, value in labels.items())


def describe_gate(pod: ObservedPod, checks: str = "") -> str:
    """Say in a line at which gate a pod is held, and for what; empty if it is at no gate.

    ``checks`` says which checks of its cluster a pod at our gate waits for, if that is known.
    """
    gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
    if not gates or pod.metadata.deletion_timestamp:
        return ""
    text = f"pod {pod.metadata.name} is held at the scheduling gate {', '.join(gates)}"
    if GATE not in gates:
        return text
    awaited = (pod.metadata.annotations or {}).get(WAIT_FOR_KEY, "")[:_SHOWN]
    reasons = filter(None, (checks, awaited and f"waits for {awaited}"))
    return f"{text}: {'; '.join(reasons) or 'waits for its checks'}"
