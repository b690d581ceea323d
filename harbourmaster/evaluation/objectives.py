"""Objectives of an evaluation and their results (keptn-spec 4.1)."""

from __future__ import annotations

import math
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
    """What a metric must be; without a namespace the metric is looked up."""

    metric: str
    target: str
    namespace: str = ""


class Reading(Struct, frozen=True, gc=False):
    """A metric as it was found; ``fault`` says why there is no value."""

    value: str = ""
    fault: str = ""


class Result(Struct, frozen=True, gc=False):
    """The result of an objective; ``value`` is empty where there was none."""

    value: str
    status: str
    message: str = ""


def missing_metric(metric: str, namespaces: Iterable[str]) -> Reading:
    """The reading of a metric that exists in none of the namespaces."""
    places = " or ".join(namespaces)
    to_do = "create it there, or set keptnMetricRef.namespace"
    return Reading(fault=f"KeptnMetric {metric} not found in namespace {places}: {to_do}")


def judge(objective: Objective, found: Reading) -> Result:
    """Compare. What cannot be compared has not passed; the message says why.

    An invalid target is reported first, because no measurement can fix it.
    """
    shown = shorten(found.value)
    try:
        target = parse_target(objective.target)
    except ValueError as error:
        return Result(shown, FAILED, str(error))
    if found.fault:
        return Result("", FAILED, f"{INCONCLUSIVE}{found.fault}")
    try:
        value = parse_number(found.value)
    except ValueError as error:
        return Result(shown, FAILED, f"{INCONCLUSIVE}value {error}")
    if not math.isfinite(value):
        return Result(shown, FAILED, f"{INCONCLUSIVE}value '{shown}' is not a finite number")
    if is_met(target, value):
        return Result(shown, SUCCEEDED, f"value '{shown}'{_MET}'{objective.target}'")
    return Result(shown, FAILED, f"value '{shown}' did not meet objective '{objective.target}'")


def is_inconclusive(result: Result) -> bool:
    """Whether there was no usable value."""
    return result.message.startswith(INCONCLUSIVE)


def is_still_met(objective: Objective, result: Result | None) -> bool:
    """Whether a success stays one: it does, unless the objective has another target since."""
    if result is None or result.status != SUCCEEDED:
        return False
    return _MET not in result.message or result.message.endswith(f"{_MET}'{objective.target}'")


def by_result_key(objectives: Iterable[Objective]) -> dict[str, Objective]:
    """The objectives by the keys of their results: the metric's name where it stands alone.

    Of several objectives for one name the first has it as well, and others have
    ``name/namespace`` or ``name#2``; their order in the definition does not matter, so that no
    result passes from one to another where somebody sorts the list.
    """
    distinct = dict.fromkeys(objectives)
    keys: dict[Objective, str] = {}
    counts: dict[str, int] = {}
    for each in sorted(distinct, key=lambda found: (found.metric, found.namespace, found.target)):
        counts[each.metric] = count = counts.get(each.metric, 0) + 1
        keys[each] = _key(each, count, keys)
    return {keys[each]: each for each in distinct}


def _key(objective: Objective, count: int, taken: dict[Objective, str]) -> str:
    if count == 1:
        return objective.metric
    in_namespace = f"{objective.metric}/{objective.namespace}"
    if objective.namespace and in_namespace not in taken.values():
        return in_namespace
    return f"{objective.metric}#{count}"
