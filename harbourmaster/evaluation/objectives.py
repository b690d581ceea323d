"""Objectives of an evaluation, their results, and its progress (keptn-spec 4.1).

An evaluation is measured until it succeeds or its retries run out. Its progress is in the status of
the object, so that a restarted controller continues.
"""

from __future__ import annotations

import math
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.evaluation.model import PENDING, PROGRESSING
from harbourmaster.evaluation.targets import is_met, parse_number, parse_target, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
_MOST_TRIES: Final = 10_000
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


class Progress(Struct, frozen=True, gc=False):
    """The number of measurements of an evaluation, and the results of the last one."""

    tries: int = 0
    results: dict[str, Result] = {}
    state: str = PENDING
    measured: dict[str, str] = {}
    """The targets of the objectives that this step has measured, by the keys of results."""

    @property
    def is_over(self) -> bool:
        """Whether the state is final."""
        return self.state in {SUCCEEDED, FAILED}


def max_tries(retries: int) -> int:
    """Return the number of measurements after which an evaluation fails, from 1 to 10,000."""
    return min(max(retries, 1), _MOST_TRIES)


def measure(
    progress: Progress,
    objectives: Iterable[Objective],
    read: Callable[[Objective], Reading],
    *,
    is_sticky: bool = True,
) -> Progress:
    """Return the progress after another measurement.

    Objectives that were met are not read again, unless ``is_sticky`` is false: then one measurement
    must meet all.
    """
    results, measured = {}, {}
    for key, objective in by_result_key(objectives).items():
        before = progress.results.get(key)
        if is_sticky and before is not None and is_still_met(objective, before):
            results[key] = before
        else:
            results[key] = judge(objective, read(objective))
            measured[key] = objective.target
    is_met = all(result.status == SUCCEEDED for result in results.values())
    state = SUCCEEDED if is_met else PROGRESSING
    return Progress(progress.tries + 1, results, state, measured)


def fail_after_tries(progress: Progress) -> Progress:
    """Return the failed progress, one interval after the last measurement."""
    return msgspec.structs.replace(progress, state=FAILED, measured={})


def summarize_unmet(progress: Progress) -> str:
    """Return a text with the objectives that are not met, and those without a usable value."""
    unmet = {key: result for key, result in progress.results.items() if result.status != SUCCEEDED}
    inconclusive = sorted(key for key, result in unmet.items() if is_inconclusive(result))
    failed = sorted(unmet.keys() - set(inconclusive))
    parts = (("not met", failed), ("inconclusive", inconclusive))
    return "; ".join(f"{word}: {', '.join(keys)}" for word, keys in parts if keys)


def wait_for_definition(progress: Progress, definition: str) -> Progress:
    """Return the progress while the definition is missing, which is not a measurement."""
    waiting = Result("", PENDING, f"keptnevaluationdefinition '{definition}' not found")
    results = {definition: waiting, **progress.results}
    return msgspec.structs.replace(progress, results=results, measured={})


def wait_for_consent(
    progress: Progress, objectives: Iterable[Objective], texts: Mapping[Objective, str]
) -> Progress:
    """Return the progress while references lack consent, which is not a measurement.

    ``texts`` has the refusal of each objective.
    """
    waiting = {
        key: Result("", PENDING, texts[objective])
        for key, objective in by_result_key(objectives).items()
        if objective in texts
    }
    results = {**progress.results, **waiting}
    return msgspec.structs.replace(progress, results=results, measured={})
