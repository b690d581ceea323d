"""Why a policy does not select a pod: the first part of its selectors that fails, in its manifest.

Each part is compiled and asked alone, by what the server compiles and asks whole ones with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from harbourmaster.api.field_errors import quote
from harbourmaster.api.selectors import LabelSelector, compile_selector
from harbourmaster.policies.enforcement import AUDIT, MODE_KEY
from harbourmaster.policies.model import PolicySpec
from harbourmaster.policies.targets import EXCLUDED_KEY, TARGETS_KEY

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
    """The path in the policy that does not match, the wanted value, and the found one."""

    path: str
    wants: str
    present: str = field(name="found")

    def __str__(self) -> str:
        return f"{self.path} {self.wants}{', ' if self.present else ''}{self.present}"


_EXCLUDING: Final = f"the annotation {TARGETS_KEY} or {EXCLUDED_KEY}"
_AUDITED: Final = Mismatch(f"the annotation {MODE_KEY}", f"is {AUDIT}", "so it changes nothing")


class MatchSubject(Struct, frozen=True):
    """The namespace of a pod, and the labels that selectors are compared with."""

    namespace: str
    namespace_labels: dict[str, str]
    labels: dict[str, str]
    whose: str = "the pod"
    """The object with the labels, in words: a template is not a pod."""
    kinds: tuple[str, ...] = ("Pod",)
    """Those of ``PodView``."""


def why_unmatched(
    compiled: CompiledPolicy, source: Policy | None, subject: MatchSubject
) -> Mismatch | None:
    """Return the first part that does not match; None if the policy selects the pod.

    ``source`` is the policy as the API has it; without it the selector is named as a whole.
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
    if mismatch is None and not compiled.excluded_kinds.isdisjoint(subject.kinds):
        return Mismatch(_EXCLUDING, f"leaves out {subject.kinds[-1]}", "")
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
    """Yield each part as a selector, with its path, its key, and the wanted value in words."""
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
