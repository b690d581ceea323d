"""Validation of placement objects (krake-spec 1, 2, 7.2): pure.

Much of it the schema says too; here it holds without an API server as well. Constraints are read
by the very functions that read them for a decision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from harbourmaster.api.field_errors import (
    FieldError,
    check_name,
    forbidden,
    invalid,
    required,
    unsupported,
)
from harbourmaster.api.names import dns_label
from harbourmaster.api.urls import http_url
from harbourmaster.placement.cluster_queries import parse_query
from harbourmaster.placement.constraints import PARSERS
from harbourmaster.placement.data_holders import read_manifest
from harbourmaster.placement.inventory import ObjectName
from harbourmaster.placement.lexer import LONGEST_NAME, ConstraintError
from harbourmaster.placement.manifests import DEEPEST, is_too_deep
from harbourmaster.placement.model import (
    Application,
    ApplicationSpec,
    Cloud,
    Cluster,
    MagnumCluster,
    Metric,
    Project,
)
from harbourmaster.placement.provider_validation import SubmittedProvider, provider_faults
from harbourmaster.placement.readiness import ReadinessTest  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harbourmaster.placement.constraints import Language
    from harbourmaster.placement.model import (
        ApplicationChecks,
        MetricReference,
        RetryPolicy,
        TargetConstraints,
    )

GLOBAL: Final = "Global"
_LABELS: Final = "labels"
_METRICS: Final = "metrics"
_CUSTOM_RESOURCES: Final = "customResources"
_MAX_MANIFESTS: Final = 512
_MAX_CONSTRAINTS: Final = 32
_MAX_METRICS: Final = 16
_MAX_TAKEN_OVER: Final = 2 * _MAX_METRICS
"""A Magnum cluster has those of its project as well."""
_MAX_ITEMS: Final = 256
_MAX_TESTS: Final = 32
_MAX_CHECKS: Final = 32


class SubmittedApplicationSpec(ApplicationSpec, frozen=True, kw_only=True):
    """The spec of an Application with its manifests, as its user wrote them."""

    readiness: tuple[ReadinessTest, ...] = ()

    def __post_init__(self) -> None:
        """Keep the manifests, which are checked."""


class SubmittedApplication(Application, frozen=True, kw_only=True):
    """An Application as its user wrote it."""

    spec: SubmittedApplicationSpec = SubmittedApplicationSpec()


class KindCheck(Struct, frozen=True):
    """The model and the validation of a kind."""

    model: type[Struct]
    faults: Callable[[Any], list[FieldError]]


def _application(application: SubmittedApplication) -> Iterator[FieldError]:
    spec = application.spec
    yield from _manifests(spec.manifests)
    yield from _readiness(spec)
    if spec.constraints is not None:
        at = "spec.constraints.cluster"
        yield from _constraints(at, spec.constraints.cluster, PARSED)
    if spec.checks is not None:
        yield from _checks(spec.checks)
    yield from _backoff(spec.backoff)


def _cluster(cluster: Cluster) -> Iterator[FieldError]:
    spec = cluster.spec
    secret = spec.kubeconfig_secret_ref
    if secret is not None:
        at = "spec.kubeconfigSecretRef"
        if not secret.name:
            yield required(f"{at}.name", "name a Secret of the same namespace")
        yield from check_name(f"{at}.name", secret.name)
        if not secret.key:
            yield required(f"{at}.key", "name a key of the Secret")
    url = http_url(spec.server)
    if spec.server and (url is None or url.scheme != "https" or set(spec.server) & set("?#@")):
        # Without the value, which may contain a password.
        yield FieldError("spec.server", "Invalid value", None, "must be like https://host:6443")
    yield from _custom_resources("spec.customResources", spec.custom_resources or ())
    yield from _metrics(spec.metrics)
    if spec.cloud_ref is not None:
        yield from _cloud_reference(spec.cloud_ref.kind, spec.cloud_ref.name)
    if spec.constraints is not None:
        at = "spec.constraints.cloud"
        yield from _constraints(at, spec.constraints.cloud, (_LABELS, _METRICS))
    yield from _backoff(spec.backoff)


def _backend(backend: Cloud | Project) -> Iterator[FieldError]:
    yield from _metrics(backend.spec.metrics)


def _global_cloud(cloud: Cloud) -> Iterator[FieldError]:
    yield from _metrics(cloud.spec.metrics)
    for index, reference in enumerate(cloud.spec.metrics or ()):
        if reference.scope != GLOBAL:
            text = "a global object can use global metrics only: a Metric belongs to a namespace"
            yield forbidden(f"spec.metrics[{index}].scope", text)


def _magnum_cluster(magnum_cluster: MagnumCluster) -> Iterator[FieldError]:
    yield from _metrics(magnum_cluster.spec.metrics, _MAX_TAKEN_OVER)
    if magnum_cluster.spec.constraints is not None:
        at = "spec.constraints.project"
        yield from _constraints(at, magnum_cluster.spec.constraints.project, (_LABELS,))


def _metric(metric: Metric) -> Iterator[FieldError]:
    spec = metric.spec
    name = metric.metadata.name
    if len(name) > LONGEST_NAME:
        text = f"is used in constraints, where names have at most {LONGEST_NAME} characters"
        yield invalid("metadata.name", name, text)
    faults = [
        invalid(f"spec.{field}", value, "must be a finite number")
        for field, value in (("max", spec.max), ("min", spec.min))
        if not math.isfinite(value)
    ]
    if not faults and spec.max <= spec.min:
        faults = [invalid("spec.max", spec.max, f"must be above min, {spec.min:g}")]
    yield from faults
    for index, value in enumerate(spec.allowed_values or ()):
        if not faults and not spec.min <= value <= spec.max:
            text = f"must lie between min, {spec.min:g}, and max, {spec.max:g}"
            yield invalid(f"spec.allowedValues[{index}]", value, text)
    at = "spec.provider"
    if not spec.provider.name:
        yield required(f"{at}.name", "name the provider that is asked")
    yield from check_name(f"{at}.name", spec.provider.name, same_namespace=False)
    if not spec.provider.metric.strip():
        yield required(f"{at}.metric", "say what the provider calls the metric")
    try:
        parse_query(spec.provider.metric)
    except ValueError as error:
        yield FieldError(f"{at}.metric", "Invalid value", None, str(error))


def _provider(provider: SubmittedProvider) -> Iterator[FieldError]:
    yield from provider_faults(provider.spec)


def _manifests(manifests: tuple[Any, ...]) -> Iterator[FieldError]:
    at = "spec.manifests"
    if not manifests:
        yield required(at, "must have at least one object")
    yield from _too_many(at, manifests, _MAX_MANIFESTS)
    places: dict[tuple[str, ...], int] = {}
    for index, manifest in enumerate(manifests[:_MAX_MANIFESTS]):
        here = f"{at}[{index}]"
        faults = list(_manifest(here, manifest))
        yield from faults
        if faults:
            continue
        group = manifest["apiVersion"].rpartition("/")[0]
        metadata = manifest["metadata"]
        key = (group, manifest["kind"], metadata.get("namespace") or "", metadata["name"])
        first = places.setdefault(key, index)
        if first != index:
            text = f"repeats {at}[{first}]"
            yield invalid(here, f"{manifest['kind']} {metadata['name']}", text)


def _manifest(at: str, manifest: object) -> Iterator[FieldError]:
    """Yield the faults of a manifest on any cluster; only a cluster knows kinds and values."""
    if not isinstance(manifest, dict):
        yield invalid(at, str(manifest)[:LONGEST_NAME], "is not an object")
        return
    for field in ("apiVersion", "kind"):
        yield from _text(f"{at}.{field}", manifest.get(field), "required for every object")
    metadata = manifest.get("metadata")
    at = f"{at}.metadata"
    if not isinstance(metadata, dict):
        yield required(f"{at}.name", "each object has a name of its own")
        return
    yield from _text(f"{at}.name", metadata.get("name"), "each object has a name of its own")
    namespace = metadata.get("namespace") or ""
    if not isinstance(namespace, str):
        yield invalid(f"{at}.namespace", str(namespace)[:LONGEST_NAME], "is not a string")
    elif namespace and (wrong := dns_label(namespace)):
        yield invalid(f"{at}.namespace", namespace, wrong[0])
    if is_too_deep(manifest):
        text = f"is nested more than {DEEPEST} levels deep"
        yield invalid(at.removesuffix(".metadata"), str(manifest.get("kind")), text)


def _readiness(spec: SubmittedApplicationSpec) -> Iterator[FieldError]:
    at = "spec.readiness"
    yield from _too_many(at, spec.readiness, _MAX_TESTS)
    facts = map(read_manifest, spec.manifests[: _MAX_MANIFESTS if spec.readiness else 0])
    names = [ObjectName(api_version=fact.api_version, kind=fact.kind, name=fact.name)
             for fact in facts]  # fmt: skip
    for index, test in enumerate(spec.readiness[:_MAX_TESTS]):
        here = f"{at}[{index}]"
        if bool(test.condition) == bool(test.field):
            yield invalid(here, test.kind, "set either condition or field")
        elif test.field and not test.values:
            yield required(f"{here}.values", "name at least one value")
        if not any(map(test.covers, names)):
            yield invalid(f"{here}.kind", test.kind, "no manifest has this kind, group and name")


def _checks(checks: ApplicationChecks) -> Iterator[FieldError]:
    at = "spec.checks"
    pre, post = checks.pre_deployment, checks.post_deployment
    lists = {
        "preDeployment.tasks": pre.tasks,
        "preDeployment.evaluations": pre.evaluations,
        "postDeployment.tasks": post.tasks,
        "postDeployment.evaluations": post.evaluations,
    }
    if not any(lists.values()):
        yield required(at, "name a task or an evaluation, or remove spec.checks")
    for field, names in lists.items():
        here = f"{at}.{field}"
        yield from _too_many(here, names, _MAX_CHECKS)
        for index, name in enumerate(names[:_MAX_CHECKS]):
            if not name:
                yield required(f"{here}[{index}]", "name a definition of the same namespace")
            elif name in names[:index]:
                yield invalid(f"{here}[{index}]", name, "is given twice")
            yield from check_name(f"{here}[{index}]", name)
    if not checks.when:
        yield required(f"{at}.when", "name at least one of Deploy, Update and Move")


def _text(field: str, value: object, text: str) -> Iterator[FieldError]:
    if value is None or value == "":
        yield required(field, text)
    elif not isinstance(value, str):
        yield invalid(field, str(value)[:LONGEST_NAME], "is not a string")


def _constraints(
    at: str, constraints: TargetConstraints | None, known: Iterable[str]
) -> Iterator[FieldError]:
    if constraints is None:
        return
    given = {
        _LABELS: constraints.labels,
        _METRICS: constraints.metrics,
        _CUSTOM_RESOURCES: constraints.custom_resources,
    }
    for name, texts in given.items():
        if name in known:
            yield from _expressions(f"{at}.{name}", PARSED[name], texts or ())
        elif texts:
            yield forbidden(f"{at}.{name}", "not supported for this kind of target")


def _expressions(at: str, language: Language, texts: tuple[str, ...]) -> Iterator[FieldError]:
    yield from _too_many(at, texts, _MAX_CONSTRAINTS)
    for index, text in enumerate(texts[:_MAX_CONSTRAINTS]):
        try:
            PARSERS[language](text)
        except ConstraintError as error:
            pointer = error.with_caret.partition("\n")[2]
            yield FieldError(f"{at}[{index}]", "Invalid value", None, str(error), pointer=pointer)


def _custom_resources(at: str, names: tuple[str, ...]) -> Iterator[FieldError]:
    yield from _too_many(at, names, _MAX_ITEMS)
    for index, name in enumerate(names[:_MAX_ITEMS]):
        try:
            PARSERS["customResource"](name)
        except ConstraintError as error:
            yield invalid(f"{at}[{index}]", name[:LONGEST_NAME], error.message)


def _metrics(
    references: tuple[MetricReference, ...] | None, most: int = _MAX_METRICS
) -> Iterator[FieldError]:
    at = "spec.metrics"
    references = references or ()
    yield from _too_many(at, references, most)
    seen = set()
    for index, reference in enumerate(references[:most]):
        here = f"{at}[{index}]"
        if not reference.name:
            yield required(f"{here}.name", "name a Metric or a GlobalMetric")
        elif len(reference.name) > LONGEST_NAME:
            text = f"a metric's name has at most {LONGEST_NAME} characters"
            yield invalid(f"{here}.name", reference.name, text)
        else:
            yield from check_name(f"{here}.name", reference.name, same_namespace=False)
        if not (math.isfinite(reference.weight) and reference.weight >= 0):
            yield invalid(f"{here}.weight", reference.weight, "must be a number, 0 or above")
        if (reference.name, reference.scope) in seen:
            yield invalid(here, reference.name, "is given twice with this scope")
        seen.add((reference.name, reference.scope))
    if references and not any(reference.weight > 0 for reference in references):
        yield invalid(at, "0", "at least one weight must be above 0")


def _cloud_reference(kind: str, name: str) -> Iterator[FieldError]:
    at = "spec.cloudRef"
    kinds = ("Cloud", "GlobalCloud")
    if kind not in kinds:
        yield unsupported(f"{at}.kind", kind, kinds)
    if not name:
        yield required(f"{at}.name", "name the cloud")
    yield from check_name(f"{at}.name", name, same_namespace=False)


def _backoff(backoff: RetryPolicy) -> Iterator[FieldError]:
    at = "spec.backoff"
    for field, value, least in (
        ("delaySeconds", backoff.delay_seconds, 0),
        ("factor", backoff.factor, 1),
        ("limit", backoff.limit, -1),
    ):
        if not (math.isfinite(value) and value >= least):
            yield invalid(f"{at}.{field}", value, f"must be {least} or above")


def _too_many(at: str, items: tuple[object, ...], most: int) -> Iterator[FieldError]:
    if len(items) > most:
        yield invalid(at, len(items), f"must have at most {most} values")


PARSED: Final[dict[str, Language]] = {
    _LABELS: "label",
    _METRICS: "metric",
    _CUSTOM_RESOURCES: "customResource",
}
"""The language of each list of constraints."""


def _check(model: type[Struct], faults: Callable[[Any], Iterator[FieldError]]) -> KindCheck:
    return KindCheck(model, lambda obj: list(faults(obj)))


CHECKS: Final[dict[str, KindCheck]] = {
    "Application": _check(SubmittedApplication, _application),
    "Cluster": _check(Cluster, _cluster),
    "Cloud": _check(Cloud, _backend),
    "GlobalCloud": _check(Cloud, _global_cloud),
    "Project": _check(Project, _backend),
    "MagnumCluster": _check(MagnumCluster, _magnum_cluster),
    "Metric": _check(Metric, _metric),
    "GlobalMetric": _check(Metric, _metric),
    "MetricsProvider": _check(SubmittedProvider, _provider),
    "GlobalMetricsProvider": _check(SubmittedProvider, _provider),
}
"""The checks by kind; the faults of an object come in the order of its fields."""
