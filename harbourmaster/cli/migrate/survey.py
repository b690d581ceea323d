"""Reads from a cluster what ``harbourmaster migrate`` judges; nothing is written.

Large kinds are read as metadata, or narrowed by the server, page by page; of objects only what is
judged is kept. What cannot be read becomes a line in ``unread``, and the rest is read all the same.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from harbourmaster.api import resources
from harbourmaster.api.resources import Resource, cluster_wide, of_kind
from harbourmaster.cli.installed import CONTROLLER, NAME, WEBHOOK
from harbourmaster.cli.live.installation import CONFIGURATIONS
from harbourmaster.cli.live.kinds import decode_config_map, decode_workload, metadata_in
from harbourmaster.cli.live.reader import together, unread
from harbourmaster.cli.live.settings import UnknownSettingsError
from harbourmaster.cli.live.webhooks import decode_definition, decode_service, decode_slice
from harbourmaster.cli.migrate.facts import (
    definition_of,
    judge,
    reach_of,
    registration_of,
    stuck_pod,
    with_failure,
)
from harbourmaster.cli.migrate.keptn import (
    FALSE,
    PLACES,
    POD_WEBHOOK,
    config_findings,
    lifecycle_findings,
    refusal,
    series_findings,
    settings_of,
    stated,
    task_token,
)
from harbourmaster.cli.migrate.leftovers import Leftovers
from harbourmaster.cli.migrate.legacy import (
    SCHEDULER,
    is_of_gardener,
    role_of,
    system_of_group,
    system_of_namespace,
    system_of_webhooks,
)
from harbourmaster.cli.migrate.model import (
    KEPTN,
    KUPID,
    PODS_SHOWN,
    CalledService,
    KeptnFacts,
    Observed,
    Ours,
    Ref,
    ReplacedWorkload,
)
from harbourmaster.cli.migrate.overlay import MARK, MIGRATED
from harbourmaster.cli.oversized import oversized
from harbourmaster.cli.references import unconsented
from harbourmaster.controller.registry import LIFECYCLE
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.lifecycle.model import AppVersion, Config, WorkloadVersion
from harbourmaster.lifecycle.workloads import names_of_pod
from harbourmaster.registration.desired import SHADOW
from harbourmaster.webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.cli.live.webhooks import Configuration, Definition
    from harbourmaster.cli.migrate.model import Policy, Registration, ReplacedDefinition, StuckPod
    from harbourmaster.cli.references import Unconsented

T = TypeVar("T")

GARDENER: Final = (
    cluster_wide("core.gardener.cloud", "ControllerRegistration", "v1beta1"),
    of_kind("resources.gardener.cloud", "ManagedResource", "v1alpha1"),
)
"""What brings kupid back."""
_WAITING: Final = "spec.nodeName=,status.phase=Pending"
"""Pods that wait for a gate or for a scheduler have no node."""
_CHECKED: Final = (
    resources.TASK_DEFINITIONS,
    resources.KEPTN_METRICS,
    resources.METRICS_PROVIDERS,
    resources.ANALYSES,
    resources.ANALYSIS_DEFINITIONS,
    resources.ANALYSIS_VALUE_TEMPLATES,
)
"""Keptn's kinds of which our webhook refuses objects."""
_decode_version: Final = msgspec.json.Decoder(WorkloadVersion).decode
_decode_app: Final = msgspec.json.Decoder(AppVersion).decode


async def observe(live: Installation) -> Observed:
    """Read all of it. Raises UnreachableError where the server does not answer."""
    token = unread.set(live.faults.append)
    try:
        return await _Survey(live).observe()
    finally:
        unread.reset(token)


class _Survey:
    def __init__(self, live: Installation) -> None:
        self._live = live

    async def observe(self) -> Observed:
        live, attempt = self._live, self._live.attempt
        configurations = {
            configuration: await attempt(live.configurations(configuration), [])
            for configuration in CONFIGURATIONS
        }
        registrations = [
            registration
            for resource, found in configurations.items()
            for registration in await self._registrations(resource.kind, found)
        ]
        stored = await attempt(self._stored_definitions(), [])
        definitions = [await self._definition(one) for one in stored]
        workloads = await attempt(self._workloads(), [])
        namespaces = await attempt(live.namespaces(), [])
        made_for = {
            namespace.name: system
            for namespace in namespaces
            if namespace.name != live.namespace and (system := system_of_namespace(namespace.name))
        }
        settings = await attempt(self._settings(), None)
        gated, scheduled = await attempt(self._pods(settings), ([], []))
        places = {
            service.namespace: one.system for one in registrations for service in one.services
        }
        places |= {workload.ref.namespace: workload.system for workload in workloads}
        places |= made_for
        places.pop(live.namespace, None)
        leftovers, kinds = Leftovers(live), [resource_of(one) for one in stored]
        ours = await self._ours(configurations[resources.MUTATING_WEBHOOKS], settings)
        return Observed(
            ours=ours,
            registrations=tuple(registrations),
            definitions=tuple(definitions),
            workloads=tuple(workloads),
            releases=tuple(await leftovers.releases(definitions)),
            gardener=tuple(
                [ref for each in GARDENER for ref in await attempt(self._gardener(each), [])]
            ),
            leftovers=tuple(await leftovers.found(places, made_for)),
            namespaces=tuple(
                [await leftovers.kept(*each, kinds) for each in sorted(made_for.items())]
            ),
            policies=tuple(await self._policies(namespaces)),
            oversized=tuple(await attempt(oversized(live, kinds), [])),
            pods=await self._judged(gated[:PODS_SHOWN] + scheduled[:PODS_SHOWN], stored),
            gated_pods=len(gated),
            scheduled_pods=len(scheduled),
            references=tuple(await attempt(self._references(settings, kinds), [])),
            keptn=await self._keptn(
                settings, kinds, workloads, configurations[resources.MUTATING_WEBHOOKS]
            ),
            shadows=tuple(
                Ref(resource.kind.lower(), SHADOW)
                for resource, found in configurations.items()
                if not ours.is_shadow and SHADOW in [one.metadata.name for one in found]
            ),
            unread=tuple(live.faults),
        )

    async def _registrations(self, kind: str, found: list[Configuration]) -> list[Registration]:
        theirs = [(one, system) for one in found if (system := system_of_webhooks(one))]
        called = {service for one, _ in theirs for service in one.services}
        answers = {each: await self._is_answered(*each) for each in sorted(called)}
        return [registration_of(kind, one, system, answers) for one, system in theirs]

    async def _is_answered(self, namespace: str, name: str) -> bool | None:
        async def ask() -> bool | None:
            return await self._live.attempt(self._has_endpoint(namespace, name), None)

        return await self._live.once(("answered", namespace, name), ask)

    async def _has_endpoint(self, namespace: str, name: str) -> bool | None:
        service = await self._live.read(resources.SERVICES, name, decode_service, namespace)
        if service is None:
            return False
        if service.is_external:
            return None
        selector = f"kubernetes.io/service-name={name}"
        slices = await self._live.listed(
            resources.SLICES, decode_slice, namespace, label_selector=selector
        )
        return any(one.is_ready for one in slices)

    async def _stored_definitions(self) -> list[Definition]:
        """One by one: the schemas of all of a cluster's CRDs in one answer are too much."""
        names = [one.name for one in await self._live.metadata(resources.DEFINITIONS)]
        bodies = await together(
            *(
                self._live.get(resources.DEFINITIONS, name)
                for name in names
                if system_of_group(name.partition(".")[2])
            )
        )
        return [decode_definition(body) for body in bodies]

    async def _definition(self, one: Definition) -> ReplacedDefinition:
        converter = None
        if one.converter and one.converter[0] != self._live.namespace:
            converter = CalledService(*one.converter, await self._is_answered(*one.converter))
        objects = await self._live.attempt(self._live.count(resource_of(one)), None)
        return definition_of(one, objects, converter)

    async def _workloads(self) -> list[ReplacedWorkload]:
        found = []
        for metadata in await self._live.metadata(resources.DEPLOYMENTS):
            role = role_of(metadata)
            if role is None:
                continue
            body = await self._live.get(resources.DEPLOYMENTS, metadata.name, metadata.namespace)
            found.append(
                ReplacedWorkload(
                    ref=Ref("deployment", metadata.name, metadata.namespace),
                    system=role[0],
                    role=role[1],
                    is_ready=decode_workload(body).is_ready,
                    of_gardener=is_of_gardener(metadata),
                )
            )
        return found

    async def _pods(
        self, settings: ControllerSettings | None
    ) -> tuple[list[StuckPod], list[StuckPod]]:
        """The pods behind the gate, and those that wait for Keptn's scheduler rather than ours."""
        found = await self._live.listed(resources.PODS, stuck_pod, field_selector=_WAITING)
        is_ours = settings is not None and settings.scheduler.of_pods == SCHEDULER
        return (
            [pod for pod in found if pod.gate is not None],
            [
                pod
                for pod in found
                if pod.gate is None and not (pod.is_told if settings is None else is_ours)
            ],
        )

    async def _judged(self, pods: list[StuckPod], stored: list[Definition]) -> tuple[StuckPod, ...]:
        """The same pods with their failed checks."""
        names = {
            f"{pod.namespace}/{names_of_pod(pod.workload).version}" for pod in pods if pod.workload
        }
        if not names:
            return tuple(pods)
        kinds = {each.plural: each for each in map(resource_of, stored)}
        spaces = {pod.namespace for pod in pods if pod.workload}
        unreadable: set[str] = set()

        async def read(
            kind: Resource,
            decode: Callable[[msgspec.Raw], T],
            wanted: Collection[str],
            key_of: Callable[[Metadata], str],
        ) -> list[T]:
            def pick(raw: msgspec.Raw) -> T | None:
                key = key_of(metadata_in(raw))
                try:
                    return decode(raw) if key in wanted else None
                except Exception:
                    unreadable.add(key)
                    raise

            return await self._live.items(kinds.get(kind.plural, kind), pick)

        async def both() -> tuple[list[WorkloadVersion], list[AppVersion]]:
            return (
                await read(
                    resources.WORKLOAD_VERSIONS, _decode_version, names, lambda one: one.key
                ),
                await read(resources.APP_VERSIONS, _decode_app, spaces, lambda one: one.namespace),
            )

        found = await self._live.attempt(both(), None)
        return tuple(with_failure(pod, found, unreadable) for pod in pods)

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
        mode = (settings or ControllerSettings()).cross_namespace_references
        return await unconsented(self._live, mode, {kind.plural: kind for kind in kinds})

    async def _keptn(
        self,
        settings: ControllerSettings | None,
        kinds: Sequence[Resource],
        workloads: Sequence[ReplacedWorkload],
        mutating: Sequence[Configuration],
    ) -> KeptnFacts:
        live, stored = self._live, {each.plural: each for each in kinds}

        async def listed(kind: Resource, pick: Callable[[msgspec.Raw], T | None]) -> list[T]:
            found = live.items(stored.get(kind.plural, kind), pick, skipped=lambda _: None)
            return await live.attempt(found, [])

        webhook = await live.attempt(live.readable(live.webhook_settings()), None)
        ours = stated(settings or ControllerSettings(), webhook or WebhookSettings())
        refs = {workload.role: workload.ref for workload in workloads if workload.system == KEPTN}
        entries = [entry for one in mutating for entry in one.entries if entry.name == POD_WEBHOOK]
        environments = {
            refs[role]: await live.attempt(self._environment(refs[role]), {})
            for role in ("lifecycle", "metrics")
            if role in refs
        }
        wanted = settings_of(environments, next(iter(entries), None), ours)
        places = next((one.value for one in wanted if one.key == PLACES), ours[PLACES])
        configs = await listed(resources.KEPTN_CONFIGS, msgspec.json.Decoder(Config).decode)
        found = list(config_findings(configs, (live.namespace, *places.split(","))))
        # Our webhook gets objects of older versions converted, and judges none as they are stored.
        for each in [one for one in _CHECKED if stored.get(one.plural, one) == one]:
            found += await listed(each, partial(refusal, resource=each))
        if "lifecycle" in refs:
            found += await listed(resources.TASK_DEFINITIONS, task_token)
            found += lifecycle_findings(ours.get("lifecycle.runnerSecurityContext", ""))
        if "metrics" in refs:
            found += series_findings(await listed(resources.KEPTN_METRICS, metadata_in))
        exposed = [environment.get("EXPOSE_KEPTN_METRICS") for environment in environments.values()]
        controller = await live.attempt(live.deployment(CONTROLLER), None)
        is_overlaid = controller is not None and controller.metadata.labels.get(MARK) == MIGRATED
        return KeptnFacts(wanted, is_overlaid, FALSE.isdisjoint(exposed), tuple(found))

    async def _environment(self, ref: Ref) -> dict[str, str]:
        """The variables of a Deployment, those from ConfigMaps included."""
        body = await self._live.get(resources.DEPLOYMENTS, ref.name, ref.namespace)
        found = {}
        for name, value, source in decode_workload(body).variables:
            found[name] = value
            if source is not None:
                one = await self._live.read(
                    resources.CONFIG_MAPS, source.name, decode_config_map, ref.namespace
                )
                found[name] = ((one.data if one else None) or {}).get(source.key, "")
        return found

    async def _ours(
        self, mutating: list[Configuration], settings: ControllerSettings | None
    ) -> Ours:
        live = self._live
        webhook = await live.attempt(live.deployment(WEBHOOK), None)
        # In shadow mode nothing of theirs is replaced yet.
        works = settings is None or not settings.webhook.shadow
        return Ours(
            live.namespace,
            is_ready=works and webhook is not None and webhook.is_ready,
            is_registered=any(
                one.metadata.name == NAME
                and bool(one.entries)
                and all(entry.client_config.ca_bundle for entry in one.entries)
                for one in mutating
            ),
            is_shadow=not works,
            is_beside_keptn=works
            and LIFECYCLE not in (settings or ControllerSettings()).controllers,
            # If this is unknown, no pod is released that a controller may still check.
            is_led=works and await live.attempt(live.is_led(), default=True),
        )

    async def _gardener(self, resource: Resource) -> list[Ref]:
        kind, found = resource.kind.lower(), await self._live.metadata(resource)
        return [Ref(kind, one.name, one.namespace) for one in found if KUPID in one.name]

    async def _policies(self, namespaces: list[Metadata]) -> list[Policy]:
        reach = reach_of(
            {namespace.name: namespace.labels for namespace in namespaces}, self._live.namespace
        )
        return [
            policy
            for each in (resources.CLUSTER_POLICIES, resources.POLICIES)
            for policy in await self._live.attempt(
                self._live.listed(each, partial(judge, kind=each.kind, reach=reach)), []
            )
        ]


def resource_of(one: Definition) -> Resource:
    """The kind that a CRD defines, in the version in which it is stored."""
    spec = one.spec
    namespaced = spec.scope == "Namespaced"
    return Resource(
        spec.group, one.storage, spec.names.plural, spec.names.kind, namespaced=namespaced
    )
