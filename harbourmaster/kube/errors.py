"""Errors of API calls; the text of each is one line for the user."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.telemetry.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_MESSAGE: Final = 512
"""Characters of an error's message: those of permissions and of guards must be complete."""
MAX_RETRY_AFTER: Final = 30.0
"""Maximum seconds to wait, whatever Retry-After says."""
_FIRST_ERROR: Final = HTTPStatus.BAD_REQUEST
_EXPIRED: Final = frozenset(("Expired", "Gone", "ResourceExpired"))
_MAX_FIELDS: Final = 16
_VALUE: Final = re.compile(
    r"^(?P<kind>(?:Invalid|Unsupported|Duplicate) value|Not found): "
    r"""(?:"(?:[^"\\]|\\.)*"|[\w.*&\[\] ]*\{.*?\}|\[.*?\]|[^:]*)(?=: |$)"""
)
"""The text of a field error up to its detail; the value is JSON, or Go syntax before 1.33."""


class ConnectionSettingsError(Exception):
    """Invalid connection settings; the text names the file."""


class ApiError(Exception):
    """A call that failed. ``status`` is 0 where no answer came, ``retry_after`` in seconds."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        call: str = "",
        retry_after: float | None = None,
        causes: tuple[str, ...] = (),
    ) -> None:
        """``call`` says what was asked for: a verb and a path. The message is cut and cleaned.

        ``causes`` are the reasons that the server gives besides, such as DisruptionBudget.
        """
        self.status = status
        self.reason = one_line(reason)
        self.message = one_line(message)
        self.call = call
        self.retry_after = retry_after
        self.causes = causes
        self.fields: tuple[str, ...] = ()
        """The invalid fields and why they are, without their values."""
        outcome = " ".join(part for part in (str(status or ""), self.reason) if part)
        super().__init__(": ".join(part for part in (call, outcome, self.message) if part))


class UnauthorizedError(ApiError):
    """401: the API server rejected the credentials; or there are none (status 0)."""


class ForbiddenError(ApiError):
    """403: the message names verb, resource and user."""


class NotFoundError(ApiError):
    """404: no such object, or no such resource."""


class ConflictError(ApiError):
    """409: the object is not as the request assumed."""


class AlreadyExistsError(ConflictError):
    """409 of a creation."""


class GoneError(ApiError):
    """410: the resource version or the continuation is too old. List again."""


class InvalidError(ApiError):
    """422: the object is invalid, or a ``test`` of a JSON patch failed."""


class TooManyRequestsError(ApiError):
    """429: the API server is overloaded."""


class ServerError(ApiError):
    """5xx, from the API server or a proxy."""


class UnreachableError(ApiError):
    """No complete answer: not connected, cut off, or timed out."""


class BadAnswerError(ApiError):
    """An answer that does not come from an API server."""


class TooLargeError(BadAnswerError):
    """An answer that exceeds the size limit."""


class ExcessError(BadAnswerError):
    """An API server that is not trusted sends more than it may."""


_BY_STATUS: Final[dict[int, type[ApiError]]] = {
    HTTPStatus.UNAUTHORIZED: UnauthorizedError,
    HTTPStatus.FORBIDDEN: ForbiddenError,
    HTTPStatus.NOT_FOUND: NotFoundError,
    HTTPStatus.CONFLICT: ConflictError,
    HTTPStatus.GONE: GoneError,
    HTTPStatus.UNPROCESSABLE_ENTITY: InvalidError,
    HTTPStatus.TOO_MANY_REQUESTS: TooManyRequestsError,
}


class _Cause(Struct, frozen=True, gc=False):
    reason: str | None = None
    message: str | None = None
    field: str | None = None


class _Details(Struct, frozen=True, gc=False, rename="camel"):
    retry_after_seconds: float = 0
    causes: tuple[_Cause, ...] | None = None


class _Status(Struct, frozen=True, gc=False):
    kind: str
    message: str | None = None
    reason: str | None = None
    code: int = 0
    details: _Details | None = None


_decode_status: Final = msgspec.json.Decoder(_Status).decode


def error_from(
    status: int,
    body: bytes | msgspec.Raw,
    headers: Mapping[str, str] | None = None,
    *,
    call: str = "",
) -> ApiError:
    """Return the error of an answer. ``status`` 0 takes the code of the Status in ``body``.

    Anything that is not a Status, such as a proxy's page, is quoted from its beginning. A page of
    that kind with 404 says nothing about an object, so it is a BadAnswerError.
    """
    headers = headers or {}
    answer = _status_in(body)
    if answer is None:
        message = _quote(status, bytes(body), headers)
        if status == HTTPStatus.NOT_FOUND and not _is_plain(headers):
            return BadAnswerError(message, status=status, call=call)
        answer = _Status("Status", message=message)
    code = status or answer.code
    reason = answer.reason or ""
    error = _class_of(code, reason)(
        answer.message or "no message",
        status=code,
        reason=reason,
        call=call,
        retry_after=_retry_after(headers, answer.details),
        causes=_causes(answer.details),
    )
    error.fields = _fields(answer.details)
    return error


def one_line(text: str, limit: int = MAX_MESSAGE) -> str:
    """Make untrusted text fit for a line: without line ends and controls, and cut at ``limit``.

    It keeps its end, which often says what is wrong.
    """
    if len(text) > 2 * limit:
        # Cut first as well: the middle of a large body is not worth looking at.
        text = f"{text[:limit]} {text[1 - limit :]}"
    line = clean(" ".join(text.split()))
    end = limit // 3
    return line if len(line) <= limit else f"{line[: limit - end - 1]}…{line[-end:]}"


def _class_of(code: int, reason: str) -> type[ApiError]:
    if code == HTTPStatus.CONFLICT and reason == "AlreadyExists":
        return AlreadyExistsError
    if reason in _EXPIRED:
        return GoneError
    if code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ServerError
    if code < _FIRST_ERROR:
        return BadAnswerError
    return _BY_STATUS.get(code, ApiError)


def _status_in(body: bytes | msgspec.Raw) -> _Status | None:
    try:
        status = _decode_status(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return status if status.kind == "Status" else None


def _quote(status: int, body: bytes, headers: Mapping[str, str]) -> str:
    if "Location" in headers and status < _FIRST_ERROR:
        return f"redirected to {headers['Location']}, and redirects are not followed"
    if not body:
        return "an empty answer"
    if _is_plain(headers):
        return body[: 2 * MAX_MESSAGE].decode(errors="replace")
    return f"no answer of an API server: {body[: 2 * MAX_MESSAGE].decode(errors='replace')}"


def _is_plain(headers: Mapping[str, str]) -> bool:
    """Whether the answer has the type of the API server's own answer if nothing is served."""
    return headers.get("Content-Type", "").startswith("text/plain")


def _causes(details: _Details | None) -> tuple[str, ...]:
    """Return the reasons of the causes; a cause without a reason is an empty text."""
    causes = (details.causes or ()) if details is not None else ()
    return tuple(one_line(cause.reason or "") for cause in causes)


def _fields(details: _Details | None) -> tuple[str, ...]:
    """Return which fields are invalid and why, without values, which are long or confidential."""
    causes = (details.causes or ()) if details is not None else ()
    return tuple(
        one_line(f"{cause.field}: {_without_value(cause.message)}")
        for cause in causes[:_MAX_FIELDS]
        if cause.field and cause.message
    )


def _without_value(message: str) -> str:
    # A difference of two values follows in further lines.
    line = message.partition("\n")[0]
    if len(line) > 4 * MAX_MESSAGE:
        line = line[: 2 * MAX_MESSAGE] + line[-2 * MAX_MESSAGE :]
    return _VALUE.sub(r"\g<kind>", line, count=1)


def _retry_after(headers: Mapping[str, str], details: _Details | None) -> float | None:
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        # Few digits suffice, and int() refuses thousands of them.
        return min(float(text[:9]), MAX_RETRY_AFTER)
    if details is not None and details.retry_after_seconds > 0:
        return min(details.retry_after_seconds, MAX_RETRY_AFTER)
    return None
