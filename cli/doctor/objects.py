"""The API's objects as ``harbourmaster doctor`` reads them."""

from __future__ import annotations

from itertools import dropwhile, takewhile
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.cli.metadata import Metadata

_COMMANDS: Final = frozenset(("controller", "webhook"))


def _is_no_flag(word: str) -> bool:
    return not word.startswith("-")


class _KeyToPath(Struct, frozen=True):
    key: str = ""
    path: str = ""


class _FromConfigMap(Struct, frozen=True):
    name: str = ""
    items: tuple[_KeyToPath, ...] | None = None


class _Volume(Struct, frozen=True, rename="camel"):
    name: str = ""
    config_map: _FromConfigMap | None = None


class _Mount(Struct, frozen=True, rename="camel"):
    name: str = ""
    mount_path: str = ""
    sub_path: str = ""


class _Container(Struct, frozen=True, rename="camel"):
    image: str = ""
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    volume_mounts: tuple[_Mount, ...] | None = None

    @property
    def words(self) -> tuple[str, ...]:
        return (*(self.command or ()), *(self.args or ()))

    @property
    def is_ours(self) -> bool:
        return any(each in _COMMANDS for each in takewhile(_is_no_flag, self.words))


class _PodSpec(Struct, frozen=True):
    containers: tuple[_Container, ...] = ()
    volumes: tuple[_Volume, ...] | None = None


class _Template(Struct, frozen=True):
    spec: _PodSpec = _PodSpec()


class _DeploymentSpec(Struct, frozen=True):
    replicas: int = 1
    template: _Template = _Template()


class _DeploymentStatus(Struct, frozen=True, rename="camel"):
    ready_replicas: int = 0
    updated_replicas: int = 0


class Deployment(Struct, frozen=True):
    """One of our Deployments."""

    metadata: Metadata
    spec: _DeploymentSpec = _DeploymentSpec()
    status: _DeploymentStatus = _DeploymentStatus()

    @property
    def _container(self) -> _Container:
        """That of our process, or the first where none names its command."""
        found = self.spec.template.spec.containers
        return next((each for each in found if each.is_ours), next(iter(found), _Container()))

    @property
    def image(self) -> str:
        """Of the process."""
        return self._container.image

    @property
    def is_ready(self) -> bool:
        """Whether some replica of it is."""
        return self.status.ready_replicas > 0

    @property
    def flags(self) -> list[str]:
        """Its arguments, without the name of the command."""
        return list(dropwhile(_is_no_flag, self._container.words))

    def source_of(self, path: str) -> tuple[str, str] | None:
        """The ConfigMap, and the key in it, that a file of the process is mounted from."""
        wanted = PurePosixPath(path)
        mounts = self._container.volume_mounts or ()
        above = [each for each in mounts if wanted.is_relative_to(each.mount_path)]
        # One mount hides what another has below it.
        mount = max(above, key=lambda one: len(PurePosixPath(one.mount_path).parts), default=None)
        volumes = {each.name: each.config_map for each in self.spec.template.spec.volumes or ()}
        source = volumes.get(mount.name) if mount is not None else None
        if mount is None or source is None:
            return None
        inside = str(PurePosixPath(mount.sub_path) / wanted.relative_to(mount.mount_path))
        if not source.items:
            return source.name, inside
        keys = {str(PurePosixPath(each.path)): each.key for each in source.items}
        return (source.name, keys[inside]) if inside in keys else None


class ConfigMap(Struct, frozen=True):
    """A ConfigMap."""

    data: dict[str, str] | None = None


class _Waiting(Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _State(Struct, frozen=True):
    waiting: _Waiting | None = None


class _ContainerStatus(Struct, frozen=True, rename="camel"):
    state: _State = _State()
    restart_count: int = 0


class _Condition(Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _PodStatus(Struct, frozen=True, rename="camel"):
    phase: str = ""
    conditions: tuple[_Condition, ...] | None = None
    container_statuses: tuple[_ContainerStatus, ...] | None = None


class Pod(Struct, frozen=True):
    """A pod of ours, as far as it says why it is not ready."""

    metadata: Metadata
    status: _PodStatus = _PodStatus()

    @property
    def is_ready(self) -> bool:
        """Whether it takes its part."""
        conditions = self.status.conditions or ()
        return any(each.type == "Ready" and each.status == "True" for each in conditions)

    @property
    def why_not(self) -> str:
        """What keeps it, in the words of whoever says so."""
        for each in self.status.container_statuses or ():
            if each.state.waiting and each.state.waiting.reason:
                return f"{each.state.waiting.reason} {each.state.waiting.message}".strip()
        for condition in self.status.conditions or ():
            if condition.type == "PodScheduled" and condition.status == "False":
                return f"{condition.reason}: {condition.message}"
        return f"{self.status.phase or 'unknown'}, not ready"


class _ServiceSpec(Struct, frozen=True):
    type: str = ""
    ports: tuple[dict[str, Any], ...] | None = None


class Service(Struct, frozen=True):
    """A Service."""

    spec: _ServiceSpec = _ServiceSpec()

    @property
    def is_external(self) -> bool:
        """Whether it is another name of something that has no endpoints here."""
        return self.spec.type == "ExternalName"


class Secret(Struct, frozen=True):
    """A Secret; msgspec reads bytes from base64."""

    data: dict[str, bytes] | None = None


class _Version(Struct, frozen=True):
    name: str = ""
    served: bool = True
    storage: bool = False


class _Names(Struct, frozen=True):
    plural: str = ""
    kind: str = ""


class _DefinitionSpec(Struct, frozen=True):
    group: str = ""
    names: _Names = _Names()
    versions: tuple[_Version, ...] = ()
    conversion: dict[str, Any] | None = None


class _DefinitionStatus(Struct, frozen=True, rename="camel"):
    stored_versions: tuple[str, ...] | None = None
    conditions: tuple[_Condition, ...] | None = None


class Definition(Struct, frozen=True):
    """A CRD, without its schemas."""

    metadata: Metadata
    spec: _DefinitionSpec = _DefinitionSpec()
    status: _DefinitionStatus = _DefinitionStatus()

    @property
    def served(self) -> frozenset[str]:
        """The versions in which it can be asked for."""
        return frozenset(each.name for each in self.spec.versions if each.served)

    @property
    def storage(self) -> str:
        """The version in which objects are written."""
        return next((each.name for each in self.spec.versions if each.storage), "")

    def condition(self, kind: str) -> _Condition | None:
        """One of its conditions."""
        return next((each for each in self.status.conditions or () if each.type == kind), None)


class _ApiServiceStatus(Struct, frozen=True):
    conditions: tuple[_Condition, ...] | None = None


class ApiServiceStatus(Struct, frozen=True):
    """The status of an APIService."""

    status: _ApiServiceStatus = _ApiServiceStatus()

    @property
    def why_unavailable(self) -> str:
        """Why the API server can't reach it; empty where it can."""
        for each in self.status.conditions or ():
            if each.type == "Available" and each.status != "True":
                return f"{each.reason}: {each.message}"
        return ""


decode_deployment: Final = msgspec.json.Decoder(Deployment).decode
decode_config_map: Final = msgspec.json.Decoder(ConfigMap).decode
decode_pod: Final = msgspec.json.Decoder(Pod).decode
decode_service: Final = msgspec.json.Decoder(Service).decode
decode_secret: Final = msgspec.json.Decoder(Secret).decode
decode_definition: Final = msgspec.json.Decoder(Definition).decode
decode_api_service_status: Final = msgspec.json.Decoder(ApiServiceStatus).decode
