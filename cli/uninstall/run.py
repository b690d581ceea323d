"""``harbourmaster uninstall``: removes everything, also if nothing of Harbourmaster works any more.

It uses the caller's permissions. The guards are deleted first, which would refuse what follows;
then webhook configurations, so that no request waits for us; and again once the controller, which
would restore them, has been stopped.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.resources import APPLICATIONS, NAMESPACES
from harbourmaster.cli.batches import many, shown
from harbourmaster.cli.installed import (
    CLUSTER_WIDE,
    GUARDS,
    IN_NAMESPACE,
    PLACEMENT_RESOURCES,
    POLICY_RESOURCES,
)
from harbourmaster.cli.live.cluster import (
    DONE,
    LEFT,
    UNUSABLE,
    collect,
    complain,
    run_with_client,
    say,
)
from harbourmaster.cli.uninstall.removal import NOTHING, Options, Removal
from harbourmaster.cli.uninstall.stopping import Stopping
from harbourmaster.cli.uninstall.undoing import Undoing
from harbourmaster.placement.deployed import DeployedApplication

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Callable

    from harbourmaster.kube.client import Client


_decode: Final = msgspec.json.Decoder(DeployedApplication).decode


def run(arguments: Arguments) -> int:
    """Uninstall; 0 nothing of ours is left, 1 something is, 2 no cluster or no consent."""
    return run_with_client(arguments, partial(_run, arguments))


async def _run(arguments: Arguments, client: Client) -> int:
    options = Options(
        namespace=arguments.installed_in,
        delete_definitions=arguments.delete_crds,
        dry_run=arguments.dry_run,
        patience=arguments.timeout,
        scheduler=arguments.scheduler,
    )
    if not (options.dry_run or arguments.yes or _confirmed(client.connection.server, options)):
        return UNUSABLE
    return await uninstall(client, options)


def _confirmed(server: str, options: Options) -> bool:
    kept = "policies and all objects of Keptn's kinds and of placement"
    what = f"with all {kept}" if options.delete_definitions else f"but keep the {kept}"
    question = f"remove Harbourmaster (namespace {options.namespace}) from {server}, {what}"
    if options.scheduler:
        question += f", and delete pods in {options.scheduler}, so that their owners recreate them"
    if not sys.stdin.isatty():
        complain(f"would {question}: set --yes, or --dry-run to see what would be removed")
        return False
    say(f"This will {question}.")
    if input("Continue? [y/N] ").strip().lower() in {"y", "yes"}:
        return True
    complain("nothing was removed")
    return False


async def uninstall(client: Client, options: Options, tell: Callable[[str], None] = say) -> int:
    """Run every step in order, check again, and report what is left. Raises UnreachableError."""
    removal = Removal(client, options, tell)
    stopping = Stopping(removal)
    undoing = Undoing(removal)
    # They keep users from what is undone below.
    for resource in GUARDS:
        await removal.step(resource.plural, partial(removal.kind, resource), quiet=True)
    await removal.step("webhook configurations", removal.configurations)
    await removal.step("controller", stopping.controller)
    await removal.step("webhook configurations again", stopping.configurations)
    await removal.step("APIServices", removal.api_services, quiet=True)
    await removal.step("conversions", removal.conversions, quiet=True)
    await removal.step("gates", undoing.gates)
    await removal.step("labels", undoing.labels)
    await removal.step("nodes kept for critical add-ons", undoing.reservations, quiet=True)
    for resource in (*POLICY_RESOURCES, *PLACEMENT_RESOURCES, NAMESPACES):
        await removal.step(
            f"finalizers of {resource.plural}", partial(undoing.finalizers, resource), quiet=True
        )
    await removal.step("objects on member clusters", partial(_stays, client), quiet=True)
    await removal.step("Keptn's address of metric values", removal.address, quiet=True)
    for resource in IN_NAMESPACE:
        await removal.step(resource.plural, partial(removal.kind, resource), quiet=True)
    # No webhook of ours sets the scheduler of a recreated pod any more.
    await removal.step(f"pods in {options.scheduler}", undoing.schedulers, quiet=True)
    # By them the step before knows which pods got their scheduler from us.
    await removal.step("annotations", undoing.annotations)
    await removal.step("definitions", removal.definitions)
    for resource in CLUSTER_WIDE[len(GUARDS) :]:
        await removal.step(resource.plural, partial(removal.kind, resource), quiet=True)
    await removal.step("namespace", removal.namespace)
    if options.dry_run:
        tell("Nothing was changed.")
        return DONE
    return await _concluded(removal, undoing)


async def _stays(client: Client) -> str:
    """What applications have on member clusters, which only a controller reaches."""
    found = [
        {
            f"{one.metadata.namespace}/{each.cluster}"
            for each in (*one.status.inventory, *one.status.pending_cleanup)
        }
        for one in await collect(client, APPLICATIONS, _decode)
    ]
    placed = [each for each in found if each]
    if not placed:
        return NOTHING
    clusters = sorted(set().union(*placed))
    return f"those of {many(len(placed), 'application')} stay on {shown(clusters)}"


async def _concluded(removal: Removal, undoing: Undoing) -> int:
    left = [*removal.left, *await removal.look(), *await undoing.still_scheduled()]
    for line in left:
        removal.tell(f"left: {line}")
    if left:
        complain(
            f"{many(len(left), 'thing')} left; correct the causes and run the same command again"
        )
        return LEFT
    removal.tell("Harbourmaster is uninstalled.")
    return DONE
