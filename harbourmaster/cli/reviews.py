"""Manifests as admission sees them: the review of a creation, and what its answer changes."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.api.durations import format_duration
from harbourmaster.api.patches import Operation, apply
from harbourmaster.api.resources import CRON_JOBS, PODS
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.gates.owners import DEPLOYMENT, ROLLOUT
from harbourmaster.policies.model import is_policy_kind
from harbourmaster.serving.definitions import unknown_fields
from harbourmaster.webhook.cases import ReplayCase, engine_for
from harbourmaster.webhook.parents import DEFAULT_NAMESPACE, ParentObject
from harbourmaster.webhook.review import KIND, V1
from harbourmaster.webhook.snapshot import NamespaceObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TypeVar

    from harbourmaster.gates.waits import Waits
    from harbourmaster.webhook.engine import Engine
    from harbourmaster.webhook.settings import AdmissionSettings
    from harbourmaster.webhook.verdict import Verdict

    Json = dict[str, Any]
    Kind = TypeVar("Kind")

NAMESPACE: Final = ("", "v1", "Namespace")

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(tuple[Operation, ...]).decode


def object_in(manifest: Json, name: str) -> Json:
    """A field that holds an object; an empty one where it holds anything else."""
    value = manifest.get(name)
    return value if isinstance(value, dict) else {}


def name_of(manifest: Json) -> str | None:
    """Return the name of a manifest, or None."""
    name = object_in(manifest, "metadata").get("name")
    return name if isinstance(name, str) else None


def pod_in(manifest: Json, kind: str) -> Json:
    """The pod itself, or the template of a workload of that kind; empty for others."""
    if kind == CRON_JOBS.kind:
        manifest = object_in(object_in(manifest, "spec"), "jobTemplate")
    return manifest if kind == PODS.kind else object_in(object_in(manifest, "spec"), "template")


def namespace_of(manifest: Json) -> str:
    """The namespace that kubectl creates it in, where no other one is asked for."""
    return str(object_in(manifest, "metadata").get("namespace") or DEFAULT_NAMESPACE)


def subject_of(manifest: Json) -> str:
    """``Kind namespace/name``, as far as the object says it."""
    metadata = object_in(manifest, "metadata")
    name = name_of(manifest) or f"{metadata.get('generateName') or ''}..."
    key = "/".join(map(str, filter(None, (metadata.get("namespace"), name))))
    return f"{manifest.get('kind')} {key}"


def kind_of(manifest: Json) -> tuple[str, str, str]:
    """Group, version and name of its kind."""
    group, _, version = str(manifest.get("apiVersion") or "").rpartition("/")
    return group, version, str(manifest.get("kind") or "")


def reviewable(manifest: Json) -> Json:
    """The object itself; for a Rollout a Deployment, whose pods are changed in the same way."""
    deployment = {**manifest, "apiVersion": "apps/v1", "kind": DEPLOYMENT}
    return deployment if manifest.get("kind") == ROLLOUT else manifest


def creation_of(
    manifest: Json | msgspec.Raw,
    kind: tuple[str, str, str],
    namespace: str,
    name: str | None = None,
) -> bytes:
    """The review of the creation of an object of that kind."""
    request = {
        "uid": "harbourmaster",
        "kind": dict(zip(("group", "version", "kind"), kind, strict=True)),
        "namespace": namespace,
        "name": name,
        "operation": "CREATE",
        "object": manifest,
    }
    return _encode({"apiVersion": V1, "kind": KIND, "request": request})


def operations_of(verdict: Verdict) -> tuple[Operation, ...]:
    """All that the answer does to the object."""
    patch = verdict.response.patch
    return _decode(patch) if patch else ()


def apply_patch(manifest: Json, verdict: Verdict) -> Json:
    """The object as it is stored; the one that is given stays as it is."""
    operations = operations_of(verdict)
    if not operations:
        return manifest
    after = copy.deepcopy(manifest)
    apply(after, operations)
    return after


def refusals(verdict: Verdict, manifest: Json) -> list[str]:
    """Why the object is refused: a text for each field where fields are to blame; none if not.

    An API server that validates strictly refuses unknown fields of our kinds, too.
    """
    unknown = [f"{path}: unknown field" for path in unknown_fields(manifest)]
    if verdict.response.allowed:
        return unknown
    status = msgspec.json.decode(verdict.response.encoded)["status"]
    causes = status.get("details", {}).get("causes", ())
    texts = [f"{cause['field']}: {cause['message']}" for cause in causes]
    # Whether a gate could be added matters only in a cluster.
    text = (status.get("message") or status.get("reason", "")).partition("; not even a gate")[0]
    return (texts or [text]) + unknown


def warnings(verdict: Verdict) -> list[str]:
    """Return the warnings of an answer, without our name before them."""
    notes = [note.text for note in verdict.warnings]
    return notes or [
        warning.removeprefix("harbourmaster: ") for warning in verdict.response.warnings
    ]


def engine_of(manifests: list[Json], settings: AdmissionSettings, *, has_gates: bool) -> Engine:
    """An engine of the policies, namespaces and owners among the objects.

    Other namespaces exist as well; ``has_gates``: with gates.
    """
    annotations = {OPT_IN_KEY: OPT_IN} if has_gates else {}
    names = dict.fromkeys(map(namespace_of, manifests))
    namespaces: list[Json] = [
        {"metadata": {"name": name, "annotations": annotations}} for name in names
    ]
    namespaces += [manifest for manifest in manifests if kind_of(manifest) == NAMESPACE]
    case = ReplayCase(
        msgspec.Raw(),
        namespaces=list(_readable(namespaces, NamespaceObject)),
        policies=[manifest for manifest in manifests if is_policy_kind(*kind_of(manifest))],
        parents=list(_readable(manifests, ParentObject)),
    )
    return engine_for(case, settings)


def _readable(manifests: Iterable[Json], kind: type[Kind]) -> Iterator[Kind]:
    for manifest in manifests:
        with suppress(msgspec.ValidationError):
            yield msgspec.convert(manifest, kind)


def describe_waits(waits: Waits, engine: Engine, namespace: str) -> str:
    """For what admission lets pods wait and how long; empty where it does not."""
    space = engine.snapshot.namespace(namespace)
    items = ", ".join(item.text for item in waits.items)
    limit = f", {format_duration(waits.timeout)} at most, then {waits.on_timeout}"
    is_allowed = space is None or engine.waits_for_objects(namespace, space)
    return f"will wait for {items}{limit if waits.timeout else ''}" if is_allowed else ""
