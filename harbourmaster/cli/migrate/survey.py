"""Reads from a cluster what ``harbourmaster migrate`` judges; it writes nothing.

Large kinds are read as metadata, or filtered by the server, page by page; of each object only what
is judged is kept. What cannot be read becomes a line in ``unread``, and the rest is still read.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from harbourmaster.api import resources
from harbourmaster.api.resources import Resource, cluster_wide, of_kind
from harbourmaster.cli.installed import CONTROLLER, NAME, WEBHOOK
from harbourmaster.cli.live.installation import CONFIGURATIONS, UnknownSettingsError
from harbourmaster.cli.live.kinds import decode_workload, metadata_in
from harbourmaster.cli.live.reader import on_unread, run_together
from harbourmaster.cli.live.webhooks import decode_definition
from harbourmaster.cli.migrate.facts import (
    definition_of,
    judge,
    reach_of,
    registration_of,
    stuck_pod,
    with_failure,
)
from harbourmaster.cli.migrate.keptn import survey_keptn
from harbourmaster.cli.migrate.leftovers import Leftovers
from harbourmaster.cli.migrate.legacy import (
    SCHEDULER,
    is_of_gardener,
    release_of,
    role_of,
    system_of_group,
    system_of_namespace,
    system_of_webhooks,
)
from harbourmaster.cli.migrate.model import (
    KUPID,
    PODS_SHOWN,
    CalledService,
    Observed,
    Ours,
    Ref,
    ReplacedWorkload,
)
from harbourmaster.cli.oversized import list_oversized
from harbourmaster.cli.references import list_unconsented
from harbourmaster.controller.names import LIFECYCLE
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.lifecycle.model import AppVersion, WorkloadVersion
from harbourmaster.lifecycle.workloads import names_of_pod
from harbourmaster.registration.desired import SHADOW

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.cli.live.webhooks import Configuration, Definition
    from harbourmaster.cli.migrate.model import (
        Policy,
        Registration,
        ReplacedDefinition,
        StuckPod,
        System,
    )
    from harbourmaster.cli.references import Unconsented

T = TypeVar("T")

GARDENER: Final = (
    cluster_wide("core.gardener.cloud", "ControllerRegistration", "v1beta1"),
    of_kind("resources.gardener.cloud", "ManagedResource", "v1alpha1"),
)
"""The kinds of objects that restore kupid after its deletion."""
_WAITING: Final = "spec.nodeName=,status.phase=Pending"
"""Pods that wait for a gate or for a scheduler have no node."""
_decode_version: Final = msgspec.json.Decoder(WorkloadVersion).decode
_decode_app: Final = msgspec.json.Decoder(AppVersion).decode


async def read_observed(live: Installation) -> Observed:
    """Read what a migration depends on. Raises UnreachableError if the server does not answer."""
    token = on_unread.set(live.faults.append)
    try:
        return await _Reader(live).read()
    finally:
        on_unread.reset(token)


class _Reader:
    def __init__(self, live: Installation) -> None:
        self._live = live

    async def read(self) -> Observed:
        live, attempt = self._live, self._live.attempt
        configurations = {
            resource: await attempt(live.configurations(resource), [])
            for resource in CONFIGURATIONS
        }
        mutating = configurations[resources.MUTATING_WEBHOOKS]
        registrations = await self._registrations(configurations)
        stored = await attempt(self._stored_definitions(), [])
        kinds = [resource_of(definition) for definition in stored]
        definitions = [await self._definition(definition) for definition in stored]
        workloads = await attempt(self._workloads(), [])
        namespaces = await attempt(live.namespaces(), [])
        settings = await attempt(self._settings(), None)
        gated, scheduled = await attempt(self._pods(settings), ([], []))
        ours = await self._ours(mutating, settings)

        leftovers = Leftovers(live)
        made_for = {
            namespace.name: system
            for namespace in namespaces
            if namespace.name != live.namespace and (system := system_of_namespace(namespace.name))
        }
        systems = _systems_of_namespaces(registrations, workloads) | made_for
        systems.pop(live.namespace, None)
        releases = await leftovers.releases(definitions, ours.release)
        gardener = await self._gardener_objects()
        leftover_objects = await leftovers.objects(systems, made_for)
        old_namespaces = [
            await leftovers.namespace(name, system, kinds)
            for name, system in sorted(made_for.items())
        ]

        policies = await self._policies(namespaces)
        oversized_objects = await attempt(list_oversized(live, kinds), [])
        shown_pods = gated[:PODS_SHOWN] + scheduled[:PODS_SHOWN]
        pods = await self._with_failures(shown_pods, kinds)
        references = await attempt(self._references(settings, kinds), [])
        keptn = await survey_keptn(live, settings, kinds, workloads, mutating)
        return Observed(
            ours=ours,
            registrations=tuple(registrations),
            definitions=tuple(definitions),
            workloads=tuple(workloads),
            releases=tuple(releases),
            gardener=tuple(gardener),
            leftovers=tuple(leftover_objects),
            namespaces=tuple(old_namespaces),
            policies=tuple(policies),
            oversized=tuple(oversized_objects),
            pods=pods,
            gated_pods=len(gated),
            scheduled_pods=len(scheduled),
            references=tuple(references),
            keptn=keptn,
            shadows=() if ours.is_shadow else _shadows(configurations),
            unread=tuple(live.faults),
        )

    async def _registrations(
        self, configurations: Mapping[Resource, list[Configuration]]
    ) -> list[Registration]:
        return [
            registration_of(
                resource.kind, configuration, system, await self._answers(configuration)
            )
            for resource, stored in configurations.items()
            for configuration in stored
            if (system := system_of_webhooks(configuration))
        ]

    async def _answers(self, configuration: Configuration) -> dict[tuple[str, str], bool | None]:
        """Return for each Service that the configuration calls whether it answers."""
        return {
            service: await self._is_answered(*service) for service in sorted(configuration.services)
        }

    async def _is_answered(self, namespace: str, name: str) -> bool | None:
        async def ask() -> bool | None:
            return await self._live.attempt(self._live.has_endpoint(namespace, name), None)

        return await self._live.once(("answered", namespace, name), ask)

    async def _stored_definitions(self) -> list[Definition]:
        """Read the CRDs one by one: one answer with the schemas of all would be too large."""
        bodies = await run_together(
            *(
                self._live.get(resources.DEFINITIONS, metadata.name)
                for metadata in await self._live.metadata(resources.DEFINITIONS)
                if system_of_group(metadata.name.partition(".")[2])
            )
        )
        return [decode_definition(body) for body in bodies]

    async def _definition(self, definition: Definition) -> ReplacedDefinition:
        converter = None
        service = definition.converter
        if service and service[0] != self._live.namespace:
            converter = CalledService(*service, await self._is_answered(*service))
        objects = await self._live.attempt(self._live.count(resource_of(definition)), None)
        return definition_of(definition, objects, converter)

    async def _workloads(self) -> list[ReplacedWorkload]:
        workloads = []
        for metadata in await self._live.metadata(resources.DEPLOYMENTS):
            role = role_of(metadata)
            if role is None:
                continue
            body = await self._live.get(resources.DEPLOYMENTS, metadata.name, metadata.namespace)
            workloads.append(
                ReplacedWorkload(
                    ref=Ref("deployment", metadata.name, metadata.namespace),
                    system=role[0],
                    role=role[1],
                    is_ready=decode_workload(body).is_ready,
                    of_gardener=is_of_gardener(metadata),
                )
            )
        return workloads

    async def _pods(
        self, settings: ControllerSettings | None
    ) -> tuple[list[StuckPod], list[StuckPod]]:
        """Return the pods behind the gate, and those that wait for Keptn's scheduler, not ours."""
        pods = await self._live.list_all(resources.PODS, stuck_pod, field_selector=_WAITING)
        is_ours = settings is not None and settings.scheduler.of_pods == SCHEDULER
        gated = [pod for pod in pods if pod.gate is not None]
        scheduled = [
            pod
            for pod in pods
            if pod.gate is None and not (pod.is_told if settings is None else is_ours)
        ]
        return gated, scheduled

    async def _with_failures(
        self, pods: list[StuckPod], kinds: list[Resource]
    ) -> tuple[StuckPod, ...]:
        """Return the pods with their failed checks."""
        names = {
            f"{pod.namespace}/{names_of_pod(pod.workload).version}" for pod in pods if pod.workload
        }
        if not names:
            return tuple(pods)
        namespaces = {pod.namespace for pod in pods if pod.workload}
        stored = {kind.plural: kind for kind in kinds}
        unreadable: set[str] = set()

        async def read(
            kind: Resource,
            decode: Callable[[msgspec.Raw], T],
            keys: Collection[str],
            key_of: Callable[[Metadata], str],
        ) -> list[T]:
            def pick(raw: msgspec.Raw) -> T | None:
                key = key_of(metadata_in(raw))
                try:
                    return decode(raw) if key in keys else None
                except Exception:
                    unreadable.add(key)
                    raise

            return await self._live.items(stored.get(kind.plural, kind), pick)

        async def read_versions() -> tuple[list[WorkloadVersion], list[AppVersion]]:
            key, namespace = attrgetter("key"), attrgetter("namespace")
            return (
                await read(resources.WORKLOAD_VERSIONS, _decode_version, names, key),
                await read(resources.APP_VERSIONS, _decode_app, namespaces, namespace),
            )

        versions = await self._live.attempt(read_versions(), None)
        return tuple(with_failure(pod, versions, unreadable) for pod in pods)

    async def _settings(self) -> ControllerSettings | None:
        """The settings of our controller; None if they are unknown."""
        try:
            return await self._live.controller_settings()
        except UnknownSettingsError as error:
            self._live.faults.append(f"settings of Deployment {CONTROLLER}: {error}")
            return None

    async def _references(
        self, settings: ControllerSettings | None, kinds: list[Resource]
    ) -> list[Unconsented]:
        settings = settings or ControllerSettings()
        return await list_unconsented(self._live, settings, {kind.plural: kind for kind in kinds})

    async def _ours(
        self, mutating: list[Configuration], settings: ControllerSettings | None
    ) -> Ours:
        live = self._live
        webhook = await live.attempt(live.deployment(WEBHOOK), None)
        # In shadow mode nothing is replaced yet.
        works = settings is None or not settings.webhook.shadow
        return Ours(
            live.namespace,
            is_ready=works and webhook is not None and webhook.is_ready,
            is_registered=any(
                configuration.metadata.name == NAME
                and bool(configuration.entries)
                and all(entry.client_config.ca_bundle for entry in configuration.entries)
                for configuration in mutating
            ),
            is_shadow=not works,
            is_beside_keptn=works
            and LIFECYCLE not in (settings or ControllerSettings()).controllers,
            # If this is unknown, no pod is released that a controller may still check.
            is_led=works and await live.attempt(live.is_led(), default=True),
            release=release_of(webhook.metadata) if webhook is not None else "",
        )

    async def _gardener_objects(self) -> list[Ref]:
        return [
            Ref(resource.kind.lower(), metadata.name, metadata.namespace)
            for resource in GARDENER
            for metadata in await self._live.attempt(self._live.metadata(resource), [])
            if KUPID in metadata.name
        ]

    async def _policies(self, namespaces: list[Metadata]) -> list[Policy]:
        reach = reach_of(
            {namespace.name: namespace.labels for namespace in namespaces}, self._live.namespace
        )
        return [
            policy
            for resource in (resources.CLUSTER_POLICIES, resources.POLICIES)
            for policy in await self._live.attempt(
                self._live.list_all(resource, partial(judge, kind=resource.kind, reach=reach)),
                [],
            )
        ]


def _systems_of_namespaces(
    registrations: list[Registration], workloads: list[ReplacedWorkload]
) -> dict[str, System]:
    """Return the system that each namespace contains a webhook or a Deployment of."""
    systems = {
        service.namespace: registration.system
        for registration in registrations
        for service in registration.services
    }
    return systems | {workload.ref.namespace: workload.system for workload in workloads}


def _shadows(configurations: Mapping[Resource, list[Configuration]]) -> tuple[Ref, ...]:
    return tuple(
        Ref(resource.kind.lower(), SHADOW)
        for resource, stored in configurations.items()
        if any(configuration.metadata.name == SHADOW for configuration in stored)
    )


def resource_of(definition: Definition) -> Resource:
    """Return the kind that a CRD defines, in the version in which it is stored."""
    spec = definition.spec
    namespaced = spec.scope == "Namespaced"
    return Resource(
        spec.group, definition.storage, spec.names.plural, spec.names.kind, namespaced=namespaced
    )
