"""The steps of ``harbourmaster uninstall``: each says in one line what it did or why it could not.

A step that fails does not keep the others from being done.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from harbourmaster.api.patches import JsonPatch
from harbourmaster.api.resources import API_SERVICES, DEFINITIONS, NAMESPACES, SERVICES
from harbourmaster.cli.batches import for_each, many, shown
from harbourmaster.cli.installed import (
    CLUSTER_WIDE,
    HELD_BY_USERS,
    IN_NAMESPACE,
    KEPTN_ADDRESSES,
    KEPTN_NAMESPACE,
    KEPTN_RESOURCES,
    METRICS,
    PLACEMENT_RESOURCES,
    POLICY_RESOURCES,
    WEBHOOK,
    foreign,
    is_our_configuration,
    is_our_definition,
    is_our_namespace,
    is_ours,
    is_ours_by_name,
)
from harbourmaster.cli.live.cluster import collect, count, greet, remaining, say
from harbourmaster.cli.live.installation import CONFIGURATIONS
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.cli.live.webhooks import (
    decode_api_service,
    decode_configuration,
    decode_definition,
)
from harbourmaster.cli.migrate.legacy import system_of_group, system_of_webhooks
from harbourmaster.cli.migrate.model import title
from harbourmaster.gates.gate import SCHEDULER_NAME
from harbourmaster.kube.errors import ApiError, ConflictError, NotFoundError, UnreachableError
from harbourmaster.policies.enforcement import PROBE_LABEL, is_audited

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import TypeVar

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.installed import Services
    from harbourmaster.cli.live.webhooks import Configuration, Definition
    from harbourmaster.cli.migrate.model import System
    from harbourmaster.kube.client import Client

    Item = TypeVar("Item")

NOTHING: Final = "none"


class Options(Struct, frozen=True):
    """What is to be removed, and how long to wait for it, in seconds."""

    namespace: str
    delete_definitions: bool = False
    dry_run: bool = False
    patience: float = 60.0
    scheduler: str = SCHEDULER_NAME
    """The one in which pods wait that have no gate; empty for none."""


class Removal:
    """One run over a cluster. ``left`` has a line for each thing that did not go."""

    def __init__(self, client: Client, options: Options, tell: Callable[[str], None] = say) -> None:
        self.client = client
        self.options = options
        self.tell = tell
        self.left: list[str] = []
        self._services: Services | None = None

    async def step(
        self, title: str, act: Callable[[], Awaitable[str]], *, quiet: bool = False
    ) -> None:
        """Do one step and say how it ended; a quiet one does not speak of nothing.

        Raises UnreachableError where the server is gone.
        """
        try:
            told = await act()
            if not quiet or told != NOTHING:
                self.tell(f"{title}: {told}")
        except NotFoundError:
            # The cluster has no such kind.
            if not quiet:
                self.tell(f"{title}: {NOTHING}")
        except ApiError as error:
            self.tell(f"{title}: failed: {error}")
            self.left.append(f"{title}: {error}")
            if isinstance(error, UnreachableError):
                await greet(self.client)

    async def delete(
        self, resource: Resource, found: Iterable[Metadata], propagation: str | None = None
    ) -> list[str]:
        """Delete these very objects; returns the names of those that went, or would go."""
        names: list[str] = []

        async def one(metadata: Metadata) -> None:
            if self.options.dry_run:
                names.append(metadata.name)
                return
            try:
                await self.client.delete(
                    resource,
                    metadata.name,
                    metadata.namespace or None,
                    uid=metadata.uid,
                    propagation=propagation,
                    missing_ok=True,
                )
            except ConflictError:
                # Recreated under the same name: the last look will find it.
                return
            names.append(metadata.name)

        self.report(await for_each(found, one), resource.plural)
        return sorted(names)

    def report(self, errors: list[ApiError], what: str) -> None:
        """Say that some of the objects of a step failed; most errors say the same, so one is told.

        Raises UnreachableError where no answer came: the rest of the step would only wait.
        """
        if not errors:
            return
        for error in errors:
            if isinstance(error, UnreachableError):
                raise error
        line = f"{what}: {len(errors)} failed: {errors[0]}"
        self.tell(line)
        self.left.append(line)

    async def configurations(self) -> str:
        """Delete the webhook configurations, so that from here on nothing waits for us."""
        return self.deleted(await self.delete_configurations())

    async def delete_configurations(self) -> list[str]:
        """Delete those that are ours as a whole; entries in others' are only reported."""
        deleted = []
        services = await self._our_services()
        for resource in CONFIGURATIONS:
            found = await collect(self.client, resource, decode_configuration)
            ours = [one.metadata for one in found if is_our_configuration(one, services)]
            deleted += [f"{resource.kind} {name}" for name in await self.delete(resource, ours)]
        return deleted

    async def shared_configurations(self) -> list[str]:
        """Configurations of others with an entry that calls us."""
        services = await self._our_services()
        return [
            f"{kind} {one.metadata.name} is not ours but calls our Service in "
            f"{', '.join(names)}: remove that entry"
            for kind, one in await self._configurations()
            if not is_our_configuration(one, services)
            and (names := [entry.name for entry in one.entries if entry.service in services])
        ]

    async def _configurations(self) -> list[tuple[str, Configuration]]:
        """All webhook configurations, each with its kind."""
        return [
            (resource.kind, one)
            for resource in CONFIGURATIONS
            for one in await collect(self.client, resource, decode_configuration)
        ]

    async def _our_services(self) -> Services:
        """The Services that lead to us, as they were at first; they go too."""
        if self._services is None:
            names = {WEBHOOK, METRICS}
            try:
                names |= {one.name for one in await self.found(SERVICES)}
            except ApiError as error:
                if isinstance(error, UnreachableError):
                    raise
            self._services = frozenset((self.options.namespace, name) for name in names)
        return self._services

    async def systems(self) -> frozenset[System]:
        """The systems whose webhook configurations are registered too."""
        found = {system_of_webhooks(one) for _, one in await self._configurations()}
        return frozenset(system for system in found if system is not None)

    async def kind(self, resource: Resource) -> str:
        """Delete all of a kind that is ours: in our namespace, or anywhere if it has none."""
        # Background is the default of every version but says so: pods go after their Deployment.
        return self.deleted(
            await self.delete(resource, await self.found(resource), propagation="Background")
        )

    async def found(self, resource: Resource) -> list[Metadata]:
        """Our objects of a kind."""
        namespace = self.options.namespace if resource.namespaced else None
        test = is_ours if resource.namespaced else is_ours_by_name
        return [one for one in await self.metadata(resource, namespace) if test(one)]

    async def metadata(
        self, resource: Resource, namespace: str | None = None, label_selector: str = ""
    ) -> list[Metadata]:
        """The metadata of every object."""
        return await collect(
            self.client,
            resource,
            metadata_in,
            namespace=namespace,
            label_selector=label_selector,
            metadata_only=True,
        )

    async def definitions(self) -> str:
        """Delete the CRDs if that is wanted, else say what they hold."""
        stored = await collect(self.client, DEFINITIONS, decode_definition)
        found = [one.metadata for one in stored if is_our_definition(one)]
        if not self.options.delete_definitions:
            if not found:
                return NOTHING
            held = await self._held()
            return f"kept {len(found)}, with {held}; --delete-crds deletes them all"
        systems = await self.systems()
        used = [one for one in found if _system_of(one) in systems]
        found = [one for one in found if one not in used]
        self.left += [
            f"definition {one.name}: {title(_system_of(one))} is registered and uses it"
            for one in used
        ]
        deleted = await self.delete(DEFINITIONS, found)
        if not self.options.dry_run:
            for name in deleted:
                if await self._outlasts(DEFINITIONS, name):
                    self.left.append(
                        f"definition {name}: its objects are not gone yet; look for finalizers"
                    )
        return self.deleted(deleted)

    async def audited(self) -> str:
        """Say which policies are not enforced now, but would be by another system."""
        names = [
            f"{resource.kind} {metadata.key.lstrip('/')}"
            for resource in POLICY_RESOURCES
            for metadata in await self.metadata(resource)
            if is_audited(metadata.annotations)
        ]
        if not names:
            return NOTHING
        return f"not enforced: another system would enforce {shown(sorted(names))}"

    async def _held(self) -> str:
        found = [many(await self._count(POLICY_RESOURCES), "policy", "policies")]
        for resources, whose in (
            (KEPTN_RESOURCES, "Keptn's kinds"),
            (PLACEMENT_RESOURCES, "placement"),
        ):
            if number := await self._count(resources):
                found.append(f"{many(number, 'object')} of {whose}")
        return " and ".join(found)

    async def _count(self, resources: Iterable[Resource]) -> int:
        total = 0
        for resource in resources:
            with suppress(NotFoundError):
                total += await count(self.client, resource)
        return total

    async def api_services(self) -> str:
        """Delete our APIServices: one that gets no answer blocks the deletion of namespaces."""
        return self.deleted(await self.delete(API_SERVICES, await self._our_api_services()))

    async def _our_api_services(self) -> list[Metadata]:
        services = await self._our_services()
        found = await collect(self.client, API_SERVICES, decode_api_service)
        return [one.metadata for one in found if one.client.called in services]

    async def addresses(self) -> str:
        """Delete the Services with Keptn's addresses of metrics, if they lead to us."""
        found = await collect(self.client, SERVICES, metadata_in, namespace=KEPTN_NAMESPACE)
        ours = [each for each in found if each.name in KEPTN_ADDRESSES and is_ours(each)]
        return self.deleted(await self.delete(SERVICES, ours))

    async def conversions(self) -> str:
        """Let the API server read every version by itself, as far as it can without us.

        Only then can objects of older versions be read, and deleted, once our webhook is gone.
        """
        services = await self._our_services()
        found = [
            one
            for one in await collect(self.client, DEFINITIONS, decode_definition)
            if one.converter in services
        ]
        if not found:
            return NOTHING
        if not self.options.dry_run:
            self.report(await for_each(found, self._turn_off), "conversions")
        names = [one.metadata.name for one in found]
        return f"{self.would('turn off', 'turned off')} {shown(names)}"

    async def _turn_off(self, definition: Definition) -> None:
        namespace, name = definition.converter or ("", "")
        service = "/spec/conversion/webhook/clientConfig/service"
        patch: list[dict[str, Any]] = [
            {"op": "test", "path": f"{service}/namespace", "value": namespace},
            {"op": "test", "path": f"{service}/name", "value": name},
            {"op": "replace", "path": "/spec/conversion", "value": {"strategy": "None"}},
        ]
        with suppress(NotFoundError):
            await self.client.patch(DEFINITIONS, definition.metadata.name, JsonPatch(patch))

    async def probes(self) -> str:
        """Delete the namespace in which compiled policies were tried; nothing is stored there."""
        found = await self.metadata(NAMESPACES, label_selector=PROBE_LABEL)
        return self.deleted(await self.delete(NAMESPACES, found))

    async def namespace(self) -> str:
        """Delete our namespace, unless it is somebody's or holds something of somebody's."""
        name = self.options.namespace
        metadata = metadata_in(await self.client.get(NAMESPACES, name))
        if not is_our_namespace(metadata):
            return f"kept {name}, which was not created for Harbourmaster"
        others = []
        for resource in HELD_BY_USERS:
            with suppress(NotFoundError):
                others += foreign(resource, await self.metadata(resource, name))
        if others:
            self.left.append(f"namespace {name}: it holds {shown(others)}")
            return f"kept {name}, which holds {shown(others)}"
        deleted = await self.delete(NAMESPACES, [metadata])
        if not self.options.dry_run and await self._outlasts(NAMESPACES, name):
            self.left.append(f"namespace {name}: still terminating; kubectl describe says why")
        return self.deleted(deleted)

    async def _outlasts(self, resource: Resource, name: str) -> bool:
        selector = f"metadata.name={name}"
        return bool(
            await remaining(self.client, resource, self.options.patience, field_selector=selector)
        )

    async def look(self) -> list[str]:
        """What of ours is still there, one line each; what cannot be listed is left out."""
        found: list[str] = []
        for resource in (*IN_NAMESPACE, *CLUSTER_WIDE):
            with suppress(ApiError):
                found += [f"{resource.kind} {one.name}" for one in await self.found(resource)]
        services = await self._our_services()
        with suppress(ApiError):
            found += [
                f"{kind} {one.metadata.name}"
                for kind, one in await self._configurations()
                if is_our_configuration(one, services)
            ]
            found += await self.shared_configurations()
            found += [f"APIService {service.name}" for service in await self._our_api_services()]
        return found

    def deleted(self, names: list[str]) -> str:
        """The text for a deletion."""
        if not names:
            return NOTHING
        return f"{self.would('delete', 'deleted')} {shown(names)}"

    def would(self, verb: str, done: str) -> str:
        """The verb as it applies: what is done, or what a dry run would do."""
        return f"would {verb}" if self.options.dry_run else done


def _system_of(definition: Metadata) -> System | None:
    return system_of_group(definition.name.partition(".")[2])
