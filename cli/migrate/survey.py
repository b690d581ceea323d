"""Reads from a cluster what ``harbourmaster migrate`` judges; nothing is written.

Large kinds are read as metadata, or narrowed by the server, page by page; of objects only what is
judged is kept. What cannot be read becomes a line in ``unread``, and the rest is read all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.resources import (
    APP_VERSIONS,
    CLUSTER_POLICIES,
    DEFINITIONS,
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    POLICIES,
    SERVICES,
    VALIDATING_WEBHOOKS,
    WORKLOAD_VERSIONS,
    Resource,
)
from harbourmaster.cli.cluster import collect, count, metadata_of
from harbourmaster.cli.doctor.context import Context, Options
from harbourmaster.cli.doctor.objects import decode_deployment
from harbourmaster.cli.doctor.settings import UnknownSettingsError
from harbourmaster.cli.installed import CONTROLLER, DEFAULT_NAMESPACE, NAME, WEBHOOK
from harbourmaster.cli.metadata import metadata_in
from harbourmaster.cli.migrate.legacy import (
    OPT_IN,
    SCHEDULER,
    is_of_gardener,
    role_of,
    system_of_group,
    system_of_namespace,
)
from harbourmaster.cli.migrate.model import (
    KUPID,
    PODS_SHOWN,
    Observed,
    Ours,
    Ref,
    Service,
    Workload,
)
from harbourmaster.cli.migrate.objects import (
    decode_definition,
    decode_service,
    decode_slice,
    decode_webhooks,
    definition_of,
    failure_of,
    registration_of,
    stuck_pod,
    unknown,
)
from harbourmaster.cli.migrate.policies import judge, policy_ref, reach_of
from harbourmaster.cli.migrate.remains import Remains
from harbourmaster.controller.registry import LIFECYCLE
from harbourmaster.kube.errors import ApiError, NotFoundError, UnreachableError
from harbourmaster.lifecycle.model import AppVersion, WorkloadVersion
from harbourmaster.lifecycle.waiting import app_version_of
from harbourmaster.lifecycle.workloads import names_of_pod, version_of_pod

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from harbourmaster.cli.metadata import Metadata
    from harbourmaster.cli.migrate.model import (
        Definition,
        Policy,
        Registration,
        StuckPod,
    )
    from harbourmaster.cli.migrate.objects import (
        StoredDefinition,
        Webhooks,
    )
    from harbourmaster.controller.settings import ControllerSettings
    from harbourmaster.kube.client import Client

    T = TypeVar("T")

SLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
REGISTRATIONS: Final = Resource(
    "core.gardener.cloud",
    "v1beta1",
    "controllerregistrations",
    "ControllerRegistration",
    namespaced=False,
)
MANAGED: Final = Resource(
    "resources.gardener.cloud", "v1alpha1", "managedresources", "ManagedResource"
)
_WAITING: Final = "spec.nodeName=,status.phase=Pending"
"""Pods that wait for a gate or for a scheduler have no node."""

_decode_version: Final = msgspec.json.Decoder(WorkloadVersion).decode
_decode_app: Final = msgspec.json.Decoder(AppVersion).decode


class _Namespaces(Struct):
    """The namespaces of which something is to be said."""

    labels: dict[str, dict[str, str]]
    made_for_them: set[str]
    enabled: int = 0


class Survey:
    """One look at a cluster."""

    def __init__(self, client: Client, namespace: str = DEFAULT_NAMESPACE) -> None:
        self._client = client
        self._namespace = namespace
        self._unread: list[str] = []
        self._answers: dict[tuple[str, str], bool | None] = {}
        self._installation = Context(client, Options(namespace))

    async def observe(self) -> Observed:
        """Look. Raises UnreachableError where the server does not answer."""
        try:
            return await self._observe()
        finally:
            await self._installation.close()

    async def _observe(self) -> Observed:
        mutating = await self._or(self._webhooks(MUTATING_WEBHOOKS), [])
        validating = await self._or(self._webhooks(VALIDATING_WEBHOOKS), [])
        registrations = [
            *await self._registrations(MUTATING_WEBHOOKS, mutating),
            *await self._registrations(VALIDATING_WEBHOOKS, validating),
        ]
        stored = await self._or(self._definitions(), [])
        definitions = [found for one in stored if (found := await self._definition(one))]
        workloads = await self._or(self._workloads(), [])
        spaces = await self._or(self._namespaces(), _Namespaces({}, set()))
        settings = await self._or(self._settings(), None)
        gated, scheduled = await self._or(self._pods(settings), ([], []))
        remains = Remains(self._client, stored, self._or)
        called = {
            service.namespace: one.system for one in registrations for service in one.services
        }
        places = {
            **called,
            **{one.ref.namespace: one.system for one in workloads},
            **{
                name: system
                for name in spaces.made_for_them
                if (system := system_of_namespace(name))
            },
        }
        places.pop(self._namespace, None)
        leftovers = await remains.leftovers(places, spaces.made_for_them)
        return Observed(
            ours=await self._ours(mutating, settings),
            registrations=tuple(registrations),
            definitions=tuple(definitions),
            workloads=tuple(workloads),
            releases=tuple(await remains.releases(definitions)),
            gardener=tuple(await self._gardener()),
            leftovers=tuple(leftovers),
            namespaces=tuple(await remains.namespaces(spaces.made_for_them)),
            policies=tuple(await self._policies(spaces.labels)),
            pods=await self._judged(gated[:PODS_SHOWN] + scheduled[:PODS_SHOWN], stored),
            gated_pods=len(gated),
            scheduled_pods=len(scheduled),
            enabled_namespaces=spaces.enabled,
            unread=tuple(self._unread),
        )

    async def _or(self, looking: Awaitable[T], default: T) -> T:
        """The result, or ``default`` where it cannot be had: then a line says why."""
        try:
            return await looking
        except UnreachableError:
            raise
        except NotFoundError:
            return default
        except ApiError as error:
            self._unread.append(str(error))
            return default

    async def _collect(
        self,
        resource: Resource,
        pick: Callable[[msgspec.Raw], T | None],
        **options: Any,  # noqa: ANN401 - those of ``collect``
    ) -> list[T]:
        return await collect(self._client, resource, pick, unread=self._unread.append, **options)

    async def _webhooks(self, resource: Resource) -> list[Webhooks]:
        return await self._collect(resource, decode_webhooks)

    async def _registrations(self, resource: Resource, found: list[Webhooks]) -> list[Registration]:
        theirs = []
        for one in found:
            if registration_of(resource.kind, one, {}) is None:
                continue
            answers = {each: await self._is_answered(*each) for each in one.services}
            registration = registration_of(resource.kind, one, answers)
            if registration is not None:
                theirs.append(registration)
        return theirs

    async def _is_answered(self, namespace: str, name: str) -> bool | None:
        key = (namespace, name)
        if key not in self._answers:
            self._answers[key] = await self._or(self._has_endpoint(namespace, name), None)
        return self._answers[key]

    async def _has_endpoint(self, namespace: str, name: str) -> bool | None:
        try:
            service = decode_service(await self._client.get(SERVICES, name, namespace))
        except NotFoundError:
            return False
        if service.is_external:
            return None
        slices = await self._collect(
            SLICES,
            decode_slice,
            namespace=namespace,
            label_selector=f"kubernetes.io/service-name={name}",
        )
        return any(one.is_ready for one in slices)

    async def _definitions(self) -> list[StoredDefinition]:
        """One by one: the schemas of all of a cluster's CRDs in one answer are too much."""
        names = [one.name for one in await metadata_of(self._client, DEFINITIONS)]
        return [
            decode_definition(await self._client.get(DEFINITIONS, name))
            for name in names
            if system_of_group(name.partition(".")[2])
        ]

    async def _definition(self, one: StoredDefinition) -> Definition | None:
        converter = None
        if one.converter and one.converter[0] != self._namespace:
            converter = Service(*one.converter, await self._is_answered(*one.converter))
        objects = await self._or(self._count(one), None)
        return definition_of(one, objects, converter)

    async def _count(self, one: StoredDefinition) -> int | None:
        return await count(self._client, resource_of(one))

    async def _workloads(self) -> list[Workload]:
        found = []
        for metadata in await metadata_of(self._client, DEPLOYMENTS):
            role = role_of(metadata)
            if role is None:
                continue
            body = await self._client.get(DEPLOYMENTS, metadata.name, metadata.namespace)
            found.append(
                Workload(
                    ref=Ref("deployment", metadata.name, metadata.namespace),
                    system=role[0],
                    role=role[1],
                    is_ready=decode_deployment(body).is_ready,
                    of_gardener=is_of_gardener(metadata),
                )
            )
        return found

    async def _namespaces(self) -> _Namespaces:
        found = _Namespaces({}, set())

        def note(metadata: Metadata) -> None:
            if metadata.name and metadata.annotation(OPT_IN) == "enabled":
                found.enabled += 1
            if system_of_namespace(metadata.name) and metadata.name != self._namespace:
                found.made_for_them.add(metadata.name)
            if metadata.label("role") or metadata.name.startswith("kube-"):
                found.labels[metadata.name] = metadata.labels or {}
            if metadata.name == self._namespace:
                found.labels[metadata.name] = metadata.labels or {}

        def pick(raw: msgspec.Raw) -> None:
            note(metadata_in(raw))

        await self._collect(NAMESPACES, pick, metadata_only=True)
        return found

    async def _pods(
        self, settings: ControllerSettings | None
    ) -> tuple[list[StuckPod], list[StuckPod]]:
        """Those behind the gate, and those that wait for Keptn's scheduler, and not for ours."""
        found = await self._collect(PODS, stuck_pod, field_selector=_WAITING)
        is_ours = settings is not None and settings.scheduler.of_pods == SCHEDULER
        return (
            [pod for pod in found if pod.gate is not None],
            [
                pod
                for pod in found
                if pod.gate is None and not (pod.is_told if settings is None else is_ours)
            ],
        )

    async def _judged(
        self, pods: list[StuckPod], stored: list[StoredDefinition]
    ) -> tuple[StuckPod, ...]:
        """The same with their checks that failed."""
        names = {
            (pod.namespace, names_of_pod(pod.workload).version) for pod in pods if pod.workload
        }
        if not names:
            return tuple(pods)
        spaces = {namespace for namespace, _ in names}
        kinds = {each.plural: each for each in map(resource_of, stored)}

        unreadable: set[str] = set()

        def version_in(raw: msgspec.Raw) -> WorkloadVersion | None:
            metadata = metadata_in(raw)
            if (metadata.namespace, metadata.name) not in names:
                return None
            try:
                return _decode_version(raw)
            except Exception:
                unreadable.add(f"{metadata.namespace}/{metadata.name}")
                raise

        def app_in(raw: msgspec.Raw) -> AppVersion | None:
            namespace = metadata_in(raw).namespace
            if namespace not in spaces:
                return None
            try:
                return _decode_app(raw)
            except Exception:
                unreadable.add(namespace)
                raise

        async def read() -> tuple[list[WorkloadVersion], list[AppVersion]]:
            of_pods = kinds.get(WORKLOAD_VERSIONS.plural, WORKLOAD_VERSIONS)
            of_apps = kinds.get(APP_VERSIONS.plural, APP_VERSIONS)
            return await self._listed(of_pods, version_in), await self._listed(of_apps, app_in)

        found = await self._or(read(), None)
        return tuple(_with_failure(pod, found, unreadable) for pod in pods)

    async def _listed(self, resource: Resource, pick: Callable[[msgspec.Raw], T | None]) -> list[T]:
        try:
            return await self._collect(resource, pick)
        except NotFoundError:
            return []

    async def _settings(self) -> ControllerSettings | None:
        """Those of our controller; None where they are not known."""
        try:
            return await self._installation.controller_settings()
        except UnknownSettingsError as error:
            self._unread.append(f"settings of Deployment {CONTROLLER}: {error}")
            return None

    async def _ours(self, mutating: list[Webhooks], settings: ControllerSettings | None) -> Ours:
        webhook = await self._or(self._installation.deployment(WEBHOOK), None)
        return Ours(
            self._namespace,
            is_ready=webhook is not None and webhook.is_ready,
            is_registered=any(
                one.metadata.name == NAME and bool(one.webhooks) and one.has_authority
                for one in mutating
            ),
            is_beside_keptn=settings is not None and LIFECYCLE not in settings.controllers,
            # Where it cannot be told, no pod is let go that somebody may yet judge.
            is_led=await self._or(self._installation.is_led(), default=True),
        )

    async def _gardener(self) -> list[Ref]:
        found = []
        for resource in (REGISTRATIONS, MANAGED):
            objects = await self._or(metadata_of(self._client, resource), [])
            kind = resource.kind.lower()
            found += [Ref(kind, one.name, one.namespace) for one in objects if KUPID in one.name]
        return found

    async def _policies(self, labels: dict[str, dict[str, str]]) -> list[Policy]:
        reach = reach_of(labels, self._namespace)
        found: list[Policy] = []
        for resource in (CLUSTER_POLICIES, POLICIES):
            kind = resource.kind

            def pick(raw: msgspec.Raw, kind: str = kind) -> Policy | None:
                metadata = metadata_in(raw)
                return judge(raw, kind, policy_ref(kind, metadata.namespace, metadata.name), reach)

            found += await self._or(self._collect(resource, pick), [])
        return found


def _with_failure(
    pod: StuckPod,
    found: tuple[list[WorkloadVersion], list[AppVersion]] | None,
    unreadable: set[str],
) -> StuckPod:
    """The pod with its check that failed; ``unreadable`` has versions, and namespaces of apps."""
    if pod.workload is None or pod.failure:
        return pod
    key = f"{pod.namespace}/{names_of_pod(pod.workload).version}"
    if found is None or key in unreadable or pod.namespace in unreadable:
        return replace(pod, failure=unknown("its KeptnWorkloadVersion could not be read"))
    versions, apps = found
    of_name = next((each for each in versions if each.metadata.key == key), None)
    version = version_of_pod(pod.workload, of_name, None)
    app = None
    if version is not None:
        local = [each for each in apps if each.metadata.namespace == pod.namespace]
        app = app_version_of(version, local)
    return replace(pod, failure=failure_of(version, app))


def resource_of(one: StoredDefinition) -> Resource:
    """The kind that a CRD defines, in the version in which it is stored."""
    spec = one.spec
    return Resource(
        spec.group,
        one.storage_version,
        spec.names.plural,
        spec.names.kind,
        namespaced=spec.scope == "Namespaced",
    )
