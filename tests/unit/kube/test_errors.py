from __future__ import annotations

import json

import msgspec
import pytest

from harbourmaster.kube import errors
from harbourmaster.kube.errors import (
    MAX_MESSAGE,
    AlreadyExistsError,
    ApiError,
    BadAnswerError,
    ConflictError,
    ForbiddenError,
    GoneError,
    ServerError,
    error_from,
)
from helpers.fake_store import status

CALL = "get /api/v1/namespaces/prod"


def error_of(code, message="no", **fields):
    return error_from(code, json.dumps(status(code, message, **fields)).encode(), call=CALL)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (400, "ApiError"),
        (401, "UnauthorizedError"),
        (403, "ForbiddenError"),
        (404, "NotFoundError"),
        (405, "ApiError"),
        (409, "ConflictError"),
        (410, "GoneError"),
        (415, "ApiError"),
        (422, "InvalidError"),
        (429, "TooManyRequestsError"),
        (500, "ServerError"),
        (503, "ServerError"),
        (504, "ServerError"),
        (302, "BadAnswerError"),
    ],
)
def test_each_status_has_its_class(code, name):
    error = error_of(code)
    assert type(error) is getattr(errors, name)
    assert (error.status, error.message) == (code, "no")
    assert isinstance(error, ApiError)


def test_what_exists_already_is_a_conflict_of_its_own():
    error = error_of(409, reason="AlreadyExists")
    assert type(error) is AlreadyExistsError
    assert isinstance(error, ConflictError)


@pytest.mark.parametrize("reason", ["Expired", "Gone", "ResourceExpired"])
def test_an_expired_version_is_gone_whatever_its_code(reason):
    assert type(error_of(500, reason=reason)) is GoneError


def test_the_text_is_one_line_with_everything_in_it():
    error = error_of(409, "the object\nhas been   modified\t", reason="Conflict")
    assert str(error) == f"{CALL}: 409 Conflict: the object has been modified"


def test_strangers_text_cannot_control_the_terminal():
    error = error_of(500, "\x1b[2J\x9b\u202eno\u2028way\x00")
    assert str(error).isprintable()
    assert "\\x1b[2J" in str(error)
    assert error_from(500, b"", call=CALL, headers={}).message == "an empty answer"


@pytest.mark.parametrize("text", ["x" * 100_000, "\x00" * 100_000, "\n" * 1000 + "x" * 1000])
def test_a_long_message_is_cut(text):
    error = error_of(500, text)
    assert len(error.message) <= MAX_MESSAGE
    assert len(error_of(500, "y" * MAX_MESSAGE).message) == MAX_MESSAGE


def test_the_message_of_missing_permissions_stays_whole():
    message = (
        'clusterpodschedulingpolicies.kupid.gardener.cloud is forbidden: User "system:service'
        f'account:{"n" * 63}:{"a" * 100}" cannot list resource "clusterpodschedulingpolicies" '
        'in API group "kupid.gardener.cloud" at the cluster scope'
    )
    assert len(message) < MAX_MESSAGE
    error = error_of(403, message)
    assert isinstance(error, ForbiddenError)
    assert str(error) == f"{CALL}: 403 Forbidden: {message}"


@pytest.mark.parametrize(
    "body", [b"<html>\r\n<h1>502 Bad Gateway</h1></html>", b'{"kind":"Pod"}', b"[1]", b"\xff\xfe"]
)
def test_what_is_no_status_is_quoted(body):
    error = error_from(502, body, call=CALL)
    assert type(error) is ServerError
    assert error.reason == ""
    assert error.message.startswith("no answer of an API server: ")
    assert "\n" not in str(error)


def test_plain_text_is_its_own_message():
    headers = {"Content-Type": "text/plain; charset=utf-8"}
    error = error_from(404, b"404 page not found\n", headers, call=CALL)
    assert str(error) == f"{CALL}: 404: 404 page not found"


def test_a_redirect_says_where_to():
    error = error_from(301, b"moved", {"Location": "https://example.com/"}, call=CALL)
    assert type(error) is BadAnswerError
    assert str(error) == (
        f"{CALL}: 301: redirected to https://example.com/, and redirects are not followed"
    )


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("1", 1.0),
        ("0", 0.0),
        (" 7 ", 7.0),
        ("86400", 30.0),
        ("9" * 10_000, 30.0),
        ("-1", None),
        ("1.5", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("٣", None),
        ("", None),
    ],
)
def test_the_time_to_wait_is_whole_seconds_and_bounded(header, seconds):
    assert error_from(429, b"", {"Retry-After": header}).retry_after == seconds


def test_the_time_to_wait_may_stand_in_the_status():
    assert error_of(429, details={"retryAfterSeconds": 3}).retry_after == 3.0
    assert error_of(429, details={"retryAfterSeconds": 300}).retry_after == 30.0
    assert error_of(429, details={"name": "x"}).retry_after is None
    headers = {"Retry-After": "2"}
    body = json.dumps(status(429, "no", details={"retryAfterSeconds": 9})).encode()
    assert error_from(429, body, headers).retry_after == 2.0


def test_an_error_event_has_its_code_in_the_status():
    body = msgspec.Raw(json.dumps(status(410, "too old", "Expired")).encode())
    error = error_from(0, body, call=CALL)
    assert (type(error), error.status) == (GoneError, 410)
    assert type(error_from(0, msgspec.Raw(b'{"kind":"Pod"}'))) is BadAnswerError


def test_a_status_of_odd_types_is_quoted():
    error = error_from(500, b'{"kind":"Status","message":7}')
    assert error.message == 'no answer of an API server: {"kind":"Status","message":7}'


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ('Invalid value: {"labels":{"a":"}"},"Spec":null}: field is immutable',
         "Invalid value: field is immutable"),
        # As before Kubernetes 1.33.
        ('Invalid value: core.Spec{A:[]core.B(nil), C:map[string]string{"a":"b: c"}}: no',
         "Invalid value: no"),
        ('Duplicate value: map[string]interface {}{"name":"a"}', "Duplicate value"),
        ('Invalid value: ["10.0.0.1"]: may not change once set',
         "Invalid value: may not change once set"),
        ('Invalid value: "a: b": must be c', "Invalid value: must be c"),
        ("Invalid value: 70000: must be between 1 and 65535",
         "Invalid value: must be between 1 and 65535"),
        ('Unsupported value: "Sometimes": supported values: "Always", "Never"',
         'Unsupported value: supported values: "Always", "Never"'),
        ("Required value", "Required value"),
        ('Forbidden: spec is immutable after creation\n@@ -10,7 +10,7 @@\n- "A": "old"',
         "Forbidden: spec is immutable after creation"),
        ('Invalid value: {"a":"' + "x" * 100_000 + '"}: field is immutable',
         "Invalid value: field is immutable"),
    ],
)  # fmt: skip
def test_an_invalid_field_is_told_without_its_value(message, text):
    causes = [{"field": "spec.template", "message": message}, {"message": "a policy denied it"}]
    error = error_of(422, f"Job is invalid: spec.template: {message}", details={"causes": causes})
    assert error.fields == (f"spec.template: {text}",)


def test_what_is_cut_keeps_its_end():
    error = error_of(500, f"admission webhook denied: {'x' * 100_000}: the end says why")
    assert len(error.message) == MAX_MESSAGE
    assert error.message.startswith("admission webhook denied: ")
    assert error.message.endswith("x: the end says why")


def test_causes_are_told_by_their_reasons():
    details = {"causes": [{"reason": "DisruptionBudget", "message": "no"}, {"message": "no more"}]}
    body = {"kind": "Status", "reason": "TooManyRequests", "message": "no", "details": details}
    assert error_from(429, json.dumps(body).encode()).causes == ("DisruptionBudget", "")
    assert error_from(422, json.dumps({**body, "details": {}}).encode()).causes == ()
