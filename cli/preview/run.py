"""``harbourmaster preview``: which workloads policies would change, and whose pods would not fit.

It asks the functions that the server asks. A live cluster is read page by page, by the caller's
rights; nothing is written, and nothing of ours needs to run there.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.decoding import MalformedError, decode
from harbourmaster.api.resources import CLUSTER_POLICIES, NODES, PODS, POLICIES
from harbourmaster.cli.live.cluster import (
    DONE,
    LEFT,
    UNUSABLE,
    collect,
    complain,
    run_with_client,
    say,
)
from harbourmaster.cli.preview import markdown, text
from harbourmaster.cli.preview.model import Report, Totals
from harbourmaster.cli.preview.policies import UnknownError, of_files, previewed, set_of
from harbourmaster.cli.preview.world import FIRST, THEN, World
from harbourmaster.cli.reschedule.state import UnreadableError, objects_in
from harbourmaster.cli.terminal import json_text
from harbourmaster.kube.errors import ApiError, ForbiddenError, NotFoundError
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.snapshot import Snapshot

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from pathlib import Path

    from msgspec import Raw

    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.preview.model import Policies
    from harbourmaster.kube.client import Client


class _Object(msgspec.Struct, frozen=True):
    kind: str = ""


_kind_of: Final = msgspec.json.Decoder(_Object)
_POLICIES: Final = frozenset((CLUSTER_POLICIES.kind, POLICIES.kind))
_NO_NODES: Final = "no nodes are known: nothing is said about where pods fit"
_NO_PODS: Final = "no pods are known: every node counts as empty"
_WRITTEN_STAYS: Final = (
    "what a changed or removed policy wrote before stays in templates and pods until they are"
    " applied or made anew, and is no change here"
)
_NO_NAMESPACES: Final = (
    "no namespaces are known: every one counts as there, labelled with nothing but its name"
)
_STANDARD_INPUT: Final = "-"
_NO_POLICIES: Final = "there are no policies now: all count as added"


def preview(arguments: Arguments) -> int:
    """Show it; 0 done, 1 what --fail-on names or some input was bad, 2 nothing to compare."""
    if not (arguments.policies or arguments.delete or arguments.is_all):
        complain("nothing to preview: give policies by -f, or one to take away by --delete")
        return UNUSABLE
    run = _Run(arguments)
    if not run.read_files():
        return UNUSABLE
    if arguments.cluster:
        return run_with_client(arguments, run.live)
    return run.dumped()


class _Run:
    """One preview."""

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments
        names = arguments.excluded_namespaces.split(",")
        self._world = World(frozenset(name.strip() for name in names if name.strip()))
        self._problems: list[str] = []
        self._notes: list[str] = []
        self._policies: Policies | None = None
        self._left_out: list[Resource] = []
        """What the caller may not read."""
        self._lacks_pods = False

    def read_files(self) -> bool:
        """Read the policies; False where that can't be done at all."""
        arguments = self._arguments
        policies = (*arguments.policies, *filter(None, (arguments.policies_now,)))
        if [str(path) for path in (*policies, arguments.dump)].count(_STANDARD_INPUT) > 1:
            complain("standard input can be read once: give only one of the files as -")
            return False
        for path in policies:
            if str(path) != _STANDARD_INPUT and not path.exists():
                complain(f"{path}: no such file or directory")
                return False
        self._given = of_files(arguments.policies, self._problems)
        if arguments.policies_now is not None:
            self._world.policies.update(of_files([arguments.policies_now], self._problems))
        for problem in self._problems:
            complain(problem)
        return True

    async def live(self, client: Client) -> int:
        """Compare with a cluster."""
        for resource in (*FIRST, None, *THEN):
            if resource is None:
                if not self._begin():
                    return UNUSABLE
                continue
            if resource.kind in _POLICIES and self._arguments.policies_now is not None:
                continue
            take = partial(self._world.take, resource.kind)
            try:
                await collect(client, resource, take)
            except NotFoundError:
                self._notes.append(f"the cluster has no {resource.plural}")
            except ForbiddenError as error:
                if resource.kind in _POLICIES:
                    complain(f"no preview, for you may not read its policies: {error.message}")
                    return UNUSABLE
                self._left_out.append(resource)
                self._notes.append(f"{resource.plural} are left out: {error.message}")
            except ApiError as error:
                complain(f"no preview: {error}")
                return UNUSABLE
        if all(resource in self._left_out for resource in THEN):
            complain("no preview, for you may read no workload at all")
            return UNUSABLE
        self._lacks_pods = PODS in self._left_out
        return self._finish()

    def dumped(self) -> int:
        """Compare with what kubectl printed."""
        file = self._arguments.dump
        try:
            by_kind = self._by_kind(file)
        except UnreadableError as error:
            complain(str(error))
            return UNUSABLE
        if not any(by_kind[resource.kind] for resource in THEN):
            complain(f"{file}: no workload and no pod in it; see harbourmaster preview --help")
            return UNUSABLE
        self._lacks_pods = not by_kind[PODS.kind]
        for resource in FIRST:
            if resource.kind in _POLICIES and self._arguments.policies_now is not None:
                continue
            for raw in by_kind[resource.kind]:
                self._world.take(resource.kind, raw)
        if not self._begin():
            return UNUSABLE
        for resource in THEN:
            # What was looked at is let go, so that not all of it is held twice.
            objects = by_kind.pop(resource.kind)
            objects.reverse()
            while objects:
                self._world.take(resource.kind, objects.pop())
        return self._finish()

    def _by_kind(self, file: Path) -> dict[str, list[Raw]]:
        """The objects of a dump that matter. Raises UnreadableError."""
        found: dict[str, list[Raw]] = {resource.kind: [] for resource in (*FIRST, *THEN)}
        for index, raw in enumerate(objects_in(file)):
            try:
                kind = decode(_kind_of, raw, "").kind
            except MalformedError as error:
                self._world.faults.append(f"{file}: items[{index}]: {error}")
                continue
            if kind in found:
                found[kind].append(raw)
        return found

    def _begin(self) -> bool:
        world, arguments = self._world, self._arguments
        try:
            then, self._policies = previewed(
                world.policies, self._given, arguments.delete, is_all=arguments.is_all
            )
        except UnknownError as error:
            complain(str(error))
            return False
        namespaces = world.namespaces or None
        world.begin(
            *(
                Engine(Snapshot(set_of(policies.values()), namespaces), arguments.settings)
                for policies in (world.policies, then)
            )
        )
        for found, note in (
            (world.policies, _NO_POLICIES),
            (namespaces, _NO_NAMESPACES),
            (world.nodes, _NO_NODES),
        ):
            if not found:
                self._notes.append(note)
        return True

    def _finish(self) -> int:
        report = self._report()
        if self._arguments.output == "json":
            sys.stdout.buffer.write(json_text(report))
        else:
            render = text.lines if self._arguments.output == "text" else markdown.lines
            for line in render(report):
                say(line)
        is_bad = bool(self._problems or self._world.faults)
        return LEFT if self._is_failed(report) or is_bad else DONE

    def _report(self) -> Report:
        world = self._world
        workloads = tuple(world.changed())
        fits = [each.fit for each in workloads if each.fit is not None]
        names = Counter(each.namespace for each in workloads)
        found = self._policies or previewed({}, {}, [], is_all=False)[1]
        return Report(
            policies=found,
            totals=Totals(
                workloads=len(world.workloads),
                nodes=len(world.nodes),
                changed=len(workloads),
                pods=sum(each.pods for each in workloads),
                unschedulable=sum(each.lost for each in fits),
                already_unschedulable=sum(each.already for each in fits),
                unjudged=sum(each.unjudged for each in fits),
            ),
            namespaces=dict(sorted(names.items(), key=lambda each: (-each[1], each[0]))),
            workloads=workloads,
            notes=(
                *self._notes,
                *([_NO_PODS] if self._lacks_pods and world.nodes else ()),
                *([_WRITTEN_STAYS] if found.changed or found.removed else ()),
                *world.notes(),
            ),
        )

    def _is_failed(self, report: Report) -> bool:
        asked, totals = self._arguments.fail_on, report.totals
        is_failed = False
        if "changed" in asked and totals.changed:
            complain(f"{totals.changed} workloads would change (--fail-on changed)")
            is_failed = True
        # What was not looked at must not pass for what is fine.
        unread = [each.plural for each in self._left_out if each is not NODES]
        if asked and unread:
            flags = " ".join(f"--fail-on {each}" for each in asked)
            complain(f"{', '.join(unread)} could not be looked at ({flags})")
            is_failed = True
        if "unschedulable" in asked and totals.changed and not totals.nodes:
            complain(f"{_NO_NODES} (--fail-on unschedulable)")
            is_failed = True
        elif "unschedulable" in asked and totals.changed and self._lacks_pods:
            complain(f"{_NO_PODS} (--fail-on unschedulable)")
            is_failed = True
        if "unschedulable" in asked and totals.unschedulable:
            complain(
                f"{totals.unschedulable} pods would fit no node any more (--fail-on unschedulable)"
            )
            is_failed = True
        return is_failed
