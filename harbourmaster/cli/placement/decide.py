"""``harbourmaster placement parse`` and ``decide``: placement without a cluster, line by line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

from harbourmaster.api import times
from harbourmaster.api.decoding import MalformedError, decode
from harbourmaster.cli.lines import answer_file
from harbourmaster.placement import application_decisions
from harbourmaster.placement.backends import decide_cluster, decide_magnum_cluster
from harbourmaster.placement.checking import cause_of
from harbourmaster.placement.constraints import PARSERS, Language
from harbourmaster.placement.lexer import ConstraintError
from harbourmaster.placement.model import KINDS
from harbourmaster.placement.passes import Pass
from harbourmaster.placement.rules import Rules
from harbourmaster.placement.snapshot import MetricFault, snapshot_of

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Iterable, Iterator

    from harbourmaster.placement.decision import Decision
    from harbourmaster.placement.model import Object
    from harbourmaster.placement.snapshot import ObjectKey, Reading, ReadingKey, Snapshot

_DEFAULT_NAMESPACE: Final = "default"
_NUMBERS: Final = {"NaN", "Inf", "+Inf", "-Inf", "Infinity", "-Infinity"}
_YEARS: Final = range(1970, 9000)
"""The years that are valid in ``now``; arithmetic with their dates cannot overflow."""


class Expression(Struct, frozen=True):
    """One line of ``parse``."""

    kind: Language
    expression: str
    id: Any = None


class Parsed(Struct, frozen=True):
    """Whether it is a constraint: how it is best written, or what is wrong, with a caret."""

    id: Any
    valid: bool
    canonical: str | None = None
    error: str | None = None


class PlacementCase(Struct, frozen=True, rename="camel", kw_only=True):
    """A line of ``decide``: the objects of a cluster, and the one that is decided about."""

    id: Any = None
    now: str | float | None = None
    settings: Rules = Rules()
    objects: list[Raw] = []
    samples: dict[str, float | str | dict[str, float | str | dict[str, str]]] = {}
    """Values by metric, and by cluster if they differ; ``error`` is why there is no value."""
    application: str | None = None
    cluster: str | None = None
    magnum_cluster: str | None = None


class PlacementAnswer(Struct, frozen=True, omit_defaults=True):
    """A decision by the names of targets; ``chosen`` are those with the best score.

    ``check`` says which changes would be checked before anything is deployed.
    """

    candidates: list[str]
    matched: list[str]
    excluded: dict[str, str]
    scores: dict[str, float]
    chosen: list[str]
    stays: bool
    error: str | None
    check: str = ""


class Decided(Struct, frozen=True):
    """The answer to a case."""

    id: Any
    decision: PlacementAnswer


class _Kind(Struct, frozen=True):
    kind: str


_expressions: Final = msgspec.json.Decoder(Expression)
_cases: Final = msgspec.json.Decoder(PlacementCase)
_kinds: Final = msgspec.json.Decoder(_Kind)
_decoders: Final = {kind: msgspec.json.Decoder(type_) for kind, type_ in KINDS.items()}


def parse(arguments: Arguments) -> int:
    """Parse the constraint of each line; return 1 if a line is invalid."""
    return answer_file(arguments.file, parse_line)


def decide(arguments: Arguments) -> int:
    """Decide the case of each line; return 1 if a line is invalid."""
    return answer_file(arguments.file, decide_line)


def parse_line(line: bytes) -> Parsed:
    """Parse the constraint of one line. Raises MalformedError."""
    given = decode(_expressions, line, "")
    try:
        constraint = PARSERS[given.kind](given.expression)
    except ConstraintError as error:
        return Parsed(given.id, valid=False, error=error.with_caret)
    return Parsed(given.id, valid=True, canonical=constraint.canonical)


def decide_line(line: bytes) -> Decided:
    """Decide the case of one line. Raises MalformedError."""
    case = decode(_cases, line, "")
    readings: dict[ReadingKey, Reading] = {}
    for name, given in case.samples.items():
        readings.update(_readings(name, given))
    world = snapshot_of(_objects(case.objects), readings)
    seen = Pass(world, _moment(case.now), case.settings)
    decision = _decision(case, world, seen)
    place = _place(case.application or "")
    cause = cause_of(world.applications[place], decision) if case.application else ""
    return Decided(case.id, answer(decision, cause))


def answer(decision: Decision, cause: str = "") -> PlacementAnswer:
    """Convert a decision: targets become their names; ``cause`` is that of a check."""
    excluded: dict[str, str] = {}
    for verdict in decision.verdicts:
        if verdict.reason:
            label = verdict.target.label
            # A cloud and a global one may have one name.
            excluded[f"{verdict.target.kind}/{label}" if label in excluded else label] = (
                verdict.reason
            )
    ready = [
        verdict.target.label
        for verdict in decision.verdicts
        if not verdict.target.unready and (not verdict.target.measured.fault or not verdict.reason)
    ]
    return PlacementAnswer(
        candidates=ready,
        matched=[verdict.target.label for verdict in decision.verdicts if not verdict.reason],
        excluded=excluded,
        scores=dict(decision.scores),
        chosen=sorted(decision.chosen),
        stays=decision.stays,
        error=decision.error or None,
        check=f"would be checked first: {cause.replace(',', ', ')}" if cause else "",
    )


def _decision(case: PlacementCase, world: Snapshot, seen: Pass) -> Decision:
    given = {"application": case.application, "cluster": case.cluster}
    given["magnumCluster"] = case.magnum_cluster
    asked = [(field, text) for field, text in given.items() if text is not None]
    if len(asked) != 1:
        raise MalformedError("one of application, cluster and magnumCluster says what is decided")
    ((field, text),) = asked
    place = _place(text)
    application = world.applications.get(place)
    cluster = world.clusters.get(place[0], {}).get(place[1])
    magnum_cluster = world.magnum_clusters.get(place)
    if field == "application" and application is not None:
        return application_decisions.decide(application, seen)
    if field == "cluster" and cluster is not None:
        return decide_cluster(cluster, seen)
    if field == "magnumCluster" and magnum_cluster is not None:
        return decide_magnum_cluster(magnum_cluster, seen, "Open")
    raise MalformedError(f"{field}: '{'/'.join(place)}' is not among the objects")


def _objects(given: Iterable[Raw]) -> Iterable[Object]:
    for index, raw in enumerate(given):
        at = f"objects[{index}]"
        kind = decode(_kinds, raw, at).kind
        decoder = _decoders.get(kind)
        if decoder is None:
            raise MalformedError(f"{at}.kind: '{kind}' is not one of {', '.join(KINDS)}")
        obj: Object = decode(decoder, raw, at)
        namespace = obj.metadata.namespace or _DEFAULT_NAMESPACE
        if kind.startswith("Global"):
            namespace = ""
        metadata = msgspec.structs.replace(obj.metadata, namespace=namespace)
        yield msgspec.structs.replace(obj, metadata=metadata)


def _readings(
    name: str, given: float | str | dict[str, float | str | dict[str, str]]
) -> Iterator[tuple[ReadingKey, Reading]]:
    namespace, slash, metric = name.rpartition("/")
    place = (namespace if slash else "", metric)
    if not isinstance(given, dict) or isinstance(given.get("error"), str):
        yield place, _reading(name, given)
        return
    for cluster, value in given.items():
        yield (*place, *_place(cluster)), _reading(f"{name}.{cluster}", value)


def _reading(name: str, given: float | str | dict[str, Any]) -> Reading:
    if isinstance(given, dict):
        return MetricFault("UnreachableMetricsProvider", str(given.get("error", "")))
    if isinstance(given, str):
        # JSON has no other way to write them.
        if given not in _NUMBERS:
            raise MalformedError(f"samples.{name}: '{given}' is not a number")
        return float(given)
    return given


def _moment(given: str | float | None) -> datetime:
    if given is None:
        return datetime.now(UTC)
    try:
        moment = (
            times.parse_rfc3339(given)
            if isinstance(given, str)
            else datetime.fromtimestamp(given, UTC)
        )
    except (ValueError, OverflowError, OSError):
        moment = None
    if moment is None or moment.year not in _YEARS:
        text = f"now: '{given}' is not a time: write for example 2026-01-31T12:00:00Z"
        raise MalformedError(text)
    return moment


def _place(text: str) -> ObjectKey:
    namespace, slash, name = text.rpartition("/")
    return (namespace if slash else _DEFAULT_NAMESPACE), name
