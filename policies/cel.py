"""CEL of the parts of policies: literals, selectors, and keys of list items as one string each.

A string stands for an item as its key of ``policies.keys`` does: lists that are read as sets are
sorted without repetition, absent and empty fields are one. Here it is made twice, of a policy's
item in Python and of a pod's in CEL, and both must be equal for equal items.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from harbourmaster.policies.model import PREFERRED, REQUIRED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from harbourmaster.api.selectors import Matcher

Json: TypeAlias = "dict[str, Any]"
Cel: TypeAlias = str
"""An expression."""
MAX_TERMS: Final = 16
"""Required node selector terms of a pod, before and after the product with those of policies."""
MAX_REQUIREMENTS: Final = 16
"""The most requirements of a term."""
MAX_VALUES: Final = 32
"""The most values of a requirement, and labels or namespaces of a term of pod affinity."""
SHORT_SCOPES: Final = (("e", "matchExpressions"), ("f", "matchFields"))
_SEPARATOR: Final = "|"
_EXPRESSIONS: Final = "matchExpressions"
_FIELDS: Final = "matchFields"
_TOLERATION_TEXTS: Final = ("key", "operator", "value", "effect")


def literal(value: Any) -> Cel:  # noqa: ANN401 - any JSON
    """A JSON value whose strings are ASCII; what has mixed types is ``dyn``."""
    match value:
        case dict():
            entries = (f"{literal(key)}: dyn({literal(item)})" for key, item in value.items())
            return f"{{{', '.join(entries)}}}"
        case list() | tuple():
            wrap = "{}" if all(isinstance(item, str) for item in value) else "dyn({})"
            return f"[{', '.join(wrap.format(literal(item)) for item in value)}]"
        case _:
            return json.dumps(value)


def every(conditions: Iterable[Cel]) -> Cel:
    """Return a condition that holds if all do."""
    return " && ".join(conditions) or "true"


def some(conditions: Iterable[Cel]) -> Cel:
    """Return a condition that holds if one does."""
    return " || ".join(f"({condition})" for condition in conditions) or "false"


def selects(selector: Matcher, labels: Cel) -> Cel:
    """Whether a compiled selector selects these labels, a map."""
    return every(
        [
            *(_has_one_of(labels, key, values) for key, values in selector.one_of),
            *(f"!({_has_one_of(labels, key, values)})" for key, values in selector.none_of),
            *(f"{literal(key)} in {labels}" for key in selector.present),
            *(f"!({literal(key)} in {labels})" for key in selector.absent),
        ]
    )


def _has_one_of(labels: Cel, key: str, values: frozenset[str]) -> Cel:
    name = literal(key)
    return f"({name} in {labels} && {labels}[{name}] in {literal(sorted(values))})"


# Keys: of a policy's item, then of the item ``x`` of a pod


def requirement(item: Json) -> str:
    """Return the key of a policy's requirement on labels or fields."""
    # With their lengths, so that no two different lists give the same text.
    values = sorted({f"{len(value)}:{value}" for value in item.get("values") or ()})
    return _join((item.get("key") or "", item.get("operator") or "", *values))


def count_parts(item: Any) -> tuple[int, int]:  # noqa: ANN401 - any JSON
    """Count the requirements of a policy's item, and its values, labels and names."""
    if not isinstance(item, dict | list | tuple):
        return 0, int(isinstance(item, str))
    inner = list(item.values() if isinstance(item, dict) else item)
    counts = list(map(count_parts, inner))
    return (
        sum(count for count, _ in counts) + (isinstance(item, dict) and "operator" in item),
        sum(count for _, count in counts),
    )


def requirement_of(x: Cel) -> Cel:
    """Return the CEL key of a pod's requirement."""
    values = f'{x}.?values.orValue([]).map(v, string(v.size()) + ":" + v)'
    return _cel_joined(f"[{_text(x, 'key')}, {_text(x, 'operator')}] + {_set(values)}")


def term(item: Json) -> list[str]:
    """Return the keys of all requirements of a node selector term."""
    return sorted(
        {
            f"{scope}{_SEPARATOR}{requirement(entry)}"
            for scope in (_EXPRESSIONS, _FIELDS)
            for entry in item.get(scope) or ()
        }
    )


def term_of(x: Cel) -> Cel:
    """Return the CEL list of the keys of a pod's node selector term."""
    parts = (
        f'{x}.?{scope}.orValue([]).map(r, "{scope}{_SEPARATOR}" + {requirement_of("r")})'
        for scope in (_EXPRESSIONS, _FIELDS)
    )
    return _set(f"({' + '.join(parts)})")


def toleration(item: Json) -> str:
    """Return the key of a policy's toleration."""
    seconds = item.get("tolerationSeconds")
    texts = (item.get(name) or "" for name in _TOLERATION_TEXTS)
    return _join((*texts, "" if seconds is None else str(seconds)))


def toleration_of(x: Cel) -> Cel:
    """Return the CEL key of a pod's toleration."""
    texts = ", ".join(_text(x, name) for name in _TOLERATION_TEXTS)
    seconds = f'has({x}.tolerationSeconds) ? string({x}.tolerationSeconds) : ""'
    return _cel_joined(f"[{texts}, {seconds}]")


def preferred_key(item: Json) -> str:
    """Return the key of a policy's preferred term of node affinity."""
    return _join((str(item.get("weight") or 0), *term(item.get("preference") or {})))


def preferred_key_of(x: Cel) -> Cel:
    """Return the CEL key of a pod's preferred term of node affinity."""
    return _cel_joined(f"[{_weight(x)}] + {term_of(f'{x}.preference')}")


def pod_term(item: Json) -> str:
    """Return the key of a policy's required term of pod affinity or anti-affinity."""
    return _join(
        (
            item.get("topologyKey") or "",
            *_selector(item.get("labelSelector")),
            *_selector(item.get("namespaceSelector")),
            *(
                part
                for name in _POD_TERM_SETS
                for part in (f"#{name}", *sorted(set(item.get(name) or ())))
            ),
        )
    )


def pod_term_of(x: Cel) -> Cel:
    """Return the CEL key of a pod's required term of pod affinity."""
    sets = (
        f'["#{name}"] + {_set(f"{x}.?{name}.orValue([]).map(v, string(v))")}'
        for name in _POD_TERM_SETS
    )
    selectors = (_selector_of(f"{x}.{name}") for name in _SELECTORS)
    return _cel_joined(" + ".join((f"[{_text(x, 'topologyKey')}]", *selectors, *sets)))


def weighted_key(item: Json) -> str:
    """Return the key of a policy's preferred term of pod affinity or anti-affinity."""
    return _join((str(item.get("weight") or 0), pod_term(item.get("podAffinityTerm") or {})))


def weighted_key_of(x: Cel) -> Cel:
    """Return the CEL key of a pod's preferred term of pod affinity."""
    return _cel_joined(f"[{_weight(x)}, {pod_term_of(f'{x}.podAffinityTerm')}]")


def state(item: Json) -> Cel:
    """A policy's term as ``absorbed`` and the product of terms take it."""
    keys: dict[str, list[str]] = {
        short: [f"{scope}|{requirement(entry)}" for entry in item.get(scope) or ()]
        for short, scope in SHORT_SCOPES
    }
    entries = (
        f'"{short}": dyn([{", ".join(_entries(keys[short], item.get(scope) or ()))}])'
        for short, scope in SHORT_SCOPES
    )
    every_key = literal(list(dict.fromkeys((*keys["e"], *keys["f"]))))
    return f'{{"k": dyn({every_key}), {", ".join(entries)}}}'


def _entries(keys: Sequence[str], requirements: Sequence[Json]) -> Iterator[Cel]:
    for index, (key, entry) in enumerate(zip(keys, requirements, strict=True)):
        is_new = literal(keys.index(key) == index)
        yield f'dyn({{"k": dyn({literal(key)}), "r": dyn({literal(entry)}), "n": dyn({is_new})}})'


def is_absorbed(terms: Sequence[Json]) -> Cel:
    """Whether the term ``t`` requires all that one of the terms requires."""
    return f"{literal([term(policy_term) for policy_term in terms])}.exists(a, a.all(k, k in t.k))"


# Requirements and other strings of an item, whose number is bounded before keys are made


def requirements_of(x: Cel) -> Cel:
    """Return the CEL list of the requirements of a pod's node selector term."""
    return " + ".join(_list_at(x, scope) for scope in (_EXPRESSIONS, _FIELDS))


def _preferred_requirements_of(x: Cel) -> Cel:
    return requirements_of(f"{x}.preference")


def _pod_term_requirements_of(x: Cel) -> Cel:
    selectors = (f"{x}.?{name}" for name in _SELECTORS)
    return " + ".join(_list_at(selector, _EXPRESSIONS) for selector in selectors)


def _weighted_requirements_of(x: Cel) -> Cel:
    return _pod_term_requirements_of(f"{x}.podAffinityTerm")


class Limits(NamedTuple):
    """The size up to which a list is compared, so that it is cheap enough for the API server."""

    items: int
    requirements: int
    """The sum over all items."""
    values: int
    """The sum over all requirements."""


OWN_TERMS: Final = Limits(MAX_TERMS, 64, 256)
OWN_ITEMS: Final = Limits(32, 64, 256)
"""The limits for each of a pod's other affinity lists."""


def are_few(
    items: Cel, requirements: Callable[[Cel], Cel], limits: Limits, *, twice: bool = False
) -> Cel:
    """Whether the items of a pod's list are within the limits; what is cheap to count is first.

    With ``twice`` each item may have what a policy adds to it, too.
    """
    most = MAX_REQUIREMENTS * (1 + twice)
    all_requirements = f"{items}.map(x, {requirements('x')}).flatten()"
    values = _list_at("r", "values")
    return every(
        (
            f"{items}.size() <= {limits.items}",
            f"{items}.all(x, ({requirements('x')}).size() <= {most})",
            f"{all_requirements}.size() <= {limits.requirements}",
            f"{all_requirements}.all(r, {values}.size() <= {MAX_VALUES})",
            f"{all_requirements}.map(r, {values}).flatten().size() <= {limits.values}",
        )
    )


def _few_strings(x: Cel) -> Cel:
    sets = (_list_at(x, name) for name in _POD_TERM_SETS)
    labels = (f"{x}.?{name}.?matchLabels.orValue({{}})" for name in _SELECTORS)
    return every(f"{collection}.size() <= {MAX_VALUES}" for collection in (*sets, *labels))


class Item(NamedTuple):
    """The comparison of a list's items: their key in Python and in CEL."""

    key: Callable[[Json], str]
    key_of: Callable[[Cel], Cel]
    requirements_of: Callable[[Cel], Cel]
    pod_term: str | None = None
    """The CEL suffix of the pod affinity term in an item; None for items without one."""

    def are_few(self, items: Cel, limits: Limits) -> Cel:
        """Whether the items of a pod's list are within the limits."""
        is_small = are_few(items, self.requirements_of, limits)
        if self.pod_term is None:
            return is_small
        return f"{is_small} && {items}.all(x, {_few_strings(f'x{self.pod_term}')})"


_POD_TERM_SETS: Final = ("namespaces", "matchLabelKeys", "mismatchLabelKeys")
_SELECTORS: Final = ("labelSelector", "namespaceSelector")
ITEMS: Final[dict[tuple[str, str], Item]] = {
    ("nodeAffinity", PREFERRED): Item(preferred_key, preferred_key_of, _preferred_requirements_of),
    **{
        (name, slot): item
        for name in ("podAffinity", "podAntiAffinity")
        for slot, item in (
            (REQUIRED, Item(pod_term, pod_term_of, _pod_term_requirements_of, "")),
            (
                PREFERRED,
                Item(weighted_key, weighted_key_of, _weighted_requirements_of, ".podAffinityTerm"),
            ),
        )
    },
}
"""The affinity lists that are appended to: sub-object and list."""


def _selector(selector: Json | None) -> list[str]:
    if selector is None:
        return ["-"]
    labels = sorted(f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items())
    required = sorted({requirement(entry) for entry in selector.get(_EXPRESSIONS) or ()})
    return ["+", *labels, "+", *required]


def _selector_of(x: Cel) -> Cel:
    labels = f'{x}.?matchLabels.orValue({{}}).map(k, k + "=" + {x}.matchLabels[k])'
    required = f"{x}.?{_EXPRESSIONS}.orValue([]).map(r, {requirement_of('r')})"
    return f'(has({x}) ? ["+"] + {labels}.sort() + ["+"] + {_set(required)} : ["-"])'


def _join(parts: Iterable[str]) -> str:
    return _SEPARATOR.join(parts)


def _cel_joined(parts: Cel) -> Cel:
    return f'({parts}).join("{_SEPARATOR}")'


def _list_at(x: Cel, name: str) -> Cel:
    return f"{x}.?{name}.orValue([])"


def _text(x: Cel, name: str) -> Cel:
    return f'string({x}.?{name}.orValue(""))'


def _weight(x: Cel) -> Cel:
    return f"string({x}.?weight.orValue(0))"


def _set(values: Cel) -> Cel:
    return f"{values}.distinct().sort()"
