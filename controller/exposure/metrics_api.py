"""The custom metrics API, as the API server's aggregator asks for it (keptn-spec 4.4).

One resource: KeptnMetrics, each with one metric of its own name. HPAs of type ``Object`` ask for
one, people also for ``*``. What has no value that counts is not found: Keptn answers 0 there, by
which an HPA scales down.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs

from harbourmaster.controller.exposure.access import Wish
from harbourmaster.controller.exposure.answers import StatusError, value_list
from harbourmaster.controller.exposure.discovery import GROUP, RESOURCE, VERSIONS, documents
from harbourmaster.controller.exposure.paths import parameters_of, parts_of
from harbourmaster.controller.exposure.selectors import parse_selector
from harbourmaster.kube.errors import ApiError
from harbourmaster.serving.responses import NamelessResponse, json_response
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aiohttp import web

    from harbourmaster.controller.exposure.access import Access
    from harbourmaster.controller.exposure.front_proxy import FrontProxy
    from harbourmaster.controller.exposure.selectors import Selector
    from harbourmaster.controller.exposure.values import Measured, Values
    from harbourmaster.kube.access import User

ANY: Final = "*"
_HEALTH: Final = frozenset((each,) for each in ("healthz", "livez", "readyz"))


class MetricsApiHandler:
    """Answers one request; ``front_proxy`` gives what is known of the aggregator now."""

    def __init__(
        self, values: Values, access: Access, front_proxy: Callable[[], FrontProxy | None]
    ) -> None:
        self._values = values
        self._access = access
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
            ) if group == GROUP and version in VERSIONS and resource == RESOURCE:
                _check_method(request)
                await self._check_access(Wish(user, version, namespace, name, metric))
                found = self._found(request, namespace, name, metric)
                return json_response(value_list(version, found))
        raise StatusError(
            HTTPStatus.NOT_FOUND,
            f"nothing is here; GET /apis/{GROUP}/{VERSIONS[0]}/namespaces/NAMESPACE/{RESOURCE}"
            "/NAME/METRIC, where NAME and METRIC are the name of a KeptnMetric, or *",
        )

    def _user(self, request: web.BaseRequest) -> User:
        front_proxy = self._front_proxy()
        if front_proxy is None:
            raise StatusError(
                HTTPStatus.UNAUTHORIZED, "it is not known yet by what the API server proves itself"
            )
        user = front_proxy.user(request)
        if not user.is_known:
            raise StatusError(HTTPStatus.FORBIDDEN, "only who is authenticated may ask")
        return user

    async def _check_access(self, wish: Wish) -> None:
        try:
            is_allowed = await self._access.is_allowed(wish)
        except (ApiError, TimeoutError) as error:
            self._log.warning("access not decided", error=reason(error))
            raise StatusError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "the API server did not say whether this is allowed",
                retry_after=1,
            ) from None
        if not is_allowed:
            raise StatusError(
                HTTPStatus.FORBIDDEN,
                f'user "{wish.user.name}" cannot get resource "{RESOURCE}/{wish.metric}" '
                f'in API group "{GROUP}" in the namespace "{wish.namespace}"',
            )

    def _found(
        self, request: web.BaseRequest, namespace: str, name: str, metric: str
    ) -> Iterable[Measured]:
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
        raise StatusError(HTTPStatus.BAD_REQUEST, f"the query can't be read: {error}") from None
    found = []
    for key in ("labelSelector", "metricLabelSelector"):
        try:
            found.append(parse_selector(parameters.get(key, "")))
        except ValueError as error:
            raise StatusError(HTTPStatus.BAD_REQUEST, f"{key}: {error}") from None
    return found[0], found[1]


def _check_method(request: web.BaseRequest) -> None:
    if request.method != hdrs.METH_GET:
        raise StatusError(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered here")
