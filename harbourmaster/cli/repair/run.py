"""``harbourmaster repair``: finds what policies should have changed, and repairs it.

It uses the caller's permissions. Pods that still wait are patched; workloads whose pods can't be
changed any more are restarted, one at a time in each namespace.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from harbourmaster.api.resources import MUTATING_WEBHOOKS
from harbourmaster.cli.batches import for_each, many
from harbourmaster.cli.live.cluster import DONE, LEFT, complain, run_with_client
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.live.reader import cause
from harbourmaster.cli.repair.changing import Changes, Pace, observe
from harbourmaster.cli.repair.plan import RESTART, items_of
from harbourmaster.cli.terminal import print_out
from harbourmaster.cli.why.asking import inputs_of
from harbourmaster.kube.errors import ApiError, NotFoundError
from harbourmaster.policies.index import policy_set
from harbourmaster.serving.settings import StartError
from harbourmaster.webhook.engine import Engine

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.cli.repair.plan import Lack, RepairItem, StoredPod
    from harbourmaster.kube.client import Client


def run(arguments: Arguments) -> int:
    """Repair; 0 if no pod lacks anything then, 1 if some do, 2 if there is no cluster to read."""
    return run_with_client(arguments, partial(_run, arguments))


async def _run(arguments: Arguments, client: Client) -> int:
    live, pace = Installation(client, arguments.installed_in), Pace(arguments.rate)
    wanted = client.connection.namespace if arguments.namespace is None else arguments.namespace
    configuration = await live.configuration(MUTATING_WEBHOOKS)
    entries = configuration.entries if configuration else ()
    spaces = [
        namespace
        for namespace in await live.namespaces()
        if wanted in {"", namespace.name} and any(entry.selects(namespace) for entry in entries)
    ]
    if not spaces:
        text = "no webhook is registered for its pods: run harbourmaster doctor"
        raise StartError(f'namespace "{wanted or "*"}": {text}')
    items: list[RepairItem] = []

    async def one(space: Metadata) -> None:
        items.extend(await _repair(arguments, live, space, pace))

    failed = await for_each(spaces, one)
    for error in failed:
        complain(cause(error))
    items.sort(key=lambda each: (each.namespace, each.kind, each.name, each.pods))
    left = sum(len(item.pods) for item in items if not item.done)
    total = f"{many(left, 'pod')} without what policies set" if left else "no pod lacks anything"
    report = {"dry_run": arguments.dry_run, "left": left, "items": items}
    print_out(arguments, report, [*map(str, items), total])
    return LEFT if left or failed else DONE


async def _repair(
    arguments: Arguments, live: Installation, space: Metadata, pace: Pace
) -> list[RepairItem]:
    """Look at a namespace, and repair it. Raises ApiError."""
    inputs = await inputs_of(live, space.name)
    if inputs.problems:
        raise ApiError(f"namespace {space.name} is skipped: {inputs.problems[0]}")
    enforced = (policy.compiled for policy in inputs.policies if not policy.compiled.is_audited)
    engine = Engine(replace(inputs.snapshot, policies=policy_set(enforced)), inputs.settings)
    seen = await observe(live, space, engine, arguments.selector or "")
    lacking = [each for each in seen.pods if each.lack]
    if lacking and inputs.doubt:
        complain(inputs.doubt)
    if arguments.dry_run or not lacking:
        return items_of(seen, {}, {})
    changes = Changes(live, space, engine, pace, arguments.timeout)
    patched: dict[str, tuple[Lack | None, str]] = {}

    async def patch(pod: StoredPod) -> None:
        try:
            lack = await changes.patch(pod)
            why = f"still without {', '.join(lack.fields)}" if lack else ""
            patched[pod.pod.name] = lack, why
        except NotFoundError:
            patched[pod.pod.name] = None, ""
        except ApiError as error:
            patched[pod.pod.name] = pod.lack, cause(error)
        complain(f"Pod {pod.pod.key}: {patched[pod.pod.name][1] or 'changed'}")

    changed = [
        each for each in lacking if each.lack and each.lack.operations and each.action != RESTART
    ]
    await for_each(changed, patch)
    asked = dict.fromkeys(each.workload for each in lacking if each.action == RESTART)
    return items_of(seen, patched, await changes.restart_all(asked))
