"""Explains the decision of admission about one object: runs the server's engine and observes it.

It decides by what admission knows, as far as it matters to one object: policies, the namespace,
owners and the settings; what can't be read is a line of ``problems``.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.decoding import MalformedError
from harbourmaster.api.resources import CLUSTER_POLICIES, NAMESPACES, POLICIES, RUNTIME_CLASSES
from harbourmaster.cli.installed import WEBHOOK
from harbourmaster.cli.live.kinds import metadata_in, written_at
from harbourmaster.cli.live.reader import read_error
from harbourmaster.cli.offline import creation_of, kind_of, name_of, object_in
from harbourmaster.kube.errors import ApiError, NotFoundError
from harbourmaster.kube.server_version import parse_version
from harbourmaster.policies.compiled import compile_policy, undecodable_policy
from harbourmaster.policies.explain import ExplainedPolicy, Explanation, explain
from harbourmaster.policies.index import policy_set
from harbourmaster.policies.pods import KINDS, MIRROR_ANNOTATION
from harbourmaster.webhook.cases import DEFAULTS
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.parents import ParentObject, parents_of
from harbourmaster.webhook.policy_objects import convert_policy, decode_policy
from harbourmaster.webhook.review import (
    KIND,
    GroupVersionKind,
    Request,
    RequestHead,
    decode_review,
)
from harbourmaster.webhook.reviewed_object import read_object, view_of
from harbourmaster.webhook.settings import AdmissionSettings, WebhookSettings, gating_of
from harbourmaster.webhook.snapshot import (
    NAME_LABEL,
    Namespace,
    NamespaceObject,
    Snapshot,
    decode_class,
)
from harbourmaster.webhook.sources import read_policy
from harbourmaster.webhook.verdict import MALFORMED, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.cli.why.model import Subject
    from harbourmaster.policies.compiled import CompiledPolicy
    from harbourmaster.policies.pods import PodView
    from harbourmaster.webhook.gate_cache import CachedGating

ROLLOUT: Final = "Rollout"
_decode_namespace: Final = msgspec.json.Decoder(NamespaceObject).decode
_decode_parent: Final = msgspec.json.Decoder(ParentObject).decode


class DatedPolicy(ExplainedPolicy, frozen=True):
    """A policy, and when it was created where that is known."""

    created: str = ""
    generation: int = 0
    changed: str = ""
    """The time of the last write to its spec."""


class AdmissionInputs(Struct, frozen=True):
    """Everything that decides about a review, and what of it could not be read."""

    snapshot: Snapshot = Snapshot()
    settings: AdmissionSettings = DEFAULTS
    policies: tuple[DatedPolicy, ...] = ()
    problems: tuple[str, ...] = ()
    doubt: str = ""
    """Why the settings may be others."""


async def inputs_of(
    live: Installation, namespace: str, reviewed: Sequence[Subject] = ()
) -> AdmissionInputs:
    """Read what a cluster has for one object and its owners, or for any object; only once."""
    key = ("admission", namespace, tuple(obj.reference for obj in reviewed))
    return await live.once(key, partial(_inputs_of, live, namespace, reviewed))


async def _inputs_of(
    live: Installation, namespace: str, reviewed: Sequence[Subject]
) -> AdmissionInputs:
    (policies, unread), (known, problem), (settings, doubt), classes = await asyncio.gather(
        policies_for(live, namespace),
        _namespace(live, namespace),
        _settings(live),
        _classes(live, reviewed),
    )
    snapshot = Snapshot(
        namespaces={namespace: known} if known is not None else {},
        excluded=frozenset((live.namespace,)),
        parents=parents_of([_decode_parent(obj.raw) for obj in reviewed]),
        class_labels=dict(classes),
    )
    problems = tuple(filter(None, (*unread, problem)))
    return AdmissionInputs(snapshot, settings, policies, problems, doubt)


async def policies_for(
    live: Installation, namespace: str
) -> tuple[tuple[DatedPolicy, ...], list[str]]:
    """Return the policies that may select objects of a namespace, and why some are unknown."""
    policies: list[DatedPolicy] = []
    unread = []
    for resource, place in ((CLUSTER_POLICIES, None), (POLICIES, namespace)):
        try:
            policies += await live.list_all(resource, _policy_in, place)
        except ApiError as error:
            what = f"policies of {place}" if place else "cluster policies"
            unread.append(read_error(error, what))
    return tuple(policies), unread


def _policy_in(raw: msgspec.Raw) -> DatedPolicy:
    """A policy as the API server gave it; one that cannot be decoded has its fault."""
    metadata = metadata_in(raw)
    source = None
    try:
        source = decode_policy(raw)
        compiled = compile_policy(source)
    except MalformedError as error:
        kind = POLICIES.kind if metadata.namespace else CLUSTER_POLICIES.kind
        reference = f"{kind} {'/'.join(filter(None, (metadata.namespace, metadata.name)))}"
        compiled = undecodable_policy(reference, metadata.namespace or None, str(error))
    *_, changed = ("", *written_at(raw, "f:spec"))
    return DatedPolicy(compiled, source, metadata.creation_timestamp, metadata.generation, changed)


async def _namespace(live: Installation, name: str) -> tuple[Namespace | None, str]:
    try:
        return _decode_namespace(await live.get(NAMESPACES, name)).to_namespace(), ""
    except NotFoundError:
        return None, f"namespace {name} not found"
    except ApiError as error:
        assumed = "assuming that its only label is its name, and that it has no gates"
        return Namespace({NAME_LABEL: name}), f"{read_error(error, f'namespace {name}')}; {assumed}"


async def _classes(
    live: Installation, reviewed: Sequence[Subject]
) -> list[tuple[str, dict[str, str]]]:
    if reviewed and not any(b"runtimeClassName" in obj.raw for obj in reviewed):
        return []
    return await live.attempt(live.list_all(RUNTIME_CLASSES, decode_class), [])


async def _settings(live: Installation) -> tuple[AdmissionSettings, str]:
    settings: AdmissionSettings
    settings, doubt = await live.assumed_settings(WEBHOOK, WebhookSettings)
    if settings.gating == "auto":
        try:
            gating = gating_of(parse_version(live.client.greeting))
        except ValueError:
            return settings, doubt
        settings = msgspec.structs.replace(settings, gating=gating)
    return settings, doubt


class ExplainedReview(Struct, frozen=True):
    """A decision about a review, and what led to it."""

    request: RequestHead
    verdict: Verdict
    explanation: Explanation | None
    """None where no policy was looked at."""
    waits: str
    """The place where a pod has to wait for its checks: ``gate``, ``scheduler`` or ""."""
    left_alone: str
    """Why no policy was looked at."""
    is_off: bool = False
    """Whether the settings have the server look at none."""


class _ObservedEngine(Engine):
    """Decides as any engine does, and remembers what it was asked."""

    def __init__(self, snapshot: Snapshot, settings: AdmissionSettings, hashed: str = "") -> None:
        super().__init__(snapshot, settings, hashed)
        self.place: tuple[str, dict[str, str]] | None = None
        self.options = settings.merge_options(node_name_as_field=False)
        self.waits = ""

    def match(self, name: str, namespace: Namespace, pod: PodView) -> tuple[CompiledPolicy, ...]:
        self.place = name, namespace.labels
        return super().match(name, namespace, pod)

    def merge(self, *given: Any, **options: Any) -> Verdict:  # noqa: ANN401 - as the base class
        self.options = self._options[options["node_name_as_field"], options["waits"]]
        return super().merge(*given, **options)

    def combine(self, decided: CachedGating, merged: Verdict | None) -> Verdict:
        self.waits = decided.gating.waits
        return super().combine(decided, merged)


def explain_review(
    body: bytes, inputs: AdmissionInputs, *, may_patch: bool = True, hashed: str = ""
) -> ExplainedReview:
    """Answer the review in ``body`` and explain the answer."""
    is_off = "policies" not in inputs.settings.features
    candidates = () if is_off else inputs.policies
    snapshot = msgspec.structs.replace(
        inputs.snapshot, policies=policy_set(candidate.compiled for candidate in candidates)
    )
    engine = _ObservedEngine(snapshot, inputs.settings, hashed)
    _, decision = answer(body, engine, may_patch=may_patch)
    explanation = None
    if engine.place is not None:
        full_request = decode_review(body).request or Request()
        kind = KINDS[key_of(full_request)]
        pod = view_of(kind, read_object(full_request.object), full_request.username)
        assert pod is not None, "the engine was asked about it"  # noqa: S101 - a defect of ours
        explanation = explain(
            snapshot.with_class(pod),
            kind.pointer,
            *engine.place,
            candidates,
            engine.options,
            whose="the template" if kind.is_template else "the pod",
        )
    request, verdict = decision.request, decision.verdict
    left_alone = "" if explanation else _why_left_alone(body, request, verdict, snapshot)
    return ExplainedReview(request, verdict, explanation, engine.waits, left_alone, is_off)


def key_of(request: RequestHead) -> tuple[str, str, str]:
    """Group, version and name of the kind that a review is about."""
    kind = request.kind or GroupVersionKind()
    return kind.group, kind.version, kind.kind


def _why_left_alone(body: bytes, request: RequestHead, verdict: Verdict, snapshot: Snapshot) -> str:
    """Why no policy was looked at, in words; what decided it is read from the same fields."""
    if verdict.warnings:
        return verdict.warnings[0].text
    if verdict.outcome == MALFORMED:
        return f"the server does not understand it as {KIND}"
    kind = KINDS.get(key_of(request))
    if kind is None or verdict.response.reason:
        return verdict.response.reason or f"objects of kind {request.kind} are not handled"
    if request.namespace in snapshot.excluded:
        return f"nothing is ever changed in the namespace {request.namespace}, which is our own"
    if request.sub_resource:
        return f"a review of {request.sub_resource} changes nothing"
    if kind.create_only and request.operation not in {"CREATE", "", None}:
        return f"the pod spec of a {kind.name} can't be changed after its creation"
    reviewed = read_object((decode_review(body).request or Request()).object)
    pod = kind.view(reviewed)
    if pod is None:
        return f"the {kind.name} has no template of pods"
    if pod.is_left_alone:
        if reviewed.metadata is not None and reviewed.metadata.deletion_timestamp is not None:
            return "it is being deleted"
        return f"it is a mirror pod ({MIRROR_ANNOTATION}), which its kubelet owns"
    return "a validating webhook changes nothing"


class ReviewedObject(Struct, frozen=True):
    """The manifest that is reviewed in place of an object."""

    manifest: dict[str, Any]
    whose: str
    """The words for it in lines: "the pod", "the template"."""
    remarks: tuple[str, ...] = ()


def reviewed_object(manifest: dict[str, Any]) -> ReviewedObject:
    """Return the object itself, or the pod of a Rollout, which admission does not change."""
    kind = manifest.get("kind")
    if kind != ROLLOUT:
        return ReviewedObject(manifest, "the pod" if kind == "Pod" else "the template")
    pod = object_in(object_in(manifest, "spec"), "template")
    # Its template has no name of its own.
    metadata = {"name": name_of(manifest), **object_in(pod, "metadata")}
    remark = "policies do not change Rollouts: this is the result for its pods"
    pod = {**pod, "apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    return ReviewedObject(pod, "the pod", (remark,))


def makes_pods(manifest: dict[str, Any]) -> bool:
    """Whether it is a pod, or makes pods."""
    kind = kind_of(manifest)
    return kind in KINDS or kind[-1] == ROLLOUT


def review_of(manifest: dict[str, Any], namespace: str) -> bytes:
    """The review of a creation of the object."""
    return creation_of(manifest, kind_of(manifest), namespace, name_of(manifest))


def policies_of(values: Iterable[dict[str, Any]]) -> tuple[DatedPolicy, ...]:
    """Policies as they stand in files and records; of two of the same name the first counts."""
    policies: dict[str, DatedPolicy] = {}
    for value in values:
        compiled, _ = read_policy(value)
        try:
            source = convert_policy(value)
        except MalformedError:
            source = None
        policies.setdefault(compiled.reference, DatedPolicy(compiled, source))
    return tuple(policies.values())
