"""Compares the server's answers for one object under two sets of policies, and has the report.

``-o json`` prints the fields of the report in camel case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.decoding import decode
from harbourmaster.cli.offline import apply_patch, creation_of, name_of
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.review import MAX_WARNING, cut

if TYPE_CHECKING:
    from msgspec import Raw

    from harbourmaster.policies.pods import Kind
    from harbourmaster.webhook.engine import Engine

    Json = dict[str, Any]


class Change(Struct, frozen=True, rename="camel"):
    """A field of the pod spec, by today's policies and by those of the preview; None is absent."""

    field: str
    now: Any
    then: Any


class Fit(Struct, frozen=True, rename="camel"):
    """Counts of pods by whether they would fit one of today's nodes if they alone were recreated.

    ``lost`` fit now and would not any more, ``already`` do not fit now either, ``gained`` would fit
    but do not now, and ``unjudged`` cannot be judged. ``reasons`` count nodes.
    """

    pods: int = 0
    lost: int = 0
    already: int = 0
    gained: int = 0
    unjudged: int = 0
    reasons: dict[str, int] = {}


class ChangedWorkload(Struct, frozen=True, rename="camel"):
    """A workload whose pods would get something else; ``path`` is where its pod spec stands."""

    kind: str
    namespace: str
    name: str
    path: str
    pods: int
    changes: tuple[Change, ...]
    warnings: tuple[str, ...] = ()
    """That the policies of the preview give, and today's don't."""
    fit: Fit | None = None
    """None where no nodes are known."""

    @property
    def title(self) -> str:
        """Kind, namespace and name."""
        return f"{self.kind} {self.namespace}/{self.name}"


class PreviewedPolicies(Struct, frozen=True, rename="camel"):
    """References of the previewed policies."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: int = 0


class Totals(Struct, frozen=True, rename="camel"):
    """Counts; ``workloads`` and ``nodes`` of all that were looked at, the rest of what changes."""

    workloads: int = 0
    nodes: int = 0
    changed: int = 0
    pods: int = 0
    unschedulable: int = 0
    already_unschedulable: int = 0
    unjudged: int = 0


class PreviewReport(Struct, frozen=True, rename="camel"):
    """A preview; ``namespaces`` count the workloads that change."""

    policies: PreviewedPolicies
    totals: Totals
    namespaces: dict[str, int]
    workloads: tuple[ChangedWorkload, ...]
    notes: tuple[str, ...] = ()
    """Objects that could not be read, and what limits this preview."""


OWNED: Final = ("nodeSelector", "affinity", "tolerations", "nodeName", "schedulerName")
"""The fields of a pod spec that policies may set."""
_objects: Final = msgspec.json.Decoder(dict[str, Any])


class Difference(Struct, frozen=True):
    """The changes of an object, and its pod under either set of policies."""

    changes: tuple[Change, ...]
    warnings: tuple[str, ...]
    now: dict[str, Any]
    then: dict[str, Any]


def compare_reviews(
    kind: Kind, namespace: str, raw: Raw, now: Engine, then: Engine
) -> Difference | None:
    """Compare the reviews of a new object; None if they are equal.

    Raises MalformedError if ``raw`` is not an object.
    """
    pod = None if kind.is_template else _without_node(decode(_objects, raw, ""))
    body = creation_of(
        raw if pod is None else pod, (kind.group, kind.version, kind.name), namespace
    )
    before, after = (answer(body, engine)[1].verdict for engine in (now, then))
    if before.response is after.response or before.response == after.response:
        return None
    obj = decode(_objects, raw, "") if pod is None else pod
    pods = [pod_of(apply_patch(obj, verdict), kind, namespace) for verdict in (before, after)]
    old, new = (pod.get("spec") or {} for pod in pods)
    changes = tuple(
        Change(field, old.get(field), new.get(field))
        for field in OWNED
        if after.response.allowed and old.get(field) != new.get(field)
    )
    warnings = [
        warning for warning in after.response.warnings if warning not in before.response.warnings
    ]
    if not after.response.allowed:
        warnings.append(f"denied: {after.response.reason}")
    if not changes and not warnings:
        return None
    return Difference(changes, tuple(cut(warning, MAX_WARNING) for warning in warnings), *pods)


def _without_node(pod: Json) -> Json:
    """Return the pod as before its scheduling, which is also what a recreated pod is."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return pod
    spec = {name: field for name, field in spec.items() if name != "nodeName"}
    return {**pod, "spec": spec, "status": {}}


def pod_of(obj: Json, kind: Kind, namespace: str) -> Json:
    """Return the pod of an object or of its template."""
    holder = obj
    for name in kind.pointer.split("/")[1:-1]:
        holder = holder.get(name) or {}
    given = obj.get("metadata") or {}
    metadata = {**(holder.get("metadata") or {}), "name": given.get("name"), "namespace": namespace}
    # It is a new pod.
    metadata.pop("uid", None)
    spec = _with_claims(holder.get("spec"), obj)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _with_claims(spec: Any, workload: Json) -> Any:  # noqa: ANN401
    """The spec with the volumes that only the pods of a StatefulSet have, not its template."""
    outer = workload.get("spec")
    claims = outer.get("volumeClaimTemplates") if isinstance(outer, dict) else None
    if not isinstance(spec, dict) or not isinstance(claims, list) or not claims:
        return spec
    volumes = spec.get("volumes")
    given = volumes if isinstance(volumes, list) else []
    names = [name_of(claim) or "claim" for claim in claims if isinstance(claim, dict)]
    made = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    return {**spec, "volumes": [*given, *made]}
