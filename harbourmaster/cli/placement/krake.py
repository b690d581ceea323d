"""Converts Krake's objects to objects of placement (krake-spec 1, 7.1): pure.

What has no meaning here is left out with a note; what would mean something else is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from harbourmaster.api.names import label_value, qualified_name
from harbourmaster.cli.placement.kubeconfigs import check_kubeconfig
from harbourmaster.cli.placement.objects import (
    fault_of,
    kubeconfig_secret,
    metric_constraint,
    metric_name,
    namespace_name,
    object_name,
    without_empty,
)
from harbourmaster.kube.errors import ConnectionSettingsError
from harbourmaster.placement.confirmation import CONFIRMED, CURRENT_CLUSTER
from harbourmaster.placement.model import API_VERSION
from harbourmaster.serving.kubectl_yaml import dump

if TYPE_CHECKING:
    from collections.abc import Callable

    Fields = dict[str, Any]

_DEFAULT_BACKOFF: Final = {"delaySeconds": 1, "factor": 1, "limit": -1}


class RefusedError(ValueError):
    """An object that can't be taken over; the text is one line and says why."""


class KrakeObject(Struct, frozen=True):
    """An object of Krake's: its identity and its content."""

    api: str
    kind: str
    name: str
    namespace: str
    labels: Any
    metadata: dict[str, Any]
    spec: dict[str, Any]
    current: str
    """The name of the cluster of an application."""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}".replace(" /", " ")


class KrakeConversion(Struct, frozen=True):
    """The result for an object, and notes for its owner, one line each."""

    source: KrakeObject
    objects: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str, str]:
        """Kind, namespace and name of the converted object."""
        converted = self.objects[-1]
        metadata = converted["metadata"]
        return converted["kind"], metadata.get("namespace", ""), metadata["name"]


class _Converter:
    """Converts one object, and collects notes for its owner."""

    def __init__(self, source: KrakeObject, *, drop_hooks: bool) -> None:
        self.source = source
        self.drop_hooks = drop_hooks
        self.spec = source.spec
        self.notes: list[str] = []
        self.before: list[dict[str, Any]] = []
        """Further objects that the converted one needs."""

    def note(self, text: str) -> None:
        self.notes.append(f"{self.source}: {text}")

    def note_left_out(self, *fields: str, why: str = "has no meaning here") -> None:
        """Note fields that are set and not converted."""
        for field in fields:
            if self.spec.get(field) not in (None, "", [], {}, False):
                self.note(f"spec.{field} {why}: left out")

    def legal_name(self, krake_name: object, at: str, make: Callable[[str], str]) -> str:
        """Return a legal form of a name. Raises RefusedError if it has none."""
        if not isinstance(krake_name, str) or not krake_name:
            raise RefusedError(f"{at} is missing")
        name = make(krake_name)
        if not name:
            raise RefusedError(
                f"{at}: {krake_name}: none of its characters is valid in a name: rename it first"
            )
        if name != krake_name:
            self.note(f"{at}: {krake_name} is {name} here")
        return name

    def metrics(self, metrics: object) -> list[Fields]:
        """Convert references to metrics."""
        references = []
        for index, item in enumerate(_list(metrics, "spec.metrics")):
            at = f"spec.metrics[{index}]"
            fields = _fields(item, at)
            references.append(
                {
                    "name": self.legal_name(fields.get("name"), at, metric_name),
                    "weight": fields.get("weight"),
                    "scope": "Namespaced" if fields.get("namespaced") else "Global",
                }
            )
        return references

    def constraints(self, of: str) -> Fields:
        """Constraints on targets of one kind."""
        at = f"spec.constraints.{of}"
        constraints = _fields(_fields(self.spec.get("constraints"), "spec.constraints").get(of), at)
        metrics = []
        for index, text in enumerate(_list(constraints.get("metrics"), f"{at}.metrics")):
            here = metric_constraint(str(text))
            if here != text:
                self.note(f"{at}.metrics[{index}]: '{text}' is '{here}' here")
            metrics.append(here)
        return without_empty(
            labels=_list(constraints.get("labels"), f"{at}.labels"),
            metrics=metrics,
            customResources=_list(constraints.get("custom_resources"), f"{at}.custom_resources"),
        )

    def backoff(self) -> Fields:
        """Return the back-off, empty if it is the default."""
        given = {}
        for field, old, least, instead in (
            ("delaySeconds", "backoff_delay", 0, 0),
            ("factor", "backoff", 1, 1),
            ("limit", "backoff_limit", -1, 0),
        ):
            given[field] = value = self.spec.get(old, _DEFAULT_BACKOFF[field])
            if isinstance(value, int | float) and value < least:
                self.note(f"spec.backoff.{field}: {value} is {instead} here")
                given[field] = instead
        return {} if given == _DEFAULT_BACKOFF else given


def source_of(value: Fields) -> KrakeObject:
    """The object that a document describes. Raises RefusedError if it is not one of Krake's."""
    api, kind = value.get("api"), value.get("kind")
    if not isinstance(api, str) or not isinstance(kind, str):
        raise RefusedError("is not an object of Krake, which has an api and a kind")
    metadata = _fields(value.get("metadata"), "metadata")
    status = _fields(value.get("status"), "status")
    cluster = status.get("running_on") or status.get("scheduled_to")
    return KrakeObject(
        api=api,
        kind=kind,
        name=str(metadata.get("name") or ""),
        namespace=str(metadata.get("namespace") or ""),
        labels=metadata.get("labels"),
        metadata=metadata,
        spec=_fields(value.get("spec"), "spec"),
        current=str(_fields(cluster, "status.running_on").get("name") or ""),
    )


def convert_object(
    source: KrakeObject, default_namespace: str, *, drop_hooks: bool = False
) -> KrakeConversion:
    """Convert an object. Raises RefusedError."""
    convert = _KINDS.get((source.api, source.kind))
    if convert is None:
        raise RefusedError(
            _REFUSED.get(source.kind, f"{source.api}/{source.kind} has no equivalent here")
        )
    converter = _Converter(source, drop_hooks=drop_hooks)
    long_metric = source.kind in {"Metric", "GlobalMetric"}
    name = converter.legal_name(
        source.name, "metadata.name", metric_name if long_metric else object_name
    )
    metadata: Fields = {"name": name}
    if not source.kind.startswith("Global"):
        namespace = source.namespace or default_namespace
        metadata["namespace"] = converter.legal_name(
            namespace, "metadata.namespace", namespace_name
        )
    if source.labels:
        metadata["labels"] = _labels(source.labels)
    spec = convert(converter, metadata)
    converted = {
        "apiVersion": API_VERSION,
        "kind": source.kind,
        "metadata": metadata,
        **({"spec": spec} if spec else {}),
    }
    if fault := fault_of(converted):
        raise RefusedError(fault)
    return KrakeConversion(source, (*converter.before, converted), tuple(converter.notes))


def _application(converter: _Converter, metadata: Fields) -> Fields:
    spec = converter.spec
    manifests = _list(spec.get("manifest"), "spec.manifest")
    if not manifests:
        given = [field for field in ("tosca", "csar") if spec.get(field)]
        told = f"it is given by {given[0]} only" if given else "it has no manifest"
        raise RefusedError(f"{told}: write what it consists of as spec.manifest")
    converter.note_left_out("tosca", "csar", why="is ignored, because there is a manifest")
    converter.note_left_out(
        "observer_schema", why="is not needed: every field of a manifest is enforced"
    )
    _check_hooks(converter)
    converter.note_left_out(
        "auto_cluster_create", why="is not supported: create a Cluster without a kubeconfig"
    )
    if spec.get("storage_migration") not in (None, "none"):
        converter.note_left_out("storage_migration", why="is not supported")
    _keep_cluster(converter, metadata)
    migration = _fields(spec.get("constraints"), "spec.constraints").get("migration")
    return without_empty(
        constraints=without_empty(
            migration=False if migration is False else None,
            cluster=converter.constraints("cluster"),
        ),
        backoff=converter.backoff(),
        manifests=manifests,
    )


def _check_hooks(converter: _Converter) -> None:
    """Raises RefusedError for hooks that were not given up."""
    hooks = ", ".join(map(str, _list(converter.spec.get("hooks"), "spec.hooks")))
    if hooks and not converter.drop_hooks:
        raise RefusedError(
            f"spec.hooks: {hooks} would not run here: have a preStop hook or a Job of the manifest "
            "do what they do, then convert it with --drop-hooks"
        )
    converter.note_left_out("hooks", why="do not run here (--drop-hooks)")


def _keep_cluster(converter: _Converter, metadata: Fields) -> None:
    """Have the application stay where it runs, once a person has confirmed it."""
    if converter.source.current:
        # It is of the same namespace, as here.
        name = object_name(converter.source.current)
        metadata["annotations"] = {CONFIRMED: "false", CURRENT_CLUSTER: name}
        todo = f"run harbourmaster placement confirm {metadata['name']} -n {metadata['namespace']}"
        converter.note(f"it stays on Cluster {name}, and nothing is done until you {todo}")


def _cluster(converter: _Converter, metadata: Fields) -> Fields:
    spec = converter.spec
    kubeconfig = spec.get("kubeconfig")
    reference = {}
    if kubeconfig:
        text = kubeconfig if isinstance(kubeconfig, str) else dump(kubeconfig)
        secret = kubeconfig_secret(metadata["name"], metadata["namespace"], text.encode())
        converter.before.append(secret)
        reference = {"name": secret["metadata"]["name"]}
        converter.note(f"its kubeconfig is in Secret {metadata['namespace']}/{reference['name']}")
        try:
            for note in check_kubeconfig(text.encode(), "the kubeconfig")[1]:
                converter.note(note)
        except ConnectionSettingsError as error:
            converter.note(f"the controller will refuse it: {error}")
    else:
        converter.note(
            "it has no kubeconfig: it is assigned a cloud, in which a provisioner must create it"
        )
    converter.note_left_out("tosca", why="is ignored: the provisioner of the cluster needs it")
    return without_empty(
        kubeconfigSecretRef=reference,
        customResources=_list(spec.get("custom_resources"), "spec.custom_resources"),
        metrics=converter.metrics(spec.get("metrics")),
        inheritMetrics=True if spec.get("inherit_metrics") else None,
        inheritLabels=True if converter.source.metadata.get("inherit_labels") else None,
        constraints=without_empty(cloud=converter.constraints("cloud")),
        backoff=converter.backoff(),
    )


def _cloud(converter: _Converter, _metadata: Fields) -> Fields:
    kind = converter.spec.get("type")
    own = _fields(converter.spec.get(str(kind)), f"spec.{kind}")
    if own.get("auth"):
        converter.note(
            f"spec.{kind}.auth: credentials are not converted: the provisioner of clusters "
            "needs them"
        )
    provisioner = _fields(own.get("infrastructure_provider"), "infrastructure_provider")
    return without_empty(
        metrics=converter.metrics(own.get("metrics")),
        provider=without_empty(
            type=kind, url=own.get("url"), infrastructureProvider=provisioner.get("name")
        ),
    )


def _project(converter: _Converter, _metadata: Fields) -> Fields:
    converter.note_left_out(
        "auth", why="holds credentials, which the provisioner of clusters needs"
    )
    converter.note_left_out("url", why="is for the provisioner of clusters")
    return without_empty(
        template=converter.spec.get("template"),
        metrics=converter.metrics(converter.spec.get("metrics")),
    )


def _magnum_cluster(converter: _Converter, _metadata: Fields) -> Fields:
    return without_empty(
        masterCount=converter.spec.get("master_count"),
        nodeCount=converter.spec.get("node_count"),
        metrics=converter.metrics(converter.spec.get("metrics")),
        constraints=without_empty(project=converter.constraints("project")),
    )


def _metric(converter: _Converter, _metadata: Fields) -> Fields:
    spec = converter.spec
    for bound in ("min", "max"):
        if spec.get(bound) is None:
            raise RefusedError(f"spec.{bound} is missing")
    provider = _fields(spec.get("provider"), "spec.provider")
    return {
        "min": spec["min"],
        "max": spec["max"],
        **without_empty(allowedValues=_list(spec.get("allowed_values"), "spec.allowed_values")),
        "provider": {
            "name": converter.legal_name(provider.get("name"), "spec.provider.name", object_name),
            "metric": provider.get("metric") or converter.source.name,
        },
    }


def _provider(converter: _Converter, _metadata: Fields) -> Fields:
    kind = converter.spec.get("type")
    if kind not in {"prometheus", "kafka", "static"}:
        raise RefusedError(f"spec.type: unknown provider type {kind}")
    own = _fields(converter.spec.get(kind), f"spec.{kind}")
    if kind == "static":
        return {"type": kind, kind: {"metrics": _fields(own.get("metrics"), "spec.static.metrics")}}
    fields = {
        "url": own.get("url"),
        "table": own.get("table"),
        "comparisonColumn": own.get("comparison_column"),
        "valueColumn": own.get("value_column"),
    }
    return {"type": kind, kind: without_empty(**fields)}


_KINDS: Final[dict[tuple[str, str], Callable[[_Converter, Fields], Fields]]] = {
    ("kubernetes", "Application"): _application,
    ("kubernetes", "Cluster"): _cluster,
    ("infrastructure", "Cloud"): _cloud,
    ("infrastructure", "GlobalCloud"): _cloud,
    ("openstack", "Project"): _project,
    ("openstack", "MagnumCluster"): _magnum_cluster,
    ("core", "Metric"): _metric,
    ("core", "GlobalMetric"): _metric,
    ("core", "MetricsProvider"): _provider,
    ("core", "GlobalMetricsProvider"): _provider,
}
_REFUSED: Final = {
    "InfrastructureProvider": "clusters are not created here: their provisioner needs it",
    "GlobalInfrastructureProvider": "clusters are not created here: their provisioner needs it",
    "Role": "write a Kubernetes Role for the new kinds",
    "RoleBinding": "write a Kubernetes RoleBinding for the new kinds",
}


def _labels(given: object) -> dict[str, str]:
    """The labels, unchanged, since constraints name their keys and values."""
    labels = _fields(given, "metadata.labels")
    for key, value in labels.items():
        wrong = qualified_name(str(key)) or (
            label_value(value) if isinstance(value, str) else ["a label value is text"]
        )
        if wrong:
            text = "change it there and in the constraints that name it"
            raise RefusedError(f"metadata.labels: {key}: {value}: {wrong[0]}: {text}")
    return labels


def _fields(value: object, at: str) -> Fields:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RefusedError(f"{at}: expected an object")
    return value


def _list(value: object, at: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise RefusedError(f"{at}: expected a list")
    return value
