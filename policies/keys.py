"""Keys under which two parts of an affinity or a toleration count as the same (kupid-spec 3).

Lists that the scheduler reads as sets compare as sets; absent, null and empty are one; fields that
this version does not know make a difference. An absent label selector and an empty one differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    Json = dict[str, Any]

_KNOWN_REQUIREMENT: Final = frozenset(("key", "operator", "values"))
_KNOWN_TERM: Final = frozenset(("matchExpressions", "matchFields"))
_KNOWN_SELECTOR: Final = frozenset(("matchLabels", "matchExpressions"))
_KNOWN_TOLERATION: Final = frozenset(("key", "operator", "value", "effect", "tolerationSeconds"))
_KNOWN_PREFERRED: Final = frozenset(("weight", "preference"))
_KNOWN_WEIGHTED: Final = frozenset(("weight", "podAffinityTerm"))
_LABEL_KEYS: Final = ("matchLabelKeys", "mismatchLabelKeys")
_KNOWN_POD_TERM: Final = frozenset(
    ("labelSelector", "namespaceSelector", "namespaces", "topologyKey", *_LABEL_KEYS)
)

_encode = msgspec.json.Encoder(order="deterministic").encode


def requirement_key(requirement: Json) -> Hashable:
    """The key of one requirement on labels or fields."""
    values = requirement.get("values")
    return (
        requirement.get("key") or "",
        requirement.get("operator") or "",
        frozenset(values) if values else frozenset(),
        _unknown(requirement, _KNOWN_REQUIREMENT),
    )


def node_term_key(term: Json) -> frozenset[Hashable]:
    """The key of a node selector term: the set of what it requires.

    So ``a <= b`` says that b implies a. An unknown field counts as one more requirement, the only
    thing that a new field of a term can be.
    """
    members: list[Hashable] = [
        (scope, requirement_key(requirement))
        for scope in ("matchExpressions", "matchFields")
        for requirement in term.get(scope) or ()
    ]
    members.extend(_unknown(term, _KNOWN_TERM))
    return frozenset(members)


def preferred_key(entry: Json) -> Hashable:
    """The key of a preferred node affinity entry: weight and preference."""
    preference = entry.get("preference")
    term = node_term_key(preference) if preference else frozenset()
    return (entry.get("weight") or 0, term, _unknown(entry, _KNOWN_PREFERRED))


def selector_key(selector: Json | None) -> Hashable:
    """The key of a label selector inside a pod affinity term."""
    if selector is None:
        return None
    return (
        frozenset((selector.get("matchLabels") or {}).items()),
        frozenset(map(requirement_key, selector.get("matchExpressions") or ())),
        _unknown(selector, _KNOWN_SELECTOR),
    )


def pod_term_key(term: Json) -> Hashable:
    """The key of a required pod affinity or anti-affinity term."""
    matched, mismatched = (frozenset(term.get(name) or ()) for name in _LABEL_KEYS)
    selector = term.get("labelSelector")
    if selector and (matched or mismatched):
        selector = _as_written(selector, {"In": matched, "NotIn": mismatched})
    return (
        term.get("topologyKey") or "",
        selector_key(selector),
        selector_key(term.get("namespaceSelector")),
        frozenset(term.get("namespaces") or ()),
        matched,
        mismatched,
        _unknown(term, _KNOWN_POD_TERM),
    )


def _as_written(selector: Json, label_keys: Mapping[str, frozenset[str]]) -> Json:
    """The selector without what the API server makes of the label keys in a stored pod."""
    written = [
        requirement
        for requirement in selector.get("matchExpressions") or ()
        if requirement.get("key") not in label_keys.get(requirement.get("operator") or "", ())
    ]
    return {**selector, "matchExpressions": written}


def weighted_pod_term_key(entry: Json) -> Hashable:
    """The key of a preferred pod affinity or anti-affinity entry: weight and term."""
    return (
        entry.get("weight") or 0,
        pod_term_key(entry.get("podAffinityTerm") or {}),
        _unknown(entry, _KNOWN_WEIGHTED),
    )


def toleration_key(toleration: Json) -> Hashable:
    """The key of a toleration; an absent operator is not the same as ``Equal`` (kupid-spec 3.4)."""
    return (
        toleration.get("key") or "",
        toleration.get("operator") or "",
        toleration.get("value") or "",
        toleration.get("effect") or "",
        toleration.get("tolerationSeconds"),
        _unknown(toleration, _KNOWN_TOLERATION),
    )


def _unknown(fields: Mapping[str, Any], known: frozenset[str]) -> frozenset[Hashable]:
    if fields.keys() <= known:
        return frozenset()
    return frozenset(
        (name, _encode(value))
        for name, value in fields.items()
        if name not in known and value not in (None, "", [], {})
    )
