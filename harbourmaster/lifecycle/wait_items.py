"""Reports whether the objects that a pod waits for are as it requires. Pure."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from harbourmaster.api import resources
from harbourmaster.api.durations import format_duration
from harbourmaster.api.field_tests import describe_condition, describe_field, field_of
from harbourmaster.api.names import did_you_mean
from harbourmaster.gates.waits import TIMED_OUT, TIMEOUT_KEY, WAITED_KEY
from harbourmaster.lifecycle.wait_targets import MAX_DOCUMENT, SERVICE_LABEL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from harbourmaster.api.resources import Resource
    from harbourmaster.gates.waits import WaitItem
    from harbourmaster.lifecycle.gated_pods import Pod
    from harbourmaster.lifecycle.wait_targets import Target

NAMED: Final = 3
"""Items that a text names; the text has the number of the remaining ones."""
MISSING: Final = "does not exist"
_COMPARED: Final = 200
"""Maximum names with which a missing one is compared, because each takes time."""


class Targets(Protocol):
    """Access to the objects of one namespace, and to those of the cluster."""

    def find(self, resource: Resource, name: str) -> Target | None:
        """Return the object of that name, or None."""

    def all(self, resource: Resource) -> Collection[Target]:
        """Return all objects of a kind."""

    def find_by_label(self, resource: Resource, key: str, value: str) -> Collection[Target]:
        """Return the objects of a kind with that label."""

    def obstacle(self, resource: Resource) -> Obstacle | None:
        """Return why the objects of a kind are not known, or None if they are."""


class Obstacle(NamedTuple):
    """The reason why objects are not known; ``missing`` and ``forbidden`` are about their kind."""

    kind: Literal["missing", "forbidden", "unread"]
    text: str


LOOKED_UP: Final = Obstacle("unread", "is being looked up")


class ItemReport(Struct, frozen=True, gc=False):
    """The state of one item."""

    item: str
    state: Literal["Met", "Pending", "Blocked", "Unknown"]
    text: str = ""
    """The reason why it is not met, to be read after the item."""


class WaitReport(NamedTuple):
    """The state of a pod's conditions. Times are seconds."""

    items: tuple[ItemReport, ...] = ()
    is_over: bool = True
    blocked: str = ""
    """The reason why a person must act; empty if none must."""
    is_expired: bool = False
    """Whether the time-out has passed."""
    left: float | None = None
    """Seconds until the time-out, if it counts."""

    @property
    def text(self) -> str:
        """The unmet items, to be read after "waits for"."""
        return items_text([item for item in self.items if item.state != "Met"])


def items_text(items: Iterable[ItemReport]) -> str:
    """Return the first of these items with their faults."""
    reports = list(items)
    more = f"; and {len(reports) - NAMED} more" if len(reports) > NAMED else ""
    return "; ".join(f"{report.item}: {report.text}" for report in reports[:NAMED]) + more


def resources_of(item: WaitItem, kinds: Mapping[str, Resource]) -> tuple[Resource, ...]:
    """Return the kinds to read for an item; ``kinds`` are those that pods may wait for."""
    resource = kinds.get(item.kind)
    if resource is None:
        return ()
    return (resource, resources.SLICES) if resource == resources.SERVICES else (resource,)


def report_on(
    item: WaitItem, kinds: Mapping[str, Resource], targets: Targets, *, suggests: bool = False
) -> ItemReport:
    """Return the report on an item; ``suggests`` adds similar names to one that does not exist.

    It costs time, because names are compared.
    """
    resource = kinds.get(item.kind)
    if resource is None:
        text = f'kind "{item.kind}" cannot be waited for: add it to lifecycle.waitKinds'
        return ItemReport(item.text, "Blocked", text)
    for needed in resources_of(item, kinds):
        if (obstacle := targets.obstacle(needed)) is not None:
            return _behind(item, obstacle)
    if item.label is not None:
        labelled = targets.find_by_label(resource, *item.label)
        return report_on_label(
            item, [not unmet_text(item, resource, target, targets) for target in labelled]
        )
    target = targets.find(resource, item.name)
    if target is None:
        if item.is_optional:
            return ItemReport(item.text, "Met")
        compared = islice(targets.all(resource), _COMPARED if suggests else 0)
        near = did_you_mean(item.name, [known.name for known in compared])
        return ItemReport(item.text, "Pending", f"{MISSING}: {near}" if near else MISSING)
    text = unmet_text(item, resource, target, targets)
    if not text:
        return ItemReport(item.text, "Met")
    is_blocked = target.is_failed and not item.test and not target.is_ending
    return ItemReport(item.text, "Blocked" if is_blocked else "Pending", text)


def unmet_text(item: WaitItem, resource: Resource, target: Target, targets: Targets) -> str:
    """Return why an object is not as the item requires, or "" if it is."""
    if target.is_ending:
        return "is being deleted"
    if item.test == "condition":
        condition = target.conditions.get(item.path, ("missing", ""))
        return describe_condition(item.path, (item.value,), *condition)
    if item.test == "field":
        if not target.document:
            return f"is too large to test a field: more than {MAX_DOCUMENT // 1024} KiB"
        value = field_of(msgspec.json.decode(target.document), item.path)
        return describe_field(item.path, (item.value,), value)
    if resource == resources.SERVICES:
        slices = targets.find_by_label(resources.SLICES, SERVICE_LABEL, target.name)
        return "" if any(slice_.is_ready for slice_ in slices) else "has no ready endpoint"
    return "" if target.is_ready else target.text


def wait_report(
    pod: Pod, reports: Mapping[WaitItem, ItemReport], age: float, cycle: str = ""
) -> WaitReport:
    """Return the state of a pod's conditions, for its age and a cycle that it is part of."""
    conditions = pod.wait_conditions
    if conditions is None or pod.has_waited:
        return WaitReport()
    items = tuple(
        reports.get(item) or ItemReport(item.text, "Unknown", LOOKED_UP.text)
        for item in conditions.items
    )
    # What is not known may have been met in time.
    is_known = all(item.state != "Unknown" for item in items)
    left = conditions.timeout - age if conditions.timeout and is_known else None
    is_expired = left is not None and left <= 0
    limit = f"longer than {format_duration(conditions.timeout)} ({TIMEOUT_KEY})"
    blocked = next((items_text([item]) for item in items if item.state == "Blocked"), cycle)
    if conditions.faults:
        blocked = conditions.faults[0]
    elif pod.annotations.get(WAITED_KEY) == TIMED_OUT:
        blocked = f"it waited {limit}"
    elif all(item.state == "Met" for item in items):
        return WaitReport(items)
    elif is_expired and conditions.on_timeout == "Release":
        return WaitReport(items, is_expired=True)
    elif is_expired and conditions.on_timeout == "Fail":
        blocked = f"it waited {limit}"
    wait = left if left is not None and left > 0 else None
    return WaitReport(items, False, blocked, is_expired and not conditions.faults, wait)


def _behind(item: WaitItem, obstacle: Obstacle) -> ItemReport:
    if obstacle.kind == "missing":
        return ItemReport(item.text, "Met" if item.is_optional else "Pending", obstacle.text)
    return ItemReport(
        item.text, "Blocked" if obstacle.kind == "forbidden" else "Unknown", obstacle.text
    )


def report_on_label(item: WaitItem, met: Collection[bool]) -> ItemReport:
    """Return the report on an item for pods by their label: one that is ``met`` is enough."""
    if any(met) or (item.is_optional and not met):
        return ItemReport(item.text, "Met")
    wanted = f"{item.path} {item.value}" if item.test else "ready"
    text = f"none of {len(met)} pods is {wanted}" if met else "no pod has this label"
    return ItemReport(item.text, "Pending", text)
