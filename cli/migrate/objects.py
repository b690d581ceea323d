"""The API's objects as ``harbourmaster migrate`` reads them, and what they come to. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.cli.metadata import Metadata
from harbourmaster.cli.migrate.legacy import (
    INJECTED,
    OF_CERTMANAGER,
    SCHEDULER,
    is_of_gardener,
    release_of,
    system_of_group,
    system_of_webhooks,
)
from harbourmaster.cli.migrate.model import Definition, Ref, Registration, Service, StuckPod
from harbourmaster.cli.migrate.plan import KEEP_OBJECT
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.metadata import PARENT_KEY, UNRESOLVED
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.gate_waits import pre_checks, wait_of
from harbourmaster.lifecycle.gated_pods import decode_whole
from harbourmaster.lifecycle.model import FAILED
from harbourmaster.lifecycle.waiting import obstacle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harbourmaster.lifecycle.model import AppVersion, WorkloadVersion

_CONVERTED: Final = "Webhook"


class _Reference(Struct, frozen=True):
    namespace: str = ""
    name: str = ""


class _Client(Struct, frozen=True, rename="camel"):
    service: _Reference | None = None
    ca_bundle: str | None = None


class _Rule(Struct, frozen=True, rename="camel"):
    api_groups: tuple[str, ...] | None = None
    resources: tuple[str, ...] | None = None

    @property
    def covers_pods(self) -> bool:
        groups, resources = self.api_groups or (), self.resources or ()
        return bool({"", "*"}.intersection(groups) and {"pods", "*", "*/*"}.intersection(resources))


class _Webhook(Struct, frozen=True, rename="camel"):
    name: str = ""
    client_config: _Client = _Client()
    failure_policy: str = "Fail"
    rules: tuple[_Rule, ...] | None = None


class Webhooks(Struct, frozen=True):
    """A webhook configuration."""

    metadata: Metadata
    webhooks: tuple[_Webhook, ...] | None = None

    @property
    def services(self) -> frozenset[tuple[str, str]]:
        """Namespace and name of each Service that it calls."""
        references = (entry.client_config.service for entry in self.webhooks or ())
        return frozenset((one.namespace, one.name) for one in references if one)

    @property
    def has_authority(self) -> bool:
        """Whether every entry has a CA, so that it can be called."""
        return all(entry.client_config.ca_bundle for entry in self.webhooks or ())


decode_webhooks: Final = msgspec.json.Decoder(Webhooks).decode


def registration_of(
    kind: str, one: Webhooks, answers: Mapping[tuple[str, str], bool | None]
) -> Registration | None:
    """What a configuration of theirs comes to; None for somebody else's."""
    entries = one.webhooks or ()
    names = [entry.name for entry in entries]
    system = system_of_webhooks(one.metadata.name, names, [name for _, name in one.services])
    if system is None:
        return None
    closed = [entry for entry in entries if entry.failure_policy == "Fail"]
    asked = closed or entries
    called = {
        (reference.namespace, reference.name)
        for entry in asked
        if (reference := entry.client_config.service)
    }
    return Registration(
        ref=Ref(kind.lower(), one.metadata.name),
        system=system,
        services=tuple(Service(*each, answers.get(each)) for each in sorted(called)),
        fails_closed=bool(closed),
        covers_pods=any(rule.covers_pods for entry in asked for rule in entry.rules or ()),
        of_certmanager=bool(one.metadata.annotation(OF_CERTMANAGER)),
    )


class _Version(Struct, frozen=True):
    name: str = ""
    storage: bool = False


class _ConversionWebhook(Struct, frozen=True, rename="camel"):
    client_config: _Client = _Client()


class _Conversion(Struct, frozen=True):
    strategy: str = "None"
    webhook: _ConversionWebhook | None = None


class _Names(Struct, frozen=True):
    plural: str = ""
    kind: str = ""


class _DefinitionSpec(Struct, frozen=True):
    group: str
    names: _Names
    scope: str = ""
    versions: tuple[_Version, ...] = ()
    conversion: _Conversion | None = None


class _DefinitionStatus(Struct, frozen=True, rename="camel"):
    stored_versions: tuple[str, ...] | None = None


class StoredDefinition(Struct, frozen=True):
    """A CRD, without its schemas."""

    metadata: Metadata
    spec: _DefinitionSpec
    status: _DefinitionStatus = _DefinitionStatus()

    @property
    def storage_version(self) -> str:
        """The version in which objects are written."""
        return next((one.name for one in self.spec.versions if one.storage), "")

    @property
    def converter(self) -> tuple[str, str] | None:
        """Namespace and name of the Service that converts."""
        conversion = self.spec.conversion
        if conversion is None or conversion.strategy != _CONVERTED or conversion.webhook is None:
            return None
        service = conversion.webhook.client_config.service
        return (service.namespace, service.name) if service else None


decode_definition: Final = msgspec.json.Decoder(StoredDefinition).decode


def definition_of(
    one: StoredDefinition, objects: int | None, converter: Service | None
) -> Definition | None:
    """What a CRD of theirs comes to; ``converter`` is None for ours. None for somebody else's."""
    system = system_of_group(one.spec.group)
    if system is None:
        return None
    return Definition(
        name=one.metadata.name,
        system=system,
        stored_versions=one.status.stored_versions or (),
        storage_version=one.storage_version,
        objects=objects,
        conversion=converter,
        is_injected=one.metadata.label(INJECTED) == "true",
        release=release_of(one.metadata),
        of_gardener=is_of_gardener(one.metadata),
        is_kept=one.metadata.annotation(KEEP_OBJECT) == "true",
    )


class _Conditions(Struct, frozen=True):
    ready: bool | None = None


class _Endpoint(Struct, frozen=True):
    conditions: _Conditions = _Conditions()


class Slice(Struct, frozen=True):
    """An EndpointSlice."""

    endpoints: tuple[_Endpoint, ...] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether some endpoint is; one that does not say counts, as for kube-proxy."""
        return any(one.conditions.ready is not False for one in self.endpoints or ())


decode_slice: Final = msgspec.json.Decoder(Slice).decode


class _ServiceSpec(Struct, frozen=True):
    type: str = ""
    selector: dict[str, str] | None = None


class StoredService(Struct, frozen=True):
    """A Service; one of an external name answers somewhere that nothing here tells."""

    spec: _ServiceSpec = _ServiceSpec()

    @property
    def is_external(self) -> bool:
        """Whether it leads out of the cluster."""
        return self.spec.type == "ExternalName"


decode_service: Final = msgspec.json.Decoder(StoredService).decode


class _ApiServiceSpec(Struct, frozen=True):
    service: _Reference | None = None


class ApiService(Struct, frozen=True):
    """An APIService."""

    metadata: Metadata
    spec: _ApiServiceSpec = _ApiServiceSpec()


decode_api_service: Final = msgspec.json.Decoder(ApiService).decode


class _Gate(Struct, frozen=True):
    name: str = ""


class _PodSpec(Struct, frozen=True, rename="camel"):
    scheduling_gates: tuple[_Gate, ...] | None = None
    scheduler_name: str = ""


class _Owner(Struct, frozen=True):
    controller: bool = False


class _PodMetadata(Struct, frozen=True, rename="camel"):
    name: str
    namespace: str
    annotations: dict[str, str] | None = None
    owner_references: tuple[_Owner, ...] | None = None
    deletion_timestamp: str | None = None


class _Pod(Struct, frozen=True):
    metadata: _PodMetadata
    spec: _PodSpec


_decode_pod: Final = msgspec.json.Decoder(_Pod).decode


def stuck_pod(raw: msgspec.Raw) -> StuckPod | None:
    """The pod if it waits for Keptn; a gate counts before a scheduler that comes after it."""
    pod = _decode_pod(raw)
    metadata = pod.metadata
    gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
    if metadata.deletion_timestamp or not (GATE in gates or pod.spec.scheduler_name == SCHEDULER):
        return None
    whole = decode_whole(raw, SCHEDULER)
    workload = workload_of(whole.annotations, whole.labels)
    is_open = whole.annotations.get(PARENT_KEY) == UNRESOLVED or (workload and not workload.version)
    return StuckPod(
        namespace=metadata.namespace,
        name=metadata.name,
        gate=gates.index(GATE) if GATE in gates else None,
        is_annotated=metadata.annotations is not None,
        is_owned=any(owner.controller for owner in metadata.owner_references or ()),
        workload=workload,
        is_told=bool(whole.refusal or whole.told),
        failure=unknown("its workload and version are not known yet") if is_open else "",
    )


def unknown(why: str) -> str:
    """What is said of a pod whose checks cannot be looked up."""
    return f"whether its check failed is unknown: {why}"


def failure_of(version: WorkloadVersion | None, app: AppVersion | None) -> str:
    """What is said of a pod of this version whose check, or its app's, failed; empty for none."""
    if version is None:
        return ""
    wait = wait_of(version, "")
    if wait.code == "waits-for-app" and app is not None and obstacle(app) is not None:
        return f"a check of its app failed, and it waits for {(pre_checks(app) or wait).text}"
    has_failed = version.status.status == FAILED and wait.code != "waits-for-owner"
    if has_failed or wait.code == "checks-failed":
        return f"its check failed, and it waits for {wait.text}"
    return ""
