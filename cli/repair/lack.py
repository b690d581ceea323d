"""What a stored pod or template lacks of the policies in force, and what of it can still be added.

The API server allows only some changes of a pod: tolerations while it has no node, and stricter
node selectors and node affinity while it has a scheduling gate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.cli.live.kinds import decode_anything
from harbourmaster.policies.affinity import required_terms
from harbourmaster.policies.merge import merge, merged_fields, owned_fields
from harbourmaster.policies.model import AFFINITY, NODE_SELECTOR, REQUIRED, TOLERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harbourmaster.policies.pods import Kind, PodView
    from harbourmaster.webhook.engine import Engine

    Json = dict[str, Any]

_NODE_AFFINITY: Final = "nodeAffinity"
_LABEL_KEYS: Final = b"atchLabelKeys"


class Lack(Struct, frozen=True):
    """What one object lacks; ``operations`` add what can be added, ``rest`` are other fields."""

    fields: tuple[str, ...]
    policies: tuple[str, ...]
    """References of those that would change the object."""
    operations: tuple[Json, ...] = ()
    rest: tuple[str, ...] = ()
    refusal: str = ""
    """Why a review would refuse the object."""


def lack_of(kind: Kind, raw: msgspec.Raw | bytes, namespace: str, engine: Engine) -> Lack | None:
    """What a review would add to the object; None for nothing. Raises MalformedError."""
    if not kind.is_template and _LABEL_KEYS in bytes(raw):
        raw = _without_label_keys(decode_anything(raw))
    view, known = kind.read(raw), engine.snapshot.namespace(namespace)
    if view is None or view.is_left_alone or known is None or namespace in engine.snapshot.excluded:
        return None
    policies = engine.match(namespace, known, view.labels)
    is_gated = view.spec is not None and bool(view.spec.scheduling_gates)
    has_gates = kind.is_template and engine.has_gates(namespace, known)
    waits = engine.template_waits(kind) if has_gates else ""
    options = engine.settings.merge_options(node_name_as_field=is_gated or has_gates, waits=waits)
    merged = merge(view, kind.pointer, policies, options)
    if not merged.operations and not merged.refusal:
        return None
    before, after = owned_fields(view), merged_fields(view, policies, options)
    done = {} if kind.is_template else _allowed(view, before, after)
    return Lack(
        fields=_differing(before, after),
        policies=tuple(
            each.reference
            for each in policies
            if merge(view, kind.pointer, (each,), options).operations
        ),
        operations=tuple(
            {"op": "add", "path": f"{kind.pointer}/{field}", "value": value}
            for field, value in done.items()
        ),
        rest=_differing({**before, **done}, after),
        refusal=merged.refusal,
    )


def _differing(before: Json, after: Json) -> tuple[str, ...]:
    return tuple(sorted(field for field in after if after[field] != before.get(field)))


def _allowed(view: PodView, before: Json, after: Json) -> Json:
    """The fields of ``after`` that may be set in a stored pod, as far as they may."""
    found: Json = {}
    spec = view.spec
    if spec is None or spec.node_name:
        return found
    found[TOLERATIONS] = after.get(TOLERATIONS)
    if spec.scheduling_gates:
        found[NODE_SELECTOR] = after.get(NODE_SELECTOR)
        wanted = (after.get(AFFINITY) or {}).get(_NODE_AFFINITY)
        if wanted:
            was = before.get(AFFINITY) or {}
            found[AFFINITY] = {**was, _NODE_AFFINITY: _tightened(was, wanted)}
    return {field: value for field, value in found.items() if value and value != before.get(field)}


def _tightened(before: Json, wanted: Json) -> Json:
    """The node affinity as the API server takes it from a pod with a gate."""
    old, new = required_terms(before), required_terms({_NODE_AFFINITY: wanted})
    if not old or (len(old) == len(new) and all(map(_only_adds, old, new))):
        return wanted
    return {**wanted, REQUIRED: before[_NODE_AFFINITY][REQUIRED]}


def _only_adds(old: Json, new: Json) -> bool:
    """Whether a term has all of the other's requirements, first and in the same order."""
    scopes = [
        (old.get(each) or [], new.get(each) or []) for each in ("matchExpressions", "matchFields")
    ]
    is_empty = not any(before for before, _ in scopes)
    return all(
        after[: len(before)] == before and not (is_empty and after) for before, after in scopes
    )


def _without_label_keys(pod: Json) -> bytes:
    """The pod as it was admitted: the API server turns such keys into requirements on labels."""
    for term in _pod_terms((pod.get("spec") or {}).get(AFFINITY) or {}):
        keys = {*(term.get("matchLabelKeys") or ()), *(term.get("mismatchLabelKeys") or ())}
        selector = term.get("labelSelector")
        if keys and selector:
            given = selector.get("matchExpressions") or ()
            selector["matchExpressions"] = [each for each in given if each.get("key") not in keys]
    return msgspec.json.encode(pod)


def _pod_terms(affinity: Json) -> Iterator[Json]:
    for name in ("podAffinity", "podAntiAffinity"):
        lists: Sequence[Any] = list((affinity.get(name) or {}).values())
        for item in (one for some in lists for one in some or ()):
            yield item.get("podAffinityTerm") or item
