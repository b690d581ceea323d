"""Built-in kinds as commands read them: one projection each, decoded one object at a time."""

from __future__ import annotations

from itertools import dropwhile, takewhile
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.selectors import EVERYTHING, LabelSelector, compile_selector

_COMMANDS: Final = frozenset(("controller", "webhook"))
OF_DAEMONS: Final = tuple(
    (f"node.kubernetes.io/{key}", effect)
    for key, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
        ("network-unavailable", "NoSchedule"),
    )
)
"""Taints that every pod of a DaemonSet tolerates, by its controller: key and effect."""
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"


class _Kind(Struct, frozen=True, rename="camel"):
    """A part of an object."""


class Metadated(_Kind, frozen=True):
    """Any object, projected onto its metadata."""

    metadata: Metadata = Metadata()


class Condition(_Kind, frozen=True):
    """A condition in any status."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
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


class _Container(_Kind, frozen=True):
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
        return _condition(self.status.conditions, kind)

    @property
    def is_ready(self) -> bool:
        """Whether a pod is ready, or some replica of a workload."""
        ready = self.condition("Ready")
        return self.status.ready_replicas > 0 or (ready is not None and ready.status == "True")

    @property
    def why_not_ready(self) -> str:
        """What keeps a pod from being ready, as the kubelet or the scheduler says it."""
        for each in self.status.container_statuses or ():
            if each.state.waiting and each.state.waiting.reason:
                return f"{each.state.waiting.reason} {each.state.waiting.message}".strip()
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
        found = self._pod_spec.containers
        return next((each for each in found if each.is_ours), next(iter(found), _Container()))

    @property
    def image(self) -> str:
        """Of our process."""
        return self._container.image

    @property
    def flags(self) -> list[str]:
        """The arguments of our process, without the name of the command."""
        return list(dropwhile(_is_no_flag, self._container.words))

    def source_of(self, path: str) -> tuple[str, str] | None:
        """The ConfigMap, and the key in it, that a file of our process is mounted from."""
        wanted = PurePosixPath(path)
        mounts = self._container.volume_mounts or ()
        above = [each for each in mounts if wanted.is_relative_to(each.mount_path)]
        # One mount hides what another has below it.
        mount = max(above, key=lambda one: len(PurePosixPath(one.mount_path).parts), default=None)
        volumes = {each.name: each.config_map for each in self._pod_spec.volumes or ()}
        source = volumes.get(mount.name) if mount is not None else None
        if mount is None or source is None:
            return None
        inside = str(PurePosixPath(mount.sub_path) / wanted.relative_to(mount.mount_path))
        if not source.items:
            return source.name, inside
        keys = {str(PurePosixPath(each.path)): each.key for each in source.items}
        return (source.name, keys[inside]) if inside in keys else None


def _is_no_flag(word: str) -> bool:
    return not word.startswith("-")


def _condition(conditions: tuple[Condition, ...] | None, kind: str) -> Condition | None:
    return next((each for each in conditions or () if each.type == kind), None)


# Webhooks, and what else calls Services.


class _Service(_Kind, frozen=True):
    namespace: str = ""
    name: str = ""


class _Client(_Kind, frozen=True):
    service: _Service | None = None
    ca_bundle: str | None = None
    url: str | None = None

    @property
    def called(self) -> tuple[str, str] | None:
        """Namespace and name of the Service; None for a URL."""
        return (self.service.namespace, self.service.name) if self.service else None


class _Rule(_Kind, frozen=True):
    api_groups: tuple[str, ...] | None = None
    resources: tuple[str, ...] | None = None
    operations: tuple[str, ...] | None = None


class Webhook(_Kind, frozen=True):
    """One webhook of a configuration; selectors that are absent select everything."""

    name: str = ""
    client_config: _Client = _Client()
    failure_policy: str = "Fail"
    rules: tuple[_Rule, ...] | None = None
    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None

    @property
    def service(self) -> tuple[str, str] | None:
        """Namespace and name of the Service that is called; None for a URL."""
        return self.client_config.called

    def covers(self, group: str, resource: str, operation: str = "") -> bool:
        """Whether one of its rules is about the kind, and about the operation if one is given."""
        return any(
            {group, "*"}.intersection(rule.api_groups or ())
            and {resource, "*", "*/*"}.intersection(rule.resources or ())
            and (not operation or {operation, "*"}.intersection(rule.operations or ()))
            for rule in self.rules or ()
        )

    @property
    def covers_pods(self) -> bool:
        """Whether it is called for pods that are created."""
        return self.covers("", "pods", "CREATE")

    def selects(self, namespace: Metadata) -> bool:
        """Whether it is called for objects of a namespace."""
        matcher = compile_selector(self.namespace_selector) or EVERYTHING
        return matcher.matches({_NAMESPACE_NAME: namespace.name, **namespace.labels})

    def selects_labels(self, labels: dict[str, str]) -> bool:
        """Whether it is called for objects with these labels."""
        return (compile_selector(self.object_selector) or EVERYTHING).matches(labels)

    def labels(self) -> dict[str, str] | None:
        """Labels that its objectSelector selects; None where none were found."""
        made = compile_selector(self.object_selector) or EVERYTHING
        found = {key: min(values) for key, values in made.one_of if values}
        found.update((key, "true") for key in made.present if key not in found)
        return found if made.matches(found) else None


class Configuration(_Kind, frozen=True):
    """A webhook configuration."""

    metadata: Metadata = Metadata()
    webhooks: tuple[Webhook, ...] | None = None

    @property
    def entries(self) -> tuple[Webhook, ...]:
        """Its webhooks."""
        return self.webhooks or ()

    @property
    def services(self) -> frozenset[tuple[str, str]]:
        """Namespace and name of each Service that it calls."""
        return frozenset(found for entry in self.entries if (found := entry.service))


class _ConversionWebhook(_Kind, frozen=True):
    client_config: _Client = _Client()


class _Conversion(_Kind, frozen=True):
    strategy: str = "None"
    webhook: _ConversionWebhook | None = None


class _Version(_Kind, frozen=True):
    name: str = ""
    served: bool = True
    storage: bool = False


class _Names(_Kind, frozen=True):
    plural: str = ""
    kind: str = ""


class _DefinitionSpec(_Kind, frozen=True):
    group: str = ""
    names: _Names = _Names()
    scope: str = ""
    versions: tuple[_Version, ...] = ()
    conversion: _Conversion = _Conversion()


class _DefinitionStatus(_Kind, frozen=True):
    stored_versions: tuple[str, ...] | None = None
    conditions: tuple[Condition, ...] | None = None


class Definition(_Kind, frozen=True):
    """A CRD, without its schemas."""

    metadata: Metadata = Metadata()
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

    @property
    def stored(self) -> tuple[str, ...]:
        """The versions in which objects may still be stored, in their order."""
        return self.status.stored_versions or ()

    @property
    def is_converted(self) -> bool:
        """Whether a webhook converts its versions."""
        return self.spec.conversion.strategy == "Webhook"

    @property
    def conversion(self) -> _Client:
        """What is called to convert its versions."""
        webhook = self.spec.conversion.webhook if self.is_converted else None
        return webhook.client_config if webhook is not None else _Client()

    @property
    def converter(self) -> tuple[str, str] | None:
        """Namespace and name of the Service that converts; None where none does."""
        return self.conversion.called

    def condition(self, kind: str) -> Condition | None:
        """One of its conditions."""
        return _condition(self.status.conditions, kind)


class _ApiServiceSpec(_Kind, frozen=True):
    service: _Service | None = None
    ca_bundle: str | None = None


class _ApiServiceStatus(_Kind, frozen=True):
    conditions: tuple[Condition, ...] | None = None


class ApiService(_Kind, frozen=True):
    """An APIService."""

    metadata: Metadata = Metadata()
    spec: _ApiServiceSpec = _ApiServiceSpec()
    status: _ApiServiceStatus = _ApiServiceStatus()

    @property
    def client(self) -> _Client:
        """What the API server calls."""
        return _Client(self.spec.service, self.spec.ca_bundle)

    @property
    def why_unavailable(self) -> str:
        """Why the API server can't reach it; empty where it can."""
        found = _condition(self.status.conditions, "Available")
        return f"{found.reason}: {found.message}" if found and found.status != "True" else ""


class _ServiceSpec(_Kind, frozen=True):
    type: str = ""


class Service(_Kind, frozen=True):
    """A Service."""

    spec: _ServiceSpec = _ServiceSpec()

    @property
    def is_external(self) -> bool:
        """Whether it is another name of something that has no endpoints here."""
        return self.spec.type == "ExternalName"


class _EndpointConditions(_Kind, frozen=True):
    ready: bool | None = None


class _Endpoint(_Kind, frozen=True):
    conditions: _EndpointConditions = _EndpointConditions()


class EndpointSlice(_Kind, frozen=True):
    """An EndpointSlice."""

    endpoints: tuple[_Endpoint, ...] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether some endpoint is; one that does not say counts, as for kube-proxy."""
        return any(one.conditions.ready is not False for one in self.endpoints or ())


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
            one.namespace if one.kind == "ServiceAccount" else "" for one in self.subjects or ()
        )

    def is_only_for(self, namespace: str, account: str) -> bool:
        """Whether it gives rights to this ServiceAccount and to nobody else."""
        subject = _Subject("ServiceAccount", account, namespace)
        return bool(self.subjects) and set(self.subjects or ()) == {subject}


decode_workload: Final = msgspec.json.Decoder(Workload).decode
decode_configuration: Final = msgspec.json.Decoder(Configuration).decode
decode_definition: Final = msgspec.json.Decoder(Definition).decode
decode_api_service: Final = msgspec.json.Decoder(ApiService).decode
decode_service: Final = msgspec.json.Decoder(Service).decode
decode_slice: Final = msgspec.json.Decoder(EndpointSlice).decode
decode_config_map: Final = msgspec.json.Decoder(ConfigMap).decode
decode_secret: Final = msgspec.json.Decoder(Secret).decode
decode_binding: Final = msgspec.json.Decoder(Binding).decode
decode_anything: Final = msgspec.json.Decoder(dict[str, Any]).decode
_decode_metadata: Final = msgspec.json.Decoder(Metadated).decode


def metadata_in(raw: msgspec.Raw | bytes) -> Metadata:
    """The metadata in an object's JSON."""
    return _decode_metadata(raw).metadata
