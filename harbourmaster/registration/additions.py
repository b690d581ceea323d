"""Keeps what other clients add to selectors and match conditions (pure).

All terms of a selector and all conditions must hold, so another term takes objects away from a
webhook and never changes how it treats the others. An annotation notes what we have written, so
that a term of earlier settings is not taken for an addition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import CLUSTER_POLICIES, NAMESPACES, POLICIES
from harbourmaster.api.selectors import EVERYTHING, LabelSelector, compile_selector
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.gates.release import RERUN_KEY
from harbourmaster.registration.desired import ENABLED, GATES_LABEL, NAMESPACE_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from harbourmaster.api.selectors import Matcher

    Term = dict[str, Any]

APPLIED: Final = "harbourmaster.dev/applied"
"""The annotation that lists our terms, in JSON, and the names of our annotations."""
NAMESPACE_SELECTOR: Final = "namespaceSelector"
MERGED: Final = (NAMESPACE_SELECTOR, "objectSelector", "matchConditions")
"""The fields of a webhook in which additions stay."""
_OURS: Final = frozenset((GATES_LABEL, RERUN_KEY))
"""Labels that decide which webhook sees an object, on which others have no say."""
_decode: Final = msgspec.json.Decoder(list[str]).decode


class _Spec(Struct, frozen=True, rename="camel"):
    namespace_selector: LabelSelector | None = None


class Subject(Struct, frozen=True):
    """A namespace or a policy: what decides whether an excluded namespace matters."""

    metadata: Metadata = Metadata()
    spec: _Spec | None = None


SUBJECTS: Final = (NAMESPACES, POLICIES, CLUSTER_POLICIES)
_decode_subject: Final = msgspec.json.Decoder(Subject).decode


def decode_subject(raw: msgspec.Raw) -> Subject:
    """Decode an object of one of the SUBJECTS, or return an empty one if it is malformed."""
    try:
        return _decode_subject(raw)
    except msgspec.DecodeError:
        return Subject()


def applied_to(configuration: Mapping[str, Any]) -> list[str] | None:
    """Return what we have written; None if that is unknown, as after an earlier version."""
    try:
        return _decode((configuration.get("metadata") or {})["annotations"][APPLIED])
    except (KeyError, TypeError, msgspec.DecodeError):
        return None


def with_applied(configuration: Mapping[str, Any], desired: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with the annotation that we write with the desired one."""
    metadata = configuration["metadata"]
    ours = {*(desired["metadata"].get("annotations") or ()), *_texts_of(desired)}
    note = msgspec.json.encode(sorted(ours)).decode()
    annotations = {**(metadata.get("annotations") or {}), APPLIED: note}
    return {**configuration, "metadata": {**metadata, "annotations": annotations}}


def merge(stored: Mapping[str, Any], desired: dict[str, Any]) -> dict[str, Any]:
    """Return the desired configuration with what others have added to the stored one.

    A field that lacks none of our terms is as it is stored.
    """
    applied = applied_to(stored)
    if applied is None:
        return desired
    earlier = {*applied}.difference(_texts_of(desired))
    entries = {entry["name"]: entry for entry in stored.get("webhooks") or ()}
    webhooks = [
        _merge_entry(entries.get(wanted["name"], {}), wanted, earlier)
        for wanted in desired["webhooks"]
    ]
    return {**desired, "webhooks": webhooks}


def describe(merged: Mapping[str, Any], desired: Mapping[str, Any]) -> list[str]:
    """Return each addition, with the field that has it."""
    return list(
        dict.fromkeys(
            f"{field} {_text(term)}"
            for entry, wanted in zip(merged["webhooks"], desired["webhooks"], strict=True)
            for field in MERGED
            for term in _terms_of(entry.get(field))
            if _text(term) not in map(_text, _terms_of(wanted.get(field)))
        )
    )


def excluded_namespaces(
    merged: Mapping[str, Any],
    desired: Mapping[str, Any],
    namespaces: Iterable[Subject],
    policies: Iterable[Subject],
    cluster_policies: Iterable[Subject],
) -> list[str]:
    """Return the namespaces with gates or policies that an addition excludes from a webhook."""
    matchers = [
        (_compile(entry), _compile(wanted))
        for entry, wanted in zip(merged["webhooks"], desired["webhooks"], strict=True)
    ]
    homes = {policy.metadata.namespace for policy in policies}
    selectors = [policy.spec.namespace_selector for policy in cluster_policies if policy.spec]
    chosen = list(filter(None, map(compile_selector, selectors)))
    excluded = []
    for namespace in (subject.metadata for subject in namespaces):
        labels = {NAMESPACE_NAME: namespace.name, **namespace.labels}
        matters = (
            namespace.annotations.get(OPT_IN_KEY) == OPT_IN
            or labels.get(GATES_LABEL) == ENABLED
            or namespace.name in homes
            or any(matcher.matches(labels) for matcher in chosen)
        )
        if matters and any(
            wanted.matches(labels) and not entry.matches(labels) for entry, wanted in matchers
        ):
            excluded.append(namespace.name)
    return sorted(excluded)


def _merge_entry(entry: Term, wanted: Term, earlier: set[str]) -> dict[str, Any]:
    merged = dict(wanted)
    for field in MERGED:
        ours, stored = _terms_of(wanted.get(field)), _terms_of(entry.get(field))
        known = earlier.union(map(_text, ours))
        additions = [term for term in stored if _text(term) not in known and _may_stay(term, ours)]
        terms = [*ours, *additions]
        if field in entry and set(map(_text, terms)) == set(map(_text, stored)):
            merged[field] = entry[field]
        elif terms:
            merged[field] = terms if field == "matchConditions" else _selector(terms)
    return merged


def _may_stay(term: Term, ours: list[Term]) -> bool:
    """Return False for a term that is about a label of ours, or replaces a term of ours."""
    if "expression" in term:
        return all(term["name"] != condition["name"] for condition in ours)
    if len(term) > 1:
        return term["key"] not in _OURS
    return _OURS.isdisjoint(term) and all(term.keys() != label.keys() for label in ours)


def _terms_of(value: dict[str, Any] | list[Term] | None) -> list[Term]:
    """Return the terms of a selector, a label as ``{key: value}``, or the conditions."""
    if not isinstance(value, dict):
        return value or []
    labels = (value.get("matchLabels") or {}).items()
    return [*(value.get("matchExpressions") or ()), *({key: label} for key, label in labels)]


def _selector(terms: list[Term]) -> dict[str, Any]:
    labels = {key: value for term in terms if len(term) == 1 for key, value in term.items()}
    expressions = [term for term in terms if len(term) > 1]
    parts = {"matchExpressions": expressions, "matchLabels": labels}
    return {name: part for name, part in parts.items() if part}


def _texts_of(desired: Mapping[str, Any]) -> Iterator[str]:
    for entry in desired["webhooks"]:
        for field in MERGED:
            yield from map(_text, _terms_of(entry.get(field)))


def _text(term: Term) -> str:
    """Return what is the same for equal terms."""
    values = {"values": sorted(term["values"])} if "operator" in term and "values" in term else {}
    return msgspec.json.encode({**term, **values}, order="sorted").decode()


def _compile(entry: Term) -> Matcher:
    selector = msgspec.convert(entry.get(NAMESPACE_SELECTOR) or {}, LabelSelector)
    return compile_selector(selector) or EVERYTHING
