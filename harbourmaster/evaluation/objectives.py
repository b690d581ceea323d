"""Objectives of an evaluation and their results (keptn-spec 4.1)."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.evaluation.targets import is_met, parse_number, parse_target, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable

SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
INCONCLUSIVE: Final = "inconclusive: "
"""Prefix of the message of an objective without a usable value."""
_MET: Final = " met objective "


class Objective(Struct, frozen=True, gc=False):
    """A metric and its target; without a namespace, the metric is looked up in several."""

    metric: str
    target: str
    namespace: str = ""


class Reading(Struct, frozen=True, gc=False):
    """The value of a metric; ``fault`` is the reason why it has none."""

    value: str = ""
    fault: str = ""


class Result(Struct, frozen=True, gc=False):
    """The result of an objective; ``value`` is empty if the metric had none."""

    value: str
    status: str
    message: str = ""


def missing_metric(metric: str, namespaces: Iterable[str]) -> Reading:
    """Return the reading of a metric that exists in none of the namespaces."""
    places = " or ".join(namespaces)
    to_do = "create it there, or set keptnMetricRef.namespace"
    return Reading(fault=f"KeptnMetric {metric} not found in namespace {places}: {to_do}")


def judge(objective: Objective, reading: Reading) -> Result:
    """Compare a reading with the target. A reading without a number has not passed.

    An invalid target is reported first, because no measurement can correct it.
    """
    shown = shorten(reading.value)
    try:
        target = parse_target(objective.target)
    except ValueError as error:
        return Result(shown, FAILED, str(error))
    if reading.fault:
        return Result("", FAILED, f"{INCONCLUSIVE}{reading.fault}")
    try:
        value = parse_number(reading.value)
    except ValueError as error:
        return Result(shown, FAILED, f"{INCONCLUSIVE}value {error}")
    if not math.isfinite(value):
        return Result(shown, FAILED, f"{INCONCLUSIVE}value '{shown}' is not a finite number")
    if is_met(target, value):
        return Result(shown, SUCCEEDED, f"value '{shown}'{_MET}'{objective.target}'")
    return Result(shown, FAILED, f"value '{shown}' did not meet objective '{objective.target}'")


def is_inconclusive(result: Result) -> bool:
    """Return whether the metric had no usable value."""
    return result.message.startswith(INCONCLUSIVE)


def is_still_met(objective: Objective, result: Result | None) -> bool:
    """Return whether a success still counts: it does unless the target has changed."""
    if result is None or result.status != SUCCEEDED:
        return False
    return _MET not in result.message or result.message.endswith(f"{_MET}'{objective.target}'")


def by_result_key(objectives: Iterable[Objective]) -> dict[str, Objective]:
    """Return the objectives by the keys of their results: the name of the metric.

    Further objectives for a name have ``name/namespace`` or ``name#2``. The keys do not depend on
    the order in the definition, so that sorting it exchanges no results.
    """
    distinct = dict.fromkeys(objectives)
    keys: dict[Objective, str] = {}
    counts: dict[str, int] = {}
    for objective in sorted(distinct, key=attrgetter("metric", "namespace", "target")):
        counts[objective.metric] = count = counts.get(objective.metric, 0) + 1
        keys[objective] = _key(objective, count, keys)
    return {keys[objective]: objective for objective in distinct}


def _key(objective: Objective, count: int, taken: dict[Objective, str]) -> str:
    if count == 1:
        return objective.metric
    in_namespace = f"{objective.metric}/{objective.namespace}"
    if objective.namespace and in_namespace not in taken.values():
        return in_namespace
    return f"{objective.metric}#{count}"
