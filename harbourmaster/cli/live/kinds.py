"""Built-in kinds as commands read them: one projection each, decoded one object at a time."""

from __future__ import annotations

from functools import reduce
from itertools import dropwhile, takewhile
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api import metadata
from harbourmaster.api.metadata import Metadata

_COMMANDS: Final = frozenset(("controller", "webhook"))
_NOT_SCHEDULED: Final = (
    "disk-pressure memory-pressure pid-pressure unschedulable network-unavailable"
)
OF_DAEMONS: Final = (
    *((f"node.kubernetes.io/{key}", "NoExecute") for key in ("not-ready", "unreachable")),
    *((f"node.kubernetes.io/{key}", "NoSchedule") for key in _NOT_SCHEDULED.split()),
)
"""Taints that every pod of a DaemonSet tolerates, by its controller: key and effect."""


class _Kind(Struct, frozen=True, rename="camel"):
    """A part of an object."""


class Metadated(_Kind, frozen=True):
    """Any object, projected onto its metadata."""

    metadata: Metadata = Metadata()


class Condition(metadata.Condition, frozen=True, kw_only=True):
    """A condition in any status, with the time of its last change."""

    last_transition_time: str | None = None


# Pods, and what makes pods.


class _KeyToPath(_Kind, frozen=True):
    key: str = ""
    path: str = ""


class _FromConfigMap(_Kind, frozen=True):
    name: str = ""
    items: tuple[_KeyToPath, ...] | None = None


class _Volume(_Kind, frozen=True):
    name: str = ""
    config_map: _FromConfigMap | None = None


class _Mount(_Kind, frozen=True):
    name: str = ""
    mount_path: str = ""
    sub_path: str = ""


class _KeyOfMap(_Kind, frozen=True):
    name: str = ""
    key: str = ""


class _Source(_Kind, frozen=True):
    config_map_key_ref: _KeyOfMap | None = None


class _Variable(_Kind, frozen=True):
    name: str = ""
    value: str = ""
    value_from: _Source = _Source()


class _Container(_Kind, frozen=True):
    image: str = ""
    env: tuple[_Variable, ...] | None = None
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    volume_mounts: tuple[_Mount, ...] | None = None

    @property
    def words(self) -> tuple[str, ...]:
        return (*(self.command or ()), *(self.args or ()))

    @property
    def is_ours(self) -> bool:
        return any(word in _COMMANDS for word in takewhile(_is_no_flag, self.words))


class _PodSpec(_Kind, frozen=True):
    containers: tuple[_Container, ...] = ()
    volumes: tuple[_Volume, ...] | None = None


class _Template(_Kind, frozen=True):
    spec: _PodSpec = _PodSpec()


class _Gate(_Kind, frozen=True):
    name: str = ""


class _Spec(_Kind, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""
    scheduling_gates: tuple[_Gate, ...] | None = None
    tolerations: tuple[dict[str, Any], ...] | None = None
    replicas: int | None = None
    template: _Template | None = None


class _Waiting(_Kind, frozen=True):
    reason: str = ""
    message: str = ""


class _State(_Kind, frozen=True):
    waiting: _Waiting | None = None


class _ContainerStatus(_Kind, frozen=True):
    state: _State = _State()


class _Status(_Kind, frozen=True):
    phase: str = ""
    nominated_node_name: str = ""
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[_ContainerStatus, ...] | None = None
    replicas: int | None = None
    ready_replicas: int = 0


class Workload(_Kind, frozen=True):
    """A pod, or what makes pods; it has the fields of its kind."""

    metadata: Metadata = Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def gates(self) -> list[str]:
        """The names of a pod's scheduling gates, in their order."""
        return [gate.name for gate in self.spec.scheduling_gates or ()]

    def condition(self, kind: str) -> Condition | None:
        """One of its conditions."""
        return condition_of(self.status.conditions, kind)

    @property
    def is_ready(self) -> bool:
        """Whether a pod is ready, or some replica of a workload."""
        ready = self.condition("Ready")
        return self.status.ready_replicas > 0 or (ready is not None and ready.status == "True")

    @property
    def why_not_ready(self) -> str:
        """Why a pod is not ready, in the words of the kubelet or the scheduler."""
        for status in self.status.container_statuses or ():
            if status.state.waiting and status.state.waiting.reason:
                return f"{status.state.waiting.reason} {status.state.waiting.message}".strip()
        scheduled = self.condition("PodScheduled")
        if scheduled is not None and scheduled.status == "False":
            return f"{scheduled.reason}: {scheduled.message}"
        return f"{self.status.phase or 'unknown'}, not ready"

    @property
    def _pod_spec(self) -> _PodSpec:
        return (self.spec.template or _Template()).spec

    @property
    def _container(self) -> _Container:
        """That of our process, or the first where none names its command."""
        containers = self._pod_spec.containers
        return next(
            (container for container in containers if container.is_ours),
            next(iter(containers), _Container()),
        )

    @property
    def image(self) -> str:
        """The image of our process."""
        return self._container.image

    @property
    def flags(self) -> list[str]:
        """The arguments of our process, without the name of the command."""
        return list(dropwhile(_is_no_flag, self._container.words))

    @property
    def variables(self) -> list[tuple[str, str, _KeyOfMap | None]]:
        """The environment of all containers: name, value, and the key of a ConfigMap instead."""
        entries = [
            entry for container in self._pod_spec.containers for entry in container.env or ()
        ]
        return [(entry.name, entry.value, entry.value_from.config_map_key_ref) for entry in entries]

    def source_of(self, path: str) -> tuple[str, str] | None:
        """The ConfigMap, and the key in it, that a file of our process is mounted from."""
        wanted = PurePosixPath(path)
        mounts = self._container.volume_mounts or ()
        above = [mount for mount in mounts if wanted.is_relative_to(mount.mount_path)]
        # One mount hides what another has below it.
        mount = max(
            above, key=lambda mount: len(PurePosixPath(mount.mount_path).parts), default=None
        )
        volumes = {volume.name: volume.config_map for volume in self._pod_spec.volumes or ()}
        source = volumes.get(mount.name) if mount is not None else None
        if mount is None or source is None:
            return None
        inside = str(PurePosixPath(mount.sub_path) / wanted.relative_to(mount.mount_path))
        if not source.items:
            return source.name, inside
        keys = {str(PurePosixPath(item.path)): item.key for item in source.items}
        return (source.name, keys[inside]) if inside in keys else None


def _is_no_flag(word: str) -> bool:
    return not word.startswith("-")


def condition_of(conditions: tuple[Condition, ...] | None, kind: str) -> Condition | None:
    """The condition of a type."""
    return next((condition for condition in conditions or () if condition.type == kind), None)


# Others.


class ConfigMap(_Kind, frozen=True):
    """A ConfigMap."""

    data: dict[str, str] | None = None


class Secret(_Kind, frozen=True):
    """A Secret; msgspec reads bytes from base64."""

    data: dict[str, bytes] | None = None


class _Subject(_Kind, frozen=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class Binding(_Kind, frozen=True):
    """A binding of a role, in a namespace or in the whole cluster."""

    metadata: Metadata = Metadata()
    subjects: tuple[_Subject, ...] | None = None

    @property
    def namespaces(self) -> frozenset[str]:
        """The namespaces of its subjects; "" among them where one is not a ServiceAccount."""
        return frozenset(
            subject.namespace if subject.kind == "ServiceAccount" else ""
            for subject in self.subjects or ()
        )

    def is_only_for(self, namespace: str, account: str) -> bool:
        """Whether it gives rights to this ServiceAccount only."""
        subject = _Subject("ServiceAccount", account, namespace)
        return bool(self.subjects) and set(self.subjects or ()) == {subject}


decode_workload: Final = msgspec.json.Decoder(Workload).decode
decode_config_map: Final = msgspec.json.Decoder(ConfigMap).decode
decode_secret: Final = msgspec.json.Decoder(Secret).decode
decode_binding: Final = msgspec.json.Decoder(Binding).decode
decode_anything: Final = msgspec.json.Decoder(dict[str, Any]).decode
_decode_metadata: Final = msgspec.json.Decoder(Metadated).decode


def written_at(raw: msgspec.Raw | bytes, *path: str) -> list[str]:
    """Return the times at which the managers of a field wrote last, sorted.

    ``path`` is that of ``managedFields``: ``f:metadata``, ``f:annotations`` and so on.
    """
    times = []
    for field in decode_anything(raw).get("metadata", {}).get("managedFields") or ():
        owned = reduce(lambda fields, key: (fields or {}).get(key), path, field.get("fieldsV1"))
        if owned is not None:
            times.append(field.get("time") or "")
    return sorted(times)


def metadata_in(raw: msgspec.Raw | bytes) -> Metadata:
    """The metadata in an object's JSON."""
    return _decode_metadata(raw).metadata
