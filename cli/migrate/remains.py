"""The part of the survey that looks for the rest: Helm releases, roles, Services, namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.resources import (
    API_SERVICES,
    LEASES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from harbourmaster.cli.bindings import decode_binding
from harbourmaster.cli.cluster import collect, count, metadata_of
from harbourmaster.cli.installed import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    HELD_BY_USERS,
    OF_EVERY_NAMESPACE,
    ROLE_BINDINGS,
    ROLES,
)
from harbourmaster.cli.migrate.legacy import role_of, system_of, system_of_namespace
from harbourmaster.cli.migrate.model import KEPTN, Leftover, OldNamespace, Ref, Release, Service
from harbourmaster.cli.migrate.objects import decode_api_service

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from harbourmaster.cli.metadata import Metadata
    from harbourmaster.cli.migrate.model import Definition, System
    from harbourmaster.cli.migrate.objects import StoredDefinition
    from harbourmaster.kube.client import Client

_IN_NAMESPACE: Final = (
    DISRUPTION_BUDGETS,
    SERVICES,
    CONFIG_MAPS,
    SECRETS,
    LEASES,
    ROLES,
    SERVICE_ACCOUNTS,
)
_HELM: Final = "owner"
_SHOWN: Final = 5


class Remains:
    """Looks through a few namespaces, and through what is cluster-wide.

    ``attempt`` waits for a look and gives the default where it is refused.
    """

    def __init__(
        self,
        client: Client,
        definitions: list[StoredDefinition],
        attempt: Callable[[Awaitable[Any], Any], Awaitable[Any]],
    ) -> None:
        self._client = client
        self._definitions = definitions
        self._attempt = attempt

    async def leftovers(
        self, places: Mapping[str, System], made_for_them: Collection[str]
    ) -> list[Leftover]:
        """What is theirs but Deployments and webhooks, in the order in which it goes."""
        return [
            *await self._attempt(self._api_services(), []),
            *await self._attempt(self._bindings(CLUSTER_ROLE_BINDINGS, made_for_them), []),
            *await self._attempt(self._bindings(ROLE_BINDINGS, made_for_them), []),
            *await self._attempt(self._cluster_roles(), []),
            *[
                found
                for namespace in sorted(places)
                for resource in _IN_NAMESPACE
                for found in await self._attempt(self._in_namespace(resource, namespace), [])
            ],
        ]

    async def _api_services(self) -> list[Leftover]:
        found = await collect(self._client, API_SERVICES, decode_api_service)
        leftovers = []
        for one in found:
            service = one.spec.service
            if service is None or not service.name.startswith("metrics-operator"):
                continue
            called = Service(service.namespace, service.name)
            leftovers.append(Leftover(Ref("apiservice", one.metadata.name), KEPTN, called))
        return leftovers

    async def _bindings(self, resource: Resource, made_for_them: Collection[str]) -> list[Leftover]:
        found = []
        for one in await collect(self._client, resource, decode_binding):
            system = system_of(one.metadata)
            if system is None and one.namespaces and one.namespaces <= set(made_for_them):
                system = system_of_namespace(min(one.namespaces))
            if system is not None:
                found.append(_leftover(resource, one.metadata, system))
        return found

    async def _cluster_roles(self) -> list[Leftover]:
        return _theirs(CLUSTER_ROLES, await metadata_of(self._client, CLUSTER_ROLES))

    async def _in_namespace(self, resource: Resource, namespace: str) -> list[Leftover]:
        found = await metadata_of(self._client, resource, namespace=namespace)
        return _theirs(resource, [one for one in found if one.label(_HELM) != "helm"])

    async def releases(self, definitions: list[Definition]) -> list[Release]:
        """The Helm releases that made their definitions, as far as Helm still knows of them."""
        owners = {one.release: one.system for one in definitions if one.release}
        found = []
        for owner, system in sorted(owners.items()):
            namespace, _, name = owner.partition("/")
            looking = metadata_of(
                self._client,
                SECRETS,
                namespace=namespace,
                label_selector=f"owner=helm,name={name}",
            )
            if await self._attempt(looking, []):
                found.append(Release(namespace, name, system))
        return found

    async def namespaces(self, names: Collection[str]) -> list[OldNamespace]:
        """The namespaces made for them, and what of others' they hold."""
        found = []
        for name in sorted(names):
            system = system_of_namespace(name)
            if system is not None:
                keeps = await self._attempt(self._held(name), ["what could not be listed"])
                found.append(OldNamespace(name, system, tuple(keeps)))
        return found

    async def _held(self, namespace: str) -> list[str]:
        held = []
        for one in self._definitions:
            resource = Resource(
                one.spec.group, one.storage_version, one.spec.names.plural, one.spec.names.kind
            )
            if one.spec.scope == "Namespaced":
                number = await count(self._client, resource, namespace)
                held += [f"{number} {resource.plural}"] if number else []
        for resource in HELD_BY_USERS:
            # Custom ones are among the definitions, as far as they are there.
            if not resource.is_built_in:
                continue
            others = [
                f"{resource.kind} {one.name}"
                for one in await metadata_of(self._client, resource, namespace=namespace)
                if _is_somebody_elses(one)
            ]
            held += others[:_SHOWN]
            if len(others) > _SHOWN:
                held.append(f"{len(others) - _SHOWN} more of kind {resource.kind}")
        return held


def _is_somebody_elses(one: Metadata) -> bool:
    return not (
        system_of(one)
        or role_of(one)
        or one.label(_HELM) == "helm"
        or one.name in OF_EVERY_NAMESPACE
        or one.deletion_timestamp
    )


def _theirs(resource: Resource, found: list[Metadata]) -> list[Leftover]:
    return [
        _leftover(resource, one, system)
        for one in found
        if (system := system_of(one)) and not one.deletion_timestamp
    ]


def _leftover(resource: Resource, one: Metadata, system: System) -> Leftover:
    return Leftover(Ref(resource.kind.lower(), one.name, one.namespace), system)
