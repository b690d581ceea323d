"""Validation of the kinds of an analysis (keptn-spec 4.6): pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harbourmaster.api.durations import parse_duration
from harbourmaster.api.field_errors import forbidden, invalid, required, warned_name
from harbourmaster.api.quantities import parse_quantity
from harbourmaster.api.times import parse_rfc3339
from harbourmaster.evaluation.criteria import FIXED, HIGH, LOW, OPERATORS
from harbourmaster.evaluation.metric_validation import MAX_ITEMS, bad_duration, bad_query
from harbourmaster.evaluation.targets import shorten
from harbourmaster.evaluation.templates import parse_template

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from harbourmaster.api.field_errors import FieldError
    from harbourmaster.api.quantities import Quantity
    from harbourmaster.evaluation.model import (
        Analysis,
        AnalysisDefinition,
        AnalysisObjective,
        AnalysisValueTemplate,
        ObjectReference,
        Timeframe,
    )


def validate_analysis(analysis: Analysis) -> list[FieldError]:
    """Every fault, in the order of the fields."""
    spec = analysis.spec
    return [
        *_timeframe(spec.timeframe),
        *_reference("spec.analysisDefinition", spec.analysis_definition),
    ]


def validate_definition(definition: AnalysisDefinition) -> list[FieldError]:
    """Every fault, in the order of the fields."""
    return list(_definition(definition))


def validate_template(template: AnalysisValueTemplate) -> list[FieldError]:
    """Every fault, in the order of the fields."""
    return [*_reference("spec.provider", template.spec.provider), *_query(template.spec.query)]


def _timeframe(found: Timeframe) -> Iterator[FieldError]:
    at = "spec.timeframe"
    if _is_given(found.recent):
        yield from bad_duration(f"{at}.recent", found.recent)
        for name, value in (("from", found.from_), ("to", found.to)):
            if value:
                yield forbidden(f"{at}.{name}", "give either recent, or both from and to")
        return
    moments: list[datetime] = []
    for name, value in (("from", found.from_), ("to", found.to)):
        if not value:
            yield required(f"{at}.{name}", "give both from and to, or recent")
            continue
        try:
            moments.append(parse_rfc3339(value))
        except ValueError:
            text = "is not a time: write for example 2026-01-31T12:00:00Z"
            yield invalid(f"{at}.{name}", value, text)
    match moments:
        case [begin, end] if end <= begin:
            yield invalid(f"{at}.to", found.to, f"must be after from, which is {found.from_}")


def _is_given(recent: str) -> bool:
    # Go programs write an unset duration as 0s.
    try:
        return bool(recent) and parse_duration(recent) != 0
    except ValueError:
        return True


def _definition(definition: AnalysisDefinition) -> Iterator[FieldError]:
    spec = definition.spec
    if len(spec.objectives) > MAX_ITEMS:
        text = f"must have at most {MAX_ITEMS} objectives"
        yield invalid("spec.objectives", len(spec.objectives), text)
        return
    for index, objective in enumerate(spec.objectives):
        yield from _objective(f"spec.objectives[{index}]", objective)
    at = "spec.totalScore"
    percentages = (
        ("passPercentage", spec.total_score.pass_percentage),
        ("warningPercentage", spec.total_score.warning_percentage),
    )
    for name, value in percentages:
        if not 0 <= value <= 100:  # noqa: PLR2004 - percent
            yield invalid(f"{at}.{name}", value, "must be 0 to 100")
    passing, warning = (value for _, value in percentages)
    if warning >= passing:
        text = f"must be below passPercentage, which is {passing}"
        yield invalid(f"{at}.warningPercentage", warning, text)


def _objective(at: str, objective: AnalysisObjective) -> Iterator[FieldError]:
    yield from _reference(f"{at}.analysisValueTemplateRef", objective.analysis_value_template_ref)
    target = objective.target
    if isinstance(target, dict):
        for name in ("failure", "warning"):
            if target.get(name) is not None:
                yield from _criterion(f"{at}.target.{name}", target[name])
    elif target is not None:
        yield _no_object(f"{at}.target", target)
    if objective.weight < 0:
        yield invalid(f"{at}.weight", objective.weight, "must not be negative")


def _criterion(at: str, criterion: Any) -> Iterator[FieldError]:  # noqa: ANN401 - as it was sent
    if not isinstance(criterion, dict):
        yield _no_object(at, criterion)
        return
    given = [name for name in OPERATORS if criterion.get(name) is not None]
    if not given:
        yield required(at, f"leave it out, or give one of {', '.join(OPERATORS)}")
    elif len(given) > 1:
        yield invalid(at, ", ".join(given), "only one operator can be given")
    for name in given:
        yield from _operator(f"{at}.{name}", criterion[name], is_range=name.endswith("Range"))


def _operator(at: str, operator: Any, *, is_range: bool) -> Iterator[FieldError]:  # noqa: ANN401
    if not isinstance(operator, dict):
        yield _no_object(at, operator)
        return
    bounds: list[Quantity] = []
    for name in (LOW, HIGH) if is_range else (FIXED,):
        value = operator.get(name)
        if value is None:
            yield required(f"{at}.{name}", "give a number or a quantity, for example 5 or 500m")
            continue
        try:
            bounds.append(parse_quantity(value))
        except ValueError as error:
            yield invalid(f"{at}.{name}", str(value), str(error))
    match bounds:
        case [low, high] if low.value >= high.value:
            text = f"must be above {LOW}, which is {low.text}"
            yield invalid(f"{at}.{HIGH}", high.text, text)


def _query(query: str) -> Iterator[FieldError]:
    at = "spec.query"
    faults = list(bad_query(at, query))
    yield from faults
    if not faults:
        try:
            parse_template(query)
        except ValueError as error:
            yield invalid(at, shorten(query), str(error)).as_warning()


def _reference(at: str, found: ObjectReference) -> Iterator[FieldError]:
    if not found.name:
        yield required(f"{at}.name", "name an object").as_warning()
    yield from warned_name(f"{at}.name", found.name, same_namespace=False)
    yield from warned_name(f"{at}.namespace", found.namespace, same_namespace=False)


def _no_object(at: str, value: Any) -> FieldError:  # noqa: ANN401 - as it was sent
    return invalid(at, str(value), "must be an object")
