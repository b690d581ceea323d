"""One line of a recording: a review without its secrets, what was known, and the answer.

It is replayed before it counts: what is not answered by the same bytes is not recorded.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.decoding import MalformedError
from harbourmaster.api.lines import LineFailure
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.gates.owners import supported_owner
from harbourmaster.gates.version import hash_of
from harbourmaster.policies.pods import KINDS
from harbourmaster.telemetry.metrics import NOT_KEPT, TOO_LARGE, UNFAITHFUL, WRITTEN
from harbourmaster.webhook.cases import answer_case, read_case, response_of
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.handlers import Decision
from harbourmaster.webhook.parents import Parent
from harbourmaster.webhook.redaction import redacted
from harbourmaster.webhook.review import GroupVersionKind, Request, WorkloadRequest
from harbourmaster.webhook.reviewed import containers_of, owners_of, read_object
from harbourmaster.webhook.settings import AdmissionSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.policies.compiled import CompiledPolicy
    from harbourmaster.webhook.review import RequestHead
    from harbourmaster.webhook.reviewed import Reviewed

MAX_POLICIES: Final = 64 * 1024
"""Bytes of the policies that matched, together; the line's replay reads and merges them anew, and
as many as a tenant may make would hold up the answers of others for seconds."""
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode
_SETTINGS: Final = frozenset(AdmissionSettings.__struct_fields__)


class Taken(Struct, frozen=True, gc=False):
    """A review as it was answered, and what was known."""

    at: float
    body: bytes
    result: bytes
    decision: Decision
    engine: Engine
    may_patch: bool
    parents: tuple[tuple[str, str, Parent], ...]


def line_of(taken: Taken) -> tuple[bytes | None, str]:
    """The line of a review, and WRITTEN; or None and why there is none. Raises whatever it may."""
    request, engine, verdict = taken.decision.request, taken.engine, taken.decision.verdict
    policies = [each.source for each in _policies(request, engine)]
    if sum(map(len, policies)) > MAX_POLICIES:
        return None, TOO_LARGE
    review = redacted(_decode(taken.body))
    if review is None:
        return None, NOT_KEPT
    kept = _encode(review)
    response = response_of(taken.result)
    case: dict[str, Any] = {
        "id": request.uid,
        "at": datetime.fromtimestamp(taken.at, UTC),
        "review": msgspec.Raw(kept),
        "namespaces": list(_namespaces(request, engine)),
        "policies": [msgspec.Raw(each) for each in policies],
        "settings": _settings(engine.settings),
        "response": response,
    }
    if taken.parents:
        case["parents"] = [_parent(*each) for each in taken.parents]
    if request.namespace in engine.snapshot.excluded:
        case["excluded"] = [request.namespace]
    if not taken.may_patch:
        case["mayPatch"] = False
    found = _hash(request)
    # Whoever has the answer has it already.
    if found and verdict.response.patch and found.encode() in verdict.response.patch:
        case["hash"] = found
    line = _encode(case)
    read = read_case(line)
    answered = None if isinstance(read, LineFailure) else answer_case(read).response
    if answered is None or bytes(answered) != bytes(response):
        return None, UNFAITHFUL
    return line + b"\n", WRITTEN


def _object_of(request: RequestHead) -> Reviewed | None:
    if isinstance(request, WorkloadRequest):
        return request.object
    if isinstance(request, Request) and request.has_object and _kind(request) in KINDS:
        try:
            return read_object(request.object)
        except MalformedError:
            return None
    return None


def _kind(request: RequestHead) -> tuple[str, str, str]:
    kind = request.kind or GroupVersionKind()
    return kind.group, kind.version, kind.kind


def _policies(request: RequestHead, engine: Engine) -> tuple[CompiledPolicy, ...]:
    """Those that were matched, whose answers the others have no part in."""
    kind, found = KINDS.get(_kind(request)), _object_of(request)
    name = request.namespace or ""
    namespace = engine.snapshot.namespace(name)
    if kind is None or found is None or namespace is None:
        return ()
    try:
        pod = kind.view(found)
    except MalformedError:
        return ()
    return () if pod is None else engine.match(name, namespace, pod.labels)


def _namespaces(request: RequestHead, engine: Engine) -> Iterable[dict[str, Any]]:
    name = request.namespace or ""
    found = engine.snapshot.namespace(name)
    if found is not None:
        metadata: dict[str, Any] = {"name": name, "labels": found.labels}
        annotations = {OPT_IN_KEY: OPT_IN} if found.has_gates else found.mistaken
        if annotations:
            metadata["annotations"] = annotations
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _settings(settings: AdmissionSettings) -> dict[str, Any]:
    """Admission's part of them; the rest is where a server listens."""
    names = dict(zip(settings.__struct_fields__, settings.__struct_encode_fields__, strict=True))
    return {names[name]: getattr(settings, name) for name in names if name in _SETTINGS}


def parents_now(request: RequestHead, engine: Engine) -> Iterable[tuple[str, str, Parent]]:
    """The owners that a gate was decided by: kind, ``namespace/name`` and what is known of it."""
    name = request.namespace or ""
    namespace = engine.snapshot.namespace(name)
    if namespace is None or not engine.has_gates(name, namespace):
        return
    found = _object_of(request)
    if found is None or found.metadata is None:
        return
    try:
        owner = supported_owner(owners_of(found.metadata))
    except MalformedError:
        return
    if owner is None:
        return
    kind = owner.kind
    for _, key, parent in engine.snapshot.parents.of(owner, name).steps:
        if parent is None:
            return
        yield kind, key, parent
        if parent.owner is None:
            return
        kind = parent.owner.kind


def _parent(kind: str, key: str, parent: Parent) -> dict[str, Any]:
    namespace, _, name = key.partition("/")
    found = {
        "name": name,
        "namespace": namespace,
        "uid": parent.uid,
        "annotations": parent.metadata.annotations,
        "labels": parent.metadata.labels,
        "ownerReferences": [] if parent.owner is None else [parent.owner],
    }
    return {"kind": kind, "metadata": found}


def _hash(request: RequestHead) -> str:
    found = _object_of(request)
    if found is None or found.spec is None:
        return ""
    try:
        return hash_of(containers_of(found.spec))
    except MalformedError:
        return ""
