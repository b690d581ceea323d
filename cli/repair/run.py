"""``harbourmaster repair``: finds what policies should have changed, and repairs it.

It uses the caller's permissions. Pods that still wait are patched; workloads whose pods can't be
changed any more are restarted, one at a time in each namespace.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from harbourmaster.api.resources import MUTATING_WEBHOOKS
from harbourmaster.cli.batches import for_each, many
from harbourmaster.cli.live.cluster import DONE, LEFT, complain, print_out, run_with_client
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.live.reader import cause
from harbourmaster.cli.repair.changing import Changes, Pace
from harbourmaster.cli.repair.model import RESTART, RepairReport
from harbourmaster.cli.repair.observed import observe
from harbourmaster.cli.repair.plan import decision, ended, items_of
from harbourmaster.kube.errors import ApiError, UnreachableError
from harbourmaster.serving.settings import StartError

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.cli.repair.model import RepairItem
    from harbourmaster.cli.repair.observed import Observed, StoredPod
    from harbourmaster.kube.client import Client


def run(arguments: Arguments) -> int:
    """Repair; 0 if no pod lacks anything then, 1 if some do, 2 if there is no cluster to read."""
    return run_with_client(arguments, partial(_run, arguments))


async def _run(arguments: Arguments, client: Client) -> int:
    live = Installation(client, arguments.installed_in)
    if await live.configuration(MUTATING_WEBHOOKS) is None:
        text = "nothing to repair: no webhook of Harbourmaster is registered"
        raise StartError(f"{text}: see harbourmaster doctor")
    wanted = client.connection.namespace if arguments.namespace is None else arguments.namespace
    spaces = [each for each in await live.namespaces() if wanted in {"", each.name}]
    if wanted and not spaces:
        raise StartError(f'namespace "{wanted}" not found: kubectl get namespaces lists them')
    repair = _Repair(arguments, client, live)
    errors = await for_each(spaces, repair.namespace)
    for error in errors:
        complain(cause(error))
    return repair.conclude() or (LEFT if errors else DONE)


class _Repair:
    """One run; ``items`` are of all namespaces."""

    def __init__(self, arguments: Arguments, client: Client, live: Installation) -> None:
        self._arguments = arguments
        self._live = live
        pace = Pace(arguments.rate)
        self._changes = Changes(client, arguments.installed_in, pace, arguments.timeout)
        self._items: list[RepairItem] = []
        self._skipped = False

    async def namespace(self, space: Metadata) -> None:
        """Look at a namespace and repair it. Raises ApiError."""
        seen = await observe(self._live, space, templates=True)
        for problem in seen.problems:
            complain(f"namespace {space.name} is skipped: {problem}")
            self._skipped = True
        if seen.problems:
            return
        found = items_of(seen)
        if found and seen.doubt:
            complain(seen.doubt)
        self._items += found if self._arguments.dry_run else await self._done(space, seen, found)

    async def _done(
        self, space: Metadata, seen: Observed, found: list[RepairItem]
    ) -> list[RepairItem]:
        left: dict[str, str] = {}

        async def patch(pod: StoredPod) -> None:
            try:
                lack = await self._changes.patch(pod, seen.engine)
                left[pod.pod.name] = f"lacks {', '.join(lack.fields)} still" if lack else ""
            except UnreachableError:
                raise
            except ApiError as error:
                left[pod.pod.name] = cause(error)
            complain(f"Pod {pod.pod.key}: {left[pod.pod.name] or 'changed'}")

        changed = [
            each
            for each in seen.pods
            if each.lack
            and each.lack.operations
            and decision(each.workload, each.lack)[0] != RESTART
        ]
        if errors := await for_each(changed, patch):
            raise errors[0]
        asked = dict.fromkeys(each.workload for each in found if each.action == RESTART)
        restarted = await self._changes.restart_all(space, list(asked), seen.engine)
        return [one for each in found for one in ended(each, left, restarted)]

    def conclude(self) -> int:
        """Print the report; returns the exit code."""
        items = tuple(sorted(self._items, key=lambda each: (each.namespace, each.kind, each.name)))
        left = sum(len(each.pods) for each in items if not each.done)
        report = RepairReport(self._arguments.dry_run, items, left)
        total = f"{many(left, 'pod')} lack what policies set" if left else "no pod lacks anything"
        print_out(self._arguments, report, [*map(str, items), total])
        return LEFT if left or self._skipped else DONE
