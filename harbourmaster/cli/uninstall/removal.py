"""The steps of ``harbourmaster uninstall`` that delete objects of ours.

Each step reports in one line what it did, or why it failed. The steps after it run nevertheless.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from harbourmaster.api.patches import JsonPatch
from harbourmaster.api.resources import API_SERVICES, DEFINITIONS, NAMESPACES, SERVICES
from harbourmaster.cli.batches import for_each, plural, shorten
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
    foreign_objects,
    is_our_configuration,
    is_our_definition,
    is_our_namespace,
    is_ours,
    is_ours_by_name,
)
from harbourmaster.cli.live.changes import Watched, remaining
from harbourmaster.cli.live.cluster import collect, count, greet, say
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

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.installed import Services
    from harbourmaster.cli.live.webhooks import Configuration, Definition
    from harbourmaster.cli.migrate.model import System
    from harbourmaster.kube.client import Client

NOTHING: Final = "none"


class Options(Struct, frozen=True):
    """The installation, and what of it is to be removed."""

    namespace: str
    delete_definitions: bool = False
    dry_run: bool = False
    patience: float = 60.0
    """Time limit in seconds for each deletion."""
    scheduler: str = SCHEDULER_NAME
    """The scheduler in which pods without a gate wait; empty to delete none of them."""


class Removal:
    """One run over a cluster. ``left`` has a line for each thing that could not be removed."""

    def __init__(self, client: Client, options: Options, tell: Callable[[str], None] = say) -> None:
        self.client = client
        self.options = options
        self.tell = tell
        self.left: list[str] = []
        self._services: Services | None = None

    async def step(
        self, title: str, act: Callable[[], Awaitable[str]], *, quiet: bool = False
    ) -> None:
        """Run a step and report its result; with ``quiet``, only if there was something to do.

        Raises UnreachableError if the server does not answer any more.
        """
        try:
            result = await act()
        except NotFoundError:
            # The cluster has no such kind.
            result = NOTHING
        except ApiError as error:
            self.tell(f"{title}: failed: {error}")
            self.left.append(f"{title}: {error}")
            if isinstance(error, UnreachableError):
                await greet(self.client)
            return
        if result != NOTHING or not quiet:
            self.tell(f"{title}: {result}")

    async def delete(self, resource: Resource, objects: Iterable[Metadata]) -> list[str]:
        """Delete exactly these objects; return the names of those deleted, sorted.

        In a dry run, return those that would be deleted.
        """
        names: list[str] = []

        async def delete_one(metadata: Metadata) -> None:
            # After a conflict it was recreated under the same name: the last look finds it.
            with suppress(ConflictError):
                if not self.options.dry_run:
                    await self.client.delete(
                        resource,
                        metadata.name,
                        metadata.namespace or None,
                        uid=metadata.uid,
                        propagation="Background",
                        missing_ok=True,
                    )
                names.append(metadata.name)

        self.report(await for_each(objects, delete_one), resource.plural)
        return sorted(names)

    def report(self, errors: list[ApiError], objects: str) -> None:
        """Report how many objects of a step failed, and the first error as an example.

        Raises UnreachableError if there was no answer: the rest of the step would only wait.
        """
        for error in errors:
            if isinstance(error, UnreachableError):
                raise error
        if errors:
            line = f"{objects}: {len(errors)} failed: {errors[0]}"
            self.tell(line)
            self.left.append(line)

    async def delete_kind(self, resource: Resource) -> str:
        """Delete all objects of a kind that are ours."""
        return self.describe(await self.delete(resource, await self._ours(resource)))

    async def _ours(self, resource: Resource) -> list[Metadata]:
        """Return our objects of a kind: in our namespace, or in the cluster if it has none."""
        namespace = self.options.namespace if resource.namespaced else None
        test = is_ours if resource.namespaced else is_ours_by_name
        return [metadata for metadata in await self.metadata(resource, namespace) if test(metadata)]

    async def metadata(
        self, resource: Resource, namespace: str | None = None, label_selector: str = ""
    ) -> list[Metadata]:
        """Return the metadata of every object."""
        return await collect(
            self.client,
            resource,
            metadata_in,
            namespace=namespace,
            label_selector=label_selector,
            metadata_only=True,
        )

    async def delete_configurations(self) -> list[str]:
        """Delete the webhook configurations that are ours as a whole; return kinds and names."""
        services = await self._our_services()
        deleted: list[str] = []
        for resource in CONFIGURATIONS:
            ours = [
                configuration.metadata
                for configuration in await collect(self.client, resource, decode_configuration)
                if is_our_configuration(configuration, services)
            ]
            deleted += [f"{resource.kind} {name}" for name in await self.delete(resource, ours)]
        return deleted

    async def _configurations(self) -> list[tuple[str, Configuration]]:
        """Return all webhook configurations, each with its kind."""
        return [
            (resource.kind, configuration)
            for resource in CONFIGURATIONS
            for configuration in await collect(self.client, resource, decode_configuration)
        ]

    async def _our_services(self) -> Services:
        """Return the Services that lead to us, as they were before the first deletion."""
        if self._services is None:
            names = {WEBHOOK, METRICS}
            try:
                names |= {service.name for service in await self._ours(SERVICES)}
            except UnreachableError:
                raise
            except ApiError:
                pass
            self._services = frozenset((self.options.namespace, name) for name in names)
        return self._services

    async def systems(self) -> frozenset[System]:
        """Return the systems whose webhook configurations are registered too."""
        systems = {system_of_webhooks(stored) for _, stored in await self._configurations()}
        return frozenset(system for system in systems if system is not None)

    async def delete_definitions(self) -> str:
        """Delete the CRDs if the options say so, else count what they hold."""
        definitions = [
            definition.metadata
            for definition in await collect(self.client, DEFINITIONS, decode_definition)
            if is_our_definition(definition)
        ]
        if not self.options.delete_definitions:
            if not definitions:
                return NOTHING
            held = await self._describe_held()
            return f"kept {len(definitions)}, with {held}; --delete-crds deletes them all"
        systems = await self.systems()
        unused = []
        for definition in definitions:
            system = system_of_group(definition.name.partition(".")[2])
            if system in systems:
                user = f"{title(system)} is registered and uses it"
                self.left.append(f"definition {definition.name}: {user}")
            else:
                unused.append(definition)
        deleted = await self.delete(DEFINITIONS, unused)
        for name in deleted:
            if await self._outlasts(DEFINITIONS, name):
                self.left.append(
                    f"definition {name}: its objects are not gone yet; look for finalizers"
                )
        return self.describe(deleted)

    async def list_audited(self) -> str:
        """Name the policies that are not enforced now, but that another system would enforce."""
        names = [
            f"{resource.kind} {metadata.key.lstrip('/')}"
            for resource in POLICY_RESOURCES
            for metadata in await self.metadata(resource)
            if is_audited(metadata.annotations)
        ]
        if not names:
            return NOTHING
        return f"not enforced: another system would enforce {shorten(sorted(names))}"

    async def _describe_held(self) -> str:
        counts = [plural(await self._count(POLICY_RESOURCES), "policy", "policies")]
        for resources, owner in (
            (KEPTN_RESOURCES, "Keptn's kinds"),
            (PLACEMENT_RESOURCES, "placement"),
        ):
            if number := await self._count(resources):
                counts.append(f"{plural(number, 'object')} of {owner}")
        return " and ".join(counts)

    async def _count(self, resources: Iterable[Resource]) -> int:
        total = 0
        for resource in resources:
            with suppress(NotFoundError):
                total += await count(self.client, resource)
        return total

    async def delete_api_services(self) -> str:
        """Delete our APIServices: one that gets no answer blocks the deletion of namespaces."""
        return self.describe(await self.delete(API_SERVICES, await self._our_api_services()))

    async def _our_api_services(self) -> list[Metadata]:
        services = await self._our_services()
        return [
            api_service.metadata
            for api_service in await collect(self.client, API_SERVICES, decode_api_service)
            if api_service.client.service_key in services
        ]

    async def delete_keptn_addresses(self) -> str:
        """Delete the Services with Keptn's addresses of metrics, if they lead to us."""
        ours = [
            service
            for service in await self.metadata(SERVICES, KEPTN_NAMESPACE)
            if service.name in KEPTN_ADDRESSES and is_ours(service)
        ]
        return self.describe(await self.delete(SERVICES, ours))

    async def turn_conversions_off(self) -> str:
        """Have the API server serve every version as it is stored, without our conversion.

        Otherwise objects of older versions could be neither read nor deleted without our webhook.
        """
        services = await self._our_services()
        definitions = [
            definition
            for definition in await collect(self.client, DEFINITIONS, decode_definition)
            if definition.converter in services
        ]
        if not definitions:
            return NOTHING
        if not self.options.dry_run:
            self.report(await for_each(definitions, self._turn_conversion_off), "conversions")
        names = [definition.metadata.name for definition in definitions]
        return f"{self.would('turn off', 'turned off')} {shorten(names)}"

    async def _turn_conversion_off(self, definition: Definition) -> None:
        namespace, name = definition.converter or ("", "")
        service = "/spec/conversion/webhook/clientConfig/service"
        patch: list[dict[str, Any]] = [
            {"op": "test", "path": f"{service}/namespace", "value": namespace},
            {"op": "test", "path": f"{service}/name", "value": name},
            {"op": "replace", "path": "/spec/conversion", "value": {"strategy": "None"}},
        ]
        with suppress(NotFoundError):
            await self.client.patch(DEFINITIONS, definition.metadata.name, JsonPatch(patch))

    async def delete_probe_namespaces(self) -> str:
        """Delete the namespace in which compiled policies were tried; nothing is stored there."""
        namespaces = await self.metadata(NAMESPACES, label_selector=PROBE_LABEL)
        return self.describe(await self.delete(NAMESPACES, namespaces))

    async def delete_namespace(self) -> str:
        """Delete our namespace, unless it belongs to users or holds objects of users."""
        name = self.options.namespace
        metadata = metadata_in(await self.client.get(NAMESPACES, name))
        if not is_our_namespace(metadata):
            return f"kept {name}, which was not created for Harbourmaster"
        foreign = []
        for resource in HELD_BY_USERS:
            with suppress(NotFoundError):
                foreign += foreign_objects(resource, await self.metadata(resource, name))
        if foreign:
            self.left.append(f"namespace {name}: it holds {shorten(foreign)}")
            return f"kept {name}, which holds {shorten(foreign)}"
        deleted = await self.delete(NAMESPACES, [metadata])
        if await self._outlasts(NAMESPACES, name):
            self.left.append(f"namespace {name}: still terminating; kubectl describe says why")
        return self.describe(deleted)

    async def _outlasts(self, resource: Resource, name: str) -> bool:
        """Whether a deleted object still exists after ``patience`` seconds."""
        if self.options.dry_run:
            return False
        selector = f"metadata.name={name}"
        watched = Watched(resource, field_selector=selector)
        return bool(await remaining(self.client, watched, self.options.patience))

    async def find_left(self) -> list[str]:
        """Return a line for each object of ours that still exists; unreadable kinds are skipped."""
        lines: list[str] = []
        for resource in (*IN_NAMESPACE, *CLUSTER_WIDE):
            with suppress(ApiError):
                ours = await self._ours(resource)
                lines += [f"{resource.kind} {metadata.name}" for metadata in ours]
        services = await self._our_services()
        shared = []
        with suppress(ApiError):
            for kind, configuration in await self._configurations():
                name = f"{kind} {configuration.metadata.name}"
                calls = [entry.name for entry in configuration.entries if entry.service in services]
                if is_our_configuration(configuration, services):
                    lines.append(name)
                elif calls:
                    entries = ", ".join(calls)
                    shared.append(
                        f"{name} is not ours but calls our Service in {entries}: remove that entry"
                    )
            lines += shared
            lines += [f"APIService {service.name}" for service in await self._our_api_services()]
        return lines

    def describe(self, names: list[str]) -> str:
        """Return the text for a deletion of these objects."""
        if not names:
            return NOTHING
        return f"{self.would('delete', 'deleted')} {shorten(names)}"

    def would(self, verb: str, done: str) -> str:
        """Return ``done``, or in a dry run what would be done."""
        return f"would {verb}" if self.options.dry_run else done
