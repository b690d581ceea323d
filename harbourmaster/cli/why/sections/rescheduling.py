"""Nodes that are reserved for a pod, or for critical add-ons at its cost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.decoding import MalformedError
from harbourmaster.api.resources import NODES
from harbourmaster.cli.installed import CONTROLLER
from harbourmaster.cli.live.installation import NOT_INSTALLED
from harbourmaster.cli.live.reader import read_error
from harbourmaster.cli.why.model import Line, Section, from_text
from harbourmaster.cli.why.subjects import Event, event_lines, events_of
from harbourmaster.controller.rescheduling.settings import criteria_of
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.kube.errors import ApiError
from harbourmaster.rescheduling.decoding import decode_pod
from harbourmaster.rescheduling.model import PendingPod
from harbourmaster.rescheduling.reservation import decode_held

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.cli.reschedule.plan import ShownPlan  # noqa: TC004 - it is only encoded, never decoded
    from harbourmaster.cli.why.model import State, WhyContext
    from harbourmaster.controller.rescheduling.settings import ReschedulingSettings
    from harbourmaster.rescheduling.model import Pod
    from harbourmaster.rescheduling.reservation import Held

PATIENCE: Final = 5.0
"""Seconds for a plan, for which all pods are read; ``reschedule plan`` has more."""
_FOR_IT: Final = "kept for it"
_AT_ITS_COST: Final = "makes room"
_FOR_OTHERS: Final = "kept"
_COPIED: Final = ("pod", "since", "deadline", "attempt", "tier")
"""Fields of a reservation that are printed."""


class ReservedNode(Struct, frozen=True, rename="camel", kw_only=True):
    """A node that is kept for a critical add-on; times are stamps."""

    node: str
    pod: str
    since: str = ""
    deadline: str = ""
    attempt: int = 1
    tier: int = 0
    evicted: tuple[str, ...] = ()
    """The pods that are to make room."""


class ReschedulingDetail(Struct, frozen=True, rename="camel", kw_only=True):
    """The details of rescheduling for programs."""

    is_critical: bool
    is_pending: bool
    kept_for_it: tuple[ReservedNode, ...] = ()
    moves_for: tuple[ReservedNode, ...] = ()
    """Those for which this pod is to make room."""
    kept_for_others: tuple[ReservedNode, ...] = ()
    """Reservations for others on its node, or on nodes that it could have had."""
    plan: ShownPlan | None = None
    unplanned: str = ""
    """Why there is no plan; empty where there is one, or none is needed."""
    is_enabled: bool | None = None
    """Whether the controller makes room at all; None where that is not known."""
    events: tuple[Event, ...] = ()


async def section(context: WhyContext) -> Section | None:
    """Explain the reservations and the plan that concern a pod; None if there are none."""
    if not context.is_pod:
        return None
    live = context.live
    settings, unknown = await live.assumed_settings(CONTROLLER, ControllerSettings)
    rules = settings.rescheduling
    try:
        given = decode_pod(context.subject.raw, criteria_of(rules))
    except MalformedError:
        # The API server says what is wrong with it.
        return None
    pod = given.pod if isinstance(given, PendingPod) else given
    # Nodes are reserved for no pod behind a gate.
    is_gated = isinstance(given, PendingPod) and given.is_gated and not pod.is_critical
    is_pending = isinstance(given, PendingPod) and pod.deletion is None and not is_gated
    (kept, unread), events = await asyncio.gather(
        _read_reservations(live, pod, is_pending=is_pending),
        events_of(live, pod.namespace, pod.uid, of="rescheduler"),
    )
    plan, unplanned = None, ""
    if pod.is_critical and is_pending and not kept[_FOR_IT]:
        plan, unplanned = await _make_plan(live, rules, pod)
    detail = ReschedulingDetail(
        is_critical=pod.is_critical,
        is_pending=is_pending,
        kept_for_it=kept[_FOR_IT],
        moves_for=kept[_AT_ITS_COST],
        kept_for_others=kept[_FOR_OTHERS],
        plan=plan,
        unplanned=unplanned,
        is_enabled=None if unknown else rules.enabled,
        events=events,
    )
    code, state, text = _state_of(detail)
    if not code and not events:
        return None
    return Section(
        name="rescheduling",
        state=state,
        summary=text,
        code=code or "told",
        lines=tuple(_lines(detail, kept, unknown, unread)),
        detail=detail,
    )


async def _read_reservations(
    live: Installation, pod: Pod, *, is_pending: bool
) -> tuple[dict[str, tuple[ReservedNode, ...]], str]:
    """The reservations on its node, or, while it waits for one, on all; and what hinders that.

    They are grouped by what they mean for the pod.
    """
    held: list[Held] = []
    unread = ""
    try:
        if pod.node:
            node = await live.read(NODES, pod.node, decode_held)
            held = [node] if node is not None else []
        elif is_pending:
            held = await live.list_all(NODES, decode_held, metadata_only=True)
    except ApiError as error:
        unread = read_error(error, "Node")
    groups: dict[str, tuple[ReservedNode, ...]] = {_FOR_IT: (), _AT_ITS_COST: (), _FOR_OTHERS: ()}
    for node in held:
        for reservation in node.reservations:
            goes = any(victim.uid == pod.uid for victim in reservation.victims)
            group = _FOR_IT if reservation.uid == pod.uid else _AT_ITS_COST if goes else _FOR_OTHERS
            evicted = tuple(name.key for name in reservation.victims)
            copied = {name: getattr(reservation, name) for name in _COPIED}
            groups[group] += (ReservedNode(node=node.name, evicted=evicted, **copied),)
    return groups, unread


async def _make_plan(
    live: Installation, rules: ReschedulingSettings, pod: Pod
) -> tuple[ShownPlan | None, str]:
    """Return the report of ``reschedule plan``, or None and why there is none in time."""
    # Few pods are critical and wait; no other report takes the time to load the planner.
    from harbourmaster.cli.reschedule.plan import (  # noqa: PLC0415
        ObservedCluster,
        report_of,
        survey,
    )

    command = f"harbourmaster reschedule plan --pod {pod.namespace}/{pod.name}"
    cluster = ObservedCluster(criteria_of(rules), pod.namespace, pod.name)
    try:
        async with asyncio.timeout(PATIENCE):
            await survey(live, cluster)
    except TimeoutError:
        return None, f"the cluster is large: {command} shows which pods it would evict"
    except ApiError as error:
        return None, read_error(error, "a plan")
    report = report_of(cluster, rules, pod.key)
    return (None, report) if isinstance(report, str) else (report, "")


def _state_of(detail: ReschedulingDetail) -> tuple[str, State, str]:
    """Code, state and summary; without a code there is nothing to say.

    ``reserved``, ``room-can-be-made``, ``fits``, ``no-room`` and ``unplanned`` are of a critical
    pod that waits, ``makes-room`` of one that has to go, ``kept-away`` of one that waits besides.
    """
    if detail.kept_for_it:
        nodes = ", ".join(node.node for node in detail.kept_for_it)
        return "reserved", "waits", f"{nodes} is reserved for it while room is made there"
    if detail.moves_for:
        whom = ", ".join(node.pod for node in detail.moves_for)
        return "makes-room", "waits", f"it is evicted to make room for {whom}"
    if not (detail.is_critical and detail.is_pending):
        if detail.is_pending and detail.kept_for_others:
            return (
                "kept-away",
                "note",
                "nodes are reserved for critical add-ons, and this pod is not critical",
            )
        return "", "fine", "it has nothing to do with critical add-ons"
    off = ", but rescheduling is off (rescheduling.enabled)" if detail.is_enabled is False else ""
    plan = detail.plan
    if plan is None:
        return "unplanned", "unknown", f"it is critical and waits for a node; {detail.unplanned}"
    from harbourmaster.cli.reschedule.plan import summary  # noqa: PLC0415

    if not plan.candidates:
        return "no-room", "fault", f"it is critical, and {summary(plan)}"
    if not plan.candidates[0].victims:
        return "fits", "waits", f"it is critical, and {summary(plan)}"
    state: State = "fault" if off or plan.notes or plan.paused else "waits"
    return "room-can-be-made", state, f"it is critical, and {summary(plan)}{off}"


def _lines(
    detail: ReschedulingDetail,
    groups: dict[str, tuple[ReservedNode, ...]],
    unknown: str,
    unread: str,
) -> Iterator[Line]:
    for label, kept in groups.items():
        for node in kept:
            text = f"{node.node} for {node.pod}, since {node.since}, until {node.deadline}"
            text += f"; tier {node.tier}, attempt {node.attempt}"
            text += f"; evicted: {', '.join(node.evicted)}" if node.evicted else ""
            yield Line(text, label=label)
    if detail.plan is not None:
        from harbourmaster.cli.reschedule.plan import lines  # noqa: PLC0415

        yield from from_text(filter(None, lines(detail.plan)[1:]))
    yield from event_lines(detail.events)
    if unread:
        yield Line(unread, label="unknown", tone="dim")
    if unknown and detail.is_critical and detail.is_pending:
        # The section on policies says that nothing is installed.
        text = "" if unknown.startswith(NOT_INSTALLED) else f": {unknown}"
        yield Line(f"whether room is made at all{text}", label="unknown", tone="dim")
