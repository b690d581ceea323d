"""What is left of kupid and Keptn besides their processes, webhooks and kinds."""

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
from harbourmaster.cli.live.reader import together
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
    """Looks through a few namespaces, and through what is cluster-wide."""

    def __init__(self, live: Installation) -> None:
        self._live = live

    async def found(self, places: Mapping[str, System], theirs: Collection[str]) -> list[Leftover]:
        """Their objects except Deployments and webhooks, in the order of their removal."""
        looking = [
            self._api_services(),
            self._bindings(CLUSTER_ROLE_BINDINGS, theirs),
            self._bindings(ROLE_BINDINGS, theirs),
            self._theirs(CLUSTER_ROLES),
            *(self._theirs(each, name) for name in sorted(places) for each in _IN_NAMESPACE),
        ]
        found = await together(*(self._live.attempt(each, []) for each in looking))
        return [one for some in found for one in some]

    async def _api_services(self) -> list[Leftover]:
        return [
            Leftover(Ref("apiservice", one.metadata.name), KEPTN, CalledService(*called))
            for one in await self._live.listed(resources.API_SERVICES, decode_api_service)
            if (called := one.client.called) and called[1].startswith("metrics-operator")
        ]

    async def _bindings(self, resource: Resource, theirs: Collection[str]) -> list[Leftover]:
        found = []
        for one in await self._live.listed(resource, decode_binding):
            system = system_of(one.metadata)
            if system is None and one.namespaces and one.namespaces <= set(theirs):
                system = system_of_namespace(min(one.namespaces))
            if system is not None:
                found.append(_leftover(resource, one.metadata, system))
        return found

    async def _theirs(self, resource: Resource, namespace: str | None = None) -> list[Leftover]:
        return [
            _leftover(resource, one, system)
            for one in await self._live.metadata(resource, namespace)
            if one.labels.get(_HELM) != "helm"
            and (system := system_of(one))
            and not one.deletion_timestamp
        ]

    async def releases(self, definitions: list[ReplacedDefinition]) -> list[Release]:
        """The Helm releases that made their definitions, if Helm still has a record of them."""
        owners = {
            definition.release: definition.system
            for definition in definitions
            if definition.release
        }
        found = []
        for owner, system in sorted(owners.items()):
            namespace, _, name = owner.partition("/")
            selector = f"owner=helm,name={name}"
            looking = self._live.metadata(resources.SECRETS, namespace, label_selector=selector)
            if await self._live.attempt(looking, []):
                found.append(Release(namespace, name, system))
        return found

    async def kept(self, name: str, system: System, kinds: list[Resource]) -> OldNamespace:
        """A namespace made for them, and which objects of others it contains."""
        keeps = await self._live.attempt(self._held(name, kinds), ["what could not be listed"])
        return OldNamespace(name, system, tuple(keeps))

    async def _held(self, namespace: str, kinds: list[Resource]) -> list[str]:
        held = [
            f"{number} {kind.plural}"
            for kind in kinds
            if kind.namespaced and (number := await self._live.count(kind, namespace))
        ]
        for resource in HELD_BY_USERS:
            # Custom ones are among the definitions, as far as they are there.
            if not resource.is_built_in:
                continue
            others = [
                f"{resource.kind} {one.name}"
                for one in await self._live.metadata(resource, namespace)
                if _is_of_others(one)
            ]
            held += others[:_SHOWN]
            if len(others) > _SHOWN:
                held.append(f"{len(others) - _SHOWN} more of kind {resource.kind}")
        return held


def _is_of_others(one: Metadata) -> bool:
    return not (
        system_of(one)
        or role_of(one)
        or one.labels.get(_HELM) == "helm"
        or one.name in OF_EVERY_NAMESPACE
        or one.deletion_timestamp
    )


def _leftover(resource: Resource, one: Metadata, system: System) -> Leftover:
    return Leftover(Ref(resource.kind.lower(), one.name, one.namespace), system)
