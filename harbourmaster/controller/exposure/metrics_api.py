"""Serves the custom metrics API to the API server's aggregator (keptn-spec 4.4).

Its resource is KeptnMetrics, each with one metric of its own name. HPAs of type ``Object`` ask for
one name, people also for ``*``. A metric without a valid value is not found: Keptn answers 0, by
which an HPA scales down. The API server publishes the authority of its aggregator, the names in the
certificate, and the headers that name the user. Requests without such a certificate are refused.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import msgspec
from aiohttp import hdrs
from msgspec import Struct

from harbourmaster.api.selectors import Matcher
from harbourmaster.controller.exposure.answers import (
    ALIAS,
    GROUP,
    RESOURCE,
    VERSIONS,
    StatusError,
    documents,
    value_list,
)
from harbourmaster.controller.exposure.values import parameters_of, parts_of
from harbourmaster.kube.access import Attributes, User
from harbourmaster.kube.errors import ApiError
from harbourmaster.serving.http_connection import HttpConnection
from harbourmaster.serving.responses import NamelessResponse, json_response
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from aiohttp import web

    from harbourmaster.controller.exposure.values import ExposedValue, ExposedValues
    from harbourmaster.kube.access import Decisions


NAMESPACE: Final = "kube-system"
CONFIG_MAP: Final = "extension-apiserver-authentication"
_PREFIX: Final = "requestheader-"


class FrontProxy(Struct, frozen=True):
    """The published data of the aggregator. ``authority`` is PEM, empty if there is none."""

    authority: bytes = b""
    names: frozenset[str] = frozenset()
    """Accepted common names of the certificate; empty accepts all."""
    user_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()

    def user(self, request: web.BaseRequest) -> User:
        """Return the user of a request. Raises StatusError (401)."""
        protocol = request.protocol
        transport = request.transport
        # The handshake has verified the certificate if there is one.
        if transport is None or not transport.get_extra_info("peercert"):
            raise _unauthorized_error(
                "no client certificate: send the request to the API server, not to this address"
            )
        if not isinstance(protocol, HttpConnection) or (
            self.names and protocol.client_name not in self.names
        ):
            raise _unauthorized_error("the client certificate is not the API server's")
        name = next(iter(_values(request, self.user_headers)), "")
        if not name:
            raise _unauthorized_error("the request has no user")
        return User(
            name,
            tuple(_values(request, self.group_headers)),
            next(iter(_values(request, self.uid_headers)), ""),
            self._extra(request),
        )

    def _extra(self, request: web.BaseRequest) -> tuple[tuple[str, tuple[str, ...]], ...]:
        extra: dict[str, list[str]] = {}
        for header, value in request.headers.items():
            for prefix in self.extra_prefixes:
                if header.lower().startswith(prefix.lower()):
                    key = unquote(header[len(prefix) :].lower())
                    extra.setdefault(key, []).append(value)
                    break
        return tuple((key, tuple(values)) for key, values in sorted(extra.items()))


class _Published(Struct, frozen=True):
    data: dict[str, str] = {}


_decode: Final = msgspec.json.Decoder(_Published).decode
_decode_names: Final = msgspec.json.Decoder(tuple[str, ...]).decode


def decode_front_proxy(raw: msgspec.Raw | bytes) -> FrontProxy:
    """Decode the ConfigMap. Raises msgspec.DecodeError."""
    data = _decode(raw).data

    def names(key: str) -> tuple[str, ...]:
        return _decode_names(data.get(f"{_PREFIX}{key}") or "[]")

    return FrontProxy(
        authority=data.get(f"{_PREFIX}client-ca-file", "").encode(),
        names=frozenset(names("allowed-names")),
        user_headers=names("username-headers"),
        uid_headers=names("uid-headers"),
        group_headers=names("group-headers"),
        extra_prefixes=names("extra-headers-prefix"),
    )


def _values(request: web.BaseRequest, headers: Iterable[str]) -> list[str]:
    """Return the values of the first of these headers that the request has."""
    for header in headers:
        values = request.headers.getall(header, [])
        if values:
            return list(values)
    return []


def _unauthorized_error(text: str) -> StatusError:
    return StatusError(HTTPStatus.UNAUTHORIZED, text)


MAX_LENGTH: Final = 4096
_KEY: Final = r"(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_VALUE: Final = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?"
_TERM: Final = re.compile(
    rf"\s*(?:(?P<absent>!)\s*(?P<missing>{_KEY})"
    rf"|(?P<key>{_KEY})"
    rf"(?:\s*(?P<sign>==|=|!=)\s*(?P<value>{_VALUE})"
    rf"|\s*(?P<order>[<>])\s*(?P<number>-?[0-9]{{1,18}})"
    r"|\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?)\s*"
)
_ONE_VALUE: Final = re.compile(_VALUE)
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")


class Bound(Struct, frozen=True):
    """A comparison of a label's number, which selectors in manifests do not have."""

    key: str
    sign: str
    number: int

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the label is a number below (``<``) or above the bound."""
        value = labels.get(self.key, "")
        if _NUMBER.fullmatch(value) is None:
            return False
        return int(value) < self.number if self.sign == "<" else int(value) > self.number


class Selector(Struct, frozen=True):
    """A label selector: all requirements must hold; without any, it selects everything."""

    requirements: tuple[Matcher | Bound, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels are selected."""
        return all(requirement.matches(labels) for requirement in self.requirements)


def parse_selector(text: str) -> Selector:
    """Parse a label selector. Raises ValueError with one line that names the position."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"a selector has {MAX_LENGTH} characters at most")
    return Selector(tuple(_requirements(text)))


def _requirements(text: str) -> Iterator[Matcher | Bound]:
    if not text.strip():
        return
    at = 0
    while True:
        match = _TERM.match(text, at)
        if match is None or text[match.end() : match.end() + 1] not in {"", ","}:
            raise ValueError(f"not a label selector from character {at + 1} on")
        yield _requirement(match)
        if match.end() == len(text):
            return
        at = match.end() + 1


def _requirement(match: re.Match[str]) -> Matcher | Bound:
    if match["absent"]:
        return Matcher(absent=(match["missing"],))
    key = match["key"]
    if match["order"]:
        return Bound(key, match["order"], int(match["number"]))
    if match["sign"]:
        values, is_excluded = frozenset((match["value"],)), match["sign"] == "!="
    elif match["set"]:
        values, is_excluded = _words(match), match["set"] == "notin"
    else:
        return Matcher(present=(key,))
    return Matcher(none_of=((key, values),)) if is_excluded else Matcher(one_of=((key, values),))


def _words(match: re.Match[str]) -> frozenset[str]:
    values = frozenset(word.strip() for word in match["values"].split(","))
    if any(_ONE_VALUE.fullmatch(value) is None for value in values):
        raise ValueError(f"not a label's values from character {match.start('values') + 1} on")
    return values


ANY: Final = "*"
_HEALTH: Final = frozenset({("healthz",), ("livez",), ("readyz",)})


class MetricsApiHandler:
    """Answers requests; ``front_proxy`` returns the published data of the aggregator, or None."""

    def __init__(
        self,
        values: ExposedValues,
        decisions: Decisions,
        front_proxy: Callable[[], FrontProxy | None],
    ) -> None:
        self._values = values
        self._decisions = decisions
        self._front_proxy = front_proxy
        self._documents = documents()
        self._log = get_logger("custom metrics")

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer with a document, values, or a Status. The body of a request is never read."""
        try:
            return await self._answer(request)
        except StatusError as error:
            return error.response()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        parts = parts_of(request)
        if parts in _HEALTH:
            _check_method(request)
            return NamelessResponse(text="ok")
        user = self._user(request)
        document = self._documents.get(parts)
        if document is not None:
            _check_method(request)
            return json_response(document)
        match parts:
            case ("apis", group, version, "namespaces", namespace, resource, name, metric) if (
                group == GROUP and version in VERSIONS and resource in {RESOURCE, ALIAS}
            ):
                _check_method(request)
                # Under its own name: a permission for the alias alone grants nothing.
                attributes = Attributes(
                    verb="get",
                    group=GROUP,
                    version=version,
                    resource=RESOURCE,
                    namespace=namespace,
                    subresource=metric,
                    name=name,
                )
                await self._check_access(user, attributes)
                values = self._select(request, namespace, name, metric)
                return json_response(value_list(version, values))
        raise StatusError(
            HTTPStatus.NOT_FOUND,
            f"not found: GET /apis/{GROUP}/{VERSIONS[0]}/namespaces/NAMESPACE/{RESOURCE}"
            "/NAME/METRIC, where NAME and METRIC are the name of a KeptnMetric, or *",
        )

    def _user(self, request: web.BaseRequest) -> User:
        front_proxy = self._front_proxy()
        if front_proxy is None:
            raise StatusError(
                HTTPStatus.UNAUTHORIZED,
                "the client certificate authority of the API server is not known yet",
            )
        user = front_proxy.user(request)
        if not user.is_known:
            raise StatusError(HTTPStatus.FORBIDDEN, "authentication required")
        return user

    async def _check_access(self, user: User, attributes: Attributes) -> None:
        try:
            is_allowed = await self._decisions.is_allowed(user, attributes)
        except (ApiError, TimeoutError) as error:
            self._log.warning("access check failed", error=reason(error))
            raise StatusError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "the API server did not answer the access review",
                retry_after=1,
            ) from None
        if not is_allowed:
            raise StatusError(
                HTTPStatus.FORBIDDEN,
                f'user "{user.name}" cannot get resource "{RESOURCE}/{attributes.subresource}" '
                f'in API group "{GROUP}" in the namespace "{attributes.namespace}"',
            )

    def _select(
        self, request: web.BaseRequest, namespace: str, name: str, metric: str
    ) -> Iterable[ExposedValue]:
        objects, metrics = _selectors(request)
        if name == ANY:
            return [
                value
                for value in self._values.within(namespace)
                if metric in {ANY, value.metric.metadata.name}
                and objects.matches(value.metric.metadata.labels)
                and metrics.matches(value.metric.metadata.labels)
            ]
        value = self._values.get(namespace, name) if metric in {ANY, name} else None
        if value is None or not metrics.matches(value.metric.metadata.labels):
            raise StatusError(
                HTTPStatus.NOT_FOUND,
                f'{RESOURCE} "{namespace}/{name}" has no metric "{metric}" with a value that '
                "counts: see the status of the KeptnMetric",
            )
        return (value,)


def _selectors(request: web.BaseRequest) -> tuple[Selector, Selector]:
    """Return the selectors of the objects and of the metrics. Raises StatusError."""
    try:
        parameters = parameters_of(request)
    except ValueError as error:
        raise StatusError(HTTPStatus.BAD_REQUEST, f"invalid query: {error}") from None
    selectors = []
    for key in ("labelSelector", "metricLabelSelector"):
        try:
            selectors.append(parse_selector(parameters.get(key, "")))
        except ValueError as error:
            raise StatusError(HTTPStatus.BAD_REQUEST, f"{key}: {error}") from None
    return selectors[0], selectors[1]


def _check_method(request: web.BaseRequest) -> None:
    if request.method != hdrs.METH_GET:
        raise StatusError(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is allowed")
