"""The constraints of applications: labels, metrics, custom resources and kinds (krake-spec 2).

No constraint but ``not exists`` holds for a target without the label or metric that it names.
"""

from __future__ import annotations

import math
import operator
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from harbourmaster.api.names import dns_subdomain
from harbourmaster.placement.brought_kinds import is_brought
from harbourmaster.placement.lexer import ConstraintError, ConstraintReader, TokenKind

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from harbourmaster.placement.data_holders import Manifest

LabelOperator = Literal["is", "is not", "in", "not in", "exists", "not exists"]
MetricOperator = Literal[
    "is", "is not", "greater than", "greater than or equal", "lesser than", "lesser than or equal"
]

_LABEL_OPERATORS: Final[dict[tuple[str, ...], LabelOperator]] = {
    ("=",): "is",
    ("==",): "is",
    ("is",): "is",
    ("!=",): "is not",
    ("is", "not"): "is not",
    ("in",): "in",
    ("not", "in"): "not in",
    ("exists",): "exists",
    ("not", "exists"): "not exists",
}
_KNOWN_LABEL_OPERATORS: Final = "one of =, ==, is, !=, is not, in, not in, exists, not exists"
_VALUE: Final = "a label value"
_COMPARISONS: Final[dict[MetricOperator, Callable[[float, float], bool]]] = {
    "is": operator.eq,
    "is not": operator.ne,
    "greater than": operator.gt,
    "greater than or equal": operator.ge,
    "lesser than": operator.lt,
    "lesser than or equal": operator.le,
}
_SPELLINGS: Final[dict[MetricOperator, tuple[str, ...]]] = {
    "is": ("=", "==", "is"),
    "is not": ("!=", "is not"),
    "greater than": (">", "gt", "greater than"),
    "greater than or equal": (">=", "=>", "gte", "greater than or equal"),
    "lesser than": ("<", "lt", "lesser than", "less than"),
    "lesser than or equal": ("<=", "=<", "lte", "lesser than or equal", "less than or equal"),
}
_METRIC_OPERATORS: Final = {
    tuple(spelling.split()): name
    for name, spellings in _SPELLINGS.items()
    for spelling in spellings
}
_KNOWN_METRIC_OPERATORS: Final = (
    "one of =, !=, >, >=, <, <=, is, is not, greater than [or equal], less than [...]"
)
_NUMBER: Final = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
_DEFINITION: Final = "the name of a custom resource definition"
_DEFINITION_RULE: Final = "is <plural>.<group>, such as shirts.example.com: a-z, 0-9, '-' and '.'"


class LabelConstraint(Struct, frozen=True):
    """A constraint on a label, such as ``location not in (DE, SK)`` (krake-spec 2.1).

    Only ``in`` and ``not in`` have several values, in the order in which they are written;
    ``exists`` and ``not exists`` have none.
    """

    key: str
    operator: LabelOperator
    values: tuple[str, ...]

    @property
    def canonical(self) -> str:
        """The spelling that all equal constraints share."""
        listed = ", ".join(value or '""' for value in self.values)
        shown = f"({listed})" if self.operator in {"in", "not in"} else listed
        return f"{self.key} {self.operator} {shown}".rstrip()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet the constraint."""
        label = labels.get(self.key)
        if label is None or not self.values:
            return (label is None) is (self.operator == "not exists")
        return (label in self.values) is (self.operator in {"is", "in"})

    def mismatch(self, labels: Mapping[str, str]) -> str:
        """Return why labels do not meet the constraint; empty if they do."""
        if self.holds(labels):
            return ""
        label = labels.get(self.key)
        why = f"the label is '{label}'" if label is not None else "the label is missing"
        return f"label constraint '{self.canonical}': {why}"


class MetricConstraint(Struct, frozen=True, gc=False):
    """A constraint on a metric, such as ``load <= 5`` (krake-spec 2.2).

    The bound is a finite number, kept as it is written.
    """

    key: str
    operator: MetricOperator
    bound: str

    @property
    def number(self) -> float:
        """The bound as a number."""
        return float(self.bound)

    @property
    def canonical(self) -> str:
        """The spelling that all equal constraints share."""
        return f"{self.key} {self.operator} {self.bound}"

    def holds(self, value: float | None) -> bool:
        """Return whether a value meets the constraint; None is a metric without a value."""
        return value is not None and _COMPARISONS[self.operator](value, self.number)

    def mismatch(self, value: float | None) -> str:
        """Return why a value does not meet the constraint; empty if it does."""
        if self.holds(value):
            return ""
        why = f"the value is {value:g}" if value is not None else "the metric is missing"
        return f"metric constraint '{self.canonical}': {why}"


class CustomResourceConstraint(Struct, frozen=True, gc=False):
    """A custom resource that a cluster must have, ``<plural>.<group>`` (krake-spec 2.3)."""

    name: str

    @property
    def canonical(self) -> str:
        """The name, which has only one spelling."""
        return self.name

    def holds(self, known: Container[str]) -> bool:
        """Return whether the resource is among the known ones."""
        return self.name in known

    def mismatch(self, known: Container[str]) -> str:
        """Return why the known resources do not meet the constraint; empty if they do."""
        if self.holds(known):
            return ""
        return f"custom resource constraint '{self.name}': the cluster does not have this resource"


class KindConstraint(CustomResourceConstraint, frozen=True, gc=False):
    """A kind of a manifest that a cluster must serve: ``example.com/v1/Shirt``.

    Kinds of groups without a dot are part of Kubernetes and always count as served.
    """

    def holds(self, known: Container[str]) -> bool:
        """Return whether a cluster serves the kind or may do so: ``*`` stands for unknown kinds."""
        version = self.name.rpartition("/")[0]
        return any(name in known for name in (self.name, f"{version}/*", "*"))

    def mismatch(self, known: Container[str]) -> str:
        """Return why the served kinds do not meet the constraint; empty if they do."""
        version, _, kind = self.name.rpartition("/")
        return "" if self.holds(known) else f"the cluster does not serve kind {kind} in {version}"


@lru_cache(maxsize=4096)
def parse_label(expression: str) -> LabelConstraint:
    """Parse a label constraint. Raises ConstraintError."""
    reader = ConstraintReader(expression)
    key = reader.key("a label key")
    name = reader.operator(_LABEL_OPERATORS, _KNOWN_LABEL_OPERATORS)
    values: tuple[str, ...] = ()
    if name in {"in", "not in"}:
        values = _parse_list(reader)
    elif name not in {"exists", "not exists"}:
        values = (reader.value(_VALUE),)
    reader.end()
    return LabelConstraint(key, name, values)


def _parse_list(reader: ConstraintReader) -> tuple[str, ...]:
    """Parse ``(a, b)``; any number of commas may follow the last value."""
    reader.needs("(")
    values = [reader.value(_VALUE)]
    while reader.takes(","):
        if reader.token.kind is TokenKind.WORD:
            values.append(reader.value(_VALUE))
            continue
        while reader.takes(","):
            pass
        break
    reader.needs(")")
    return tuple(values)


@lru_cache(maxsize=4096)
def parse_metric(expression: str) -> MetricConstraint:
    """Parse a metric constraint. Raises ConstraintError."""
    reader = ConstraintReader(expression)
    key = reader.key("the name of a metric")
    name = reader.operator(_METRIC_OPERATORS, _KNOWN_METRIC_OPERATORS)
    token = reader.word("a number")
    if not _NUMBER.fullmatch(token.text):
        raise reader.fault(f"expected a number such as 5, -0.5 or 1e3, found {token}", token)
    if not math.isfinite(float(token.text)):
        raise reader.fault(f"the number {token} is too large", token)
    reader.end()
    return MetricConstraint(key, name, token.text)


@lru_cache(maxsize=4096)
def parse_custom_resource(expression: str) -> CustomResourceConstraint:
    """Parse a custom resource constraint. Raises ConstraintError."""
    reader = ConstraintReader(expression)
    token = reader.word(_DEFINITION)
    reader.end()
    plural, dot, group = token.text.partition(".")
    if not dot:
        raise ConstraintError(f"{_DEFINITION} {_DEFINITION_RULE}", expression, token.end)
    if not plural or not group or dns_subdomain(token.text):
        raise reader.fault(f"{_DEFINITION} {_DEFINITION_RULE}", token)
    return CustomResourceConstraint(token.text)


Language = Literal["label", "metric", "customResource"]
Constraint: TypeAlias = LabelConstraint | MetricConstraint | CustomResourceConstraint

PARSERS: Final[dict[Language, Callable[[str], Constraint]]] = {
    "label": parse_label,
    "metric": parse_metric,
    "customResource": parse_custom_resource,
}
"""The parsers by language; each raises ConstraintError."""


def needed_kinds(manifests: Iterable[Manifest]) -> tuple[KindConstraint, ...]:
    """Return the kinds that manifests need, except those that some of them bring."""
    needed: set[tuple[str, str, str]] = set()
    brought: set[str] = set()
    for manifest in manifests:
        brought.update(manifest.brings)
        if "." in manifest.group and manifest.kind not in {"", "CustomResourceDefinition"}:
            needed.add((manifest.group, manifest.kind, f"{manifest.api_version}/{manifest.kind}"))
    return tuple(
        KindConstraint(name)
        for group, kind, name in sorted(needed)
        if not is_brought(group, kind, brought)
    )
