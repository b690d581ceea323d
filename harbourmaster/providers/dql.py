"""Dynatrace's Grail: the last value of the result of a DQL query, with tokens by OAuth."""

from __future__ import annotations

import asyncio
import re
import time
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from harbourmaster.providers.errors import (
    BadAnswerError,
    BadCredentialsError,
    NoValuesError,
    TimedOutError,
    TooLargeError,
    TooManyValuesError,
    UnauthorizedError,
)
from harbourmaster.providers.model import Answer
from harbourmaster.providers.numbers import (
    MAX_SAMPLES,
    format_fixed6,
    format_time,
    is_number,
    only_name,
    to_samples,
)
from harbourmaster.providers.requests import (
    credential,
    decode_reply,
    endpoint_url,
    error_message,
    one_line,
    raise_for_status,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from harbourmaster.providers.http import HttpClient
    from harbourmaster.providers.model import Question, Target
    from harbourmaster.providers.requests import Reply


SSO: Final = "https://sso.dynatrace.com/sso/oauth2/token"
SCOPE: Final = "storage:buckets:read storage:metrics:read"
"""The scope unless the Secret has the key ``scope``."""
TOKEN_URL: Final = "tokenUrl"  # noqa: S105
_PLATFORM: Final = "dt0s16"
"""The prefix of tokens that are sent as they are."""
_TOKEN: Final = re.compile(r"(dt0s[0-9]{2})\.[A-Za-z0-9]+\.[A-Za-z0-9]{64}")
_EARLY: Final = 30.0
"""Seconds before its expiry at which a token is renewed."""
_MAX_CLIENTS: Final = 1000


class _Client(Struct, frozen=True, gc=False):
    """The credentials of a client; ``repr`` does not show them."""

    url: str
    secret: str
    scope: str
    resource: str

    def __repr__(self) -> str:
        return "_Client(...)"


class _Token(Struct, frozen=True, gc=False):
    """An access token, which expires in so many seconds."""

    access_token: str
    expires_in: float = 0.0


class _Grant:
    """The cached token of a client, and the lock of its request."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.token = ""
        self.until = 0.0


_TOKEN_BODY: Final = msgspec.json.Decoder(_Token)


class TokenCache:
    """Requests tokens at a fixed URL or that of the Secret, never at one of a provider's object.

    So users that can write providers cannot send the client's secret to their own server, which
    gets only a short-lived token.
    """

    def __init__(self, *, url: str = SSO, now: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._now = now
        self._grants: dict[_Client, _Grant] = {}

    async def get(self, http: HttpClient, target: Target, refused: str = "") -> str:
        """Return a token for ``target``, other than the ``refused`` one. Raises ProviderError."""
        client = self._client(target)
        if client.secret.startswith(_PLATFORM):
            return client.secret
        grant = self._grant(client)
        async with grant.lock:
            if self._now() >= grant.until or grant.token == refused:
                # The lifetime counts from the request.
                requested = self._now()
                token = await _request_token(http, client)
                grant.token = token.access_token
                grant.until = requested + token.expires_in - _EARLY
            return grant.token

    def _client(self, target: Target) -> _Client:
        text = credential(target, target.secret_key)
        if not _TOKEN.fullmatch(text):
            raise BadCredentialsError(
                f"the key {target.secret_key} of the secret is not a Dynatrace client secret: "
                "expected dt0s08.<id>.<64 characters>"
            )
        secret = target.secret or {}
        url = credential(target, TOKEN_URL) if TOKEN_URL in secret else self._url
        if TOKEN_URL in secret and not url.startswith("https://"):
            raise BadCredentialsError(f"the key {TOKEN_URL} of the secret is not an https URL")
        return _Client(
            url=url,
            secret=text,
            scope=credential(target, "scope") if "scope" in secret else SCOPE,
            resource=credential(target, "resource") if "resource" in secret else "",
        )

    def _grant(self, client: _Client) -> _Grant:
        grant = self._grants.get(client)
        if grant is None:
            if len(self._grants) >= _MAX_CLIENTS:
                # The oldest one; queries that use it keep it.
                del self._grants[next(iter(self._grants))]
            grant = self._grants[client] = _Grant()
        return grant


async def _request_token(http: HttpClient, client: _Client) -> _Token:
    form = {
        "grant_type": "client_credentials",
        "client_id": client.secret.rpartition(".")[0],
        "client_secret": client.secret,
        "scope": client.scope,
    }
    if client.resource:
        form["resource"] = client.resource
    reply = await http.send(
        "POST",
        client.url,
        headers={"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"},
        body=urlencode(form).encode(),
        repeatable=True,
    )
    if reply.status in {HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        raise UnauthorizedError(
            f"Dynatrace issued no access token (HTTP {reply.status}): "
            "look at its secret and its scopes"
        )
    raise_for_status(reply, "")
    token = decode_reply(reply, _TOKEN_BODY)
    if not token.access_token.isascii() or not token.access_token.isprintable():
        raise UnauthorizedError("the access token has invalid characters")
    return token


_VALUE: Final = "value"
"""The field that counts if a record has several."""
_AVERAGE: Final = "avg"
_NUMERIC: Final = frozenset({"long", "double"})
_NANOSECONDS: Final = 1e9
WAIT: Final = 50
"""Seconds that a query may run, as with Keptn; usually its time limit is shorter."""
PAUSE: Final = 1.0
"""Seconds that the server holds a request, and that we wait between two requests."""
_MILLISECONDS: Final = int(PAUSE * 1000)
_MAX_POLLS: Final = int(WAIT / (2 * PAUSE))
_RUNNING: Final = frozenset({"NOT_STARTED", "RUNNING"})
_PARTIAL: Final = frozenset(
    {
        "SCAN_LIMIT_GBYTES",
        "RESULT_LIMIT_RECORDS",
        "RESULT_LIMIT_BYTES",
        "FETCH_TIMEOUT",
        "FETCH_EXEC_TIME_LIMIT",
        "QUERY_CONSUMPTION_LIMIT",
    }
)
"""The notifications of an incomplete result."""


class FieldType(Struct, frozen=True):
    """The type of a field; ``long`` and ``double`` may be written as strings."""

    type: str = ""


class RecordTypes(Struct, frozen=True):
    """The types of the fields of some of the records."""

    mappings: dict[str, FieldType] = {}


class _Notification(Struct, frozen=True, rename="camel"):
    notification_type: str = ""
    message: str = ""


class _Grail(Struct, frozen=True):
    notifications: tuple[_Notification, ...] | None = None


class _Metadata(Struct, frozen=True):
    grail: _Grail = _Grail()


class _Result(Struct, frozen=True):
    records: tuple[dict[str, Any] | None, ...] = ()
    types: tuple[RecordTypes, ...] = ()
    metadata: _Metadata = _Metadata()


class _Body(Struct, frozen=True, rename="camel"):
    state: str
    request_token: str = ""
    result: _Result | None = None


_BODY: Final = msgspec.json.Decoder(_Body)


class Dql:
    """The query API of Grail, which is polled. The last record counts, as with Keptn."""

    def __init__(
        self,
        *,
        tokens: TokenCache | None = None,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._tokens = tokens or TokenCache()
        self._now = now
        self._sleep = sleep

    async def ask(self, http: HttpClient, target: Target, question: Question) -> Answer:
        """Return the last value; with a step, all of them as samples, in the steps of the query."""
        session = _QuerySession(http, target, self._tokens)
        reply = await session.send("POST", "execute", body=_request_body(question))
        body = decode_reply(reply, _BODY)
        polls = 0
        while body.state in _RUNNING:
            if polls == _MAX_POLLS:
                raise TimedOutError(f"the query did not end within {WAIT} s")
            polls += 1
            await self._sleep(PAUSE)
            reply = await session.send("GET", "poll", params=_poll_parameters(body))
            # The response to a poll has no token.
            body = msgspec.structs.replace(
                decode_reply(reply, _BODY), request_token=body.request_token
            )
        if body.state != "SUCCEEDED" or body.result is None:
            raise BadAnswerError(f"the query ended without a result ({one_line(body.state)})")
        _check_complete(body.result)
        records = [record for record in body.result.records if record is not None]
        now = self._now() if question.end is None else question.end
        points = to_points(records, body.result.types, question.path, now)
        (last,) = to_samples(points[-1:])
        return Answer(
            value=format_fixed6(last.value),
            samples=(last,) if question.step is None else to_samples(points),
            raw=reply.body,
        )


class _QuerySession:
    """The requests of one query; a rejected access token is renewed once."""

    def __init__(self, http: HttpClient, target: Target, tokens: TokenCache) -> None:
        self._http = http
        self._target = target
        self._tokens = tokens
        self._renewed = False

    async def send(
        self,
        method: str,
        action: str,
        *,
        body: bytes | None = None,
        params: Mapping[str, str] | None = None,
    ) -> Reply:
        """Return the 2xx reply to an action of the query API."""
        token = await self._tokens.get(self._http, self._target)
        reply = await self._send(token, method, action, body, params)
        if reply.status == HTTPStatus.UNAUTHORIZED and not self._renewed:
            self._renewed = True
            token = await self._tokens.get(self._http, self._target, refused=token)
            reply = await self._send(token, method, action, body, params)
        raise_for_status(reply, error_message(reply))
        return reply

    async def _send(
        self,
        token: str,
        method: str,
        action: str,
        body: bytes | None,
        params: Mapping[str, str] | None,
    ) -> Reply:
        return await self._http.send(
            method,
            endpoint_url(self._target.server, f"/platform/storage/query/v1/query:{action}"),
            headers={
                "Accept": "application/json",
                "Authorization": f"Bearer {token}",
                **({"Content-Type": "application/json"} if body is not None else {}),
            },
            body=body,
            params=params,
            skip_verify=self._target.skip_verify,
            # A query may be started twice.
            repeatable=True,
        )


def _request_body(question: Question) -> bytes:
    request: dict[str, object] = {
        "query": question.query,
        "requestTimeoutMilliseconds": _MILLISECONDS,
        "fetchTimeoutSeconds": WAIT,
        "maxResultRecords": MAX_SAMPLES,
    }
    if question.start is not None:
        request["defaultTimeframeStart"] = format_time(question.start)
    if question.end is not None:
        request["defaultTimeframeEnd"] = format_time(question.end)
    return msgspec.json.encode(request)


def _poll_parameters(body: _Body) -> Mapping[str, str]:
    if not body.request_token:
        raise BadAnswerError("the query runs, but the provider returned no token for its result")
    return {"request-token": body.request_token, "request-timeout-milliseconds": f"{_MILLISECONDS}"}


def _check_complete(result: _Result) -> None:
    """Raise TooLargeError if the result is incomplete: its last value may be wrong."""
    for notification in result.metadata.grail.notifications or ():
        if notification.notification_type in _PARTIAL:
            raise TooLargeError(
                f"the result is incomplete ({one_line(notification.message)}): narrow the query"
            )


def to_points(
    records: Sequence[Mapping[str, Any]], types: Sequence[RecordTypes], path: str, now: float
) -> list[tuple[float, object]]:
    """Return the times and values without nulls, in the order of the records.

    A record is a point of one series, at its ``timestamp`` or ``now``. A record with an array is a
    whole series (``timeseries``, ``makeTimeseries``); more than one is an error.
    """
    fields = (item for record_types in types for item in record_types.mappings.items())
    numeric = {name for name, field in fields if field.type in _NUMERIC}
    points: list[tuple[float, object]] = []
    for record in records:
        value = _value(record, numeric, path)
        if not isinstance(value, list):
            points.append((_parse_time(record.get("timestamp"), now), value))
        elif len(records) > 1:
            raise TooManyValuesError(
                f"too many values in query result: {len(records)} records are series"
            )
        else:
            points.extend(_series(record, value, now))
    return [(time, value) for time, value in points if value is not None]


def _value(record: Mapping[str, Any], numeric: set[str], path: str) -> object:
    if path and path not in record:
        raise NoValuesError(f"no values in query result: no field '{one_line(path)}'")
    name = path or (_VALUE if _VALUE in record else _only_numeric_field(record, numeric))
    value = record[name]
    return value.get(_AVERAGE) if isinstance(value, dict) else value


def _only_numeric_field(record: Mapping[str, Any], numeric: set[str]) -> str:
    names = [
        name
        for name, value in record.items()
        if is_number(value)
        or (name in numeric and isinstance(value, str))
        or (isinstance(value, list) and all(item is None or is_number(item) for item in value))
    ]
    if not names:
        raise NoValuesError("no values in query result")
    return only_name(names)


def _series(
    record: Mapping[str, Any], values: Sequence[object], now: float
) -> list[tuple[float, object]]:
    """Return the values of an array with their times, by the timeframe and the interval."""
    timeframe = record.get("timeframe")
    start = _parse_time(timeframe.get("start") if isinstance(timeframe, dict) else None, now)
    try:
        step = float(record.get("interval") or 0) / _NANOSECONDS
    except (TypeError, ValueError, OverflowError):
        step = 0.0
    return [(start + step * index, value) for index, value in enumerate(values)]


def _parse_time(text: object, now: float) -> float:
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else now
    except (ValueError, OverflowError):
        return now
