"""AdmissionReview on the wire, v1 and v1beta1; no other module knows this JSON.

See kupid-spec 6.1, 6.2.

An answer carries the version of its question. ``status.metadata`` is always there, empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

from harbourmaster.api.decoding import MalformedError, decode
from harbourmaster.webhook.reviewed_object import ReviewedObject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harbourmaster.api.patches import Operation
    from harbourmaster.policies.model import AdmissionWarning

KIND: Final = "AdmissionReview"
V1: Final = "admission.k8s.io/v1"
V1BETA1: Final = "admission.k8s.io/v1beta1"
_VERSIONS: Final = frozenset((V1, V1BETA1, ""))

OK: Final = 200
BAD_REQUEST: Final = 400
FORBIDDEN: Final = 403
UNPROCESSABLE: Final = 422

# A pod of 1.5 MiB, the most that etcd stores, takes six times as much if it is control characters.
# An object and its old state of 3 MiB each, the API server's own limit for a request, fit as well.
MAX_BODY_BYTES: Final = 9 * 1024 * 1024 + 256 * 1024

# The API server cuts a warning at 256 characters once all together pass 4,096.
MAX_WARNING: Final = 256
MAX_WARNINGS: Final = 12
MAX_ANNOTATION: Final = 2048
MAX_REASON: Final = 8192


class GroupVersionKind(Struct, frozen=True, gc=False):
    """The kind of the object under review."""

    group: str = ""
    version: str = ""
    kind: str = ""

    def __str__(self) -> str:
        """``apps/v1, Kind=Deployment``, as the API machinery writes it."""
        return f"{self.group}/{self.version}, Kind={self.kind}".removeprefix("/")


class _User(Struct, frozen=True, gc=False):
    username: str = ""


class RequestHead(Struct, frozen=True, gc=False, rename="camel"):
    """A request without its object."""

    uid: str = ""
    kind: GroupVersionKind | None = None
    namespace: str | None = None
    name: str | None = None
    operation: str | None = None
    sub_resource: str | None = None
    dry_run: Raw = Raw(b"")
    """``true`` for what is tried and not stored; any other value is not a reason to refuse."""
    old_object: Raw = Raw(b"")
    """The object before an update."""

    @property
    def username(self) -> str:
        """The name of the user; empty where it is not known."""
        return ""

    @property
    def is_dry_run(self) -> bool:
        """Whether the object is tried and not stored."""
        return bytes(memoryview(self.dry_run)[:5]) == b"true"

    @property
    def kind_key(self) -> tuple[str, str, str]:
        """Group, version and kind; empty texts without a kind."""
        kind = self.kind
        return ("", "", "") if kind is None else (kind.group, kind.version, kind.kind)


class Request(RequestHead, frozen=True, gc=False, rename="camel"):
    """A request whose object is kept as it came."""

    object: Raw = Raw(b"")
    user_info: Raw = Raw(b"{}")

    @property
    def username(self) -> str:
        """The name of the user. Raises MalformedError."""
        return decode(_user, self.user_info, "userInfo").username

    @property
    def has_object(self) -> bool:
        """Whether the request carries an object; a DELETE carries none."""
        return bytes(self.object) not in (b"", b"null")


class Review(Struct, frozen=True, gc=False, rename="camel"):
    """A question of the API server; without a request there is nothing to decide."""

    api_version: str = ""
    kind: str = ""
    request: Request | None = None


class WorkloadRequest(RequestHead, frozen=True, gc=False, rename="camel"):
    """A request whose object was projected in the same pass."""

    object: ReviewedObject | None = None
    user_info: _User | None = None

    @property
    def username(self) -> str:
        """The name of the user."""
        return self.user_info.username if self.user_info else ""


class WorkloadReview(Struct, frozen=True, gc=False, rename="camel"):
    """A question about what is most probably a workload."""

    api_version: str = ""
    kind: str = ""
    request: WorkloadRequest | None = None


class _Status(Struct, frozen=True, gc=False, omit_defaults=True):
    metadata: dict[str, str]
    code: int
    reason: str | None = None
    message: str | None = None
    details: dict[str, Any] | None = None


class _Fields(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    allowed: bool
    status: _Status
    patch: bytes | None = None
    patch_type: str | None = None
    warnings: list[str] | None = None
    audit_annotations: dict[str, str] | None = None


class Response(Struct, frozen=True, gc=False):
    """An answer without its uid, encoded once so that equal answers share it.

    Made by the functions below only.
    """

    allowed: bool
    encoded: bytes
    patch: bytes | None = None
    """The JSON Patch, not yet in base64."""
    reason: str | None = None
    warnings: tuple[str, ...] = ()


_user: Final = msgspec.json.Decoder(_User)
_review_decoder: Final = msgspec.json.Decoder(Review)
_workload_decoder: Final = msgspec.json.Decoder(WorkloadReview)
_encode: Final = msgspec.json.Encoder().encode
_NO_METADATA: Final[dict[str, str]] = {}
_HEADS: Final = {
    version: b'{"apiVersion":"%b","kind":"%b","response":{"uid":'
    % (version.encode(), KIND.encode())
    for version in (V1, V1BETA1)
}


def decode_review(body: bytes) -> Review:
    """Decode a body. Raises MalformedError for what is not JSON or has fields of wrong types."""
    return decode(_review_decoder, body, "")


class ReviewBody:
    """The body of a review, which is decoded in each of two ways at most once."""

    __slots__ = ("_fault", "_is_tried", "_review", "_workload", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._fault: MalformedError | None = None
        self._review: Review | None = None
        self._workload: WorkloadReview | None = None
        self._is_tried = False
        """Whether ``_workload`` is known."""

    def workload(self) -> WorkloadReview | None:
        """Return the review with the workload in it decoded; None where ``review`` is needed."""
        if not self._is_tried:
            self._is_tried = True
            try:
                self._workload = _workload_decoder.decode(self.data)
            except (msgspec.MsgspecError, RecursionError, ValueError):
                return None
        return self._workload

    def review(self) -> Review:
        """Return the review with its object as raw JSON; raises MalformedError."""
        if self._fault is not None:
            raise self._fault
        if self._review is None:
            try:
                self._review = decode_review(self.data)
            except MalformedError as error:
                self._fault = error
                raise
        return self._review


def check_version(review: Review | WorkloadReview) -> None:
    """Raise MalformedError for a review of another version or kind; absent ones count as v1."""
    if review.api_version not in _VERSIONS or review.kind not in {KIND, ""}:
        asked = f"{review.api_version[:MAX_WARNING]}, Kind={review.kind[:MAX_WARNING]}"
        raise MalformedError(f"expected {V1} or {V1BETA1}, Kind={KIND}, got {asked}")


def encode_review(version: str, uid: str, response: Response) -> bytes:
    """Encode the answer to a question of ``version``; an unknown version is answered as v1."""
    head = _HEADS.get(version) or _HEADS[V1]
    return b"%b%b,%b}" % (head, _encode(uid), response.encoded[1:])


def allow(reason: str | None = None, warnings: Sequence[AdmissionWarning] = ()) -> Response:
    """Let the object pass as it is; ``reason`` says why nothing was done to it."""
    status = _Status(_NO_METADATA, OK, reason=reason)
    return _response(
        _Fields(True, status, warnings=_texts(warnings), audit_annotations=_audit(warnings))
    )


def patch(operations: Sequence[Operation], warnings: Sequence[AdmissionWarning] = ()) -> Response:
    """Let the object pass, changed by ``operations``, of which there is at least one."""
    return patch_with(_encode(operations), warnings)


def patch_with(patch: bytes, warnings: Sequence[AdmissionWarning] = ()) -> Response:
    """Let the object pass, changed by operations that are already JSON."""
    return _response(
        _Fields(
            True,
            _Status(_NO_METADATA, OK),
            patch=patch,
            patch_type="JSONPatch",
            warnings=_texts(warnings),
            audit_annotations=_audit(warnings),
        )
    )


def deny(reason: str, warnings: Sequence[str] = ()) -> Response:
    """Refuse the object; ``reason`` is what the user reads."""
    status = _Status(_NO_METADATA, FORBIDDEN, reason=reason)
    return _response(_Fields(False, status, warnings=list(warnings) or None))


def refuse(message: str, details: dict[str, Any]) -> Response:
    """Refuse the object as the API server refuses one of its own kinds; ``details`` has causes."""
    status = _Status(_NO_METADATA, UNPROCESSABLE, "Invalid", message, details)
    return _response(_Fields(False, status))


def reject_body(message: str) -> Response:
    """Refuse a question that could not be understood."""
    return _response(_Fields(False, _Status(_NO_METADATA, BAD_REQUEST, message=message)))


def allow_policy(warnings: Sequence[str]) -> Response:
    """Let a policy pass with remarks on it."""
    return _response(_Fields(True, _Status(_NO_METADATA, OK), warnings=list(warnings) or None))


def _response(fields: _Fields) -> Response:
    return Response(
        fields.allowed,
        _encode(fields),
        fields.patch,
        fields.status.reason,
        tuple(fields.warnings or ()),
    )


def _texts(warnings: Sequence[AdmissionWarning]) -> list[str] | None:
    if not warnings:
        return None
    texts = [
        cut(f"harbourmaster: {warning.text}", MAX_WARNING) for warning in warnings[:MAX_WARNINGS]
    ]
    if len(warnings) > MAX_WARNINGS:
        more = len(warnings) - MAX_WARNINGS
        texts.append(f"harbourmaster: {more} more warnings, see the audit annotations")
    return texts


def _audit(warnings: Sequence[AdmissionWarning]) -> dict[str, str] | None:
    if not warnings:
        return None
    texts_by_code: dict[str, list[str]] = {}
    for warning in warnings:
        texts_by_code.setdefault(warning.code, []).append(warning.text)
    return {code: cut("; ".join(texts), MAX_ANNOTATION) for code, texts in texts_by_code.items()}


def cut(text: str, limit: int) -> str:
    """Shorten text to ``limit`` characters, and keep control characters out of it."""
    printable = text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
    return printable if len(printable) <= limit else f"{printable[: limit - 3]}..."
