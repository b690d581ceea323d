"""``harbourmaster preview``: which workloads policies would change, and whose pods would not fit.

It asks the functions that the server asks. A live cluster is read page by page, by the caller's
rights; nothing is written, and nothing of ours needs to run there.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from harbourmaster.api.resources import CLUSTER_POLICIES, NODES, PODS, POLICIES
from harbourmaster.cli.live.cluster import (
    DONE,
    LEFT,
    complain,
    run_with_client,
)
from harbourmaster.cli.live.files import STANDARD_INPUT, Dump
from harbourmaster.cli.live.reader import ClusterReader
from harbourmaster.cli.preview.inputs import (
    FIRST,
    THEN,
    PreviewInputs,
    UnusableError,
    of_files,
    previewed,
)
from harbourmaster.cli.preview.model import PreviewedPolicies, PreviewReport, Totals
from harbourmaster.cli.preview.printing import markdown, text
from harbourmaster.cli.terminal import print_out
from harbourmaster.kube.errors import ApiError, ForbiddenError, NotFoundError

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from harbourmaster.api.resources import Resource

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
    """Show it; 0 done, 1 what --fail-on names or some input was bad, 2 nothing to compare."""
    run = _Run(arguments)
    if arguments.cluster:
        return run_with_client(arguments, lambda client: run.compare(ClusterReader(client)))
    return asyncio.run(run.compare(run.dump()))


class _Run:
    """One preview."""

    def __init__(self, arguments: Arguments) -> None:
        """Read the policies. Raises UnusableError where that can't be done at all."""
        self._arguments = arguments
        names = arguments.excluded_namespaces.split(",")
        self._inputs = PreviewInputs(frozenset(name.strip() for name in names if name.strip()))
        self._problems: list[str] = []
        self._notes: list[str] = []
        self._policies = PreviewedPolicies()
        self._left_out: list[Resource] = []
        """What the caller has no permission to read."""
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
        """What kubectl printed. Raises UnreadableError, UnusableError."""
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
        """Read it, and print what would change; returns the exit code. Raises UnusableError."""
        inputs, arguments = self._inputs, self._arguments
        await self._read(source, FIRST)
        then, self._policies = previewed(
            inputs.policies, self._given, arguments.delete, is_all=arguments.all
        )
        inputs.begin(then, arguments.settings)
        for found, note in (
            (inputs.policies, _NO_POLICIES),
            (inputs.namespaces, _NO_NAMESPACES),
            (inputs.nodes, _NO_NODES),
        ):
            if not found:
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
                await source.listed(resource, partial(self._inputs.take, resource.kind))
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
        workloads = tuple(inputs.changed())
        fits = [each.fit for each in workloads if each.fit is not None]
        names = Counter(each.namespace for each in workloads)
        found = self._policies
        return PreviewReport(
            policies=found,
            totals=Totals(
                workloads=len(inputs.workloads),
                nodes=len(inputs.nodes),
                changed=len(workloads),
                pods=sum(workload.pods for workload in workloads),
                unschedulable=sum(fit.lost for fit in fits),
                already_unschedulable=sum(each.already for each in fits),
                unjudged=sum(each.unjudged for each in fits),
            ),
            namespaces=dict(sorted(names.items(), key=lambda each: (-each[1], each[0]))),
            workloads=workloads,
            notes=(
                *self._notes,
                *([_NO_PODS] if self._lacks_pods and inputs.nodes else ()),
                *([_WRITTEN_STAYS] if found.changed or found.removed else ()),
                *inputs.notes(),
            ),
        )

    def _is_failed(self, report: PreviewReport) -> bool:
        asked, totals = self._arguments.fail_on, report.totals
        failed = []
        if "changed" in asked and totals.changed:
            failed.append(f"{totals.changed} workloads would change (--fail-on changed)")
        # What was not read must not pass for what is fine.
        unread = [each.plural for each in self._left_out if each is not NODES]
        if asked and unread:
            flags = " ".join(f"--fail-on {each}" for each in asked)
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
