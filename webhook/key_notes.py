"""Warnings on keys that have no effect, and on namespaces that ask for gates and don't get them.

Either is most often a typing error, by which pods pass without their checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.decoding import MalformedError, decode
from harbourmaster.gates.known_keys import PREFIXES, meant, unknown_keys
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.policies.notes import Note
from harbourmaster.webhook.review import MAX_WARNING, cut

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msgspec import Raw

    from harbourmaster.policies.pods import Kind, PodView
    from harbourmaster.webhook.parents import Lineage
    from harbourmaster.webhook.reviewed import Reviewed

MAX_TOLD: Final = 3
"""Unknown keys of one place that are named; of the others only the number is told."""
_SHOWN: Final = MAX_WARNING // 4
_KEPTN, _OURS = (each.encode() for each in PREFIXES)
_texts: Final = msgspec.json.Decoder(dict[str, str])


def pod_notes(pod: Reviewed, lineage: Lineage | None) -> tuple[Note, ...]:
    """On the keys of a pod, and on those of the owner that it would inherit from."""
    notes = _own_notes(pod)
    owner = None if lineage is None else lineage.metadata
    if owner is None:
        return notes
    annotations, labels = unknown_keys(owner.annotations), unknown_keys(owner.labels)
    return notes + _notes(annotations, labels, "metadata.{} of the pod's owner")


def object_notes(kind: Kind, found: Reviewed, pod: PodView) -> tuple[Note, ...]:
    """On the keys of a pod, or of a workload and of its template."""
    notes = _own_notes(found)
    if not kind.is_template:
        return notes
    annotations, labels = _unknown(pod.annotations), unknown_keys(pod.labels)
    if not annotations and not labels:
        return notes
    at = kind.pointer[1:].replace("/", ".").removesuffix("spec")
    return notes + _notes(annotations, labels, f"{at}metadata.{{}}")


def opt_in_notes(
    name: str, mistaken: Mapping[str, str], labels: Mapping[str, str]
) -> tuple[Note, ...]:
    """On a namespace without gates; ``mistaken`` is as ``gates.known_keys`` finds it."""
    for key, value in mistaken.items():
        if key == OPT_IN_KEY:
            shown = cut(value, _SHOWN)
            return _no_gates(name, f'annotation {key} is "{shown}"', f'set it to "{OPT_IN}"')
        shown = cut(key, _SHOWN)
        fault = f'its annotation "{shown}" is unknown'
        return _no_gates(name, fault, f'did you mean "{OPT_IN_KEY}"?')
    if labels.get(OPT_IN_KEY) == OPT_IN:
        return _no_gates(name, f"{OPT_IN_KEY} is a label", f'set the annotation to "{OPT_IN}"')
    return ()


def _no_gates(name: str, fault: str, to_do: str) -> tuple[Note, ...]:
    return (Note("gate-opt-in-unknown", f'namespace "{name}" has no gates: {fault}: {to_do}'),)


def _own_notes(found: Reviewed) -> tuple[Note, ...]:
    meta = found.metadata
    if meta is None:
        return ()
    return _notes(_unknown(meta.annotations), _unknown(meta.labels), "metadata.{}")


def _unknown(raw: Raw) -> list[str]:
    # Most objects have no such key: look before decoding.
    data = bytes(raw)
    if _KEPTN not in data and _OURS not in data:
        return []
    try:
        found = decode(_texts, raw, "")
    except MalformedError:
        return []
    return unknown_keys(found)


def _notes(annotations: list[str], labels: list[str], at: str) -> tuple[Note, ...]:
    if not annotations and not labels:
        return ()
    return (
        *_told(annotations, at.format("annotations")),
        *_told(labels, at.format("labels")),
    )


def _told(unknown: list[str], at: str) -> tuple[Note, ...]:
    texts = [_text(key, at) for key in unknown[:MAX_TOLD]]
    if len(unknown) > MAX_TOLD:
        more = f"{len(unknown) - MAX_TOLD} more keys are unknown and have no effect"
        texts.append(f"{more}: {at}: correct or remove them")
    return tuple(Note("gate-key-unknown", text) for text in texts)


def _text(key: str, at: str) -> str:
    near = meant(key)
    to_do = f'did you mean "{near}"?' if near else "correct or remove it"
    return f'key "{cut(key, _SHOWN)}" is unknown and has no effect: {at}: {to_do}'
