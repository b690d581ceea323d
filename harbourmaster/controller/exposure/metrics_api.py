"""The custom metrics API, as the API server's aggregator asks for it (keptn-spec 4.4).

One resource: KeptnMetrics, each with one metric of its own name. HPAs of type ``Object`` ask for
one, people also for ``*``. What has no value that counts is not found: Keptn answers 0 there, by
which an HPA scales down.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs
from msgspec import Struct

from harbourmaster.controller.exposure.answers import StatusError, value_list
from harbourmaster.controller.exposure.documents import ALIAS, GROUP, RESOURCE, VERSIONS, documents
from harbourmaster.controller.exposure.values import parameters_of, parts_of
from harbourmaster.kube.access import Attributes
from harbourmaster.kube.errors import ApiError
from harbourmaster.serving.responses import NamelessResponse, json_response
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from aiohttp import web

    from harbourmaster.controller.exposure.front_proxy import FrontProxy
    from harbourmaster.controller.exposure.values import ExposedValue, ExposedValues
    from harbourmaster.kube.access import Decisions, User


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


class SelectorTerm(Struct, frozen=True):
    """What one label must be; ``values`` are one for ``<`` and ``>`` and none for a key alone."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels are so."""
        value = labels.get(self.key)
        match self.operator:
            case "exists":
                return value is not None
            case "!":
                return value is None
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
        (bound,) = self.values
        if value is None or _NUMBER.fullmatch(value) is None:
            return False
        return int(value) < int(bound) if self.operator == "<" else int(value) > int(bound)


class Selector(Struct, frozen=True):
    """Requirements that must all hold; none select everything."""

    requirements: tuple[SelectorTerm, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels are selected."""
        return all(requirement.holds(labels) for requirement in self.requirements)


def parse_selector(text: str) -> Selector:
    """Read a selector. Raises ValueError with one line that says where it can't be read."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"a selector has {MAX_LENGTH} characters at most")
    return Selector(tuple(_requirements(text)))


def _requirements(text: str) -> Iterator[SelectorTerm]:
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


def _requirement(found: re.Match[str]) -> SelectorTerm:
    if found["absent"]:
        return SelectorTerm(found["missing"], "!")
    key = found["key"]
    if found["sign"]:
        operator = "notin" if found["sign"] == "!=" else "in"
        return SelectorTerm(key, operator, frozenset((found["value"],)))
    if found["order"]:
        return SelectorTerm(key, found["order"], frozenset((found["number"],)))
    if found["set"]:
        values = frozenset(word.strip() for word in found["values"].split(","))
        if any(_ONE_VALUE.fullmatch(value) is None for value in values):
            raise ValueError(f"not a label's values from character {found.start('values') + 1} on")
        return SelectorTerm(key, found["set"], values)
    return SelectorTerm(key, "exists")


ANY: Final = "*"
_HEALTH: Final = frozenset((each,) for each in ("healthz", "livez", "readyz"))


class MetricsApiHandler:
    """Answers one request; ``front_proxy`` gives what is known of the aggregator now."""

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
        """A document, values, or a Status. The body of a request is never read."""
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
            case (
                "apis",
                group,
                version,
                "namespaces",
                namespace,
                resource,
                name,
                metric,
            ) if group == GROUP and version in VERSIONS and resource in {RESOURCE, ALIAS}:
                _check_method(request)
                # Under its own name: a right to the alias alone opens nothing.
                wish = Attributes(
                    verb="get",
                    group=GROUP,
                    version=version,
                    resource=RESOURCE,
                    namespace=namespace,
                    subresource=metric,
                    name=name,
                )
                await self._check_access(user, wish)
                found = self._found(request, namespace, name, metric)
                return json_response(value_list(version, found))
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

    async def _check_access(self, user: User, wish: Attributes) -> None:
        try:
            is_allowed = await self._decisions.is_allowed(user, wish)
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
                f'user "{user.name}" cannot get resource "{RESOURCE}/{wish.subresource}" '
                f'in API group "{GROUP}" in the namespace "{wish.namespace}"',
            )

    def _found(
        self, request: web.BaseRequest, namespace: str, name: str, metric: str
    ) -> Iterable[ExposedValue]:
        objects, metrics = _selectors(request)
        if name == ANY:
            return [
                each
                for each in self._values.within(namespace)
                if metric in {ANY, each.metric.metadata.name}
                and objects.matches(each.metric.metadata.labels)
                and metrics.matches(each.metric.metadata.labels)
            ]
        found = self._values.get(namespace, name) if metric in {ANY, name} else None
        if found is None or not metrics.matches(found.metric.metadata.labels):
            raise StatusError(
                HTTPStatus.NOT_FOUND,
                f'{RESOURCE} "{namespace}/{name}" has no metric "{metric}" with a value that '
                "counts: see the status of the KeptnMetric",
            )
        return (found,)


def _selectors(request: web.BaseRequest) -> tuple[Selector, Selector]:
    """Of the objects, and of the metrics."""
    try:
        parameters = parameters_of(request)
    except ValueError as error:
        raise StatusError(HTTPStatus.BAD_REQUEST, f"invalid query: {error}") from None
    found = []
    for key in ("labelSelector", "metricLabelSelector"):
        try:
            found.append(parse_selector(parameters.get(key, "")))
        except ValueError as error:
            raise StatusError(HTTPStatus.BAD_REQUEST, f"{key}: {error}") from None
    return found[0], found[1]


def _check_method(request: web.BaseRequest) -> None:
    if request.method != hdrs.METH_GET:
        raise StatusError(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is allowed")
