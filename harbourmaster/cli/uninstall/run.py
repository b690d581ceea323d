"""``harbourmaster uninstall`` removes everything, even if nothing of Harbourmaster works any more.

It uses the caller's permissions. It deletes the guards first, which would refuse what follows, then
the webhook configurations, so that no request waits for us, and these again after the controller,
which would restore them, has stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import APPLICATIONS, DEPLOYMENTS, LEASES, NAMESPACES, PODS
from harbourmaster.cli.batches import plural, shorten
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
from harbourmaster.cli.live.changes import Watched, look_until_done, remaining
from harbourmaster.cli.live.cluster import (
    DONE,
    LEFT,
    UNUSABLE,
    collect,
    complain,
    run_with_client,
    say,
)
from harbourmaster.cli.live.installation import CONFIGURATIONS
from harbourmaster.cli.live.kinds import decode_binding, metadata_in
from harbourmaster.cli.uninstall.marks import MarkRemover
from harbourmaster.cli.uninstall.removal import NOTHING, Options, Removal
from harbourmaster.kube.errors import ApiError, NotFoundError, UnreachableError
from harbourmaster.kube.lease import LeaseSpec, decode_lease, micro_time
from harbourmaster.placement.deployed import DeployedApplication

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Callable

    from harbourmaster.kube.client import Client

HOLDER: Final = "harbourmaster uninstall"
HELD_SECONDS: Final = 600
"""The time for which no controller can lead; an uninstall takes less, but can be interrupted."""
QUIET_SECONDS: Final = 6.0
"""A leader reads its Lease at least every 2.5 s, and a slow answer can take 3 s more."""
SELECTOR: Final = f"{NAME_LABEL}={NAME},{COMPONENT_LABEL}=controller"


class ControllerStopper:
    """Stops the controller of one installation, which would restore in seconds what is deleted.

    It takes three ways, because each can fail: it takes the Lease, which ends the work of any
    controller, wherever it runs, at its next renewal; it deletes role bindings, which holds even if
    the controller's node cannot be reached; it deletes the Deployment, and waits for its pods.
    """

    def __init__(self, removal: Removal) -> None:
        self._removal = removal
        self._client = removal.client
        self._namespace = removal.options.namespace
        self._holder = ""
        self._ended_pods: frozenset[str] = frozenset()

    async def stop(self) -> str:
        """Take Lease and permissions, delete the Deployment, and wait for its pods."""
        results = []
        for part, act in (
            ("Lease", self._take_lease),
            ("rights", self._take_permissions),
            ("Deployment", self._delete_deployment),
        ):
            try:
                results.append(await act())
            except NotFoundError:
                continue
            except UnreachableError:
                raise
            except ApiError as error:
                self._removal.left.append(f"controller: {part}: {error}")
                results.append(f"{part}: {error}")
        return "; ".join(filter(None, results)) or NOTHING

    async def _take_lease(self) -> str:
        lease = decode_lease(await self._client.get(LEASES, CONTROLLER, self._namespace))
        if not lease.holder or lease.holder == HOLDER:
            return ""
        self._holder = lease.holder
        if not self._removal.options.dry_run:
            now = micro_time(datetime.now(UTC))
            spec = LeaseSpec(
                holder_identity=HOLDER,
                lease_duration_seconds=HELD_SECONDS,
                acquire_time=now,
                renew_time=now,
            )
            patch = MergePatch({"spec": spec})
            await self._client.patch(LEASES, CONTROLLER, patch, self._namespace)
        return f"{self._removal.would('take', 'took')} the Lease from {lease.holder}"

    async def _take_permissions(self) -> str:
        deleted = []
        for resource in (CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS):
            namespace = self._namespace if resource.namespaced else None
            ours = [
                binding.metadata
                for binding in await collect(
                    self._client, resource, decode_binding, namespace=namespace
                )
                if binding.is_only_for(self._namespace, CONTROLLER)
            ]
            deleted += await self._removal.delete(resource, ours)
        if not deleted:
            return ""
        return f"{self._removal.would('take', 'took')} {plural(len(deleted), 'binding')}"

    async def _delete_deployment(self) -> str:
        deployments = await self._removal.metadata(DEPLOYMENTS, self._namespace, SELECTOR)
        pods = await self._removal.metadata(PODS, self._namespace, SELECTOR)
        deleted = await self._removal.delete(DEPLOYMENTS, deployments)
        results = [self._removal.describe(deleted)] if deleted else []
        if pods and not self._removal.options.dry_run:
            patience = self._removal.options.patience
            watched = Watched(PODS, label_selector=SELECTOR)
            running = await remaining(self._client, watched, patience, self._namespace)
            self._ended_pods = frozenset(pod.name for pod in pods).difference(running)
            results.append(
                f"not gone yet: {shorten(running)}; they have no permissions any more"
                if running
                else f"{plural(len(pods), 'pod')} gone"
            )
        return "; ".join(results)

    async def delete_restored(self) -> str:
        """Delete the configurations that the controller restored before it stopped.

        If its end was not observed, delete until none is restored for QUIET_SECONDS.
        """
        restored = await self._removal.delete_configurations()
        # The name of a holder is the name of its pod, an underscore and a random part.
        has_ended = not self._holder or self._holder.partition("_")[0] in self._ended_pods
        if not (has_ended or self._removal.options.dry_run):
            restored += await self._delete_until_quiet()
        if not restored:
            return "none restored"
        return f"{self._removal.describe(restored)}, restored meanwhile"

    async def _delete_until_quiet(self) -> list[str]:
        restored: list[str] = []
        loop = asyncio.get_running_loop()
        end = loop.time() + self._removal.options.patience
        while await self._has_restored():
            restored += await self._removal.delete_configurations()
            if loop.time() > end:
                self._removal.left.append(
                    "webhook configurations: another process keeps restoring them: stop the "
                    "controller that runs outside this cluster"
                )
                break
        return restored

    async def _has_restored(self) -> bool:
        """Whether a webhook configuration of ours is or appears there within QUIET_SECONDS."""

        async def look() -> bool | None:
            for resource in CONFIGURATIONS:
                page = await self._client.list(resource, metadata_only=True)
                if any(is_ours_by_name(metadata_in(raw)) for raw in page.items):
                    return True
            return None

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(QUIET_SECONDS):
                return await look_until_done(self._client, map(Watched, CONFIGURATIONS), None, look)
        # One that appeared last, or an API server that does not answer.
        return bool(await look())


_decode_application: Final = msgspec.json.Decoder(DeployedApplication).decode


def run(arguments: Arguments) -> int:
    """Uninstall; return 0 if nothing is left, 1 if something is, 2 without cluster or consent."""
    return run_with_client(arguments, partial(_run, arguments))


async def _run(arguments: Arguments, client: Client) -> int:
    options = Options(
        namespace=arguments.installed_in,
        delete_definitions=arguments.delete_crds,
        dry_run=arguments.dry_run,
        patience=arguments.timeout,
        scheduler=arguments.scheduler,
    )
    if not (options.dry_run or arguments.yes or _confirm(client.connection.server, options)):
        return UNUSABLE
    return await uninstall(client, options)


def _confirm(server: str, options: Options) -> bool:
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
    """Run every step in order, look again, and report what is left; return the exit code.

    Raises UnreachableError.
    """
    removal = Removal(client, options, tell)
    stopper = ControllerStopper(removal)
    marks = MarkRemover(removal)
    step = removal.step
    # The guards refuse to users what is undone below.
    for resource in GUARDS:
        await step(resource.plural, partial(removal.delete_kind, resource), quiet=True)
    await step("namespace of compiled policies", removal.delete_probe_namespaces, quiet=True)
    await step("webhook configurations", partial(_delete_configurations, removal))
    await step("controller", stopper.stop)
    await step("webhook configurations again", stopper.delete_restored)
    await step("APIServices", removal.delete_api_services, quiet=True)
    await step("conversions", removal.turn_conversions_off, quiet=True)
    await step("gates", marks.release_pods)
    await step("labels", marks.remove_labels)
    await step("nodes kept for critical add-ons", marks.remove_reservations, quiet=True)
    for resource in (*POLICY_RESOURCES, *PLACEMENT_RESOURCES, NAMESPACES):
        finalizers = f"finalizers of {resource.plural}"
        await step(finalizers, partial(marks.remove_finalizers, resource), quiet=True)
    await step("objects on member clusters", partial(_list_placed, client), quiet=True)
    await step("Keptn's addresses of metrics", removal.delete_keptn_addresses, quiet=True)
    for resource in IN_NAMESPACE:
        await step(resource.plural, partial(removal.delete_kind, resource), quiet=True)
    # No webhook of ours sets the scheduler of a recreated pod any more.
    await step(f"pods in {options.scheduler}", marks.delete_scheduled_pods, quiet=True)
    # The annotations tell the step before which pods got their scheduler from us.
    await step("annotations", marks.remove_annotations)
    await step("policies in mode Audit", removal.list_audited, quiet=True)
    await step("definitions", removal.delete_definitions)
    for resource in CLUSTER_WIDE[len(GUARDS) :]:
        await step(resource.plural, partial(removal.delete_kind, resource), quiet=True)
    await step("namespace", removal.delete_namespace)
    if options.dry_run:
        tell("Nothing was changed.")
        return DONE
    return await _report_left(removal, marks)


async def _delete_configurations(removal: Removal) -> str:
    """Delete the webhook configurations, so that no request waits for us any more."""
    return removal.describe(await removal.delete_configurations())


async def _list_placed(client: Client) -> str:
    """Count the applications with objects on member clusters, which only a controller reaches."""
    clusters_of_each = [
        {
            f"{application.metadata.namespace}/{placement.cluster}"
            for placement in (*application.status.inventory, *application.status.pending_cleanup)
        }
        for application in await collect(client, APPLICATIONS, _decode_application)
    ]
    number = sum(map(bool, clusters_of_each))
    if not number:
        return NOTHING
    clusters = sorted(set().union(*clusters_of_each))
    return f"those of {plural(number, 'application')} stay on {shorten(clusters)}"


async def _report_left(removal: Removal, marks: MarkRemover) -> int:
    left = [*removal.left, *await removal.find_left(), *await marks.find_scheduled_pods()]
    for line in left:
        removal.tell(f"left: {line}")
    if left:
        complain(
            f"{plural(len(left), 'thing')} left; correct the causes and run the same command again"
        )
        return LEFT
    removal.tell("Harbourmaster is uninstalled.")
    return DONE
