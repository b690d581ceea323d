"""Why a policy does not select a pod: the first part of its selectors that fails, in its manifest.

Each part is compiled and asked alone, by what the server compiles and asks whole ones with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.field_errors import quote
from harbourmaster.api.selectors import LabelSelector, compile_selector
from harbourmaster.policies.enforcement import AUDIT, MODE_KEY
from harbourmaster.policies.model import PolicySpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from harbourmaster.api.selectors import LabelSelectorRequirement, Matcher
    from harbourmaster.policies.compiled import CompiledPolicy
    from harbourmaster.policies.model import Policy

_SHOWN: Final = 5
"""Values of one expression that are written out."""
ELSEWHERE: Final = "metadata.namespace"
"""The path where a policy is of another namespace."""
_ABSENT: Final = "is absent, so it selects nothing; an empty selector selects everything"


class Mismatch(Struct, frozen=True, rename="camel"):
    """Where in the policy it fails, what that asks for, and what is there instead."""

    path: str
    wants: str
    found: str

    def __str__(self) -> str:
        return f"{self.path} {self.wants}{', ' if self.found else ''}{self.found}"


_AUDITED: Final = Mismatch(f"the annotation {MODE_KEY}", f"is {AUDIT}", "so it changes nothing")


class MatchSubject(Struct, frozen=True):
    """Where a pod is, and the labels that selectors are asked about."""

    namespace: str
    namespace_labels: dict[str, str]
    labels: dict[str, str]
    whose: str = "the pod"
    """The object with the labels, in words: a template is not a pod."""


def why_unmatched(
    compiled: CompiledPolicy, source: Policy | None, subject: MatchSubject
) -> Mismatch | None:
    """The first part that fails; None where there is none, so that the policy selects the pod.

    ``source`` is the policy as it stands in the API; without it the selector is named as a whole.
    """
    spec = (source.spec if source else None) or PolicySpec()
    if compiled.namespace is None:
        selector = spec.namespace_selector, "spec.namespaceSelector"
        mismatch = first_mismatch(
            compiled.namespaces, *selector, subject.namespace_labels, "the namespace"
        )
        if mismatch is not None:
            return mismatch
    elif compiled.namespace != subject.namespace:
        where = f"of the namespace {quote(compiled.namespace)} only"
        return Mismatch(ELSEWHERE, f"is {where}", f"{subject.whose} is in {subject.namespace}")
    mismatch = first_mismatch(
        compiled.pods, spec.pod_selector, "spec.podSelector", subject.labels, subject.whose
    )
    if mismatch is None and compiled.is_audited:
        return _AUDITED
    return mismatch


def first_mismatch(
    matcher: Matcher | None,
    selector: LabelSelector | None,
    path: str,
    labels: Mapping[str, str],
    whose: str,
) -> Mismatch | None:
    """The first part of one selector that ``labels`` don't satisfy; ``matcher`` is it, compiled."""
    if matcher is None:
        return Mismatch(path, _ABSENT, "")
    if matcher.matches(labels):
        return None
    for part, at, key, wants in _parts(selector or LabelSelector(), path):
        alone = compile_selector(part)
        if alone is not None and not alone.matches(labels):
            has = f"{whose} has {quote(labels[key])}" if key in labels else _without(whose, key)
            return Mismatch(at, f"wants {wants}", has)
    return Mismatch(path, "does not match", whose)


def _without(whose: str, key: str) -> str:
    return f"{whose} has no label {key if key.isprintable() else quote(key)}"


def _parts(selector: LabelSelector, path: str) -> Iterator[tuple[LabelSelector, str, str, str]]:
    """Each part as a selector of its own, its path, its key, and what it asks for in words."""
    for key, value in (selector.match_labels or {}).items():
        at = f"{path}.matchLabels[{quote(key)}]"
        yield LabelSelector(match_labels={key: value}), at, key, quote(value)
    for index, asked in enumerate(selector.match_expressions or ()):
        at = f"{path}.matchExpressions[{index}]"
        yield (
            LabelSelector(match_expressions=[asked]),
            at,
            asked.key or "",
            _describe_requirement(asked),
        )


def _describe_requirement(asked: LabelSelectorRequirement) -> str:
    key = asked.key or ""
    text = f"{key if key.isprintable() else quote(key)} {asked.operator}"
    values = asked.values or []
    if not values:
        return text
    shown = [*map(quote, values[:_SHOWN]), *(["..."] if len(values) > _SHOWN else [])]
    return f"{text} [{', '.join(shown)}]"
