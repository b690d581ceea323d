"""Finds what is left of kupid and Keptn besides their processes, webhooks and kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.api import resources
from harbourmaster.cli.installed import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    HELD_BY_USERS,
    OF_EVERY_NAMESPACE,
    ROLE_BINDINGS,
    ROLES,
)
from harbourmaster.cli.live.kinds import decode_binding
from harbourmaster.cli.live.reader import run_together
from harbourmaster.cli.live.webhooks import decode_api_service
from harbourmaster.cli.migrate.legacy import role_of, system_of, system_of_namespace
from harbourmaster.cli.migrate.model import (
    KEPTN,
    CalledService,
    Leftover,
    OldNamespace,
    Ref,
    Release,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.cli.migrate.model import ReplacedDefinition, System

_IN_NAMESPACE: Final = (
    resources.DISRUPTION_BUDGETS,
    resources.SERVICES,
    resources.CONFIG_MAPS,
    resources.SECRETS,
    resources.LEASES,
    ROLES,
    resources.SERVICE_ACCOUNTS,
)
_HELM: Final = "owner"
_SHOWN: Final = 5


class Leftovers:
    """Searches a few namespaces, and the cluster-wide objects."""

    def __init__(self, live: Installation) -> None:
        self._live = live

    async def objects(
        self, systems: Mapping[str, System], made_for: Collection[str]
    ) -> list[Leftover]:
        """Return all objects except Deployments and webhooks, in the order of their removal.

        ``systems`` has the namespaces to search, ``made_for`` those that were created for kupid or
        Keptn.
        """
        searches = [
            self._api_services(),
            self._bindings(CLUSTER_ROLE_BINDINGS, made_for),
            self._bindings(ROLE_BINDINGS, made_for),
            self._of_kind(CLUSTER_ROLES),
            *(
                self._of_kind(resource, namespace)
                for namespace in sorted(systems)
                for resource in _IN_NAMESPACE
            ),
        ]
        results = await run_together(*(self._live.attempt(search, []) for search in searches))
        return [leftover for leftovers in results for leftover in leftovers]

    async def _api_services(self) -> list[Leftover]:
        return [
            Leftover(Ref("apiservice", service.metadata.name), KEPTN, CalledService(*called))
            for service in await self._live.list_all(resources.API_SERVICES, decode_api_service)
            if (called := service.client.service_key) and called[1].startswith("metrics-operator")
        ]

    async def _bindings(self, resource: Resource, made_for: Collection[str]) -> list[Leftover]:
        leftovers = []
        for binding in await self._live.list_all(resource, decode_binding):
            system = system_of(binding.metadata)
            if system is None and binding.namespaces and binding.namespaces <= set(made_for):
                system = system_of_namespace(min(binding.namespaces))
            if system is not None:
                leftovers.append(_leftover(resource, binding.metadata, system))
        return leftovers

    async def _of_kind(self, resource: Resource, namespace: str | None = None) -> list[Leftover]:
        return [
            _leftover(resource, metadata, system)
            for metadata in await self._live.metadata(resource, namespace)
            if metadata.labels.get(_HELM) != "helm"
            and (system := system_of(metadata))
            and not metadata.deletion_timestamp
        ]

    async def releases(
        self, definitions: list[ReplacedDefinition], own_release: str
    ) -> list[Release]:
        """Return the Helm releases that made their definitions, if Helm still has their records.

        ``own_release`` is the one of Harbourmaster, which is not replaced.
        """
        systems = {
            definition.release: definition.system
            for definition in definitions
            if definition.release not in {"", own_release}
        }
        releases = []
        for release, system in sorted(systems.items()):
            namespace, _, name = release.partition("/")
            selector = f"owner=helm,name={name}"
            records = self._live.metadata(resources.SECRETS, namespace, label_selector=selector)
            if await self._live.attempt(records, []):
                releases.append(Release(namespace, name, system))
        return releases

    async def namespace(self, name: str, system: System, kinds: list[Resource]) -> OldNamespace:
        """Return a namespace made for a system, and which objects of others it contains."""
        others = self._objects_of_others(name, kinds)
        keeps = await self._live.attempt(others, ["what could not be listed"])
        return OldNamespace(name, system, tuple(keeps))

    async def _objects_of_others(self, namespace: str, kinds: list[Resource]) -> list[str]:
        lines = [
            f"{number} {kind.plural}"
            for kind in kinds
            if kind.namespaced and (number := await self._live.count(kind, namespace))
        ]
        for resource in HELD_BY_USERS:
            # Custom ones are among the definitions, as far as they are installed.
            if not resource.is_built_in:
                continue
            others = [
                f"{resource.kind} {metadata.name}"
                for metadata in await self._live.metadata(resource, namespace)
                if _is_of_others(metadata)
            ]
            lines += others[:_SHOWN]
            if len(others) > _SHOWN:
                lines.append(f"{len(others) - _SHOWN} more of kind {resource.kind}")
        return lines


def _is_of_others(metadata: Metadata) -> bool:
    return not (
        system_of(metadata)
        or role_of(metadata)
        or metadata.labels.get(_HELM) == "helm"
        or metadata.name in OF_EVERY_NAMESPACE
        or metadata.deletion_timestamp
    )


def _leftover(resource: Resource, metadata: Metadata, system: System) -> Leftover:
    return Leftover(Ref(resource.kind.lower(), metadata.name, metadata.namespace), system)
