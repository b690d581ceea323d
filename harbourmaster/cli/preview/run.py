"""``harbourmaster preview``: which workloads policies would change, and whose pods would not fit.

It asks the functions that the server asks. A live cluster is read page by page, by the caller's
rights; nothing is written, and nothing of ours needs to run there.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import CLUSTER_POLICIES, NODES, PODS, POLICIES
from harbourmaster.cli.batches import plural, shorten
from harbourmaster.cli.live.cluster import DONE, LEFT, complain, run_with_client
from harbourmaster.cli.live.files import STANDARD_INPUT, Dump
from harbourmaster.cli.live.reader import ClusterReader
from harbourmaster.cli.preview.compare import (
    ChangedWorkload,
    PreviewedPolicies,
    PreviewReport,
    Totals,
)
from harbourmaster.cli.preview.inputs import (
    FIRST,
    THEN,
    PreviewInputs,
    UnusableError,
    of_files,
    preview_policies,
)
from harbourmaster.cli.terminal import print_out
from harbourmaster.kube.errors import ApiError, ForbiddenError, NotFoundError
from harbourmaster.serving.kubectl_yaml import dump

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Iterable, Iterator

    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.preview.compare import Fit

LIMIT: Final = 60_000
"""Characters of a comment; GitHub takes 65,536."""
_NAMESPACES: Final = 8
_ROWS: Final = 50
_DIFF_LINES: Final = 200
_MARKUP: Final = re.compile(r"([\\`*_{}\[\]()<>#+!|~&@])")
_TICKS: Final = re.compile("`+")


class Alike(Struct, frozen=True):
    """Workloads with the same changes and warnings."""

    workloads: tuple[ChangedWorkload, ...]

    @property
    def pods(self) -> int:
        """The number of pods of all workloads."""
        return sum(workload.pods for workload in self.workloads)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of each workload."""
        return self.workloads[0].warnings

    def diff(self) -> list[str]:
        """The fields of the pod spec that change, as a unified diff of YAML."""
        changes = self.workloads[0].changes
        now = _side({change.field: change.now for change in changes})
        then = _side({change.field: change.then for change in changes})
        # The first lines name files, of which there are none.
        return list(difflib.unified_diff(now, then, n=2, lineterm=""))[2:]


def group_alike(workloads: Iterable[ChangedWorkload]) -> list[Alike]:
    """Group workloads with the same changes; the largest group comes first."""
    groups: dict[bytes, list[ChangedWorkload]] = {}
    for workload in workloads:
        key = msgspec.json.encode((workload.changes, workload.warnings))
        groups.setdefault(key, []).append(workload)
    alike_groups = [Alike(tuple(group)) for group in groups.values()]
    return sorted(alike_groups, key=lambda group: -len(group.workloads))


def _side(fields: dict[str, Any]) -> list[str]:
    given = {name: value for name, value in fields.items() if value is not None}
    return dump(given).splitlines() if given else []


def text(report: PreviewReport) -> Iterator[str]:
    """Yield the lines of the text, most important first."""
    yield from summary(report)
    for note in report.notes:
        yield f"note: {note}"
    stranded = _unschedulable(report)
    if stranded:
        yield ""
        yield "Pods that would no longer fit any node:"
    for title, fit in stranded:
        yield f"  {title}: {fit.lost} of {plural(fit.pods, 'pod')}"
        for reason in _reasons(fit):
            yield f"    {reason}"
    for group in group_alike(report.workloads):
        yield ""
        titles = shorten([workload.title for workload in group.workloads])
        yield f"{titles}, with {plural(group.pods, 'pod')}:"
        for line in group.diff():
            yield f"  {line}"
        for warning in group.warnings:
            yield f"  warning: {warning}"


def summary(report: PreviewReport) -> Iterator[str]:
    """Yield the lines that every form of the text has."""
    totals = report.totals
    yield f"Policies: {policies(report.policies)}."
    if not totals.changed:
        yield f"None of {plural(totals.workloads, 'workload')} would change."
        return
    yield (
        f"{totals.changed} of {plural(totals.workloads, 'workload')} would change, with "
        f"{plural(totals.pods, 'pod')}, in {plural(len(report.namespaces), 'namespace')}: "
        f"{namespaces(report.namespaces)}."
    )
    if not totals.nodes:
        return
    nodes = plural(totals.nodes, "node")
    yield f"{plural(totals.unschedulable, 'pod')} would no longer fit any of {nodes}."
    if totals.already_unschedulable:
        verb = "is" if totals.already_unschedulable == 1 else "are"
        yield f"{plural(totals.already_unschedulable, 'pod')} {verb} already unschedulable."
    if totals.unjudged:
        yield f"{plural(totals.unjudged, 'pod')}: whether they fit is unknown."


def policies(previewed: PreviewedPolicies) -> str:
    """Return which policies are added, changed and removed."""
    parts = [
        f"{len(names)} {verb} ({shorten(list(names))})"
        for verb in ("added", "changed", "removed")
        if (names := getattr(previewed, verb))
    ]
    return ", ".join([*parts, f"{previewed.unchanged} unchanged"])


def namespaces(counts: dict[str, int]) -> str:
    """Return the namespaces with most changes, and how many more."""
    return shorten([f"{name} {count}" for name, count in counts.items()], _NAMESPACES)


def _unschedulable(report: PreviewReport) -> list[tuple[str, Fit]]:
    """Return the workloads whose pods would no longer fit any node."""
    return [
        (workload.title, workload.fit)
        for workload in report.workloads
        if workload.fit and workload.fit.lost
    ]


def _reasons(fit: Fit) -> list[str]:
    return [f"{plural(count, 'node')}: {reason}" for reason, count in fit.reasons.items()]


def markdown(report: PreviewReport) -> Iterator[str]:
    """Yield the lines of the comment, without groups of changes that would make it too long."""
    lines = ["### Preview of scheduling policies", ""]
    lines += [f"- {escape(line)}" for line in summary(report)]
    lines += [f"- note: {escape(note)}" for note in report.notes]
    lines += _table(report)
    yield from lines
    length = sum(map(len, lines))
    groups = group_alike(report.workloads)
    for number, group in enumerate(groups):
        block = list(_details(group))
        length += sum(len(line) + 1 for line in block)
        if length > LIMIT:
            yield ""
            yield f"{plural(len(groups) - number, 'more group')} of changes, left out here."
            return
        yield from block


def escape(text: str) -> str:
    """Return text of users on one line, without markup."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def _table(report: PreviewReport) -> list[str]:
    stranded = _unschedulable(report)
    if not stranded:
        return []
    lines = ["", "**Pods that would no longer fit any node**", ""]
    lines += ["| workload | pods | why |", "|---|---|---|"]
    for title, fit in stranded[:_ROWS]:
        why = escape("; ".join(_reasons(fit)))
        lines.append(f"| {escape(title)} | {fit.lost} of {fit.pods} | {why} |")
    if len(stranded) > _ROWS:
        lines += ["", f"{plural(len(stranded) - _ROWS, 'more workload')}."]
    return lines


def _details(group: Alike) -> Iterator[str]:
    names = escape(shorten([workload.title for workload in group.workloads]))
    yield ""
    yield f"<details><summary>{names}, with {plural(group.pods, 'pod')}</summary>"
    yield ""
    diff = group.diff()
    cut = diff[:_DIFF_LINES]
    longest = max((len(ticks) for line in cut for ticks in _TICKS.findall(line)), default=0)
    fence = "`" * max(longest + 1, 3)
    yield f"{fence}diff"
    yield from cut
    yield fence
    if len(diff) > len(cut):
        yield f"{len(diff) - len(cut)} more lines."
    for warning in group.warnings:
        yield f"- warning: {escape(warning)}"
    yield ""
    yield "</details>"


_NO_NODES: Final = "no nodes found: whether pods fit is unknown"
_NO_PODS: Final = "no pods found: every node counts as empty"
_WRITTEN_STAYS: Final = (
    "what a changed or removed policy wrote before stays in templates and pods until they are"
    " applied or recreated, and is not shown here"
)
_NO_NAMESPACES: Final = (
    "no namespaces found: each one counts as existing, with its name as its only label"
)
_NO_POLICIES: Final = "no current policies: all count as added"


def preview(arguments: Arguments) -> int:
    """Print a preview; return 1 for --fail-on or invalid input, 2 without anything to compare."""
    run = _Run(arguments)
    if arguments.cluster:
        return run_with_client(arguments, lambda client: run.compare(ClusterReader(client)))
    return asyncio.run(run.compare(run.dump()))


class _Run:
    """One preview."""

    def __init__(self, arguments: Arguments) -> None:
        """Read the policies. Raises UnusableError."""
        self._arguments = arguments
        names = arguments.excluded_namespaces.split(",")
        self._inputs = PreviewInputs(frozenset(name.strip() for name in names if name.strip()))
        self._problems: list[str] = []
        self._notes: list[str] = []
        self._policies = PreviewedPolicies()
        self._left_out: list[Resource] = []
        """The kinds that the caller has no permission to read."""
        self._lacks_pods = False
        if not (arguments.policies or arguments.delete or arguments.all):
            raise UnusableError(
                "nothing to preview: give policies with -f, or one to remove with --delete"
            )
        policies = (*arguments.policies, *filter(None, (arguments.policies_now,)))
        if [str(path) for path in (*policies, arguments.dump)].count(STANDARD_INPUT) > 1:
            raise UnusableError("standard input can be read once: use - for one file only")
        self._given = of_files(arguments.policies, self._problems)
        if arguments.policies_now is not None:
            self._inputs.policies.update(of_files([arguments.policies_now], self._problems))
        for problem in self._problems:
            complain(problem)

    def dump(self) -> Dump:
        """Read the output of kubectl. Raises UnreadableError, UnusableError."""
        file = self._arguments.dump
        dump = Dump(file, (*FIRST, *THEN))
        if not dump.has(*THEN):
            raise UnusableError(
                f"{file}: no workload and no pod in it; see harbourmaster preview --help"
            )
        self._inputs.faults += dump.faults
        self._lacks_pods = not dump.has(PODS)
        return dump

    async def compare(self, source: ClusterReader | Dump) -> int:
        """Read a cluster and print a preview; return the exit code. Raises UnusableError."""
        inputs, arguments = self._inputs, self._arguments
        await self._read(source, FIRST)
        then, self._policies = preview_policies(
            inputs.policies, self._given, arguments.delete, is_all=arguments.all
        )
        inputs.begin(then, arguments.settings)
        for read, note in (
            (inputs.policies, _NO_POLICIES),
            (inputs.namespaces, _NO_NAMESPACES),
            (inputs.nodes, _NO_NODES),
        ):
            if not read:
                self._notes.append(note)
        await self._read(source, THEN)
        if all(resource in self._left_out for resource in THEN):
            raise UnusableError("no preview: missing permission to read any workload")
        self._lacks_pods |= PODS in self._left_out
        return self._finish()

    async def _read(self, source: ClusterReader | Dump, resources: tuple[Resource, ...]) -> None:
        """Read objects, as far as there is permission; policies must be read."""
        for resource in resources:
            is_policy = resource in {CLUSTER_POLICIES, POLICIES}
            if is_policy and self._arguments.policies_now is not None:
                continue
            try:
                await source.list_all(resource, partial(self._inputs.take, resource.kind))
            except NotFoundError:
                self._notes.append(f"the cluster has no {resource.plural}")
            except ForbiddenError as error:
                if is_policy:
                    raise UnusableError(
                        f"no preview: missing permission to read policies: {error.message}"
                    ) from None
                self._left_out.append(resource)
                self._notes.append(f"{resource.plural} could not be read: {error.message}")
            except ApiError as error:
                raise UnusableError(f"no preview: {error}") from None

    def _finish(self) -> int:
        report = self._report()
        lines = markdown if self._arguments.output == "markdown" else text
        print_out(self._arguments, report, lines(report))
        is_bad = bool(self._problems or self._inputs.faults)
        return LEFT if self._is_failed(report) or is_bad else DONE

    def _report(self) -> PreviewReport:
        inputs = self._inputs
        workloads = tuple(inputs.changed_workloads())
        fits = [workload.fit for workload in workloads if workload.fit is not None]
        names = Counter(workload.namespace for workload in workloads)
        policies = self._policies
        return PreviewReport(
            policies=policies,
            totals=Totals(
                workloads=len(inputs.workloads),
                nodes=len(inputs.nodes),
                changed=len(workloads),
                pods=sum(workload.pods for workload in workloads),
                unschedulable=sum(fit.lost for fit in fits),
                already_unschedulable=sum(fit.already for fit in fits),
                unjudged=sum(fit.unjudged for fit in fits),
            ),
            namespaces=dict(sorted(names.items(), key=lambda item: (-item[1], item[0]))),
            workloads=workloads,
            notes=(
                *self._notes,
                *([_NO_PODS] if self._lacks_pods and inputs.nodes else ()),
                *([_WRITTEN_STAYS] if policies.changed or policies.removed else ()),
                *inputs.notes(),
            ),
        )

    def _is_failed(self, report: PreviewReport) -> bool:
        asked, totals = self._arguments.fail_on, report.totals
        failed = []
        if "changed" in asked and totals.changed:
            failed.append(f"{totals.changed} workloads would change (--fail-on changed)")
        # An unread kind must not count as unchanged.
        unread = [resource.plural for resource in self._left_out if resource is not NODES]
        if asked and unread:
            flags = " ".join(f"--fail-on {flag}" for flag in asked)
            failed.append(f"{', '.join(unread)} could not be read ({flags})")
        if "unschedulable" in asked and totals.changed:
            unknown = _NO_NODES if not totals.nodes else _NO_PODS if self._lacks_pods else ""
            if unknown:
                failed.append(f"{unknown} (--fail-on unschedulable)")
        if "unschedulable" in asked and totals.unschedulable:
            text = f"{totals.unschedulable} pods would no longer fit any node"
            failed.append(f"{text} (--fail-on unschedulable)")
        for line in failed:
            complain(line)
        return bool(failed)
