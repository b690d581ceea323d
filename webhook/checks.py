"""The decoders and checks of the kinds that are only checked, which are loaded when first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.field_errors import FieldError
from harbourmaster.evaluation.model import (
    Analysis,
    AnalysisDefinition,
    AnalysisValueTemplate,
    Metric,
    Provider,
)
from harbourmaster.evaluation.validation import (
    validate_analysis,
    validate_definition,
    validate_metric,
    validate_provider,
    validate_template,
)
from harbourmaster.lifecycle.apps import app_errors
from harbourmaster.lifecycle.evaluations import definition_errors
from harbourmaster.lifecycle.model import App, EvaluationDefinition, TaskDefinition
from harbourmaster.lifecycle.task_definition_validation import validate
from harbourmaster.placement.model import GROUP as PLACEMENT
from harbourmaster.placement.validation import CHECKS as PLACEMENT_CHECKS


class Checks(Struct, frozen=True):
    """The decoder and the checks for objects of one kind."""

    decoder: msgspec.json.Decoder[Any]
    faults: Callable[[Any], list[FieldError]]
    is_open: bool = False
    """Whether the schema lets values of any type pass somewhere."""


def _checks_of(kind: type, faults: Callable[[Any], list[FieldError]], **options: bool) -> Checks:
    return Checks(msgspec.json.Decoder(kind), faults, **options)


KINDS: Final = {
    ("lifecycle.keptn.sh", "KeptnTaskDefinition"): _checks_of(TaskDefinition, validate),
    ("lifecycle.keptn.sh", "KeptnApp"): _checks_of(App, app_errors),
    ("lifecycle.keptn.sh", "KeptnEvaluationDefinition"): _checks_of(
        EvaluationDefinition, definition_errors
    ),
    ("metrics.keptn.sh", "KeptnMetric"): _checks_of(Metric, validate_metric),
    ("metrics.keptn.sh", "KeptnMetricsProvider"): _checks_of(
        Provider, validate_provider, is_open=True
    ),
    ("metrics.keptn.sh", "Analysis"): _checks_of(Analysis, validate_analysis),
    ("metrics.keptn.sh", "AnalysisDefinition"): _checks_of(AnalysisDefinition, validate_definition),
    ("metrics.keptn.sh", "AnalysisValueTemplate"): _checks_of(
        AnalysisValueTemplate, validate_template
    ),
    **{
        (PLACEMENT, kind): _checks_of(check.model, check.faults)
        for kind, check in PLACEMENT_CHECKS.items()
    },
}
