"""Our own installation in a cluster: its processes, their settings, certificates and Lease."""

from __future__ import annotations

import argparse
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from msgspec import Struct

from harbourmaster.api import resources
from harbourmaster.api.decoding import describe
from harbourmaster.api.resources import CONFIG_MAPS, DEPLOYMENTS, PODS
from harbourmaster.api.times import moment
from harbourmaster.cli.installed import COMPONENT_LABEL, CONTROLLER, NAME_LABEL, WEBHOOK
from harbourmaster.cli.live.cluster import DONE
from harbourmaster.cli.live.kinds import (
    decode_anything,
    decode_config_map,
    decode_secret,
    decode_workload,
    metadata_in,
)
from harbourmaster.cli.live.reader import ClusterReader, cause, read_error
from harbourmaster.cli.live.webhooks import decode_configuration, decode_service, decode_slice
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.kube.errors import ApiError, ForbiddenError
from harbourmaster.kube.lease import decode_lease
from harbourmaster.kube.server_version import server_version
from harbourmaster.registration.desired import NAME
from harbourmaster.serving.options import SettingsError, add_settings, settings_from
from harbourmaster.webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import msgspec

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.live.kinds import Workload
    from harbourmaster.cli.live.webhooks import Configuration
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.lease import Lease

    Find = Callable[[Resource, str, str | None], Awaitable[bytes | None]]
    Settings = TypeVar("Settings", bound=Struct)

T = TypeVar("T", bound=Struct)
Picked = TypeVar("Picked")

CONFIGURATIONS: Final = (resources.MUTATING_WEBHOOKS, resources.VALIDATING_WEBHOOKS)
"""The kinds of webhook configurations; each has one of ours."""
NOT_INSTALLED: Final = "no Deployment of Harbourmaster in namespace"
"""Begins what is said of settings where nothing is installed, as of a plane on one machine."""
_LOCAL_MARKS: Final = ("kwok.x-k8s.io/node", "minikube.k8s.io/version")
_LOCAL_NAMES: Final = ("k3d-", "docker-desktop", "rancher-desktop", "lima-", "colima", "orbstack")
"""Marks and names of the nodes of local clusters."""
_ASSUMED: Final = "assuming the default settings"


class Installation(ClusterReader):
    """One look at a cluster and at our installation in it."""

    def __init__(self, client: Client, namespace: str, canary_namespace: str = "") -> None:
        super().__init__(client)
        self.namespace = namespace
        """The one in which we are installed."""
        self.canary_namespace = canary_namespace
        """The namespace for a dry run of a pod; "" for any that webhooks select."""
        self.scope = ""
        """The only namespace that is looked at, where the caller has no permission for others."""

    async def list_all(
        self,
        resource: Resource,
        pick: Callable[[msgspec.Raw], Picked | None],
        namespace: str | None = None,
        **options: Any,  # noqa: ANN401 - as the base class
    ) -> list[Picked]:
        """Return the results of ``pick`` for all objects of a kind, or for those of the scope."""
        place = (self.scope or None) if namespace is None and resource.namespaced else namespace
        return await super().list_all(resource, pick, place, **options)

    async def namespaces(self) -> list[Metadata]:
        """The metadata of all namespaces, or of the one that is looked at."""
        if self.scope:
            space = await self.read(resources.NAMESPACES, self.scope, metadata_in)
            return [space] if space is not None else []
        return await self.items(resources.NAMESPACES, metadata_in, metadata_only=True)

    async def is_local(self) -> bool:
        """Whether the nodes are of a cluster on one machine, such as kind, minikube or kwok."""
        nodes = await self.attempt(self.list_all(resources.NODES, decode_anything), [])
        return bool(nodes) and all(map(_is_local_node, nodes))

    async def home(self) -> Metadata | None:
        """Our own namespace."""
        return await self.read(resources.NAMESPACES, self.namespace, metadata_in)

    async def stored_configurations(self) -> dict[Resource, dict[str, Any] | None]:
        """Both webhook configurations of ours as they are stored."""
        return {
            configuration: await self.read(configuration, NAME, decode_anything)
            for configuration in CONFIGURATIONS
        }

    async def configuration(self, resource: Resource) -> Configuration | None:
        """One of them, projected."""
        return await self.read(resource, NAME, decode_configuration)

    async def configurations(self, resource: Resource) -> list[Configuration]:
        """All of a cluster, everybody's."""
        return await self.items(resource, decode_configuration)

    async def has_endpoint(self, namespace: str, name: str) -> bool | None:
        """Whether a Service has a ready endpoint; None for one with another name elsewhere."""
        service = await self.read(resources.SERVICES, name, decode_service, namespace)
        if service is None or service.is_external:
            return None if service else False
        selector = f"kubernetes.io/service-name={name}"
        slices = await self.list_all(
            resources.SLICES, decode_slice, namespace, label_selector=selector
        )
        return any(endpoints.is_ready for endpoints in slices)

    async def deployment(self, name: str) -> Workload | None:
        """One of our Deployments."""
        return await self.read(resources.DEPLOYMENTS, name, decode_workload, self.namespace)

    async def controller_settings(self) -> ControllerSettings | None:
        """Those of the controller; None where they are not stated in the cluster."""
        return await self._settings(CONTROLLER, ControllerSettings)

    async def webhook_settings(self) -> WebhookSettings | None:
        """Those of the webhook; None where they are not stated in the cluster."""
        return await self._settings(WEBHOOK, WebhookSettings)

    async def none_if_unreadable(self, settings: Awaitable[T | None]) -> T | None:
        """Return the settings, or None if those of the Deployment are invalid."""
        try:
            return await settings
        except UnknownSettingsError:
            return None

    async def _settings(self, name: str, kind: type[T]) -> T | None:
        """Raises UnknownSettingsError where what is stated can't be read."""
        try:
            await self.deployment(name)
        except ForbiddenError:
            return None
        return await self._running(name, kind)

    async def _running(self, name: str, kind: type[T]) -> T | None:
        async def read() -> T | None:
            return await running_settings(self.find, self.namespace, name, kind)

        return await self.once(("settings", name), read)

    async def assumed_settings(self, name: str, kind: type[T]) -> tuple[T, str]:
        """The settings of a process, and why they may be others; empty where they are right."""
        where = f"Deployment {self.namespace}/{name}"
        try:
            settings = await self._running(name, kind)
            return (kind(), await self._absent(where)) if settings is None else (settings, "")
        except ApiError as error:
            return kind(), f"{read_error(error, where)}; {_ASSUMED}"
        except (UnknownSettingsError, ValueError) as error:
            return kind(), f"{where}: {error}; {_ASSUMED}"

    async def _absent(self, where: str) -> str:
        if any(
            [
                await self.find(resources.DEPLOYMENTS, name, self.namespace)
                for name in (WEBHOOK, CONTROLLER)
            ]
        ):
            return f"{where} not found (--installed-in says where to look); {_ASSUMED}"
        return f"{NOT_INSTALLED} {self.namespace} (--installed-in); {_ASSUMED}"

    async def known_settings(self) -> ControllerSettings:
        """The controller's settings, by default those that are shipped."""
        try:
            return await self.controller_settings() or ControllerSettings()
        except (UnknownSettingsError, ApiError):
            return ControllerSettings()

    async def secret(self) -> dict[str, bytes] | None:
        """Return the data of the Secret with certificates, or None if it does not exist."""
        name = (await self.known_settings()).certificates.secret_name
        stored = await self.read(resources.SECRETS, name, decode_secret, self.namespace)
        return (stored.data or {}) if stored is not None else None

    async def lease(self) -> Lease | None:
        """Return the Lease of the controller, or None if it does not exist."""
        name = (await self.known_settings()).leader_election.lease_name
        return await self.read(resources.LEASES, name, decode_lease, self.namespace)

    async def is_led(self) -> bool:
        """Whether a controller leads, as far as its Lease tells; without elections, is ready."""
        if not (await self.known_settings()).leader_election.enabled:
            deployment = await self.deployment(CONTROLLER)
            return deployment is not None and deployment.is_ready
        lease = await self.lease()
        return lease is not None and bool(lease.holder) and await self.overdue(lease) is None

    async def why_unled(self) -> str:
        """Say that no controller leads; empty if one does, or if that cannot be known."""
        if not (await self.known_settings()).leader_election.enabled:
            return ""
        try:
            lease = await self.lease()
            is_expected = lease is not None or await self.deployment(CONTROLLER) is not None
            age = await self.overdue(lease) if lease is not None else None
        except ApiError:
            return ""
        if not is_expected or (lease is not None and age is None):
            return ""
        why = "none has led yet"
        if lease is not None and age is not None:
            holder = f" by {lease.holder}" if lease.holder else ""
            why = f"its Lease was renewed {int(age.total_seconds())} s ago{holder}"
        deployment = await self.attempt(self.deployment(CONTROLLER), None)
        if deployment is not None and deployment.spec.replicas == 0:
            why = f"{why}; Deployment {CONTROLLER} is scaled to 0 replicas"
        elif deployment is not None and (fault := await self.why_not_ready(deployment)):
            why = f"{why}; {fault}"
        return f"no controller of Harbourmaster leads, so nothing is released: {why}"

    async def leader_step(self) -> str:
        """Return the command that starts a controller, or that shows why none leads."""
        kubectl = f"kubectl -n {self.namespace}"
        deployment = await self.attempt(self.deployment(CONTROLLER), None)
        if deployment is None:
            return (
                f"Deployment {CONTROLLER} not found: install it again, or start the controller "
                "where it runs: harbourmaster server controller, or harbourmaster local up"
            )
        if deployment.spec.replicas == 0:
            return f"{kubectl} scale deployment {CONTROLLER} --replicas=2"
        return f"see why no controller leads: {kubectl} logs deployment/{CONTROLLER}"

    async def why_not_ready(self, deployment: Workload) -> str:
        """Return why a pod of one of our Deployments is not ready; empty if that is unknown."""
        component = deployment.metadata.labels.get(COMPONENT_LABEL, "")
        selector = f"{NAME_LABEL}=harbourmaster,{COMPONENT_LABEL}={component}"
        listing = self.items(PODS, decode_workload, self.namespace, label_selector=selector)
        pods = await self.attempt(listing, [])
        faults = (f"{pod.metadata.name} {pod.why_not_ready}" for pod in pods if not pod.is_ready)
        return next(faults, "")

    async def overdue(self, lease: Lease) -> timedelta | None:
        """Return the age of an expired Lease, or None if it is valid or its age is unknown."""
        renewed = moment(lease.spec.renew_time)
        myself = await self.caller()
        if renewed is None or not myself.is_known:
            return None
        age = myself.now - renewed
        return age if age > timedelta(seconds=lease.spec.lease_duration_seconds or 0) else None


def _is_local_node(node: dict[str, Any]) -> bool:
    metadata, provider = node["metadata"], (node.get("spec") or {}).get("providerID", "")
    marks = {*(metadata.get("labels") or {}), *(metadata.get("annotations") or {})}
    is_marked = not marks.isdisjoint(_LOCAL_MARKS)
    return is_marked or provider.startswith("kind://") or metadata["name"].startswith(_LOCAL_NAMES)


async def add_versions(namespace: str, versions: dict[str, str], client: Client) -> int:
    """Add the images of our processes and the version of Kubernetes, or why they are unknown."""
    live = Installation(client, namespace)
    for name, asking in (
        ("controller", _image(live, CONTROLLER)),
        ("webhook", _image(live, WEBHOOK)),
        ("kubernetes", server_version(client)),
    ):
        try:
            versions[name] = str(await asking)
        except ApiError as error:
            versions[name] = f"unknown: {cause(error)}"
    return DONE


async def _image(live: Installation, name: str) -> str:
    """The image of a process, and its version where a label says it."""
    deployment = await live.deployment(name)
    if deployment is None:
        return f"not found in namespace {live.namespace}"
    label = deployment.metadata.labels.get("app.kubernetes.io/version", "")
    return f"{label} ({deployment.image})" if label else deployment.image


class UnknownSettingsError(Exception):
    """Settings that can't be made out; the text is one line."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UnknownSettingsError(message)


async def running_settings(
    find: Find, namespace: str, name: str, kind: type[Settings]
) -> Settings | None:
    """The settings that the Deployment of this name gives its process; None where there is none.

    ``find`` gives the JSON of an object, or None. Raises UnknownSettingsError, ApiError.
    """
    body = await find(DEPLOYMENTS, name, namespace)
    if body is None:
        return None
    deployment = decode_workload(body)
    parser = _Parser(add_help=False, allow_abbrev=False)
    add_settings(parser, kind)
    arguments = parser.parse_args(deployment.flags)
    path: Path | None = arguments.config
    if path is None:
        return _settings(arguments, kind)
    source = deployment.source_of(str(path))
    if source is None:
        raise UnknownSettingsError(f"{path} is mounted from no ConfigMap that can be read")
    config_map, key = source
    body = await find(CONFIG_MAPS, config_map, namespace)
    if body is None:
        raise UnknownSettingsError(f"there is no ConfigMap {config_map}")
    text = (decode_config_map(body).data or {}).get(key)
    if text is None:
        raise UnknownSettingsError(f"the ConfigMap {config_map} has no key {key}")
    with tempfile.TemporaryDirectory() as folder:
        arguments.config = Path(folder, path.name)
        arguments.config.write_text(text, encoding="utf-8")
        return _settings(arguments, kind)


def _settings(arguments: argparse.Namespace, kind: type[Settings]) -> Settings:
    try:
        settings: Settings = settings_from(arguments, kind, describe)
    except SettingsError as error:
        raise UnknownSettingsError(str(error)) from None
    return settings
