"""Webhook configurations, CRDs and APIServices, and the Services that they call."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.selectors import EVERYTHING, LabelSelector, compile_selector
from harbourmaster.cli.live.kinds import Condition, condition_of

_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"


class _Service(Struct, frozen=True, rename="camel"):
    namespace: str = ""
    name: str = ""


class _Client(Struct, frozen=True, rename="camel"):
    service: _Service | None = None
    ca_bundle: str | None = None
    url: str | None = None

    @property
    def service_key(self) -> tuple[str, str] | None:
        """Namespace and name of the Service; None for a URL."""
        return (self.service.namespace, self.service.name) if self.service else None


class _Rule(Struct, frozen=True, rename="camel"):
    api_groups: tuple[str, ...] | None = None
    resources: tuple[str, ...] | None = None
    operations: tuple[str, ...] | None = None


class Webhook(Struct, frozen=True, rename="camel"):
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
        return self.client_config.service_key

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
        chosen = {key: min(values) for key, values in made.one_of if values}
        chosen.update((key, "true") for key in made.present if key not in chosen)
        return chosen if made.matches(chosen) else None


class Configuration(Struct, frozen=True, rename="camel"):
    """A webhook configuration."""

    metadata: Metadata = Metadata()
    webhooks: tuple[Webhook, ...] | None = None

    @property
    def entries(self) -> tuple[Webhook, ...]:
        """The webhooks of the configuration."""
        return self.webhooks or ()

    @property
    def services(self) -> frozenset[tuple[str, str]]:
        """Namespace and name of each Service that it calls."""
        return frozenset(service for entry in self.entries if (service := entry.service))


class _ConversionWebhook(Struct, frozen=True, rename="camel"):
    client_config: _Client = _Client()


class _Conversion(Struct, frozen=True, rename="camel"):
    strategy: str = "None"
    webhook: _ConversionWebhook | None = None


class _Version(Struct, frozen=True, rename="camel"):
    name: str = ""
    served: bool = True
    storage: bool = False
    schema: dict[str, Any] = {}


class _Names(Struct, frozen=True, rename="camel"):
    plural: str = ""
    kind: str = ""


class _DefinitionSpec(Struct, frozen=True, rename="camel"):
    group: str = ""
    names: _Names = _Names()
    scope: str = ""
    versions: tuple[_Version, ...] = ()
    conversion: _Conversion = _Conversion()


class _DefinitionStatus(Struct, frozen=True, rename="camel"):
    stored_versions: tuple[str, ...] | None = None
    conditions: tuple[Condition, ...] | None = None


class Definition(Struct, frozen=True, rename="camel"):
    """A CRD."""

    metadata: Metadata = Metadata()
    spec: _DefinitionSpec = _DefinitionSpec()
    status: _DefinitionStatus = _DefinitionStatus()

    @property
    def served(self) -> frozenset[str]:
        """The versions in which it can be asked for."""
        return frozenset(version.name for version in self.spec.versions if version.served)

    @property
    def schemas(self) -> dict[str, dict[str, Any]]:
        """The schema of each version."""
        return {own.name: own.schema.get("openAPIV3Schema", {}) for own in self.spec.versions}

    @property
    def storage(self) -> str:
        """The version in which objects are written."""
        return next((version.name for version in self.spec.versions if version.storage), "")

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
        """The address that the API server calls to convert versions."""
        webhook = self.spec.conversion.webhook if self.is_converted else None
        return webhook.client_config if webhook is not None else _Client()

    @property
    def converter(self) -> tuple[str, str] | None:
        """Namespace and name of the Service that converts; None where none does."""
        return self.conversion.service_key

    def condition(self, kind: str) -> Condition | None:
        """One of its conditions."""
        return condition_of(self.status.conditions, kind)


class _ApiServiceSpec(Struct, frozen=True, rename="camel"):
    service: _Service | None = None
    ca_bundle: str | None = None


class _ApiServiceStatus(Struct, frozen=True, rename="camel"):
    conditions: tuple[Condition, ...] | None = None


class ApiService(Struct, frozen=True, rename="camel"):
    """An APIService."""

    metadata: Metadata = Metadata()
    spec: _ApiServiceSpec = _ApiServiceSpec()
    status: _ApiServiceStatus = _ApiServiceStatus()

    @property
    def client(self) -> _Client:
        """The address that the API server calls for the group."""
        return _Client(self.spec.service, self.spec.ca_bundle)

    @property
    def why_unavailable(self) -> str:
        """Why the API server can't reach it; empty where it can."""
        condition = condition_of(self.status.conditions, "Available")
        return (
            f"{condition.reason}: {condition.message}"
            if condition and condition.status != "True"
            else ""
        )


class _ServiceSpec(Struct, frozen=True, rename="camel"):
    type: str = ""


class Service(Struct, frozen=True, rename="camel"):
    """A Service."""

    spec: _ServiceSpec = _ServiceSpec()

    @property
    def is_external(self) -> bool:
        """Whether it is another name of something that has no endpoints here."""
        return self.spec.type == "ExternalName"


class _EndpointConditions(Struct, frozen=True, rename="camel"):
    ready: bool | None = None


class _Endpoint(Struct, frozen=True, rename="camel"):
    conditions: _EndpointConditions = _EndpointConditions()


class EndpointSlice(Struct, frozen=True, rename="camel"):
    """An EndpointSlice."""

    endpoints: tuple[_Endpoint, ...] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether some endpoint is; one that does not say counts, as for kube-proxy."""
        return any(endpoint.conditions.ready is not False for endpoint in self.endpoints or ())


decode_configuration: Final = msgspec.json.Decoder(Configuration).decode
decode_definition: Final = msgspec.json.Decoder(Definition).decode
decode_api_service: Final = msgspec.json.Decoder(ApiService).decode
decode_service: Final = msgspec.json.Decoder(Service).decode
decode_slice: Final = msgspec.json.Decoder(EndpointSlice).decode
