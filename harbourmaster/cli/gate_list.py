"""``harbourmaster gate list``: shows waiting pods, and with ``--watch`` what changes of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harbourmaster.api.resources import PODS
from harbourmaster.cli.gate import fields_of, table, waiting_in
from harbourmaster.cli.lines import print_lines
from harbourmaster.cli.live.changes import GATE_CHANGES, Watched, look_until_done
from harbourmaster.cli.live.cluster import DONE, LEFT, complain, namespace_of, run_with_client
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.live.reader import on_unread
from harbourmaster.cli.terminal import print_out
from harbourmaster.cli.why.workloads import refused_workloads, with_refusal
from harbourmaster.kube.errors import ApiError, ForbiddenError
from harbourmaster.lifecycle.check_facts import Facts
from harbourmaster.lifecycle.gate_report import gate_report
from harbourmaster.lifecycle.gate_verdict import BLOCKED, GateWaitRules
from harbourmaster.lifecycle.gated_pods import PENDING_PODS, decode_whole

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Sequence

    from harbourmaster.cli.terminal import Tone
    from harbourmaster.kube.client import Client
    from harbourmaster.lifecycle.gate_report import GateReport

_MOST: Final = 5
"""Workloads without pods that are named."""


def show(arguments: Arguments) -> int:
    """List the waiting pods; 0 done, 1 something could not be read, 2 no cluster."""
    return run_with_client(arguments, partial(_follow if arguments.watch else _show, arguments))


async def _show(arguments: Arguments, client: Client) -> int:
    unread: list[str] = []
    on_unread.set(unread.append)
    live, namespace = Installation(client, arguments.installed_in), namespace_of(arguments, client)
    try:
        waiting = await waiting_in(live, arguments.scheduler, namespace, arguments.selector)
    except ApiError as error:
        complain(str(error))
        return LEFT
    pods = [await with_refusal(live, pod, report) for pod, report in waiting]
    refused = await live.attempt(refused_workloads(live, namespace or None), [])
    for item in refused[:_MOST]:
        complain(f"{item.reference}: {item.text}: {item.step}")
    unread += dict.fromkeys(live.faults)
    if pods and (unled := await live.why_unled()):
        complain(f"{unled}: {await live.leader_step()}")
    for line in unread:
        complain(line)
    lines = _rows(arguments, pods, [0] * 5)
    if not pods and arguments.output != "name":
        place = f"in namespace {namespace} " if namespace else ""
        lines = [f"No pod {place}waits at a gate or in its scheduler."]
    print_out(arguments, [*map(fields_of, pods)], lines)
    return LEFT if unread else DONE


def _rows(
    arguments: Arguments, pods: Sequence[GateReport], widths: list[int]
) -> list[str | tuple[str, Tone]]:
    """Return a head and a line for each pod; ``widths`` are those of earlier lines, and grow."""
    if arguments.output == "name":
        return [f"pod/{pod.pod}" for pod in pods]
    head, *rows = table(pods, widths, is_wide=arguments.output == "wide")
    tones: list[Tone] = ["bad" if pod.code in BLOCKED else "" for pod in pods]
    return [head, *zip(rows, tones, strict=True)]


async def _follow(arguments: Arguments, client: Client) -> int:
    """Print the waiting pods, and then each that changes, until the user interrupts it."""
    namespace, scheduler = namespace_of(arguments, client), arguments.scheduler
    shown: dict[str, GateReport] = {}
    told: set[str] = set()
    widths = [0] * 5

    async def look() -> None:
        unread: list[str] = []
        on_unread.set(unread.append)
        live = Installation(client, arguments.installed_in)
        waiting = await waiting_in(live, scheduler, namespace, arguments.selector)
        now = {pod.key: report for pod, report in waiting}
        gone = [await _why_gone(live, scheduler, shown[key]) for key in shown.keys() - now.keys()]
        rows = [*gone, *(now[key] for key in now if _differs(now[key], shown.get(key)))]
        for line in {*unread, *live.faults} - told:
            complain(line)
        told.update(unread, live.faults)
        shown.clear()
        shown.update(now)
        if arguments.output == "json":
            print_lines(map(fields_of, rows))
        elif rows:
            has_head = arguments.output != "name" and any(widths)
            lines = _rows(arguments, rows, widths)
            # Lists in YAML that follow each other are one list.
            print_out(arguments, [*map(fields_of, rows)], lines[has_head:])

    watched = [Watched(PODS, arguments.selector or "", PENDING_PODS), *GATE_CHANGES]
    try:
        return await look_until_done(client, watched, namespace or None, look)
    except ForbiddenError as error:
        complain(str(error))
        return LEFT


def _differs(report: GateReport, before: GateReport | None) -> bool:
    """Whether a row changed, apart from its age."""
    return before is None or fields_of(replace(before, age=report.age)) != fields_of(report)


async def _why_gone(live: Installation, scheduler: str, report: GateReport) -> GateReport:
    """Return the report on a pod that waits no longer."""
    raw = await live.find(PODS, report.pod, report.namespace)
    if raw is None:
        return replace(report, code="ending", text="nothing: it was deleted")
    now = (await live.caller()).now
    return gate_report(decode_whole(raw, scheduler), Facts(), GateWaitRules(), now)
