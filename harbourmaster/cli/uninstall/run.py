"""``harbourmaster uninstall``: removes everything, also if nothing of Harbourmaster works any more.

It uses the caller's permissions. The guards are deleted first, which would refuse what follows;
then webhook configurations, so that no request waits for us; and again once the controller, which
would restore them, has been stopped.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import APPLICATIONS, DEPLOYMENTS, LEASES, NAMESPACES, PODS
from harbourmaster.cli.batches import many, shown
from harbourmaster.cli.installed import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_WIDE,
    COMPONENT_LABEL,
    CONTROLLER,
    GUARDS,
    IN_NAMESPACE,
    NAME,
    NAME_LABEL,
    PLACEMENT_RESOURCES,
    POLICY_RESOURCES,
    ROLE_BINDINGS,
    is_ours_by_name,
)
from harbourmaster.cli.live.cluster import (
    DONE,
    LEFT,
    UNUSABLE,
    collect,
    complain,
    remaining,
    run_with_client,
    say,
)
from harbourmaster.cli.live.installation import CONFIGURATIONS
from harbourmaster.cli.live.kinds import decode_binding, metadata_in
from harbourmaster.cli.uninstall.removal import NOTHING, Options, Removal
from harbourmaster.cli.uninstall.undoing import Undoing
from harbourmaster.kube.errors import ApiError, GoneError, NotFoundError, UnreachableError
from harbourmaster.kube.lease import LeaseSpec, decode_lease, micro_time
from harbourmaster.placement.deployed import DeployedApplication

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Awaitable, Callable

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client

HOLDER: Final = "harbourmaster uninstall"
HELD_SECONDS: Final = 600
"""How long no controller may lead: longer than an uninstall takes, and not much longer in case one
is interrupted."""
QUIET_SECONDS: Final = 6.0
"""A leader looks at its Lease every 2.5 s at the latest, and a slow answer may take it 3 s more."""
SELECTOR: Final = f"{NAME_LABEL}={NAME},{COMPONENT_LABEL}=controller"


class Stopping:
    """Stops the controller of one installation, which would restore in seconds what is deleted.

    Three ways, since each can fail: its Lease is taken from it, which ends the work of any
    controller, wherever it runs, at its next renewal; its rights are taken, which holds even where
    its node cannot be reached; its Deployment is deleted, and its pods are waited for.
    """

    def __init__(self, removal: Removal) -> None:
        self._removal = removal
        self._client = removal.client
        self._namespace = removal.options.namespace
        self._holder = ""
        self._gone: frozenset[str] = frozenset()

    async def controller(self) -> str:
        """Take Lease and rights from the controller, delete its Deployment, wait for its pods."""
        told = [
            await self._part("Lease", self._take_lease()),
            await self._part("rights", self._take_rights()),
            await self._part("Deployment", self._delete_deployment()),
        ]
        return "; ".join(filter(None, told)) or "none"

    async def _part(self, what: str, act: Awaitable[str]) -> str:
        try:
            return await act
        except NotFoundError:
            return ""
        except UnreachableError:
            raise
        except ApiError as error:
            self._removal.left.append(f"controller: {what}: {error}")
            return f"{what}: {error}"

    async def _take_lease(self) -> str:
        lease = decode_lease(await self._client.get(LEASES, CONTROLLER, self._namespace))
        if not lease.holder or lease.holder == HOLDER:
            return ""
        self._holder = lease.holder
        if self._removal.options.dry_run:
            return f"would take the Lease from {lease.holder}"
        now = micro_time(datetime.now(UTC))
        spec = LeaseSpec(
            holder_identity=HOLDER,
            lease_duration_seconds=HELD_SECONDS,
            acquire_time=now,
            renew_time=now,
        )
        patch = MergePatch({"spec": spec})
        await self._client.patch(LEASES, CONTROLLER, patch, self._namespace)
        return f"took the Lease from {lease.holder}"

    async def _take_rights(self) -> str:
        taken = []
        for resource in (CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS):
            namespace = self._namespace if resource.namespaced else None
            found = await collect(self._client, resource, decode_binding, namespace=namespace)
            ours = [one.metadata for one in found if one.is_only_for(self._namespace, CONTROLLER)]
            taken += await self._removal.delete(resource, ours)
        return (
            f"{self._removal.would('take', 'took')} {many(len(taken), 'binding')}" if taken else ""
        )

    async def _delete_deployment(self) -> str:
        found, pods = [
            await self._removal.metadata(each, self._namespace, SELECTOR)
            for each in (DEPLOYMENTS, PODS)
        ]
        deleted = await self._removal.delete(DEPLOYMENTS, found, propagation="Background")
        told = [self._removal.deleted(deleted)] if deleted else []
        if pods and not self._removal.options.dry_run:
            rest = await remaining(
                self._client,
                PODS,
                self._removal.options.patience,
                namespace=self._namespace,
                label_selector=SELECTOR,
            )
            self._gone = frozenset(pod.name for pod in pods) - set(rest)
            told.append(
                f"not gone yet: {shown(list(rest))}; they have no permissions any more"
                if rest
                else f"{many(len(pods), 'pod')} gone"
            )
        return "; ".join(told)

    async def configurations(self) -> str:
        """Delete what the controller restored before it stopped.

        Where it was not seen to end, also what it restores until it has been quiet for a while.
        """
        again = await self._removal.delete_configurations()
        if not (self._has_ended() or self._removal.options.dry_run):
            again += await self._until_quiet()
        if not again:
            return "none restored"
        return f"{self._removal.deleted(again)}, restored meanwhile"

    def _has_ended(self) -> bool:
        """Whether there was no leader, or it was a pod that we saw go."""
        # A holder's name is its pod's, and a random part after an underscore.
        return not self._holder or self._holder.partition("_")[0] in self._gone

    async def _until_quiet(self) -> list[str]:
        again: list[str] = []
        loop = asyncio.get_running_loop()
        end = loop.time() + self._removal.options.patience
        while await self._restored():
            again += await self._removal.delete_configurations()
            if loop.time() > end:
                self._removal.left.append(
                    "webhook configurations: another process keeps restoring them: stop the "
                    "controller that runs outside this cluster"
                )
                break
        return again

    async def _restored(self) -> bool:
        """Whether a configuration of ours appears within QUIET_SECONDS."""
        looks = [asyncio.create_task(self._appears(resource)) for resource in CONFIGURATIONS]
        try:
            for look in asyncio.as_completed(looks):
                if await look:
                    return True
        finally:
            for task in looks:
                task.cancel()
            await asyncio.gather(*looks, return_exceptions=True)
        return False

    async def _appears(self, resource: Resource) -> bool:
        page = await self._client.list(resource, metadata_only=True)
        if any(is_ours_by_name(metadata_in(raw)) for raw in page.items):
            return True
        events = self._client.watch(
            resource,
            resource_version=page.resource_version,
            timeout_seconds=int(2 * QUIET_SECONDS),
            idle_timeout=2 * QUIET_SECONDS,
            metadata_only=True,
        )
        try:
            async with asyncio.timeout(QUIET_SECONDS), aclosing(events):
                async for event in events:
                    if event.type == "ADDED" and is_ours_by_name(metadata_in(event.object)):
                        return True
        except (TimeoutError, GoneError):
            return False
        return False


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
    await removal.step("namespace of compiled policies", removal.probes, quiet=True)
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
    await removal.step("Keptn's addresses of metrics", removal.addresses, quiet=True)
    for resource in IN_NAMESPACE:
        await removal.step(resource.plural, partial(removal.kind, resource), quiet=True)
    # No webhook of ours sets the scheduler of a recreated pod any more.
    await removal.step(f"pods in {options.scheduler}", undoing.schedulers, quiet=True)
    # By them the step before knows which pods got their scheduler from us.
    await removal.step("annotations", undoing.annotations)
    await removal.step("policies in mode Audit", removal.audited, quiet=True)
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
