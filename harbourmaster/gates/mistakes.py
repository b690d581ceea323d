"""Lines on keys that were probably meant for gates and have no effect (decision D19).

Such a mistake lets pods run without their checks, so admission, the controller, ``doctor`` and
``why`` report it, all from here. A line reads: what is wrong, where, what to do.
"""

from __future__ import annotations

from string import whitespace
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.durations import parse_duration
from harbourmaster.api.names import dns_subdomain
from harbourmaster.gates import metadata as keys
from harbourmaster.gates.known_keys import (
    IS_OFF,
    STATE_KEYS,
    TASK_NAME_KEY,
    WRITTEN_KEYS,
    mistaken_opt_in,
    similar_key,
    unknown_keys,
)
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY, cut, lookup, names_of
from harbourmaster.gates.owners import supported_owner
from harbourmaster.gates.stages import STAGE_LISTS
from harbourmaster.gates.waits import (
    OF_NAMESPACES,
    WAIT_FOR_KEY,
    WAIT_KEYS,
    is_wait_inherited,
    waits_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harbourmaster.api.metadata import OwnerReference

MAX_TOLD: Final = 3
"""Unknown keys of one place that are named; of the others only the number is told."""
_LISTS: Final = (
    keys.PRE_TASKS_KEY,
    keys.POST_TASKS_KEY,
    keys.PRE_EVALUATIONS_KEY,
    keys.POST_EVALUATIONS_KEY,
    *STAGE_LISTS,
)
_WAIT_KEYS: Final = frozenset(WAIT_KEYS)
_SEPARATORS: Final = f",{whitespace}"
_USE: Final = "use a Deployment, StatefulSet, DaemonSet or Argo Rollout, or remove these keys"


class Mistake(Struct, frozen=True, gc=False):
    """One line for people, and the code of its admission warning."""

    code: str
    text: str


WAIT_SHADOWED: Final = Mistake(
    "gate-wait-shadowed",
    f'key "{WAIT_FOR_KEY}" has no effect: metadata.annotations: the pod template has a wait of its '
    "own, remove one of them",
)


def key_mistakes(
    annotations: Mapping[str, str], labels: Mapping[str, str], at: str = "metadata.{}"
) -> tuple[Mistake, ...]:
    """Unknown keys, and lists without a valid name; ``at`` is where both maps stand."""
    unknown, labelled = unknown_keys(annotations), unknown_keys(labels)
    mistakes: tuple[Mistake, ...] = ()
    # What a template inherits is told where the workload has it.
    if _WAIT_KEYS & annotations.keys() and not is_wait_inherited(annotations):
        mistakes = tuple(_waits(annotations, at))
    if not annotations.keys().isdisjoint(_LISTS):
        mistakes = (*_list_mistakes(annotations, at.format("annotations")), *mistakes)
    if keys.DEPLOYMENT_TIMEOUT_KEY in annotations:
        mistakes += tuple(_timeout_mistakes(annotations[keys.DEPLOYMENT_TIMEOUT_KEY], at))
    # Most have none, and admission asks here for each of them.
    if not unknown and not labelled:
        return mistakes
    return (
        *_unknown(unknown, at.format("annotations")),
        *_unknown(labelled, at.format("labels")),
        *mistakes,
    )


def state_mistakes(
    annotations: Iterable[str], at: str = "metadata.annotations"
) -> tuple[Mistake, ...]:
    """Return a mistake if a new pod or a template has annotations that only we set."""
    keys = ", ".join(sorted(STATE_KEYS.intersection(annotations)))
    text = f"only Harbourmaster sets {keys}, and removes it from new pods: {at}: remove it"
    return (Mistake("gate-state-key", text),) if keys else ()


def owner_mistakes(
    annotations: Mapping[str, str], labels: Mapping[str, str], owners: Sequence[OwnerReference]
) -> tuple[Mistake, ...]:
    """Warn of a pod that has keys for checks and an owner of an unsupported kind.

    A pod without an owner is written by hand, so its recommended labels count as well.
    """
    if owners:
        if supported_owner(owners) is not None:
            return ()
        return kind_mistakes(annotations, labels, owners[-1].kind, "metadata.ownerReferences")
    if not lookup(annotations, labels, keys.WORKLOAD_KEY) and not _asks(annotations, labels):
        return ()
    text = f"a pod without an owner is never checked: metadata.ownerReferences: {_USE}"
    return (Mistake("gate-owner-unsupported", text),)


def kind_mistakes(
    annotations: Mapping[str, str], labels: Mapping[str, str], kind: str, at: str
) -> tuple[Mistake, ...]:
    """On keys of pods of a kind that is not supported."""
    if not _asks(annotations, labels):
        return ()
    text = f"pods of the kind {cut(kind)} are never checked: {at}: {_USE}"
    return (Mistake("gate-owner-unsupported", text),)


def opt_in_mistakes(
    name: str, annotations: Mapping[str, str], labels: Mapping[str, str]
) -> tuple[Mistake, ...]:
    """On a namespace that asks for gates, or for waits, and gets none."""
    wanted = labels.get(WAIT_FOR_KEY, annotations.get(WAIT_FOR_KEY, ""))
    if wanted and labels.get(WAIT_FOR_KEY) not in OF_NAMESPACES:
        choices = " or ".join(OF_NAMESPACES)
        text = f'{WAIT_FOR_KEY} of namespace "{name}" has no effect: "{cut(wanted)}"'
        return (Mistake("gate-wait-label", f"{text}: label it with {choices}"),)
    for key, value in mistaken_opt_in(annotations).items():
        if key == OPT_IN_KEY:
            shown = cut(value)
            return _no_gates(name, f'annotation {key} is "{shown}"', "annotate --overwrite")
        return _no_gates(name, f'its annotation "{cut(key)}" is unknown')
    if OPT_IN_KEY not in annotations and labels.get(OPT_IN_KEY, "false").lower() not in IS_OFF:
        return _no_gates(name, f"{OPT_IN_KEY} is a label")
    return ()


def _no_gates(name: str, fault: str, verb: str = "annotate") -> tuple[Mistake, ...]:
    to_do = f"kubectl {verb} namespace {name} {OPT_IN_KEY}={OPT_IN}"
    return (Mistake("gate-opt-in-unknown", f'namespace "{name}" has no gates: {fault}: {to_do}'),)


def _unknown(unknown: list[str], at: str) -> Iterable[Mistake]:
    for key in unknown[:MAX_TOLD]:
        near = similar_key(key)
        to_do = f'did you mean "{near}"?' if near else "correct or remove it"
        text = f'key "{cut(key)}" is unknown and has no effect: {at}: {to_do}'
        yield Mistake("gate-key-unknown", text)
    if len(unknown) > MAX_TOLD:
        more = f"{len(unknown) - MAX_TOLD} more keys are unknown and have no effect"
        yield Mistake("gate-key-unknown", f"{more}: {at}: correct or remove them")


def _waits(annotations: Mapping[str, str], at: str) -> Iterable[Mistake]:
    waits = waits_of(annotations)
    for fault in waits.faults[:MAX_TOLD] if waits is not None else ():
        text = fault.replace("metadata.annotations", at.format("annotations"))
        yield Mistake("gate-wait-invalid", f"{text}; the pod is not scheduled")
    if waits is None:
        shown = ", ".join(sorted(_WAIT_KEYS & annotations.keys() - {WAIT_FOR_KEY}))
        if shown:
            text = f"{shown} has no effect: {at.format('annotations')}: add {WAIT_FOR_KEY}"
            yield Mistake("gate-wait-invalid", text)


def _list_mistakes(annotations: Mapping[str, str], at: str) -> Iterable[Mistake]:
    for key in _LISTS:
        listed = annotations.get(key, "")
        if listed and not listed.strip(_SEPARATORS):
            text = f'key "{key}" names no check: {at}: name definitions, separated by commas'
            yield Mistake("gate-list-empty", f"{text}, or remove it")
        for name in [name for name in names_of(listed) if dns_subdomain(name)][:MAX_TOLD]:
            text = f'"{cut(name)}" is not a name of a definition: {at}[{key}]'
            yield Mistake("gate-list-invalid", f"{text}: write names, separated by commas")


def _timeout_mistakes(text: str, at: str) -> Iterable[Mistake]:
    try:
        fault = "" if parse_duration(text) > 0 else f'"{cut(text)}" is not above zero'
    except ValueError as error:
        fault = str(error)
    if fault:
        where = f"{at.format('annotations')}[{keys.DEPLOYMENT_TIMEOUT_KEY}]"
        yield Mistake("gate-timeout-invalid", f"{where}: {fault}; that of the KeptnConfig counts")


def _asks(annotations: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether a user wrote one of Keptn's keys; our Jobs and Keptn's have some too."""
    keys = {*annotations, *labels}
    return TASK_NAME_KEY not in keys and not WRITTEN_KEYS.isdisjoint(keys)
