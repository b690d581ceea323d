"""Says tolerations, affinity and selectors in sentences."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.policies.model import (
    NodeSelectorTerm,
    PodAffinityTerm,
    PreferredSchedulingTerm,
    Toleration,
    WeightedPodAffinityTerm,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from harbourmaster.api.selectors import LabelSelector, LabelSelectorRequirement
    from harbourmaster.policies.model import Affinity, NodeSelectorRequirement

_LONGEST: Final = 500


def field_text(path: str, value: Any) -> str:  # noqa: ANN401 - a field in JSON
    """Return a sentence for a field of a pod at a path such as ``spec.tolerations[0]``.

    A text is returned as it is, and what is not understood as JSON.
    """
    text = value if isinstance(value, str) else ""
    is_required, is_anti = ".required" in path, "Anti" in path
    with contextlib.suppress(msgspec.ValidationError):
        if text:
            pass
        elif ".tolerations[" in path:
            text = toleration(msgspec.convert(value, Toleration))
        elif ".nodeAffinity." in path and is_required:
            text = _on(msgspec.convert(value, list[NodeSelectorTerm]))
        elif ".nodeAffinity." in path:
            text = _rather_on(msgspec.convert(value, PreferredSchedulingTerm))
        elif is_required:
            text = _beside(msgspec.convert(value, PodAffinityTerm), is_anti=is_anti)
        else:
            text = _rather(msgspec.convert(value, WeightedPodAffinityTerm), is_anti=is_anti)
    return _cut(text or msgspec.json.encode(value).decode())


def toleration(tolerated: Toleration) -> str:
    """Return a sentence for a toleration."""
    taint = f"the taint {tolerated.key}" if tolerated.key else "any taint"
    if tolerated.value:
        taint += f"={tolerated.value}"
    effect = f" with the effect {tolerated.effect}" if tolerated.effect else ""
    seconds = tolerated.toleration_seconds
    return f"tolerates {taint}{effect}" + ("" if seconds is None else f", for {seconds} s")


def affinity_texts(affinity: Affinity) -> Iterator[str]:
    """Yield a sentence for each rule of an affinity."""
    node, beside = affinity.node_affinity, affinity.pod_affinity
    if node is not None and node.required is not None:
        yield _cut(_on(node.required.node_selector_terms or ()))
    for term in (node.preferred if node else None) or ():
        yield _cut(_rather_on(term))
    for rules, is_anti in ((beside, False), (affinity.pod_anti_affinity, True)):
        for required in (rules.required if rules else None) or ():
            yield _cut(_beside(required, is_anti=is_anti))
        for preferred in (rules.preferred if rules else None) or ():
            yield _cut(_rather(preferred, is_anti=is_anti))


def selector_terms(selector: LabelSelector) -> list[str]:
    """Return the terms of a selector in the syntax of kubectl."""
    terms = [f"{key}={value}" for key, value in (selector.match_labels or {}).items()]
    return [*terms, *_requirements(selector.match_expressions or ())]


def _requirements(
    requirements: Iterable[LabelSelectorRequirement | NodeSelectorRequirement],
) -> Iterator[str]:
    for required in requirements:
        key, operands = required.key, ", ".join(required.values or ())
        match required.operator:
            case "In":
                yield f"{key} in ({operands})"
            case "NotIn":
                yield f"{key} notin ({operands})"
            case "Exists":
                yield f"{key}"
            case "DoesNotExist":
                yield f"!{key}"
            case "Gt" | "Lt":
                yield f"{key} {'>' if required.operator == 'Gt' else '<'} {operands}"
            case _:
                yield f"{key} {required.operator} ({operands})"


def _node_term(term: NodeSelectorTerm | None) -> str:
    fields = [*((term and term.match_expressions) or ()), *((term and term.match_fields) or ())]
    return " and ".join(_requirements(fields)) or "nothing that a node can have"


def _on(terms: Sequence[NodeSelectorTerm]) -> str:
    return f"only on nodes with {', or with '.join(map(_node_term, terms))}"


def _rather_on(term: PreferredSchedulingTerm) -> str:
    return f"rather on nodes with {_node_term(term.preference)} (weight {term.weight})"


def _beside(term: PodAffinityTerm | None, *, is_anti: bool, word: str = "") -> str:
    if term is None:
        return ""
    pods = " and ".join(selector_terms(term.label_selector)) if term.label_selector else ""
    where = ""
    if term.namespaces:
        where = f" in the namespaces {', '.join(term.namespaces)}"
    elif term.namespace_selector is not None:
        spaces = " and ".join(selector_terms(term.namespace_selector))
        where = f" in namespaces with {spaces}" if spaces else " in all namespaces"
    word = word or ("never" if is_anti else "only")
    return f"{word} in the same {term.topology_key} as pods{' with ' if pods else ''}{pods}{where}"


def _rather(term: WeightedPodAffinityTerm, *, is_anti: bool) -> str:
    word = "rather not" if is_anti else "rather"
    text = _beside(term.pod_affinity_term, is_anti=is_anti, word=word)
    return f"{text} (weight {term.weight})"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
