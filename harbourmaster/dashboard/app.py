"""Routes requests: authenticates users, finds what they may see, and renders the page."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Generator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

from aiohttp import hdrs, web
from msgspec.structs import replace

from harbourmaster.api.decoding import MalformedError
from harbourmaster.api.resources import PODS
from harbourmaster.api.times import utc_now
from harbourmaster.dashboard.answers import (
    PageRefused,
    check_failed,
    check_rate,
    forbidden,
    hidden_on,
    notes_on,
)
from harbourmaster.dashboard.guard import (
    client_of,
    harden,
    is_from_our_page,
    is_host_of_loopback,
    local_path,
)
from harbourmaster.dashboard.pages.gates import DEFINITIONS
from harbourmaster.dashboard.query import read_query
from harbourmaster.dashboard.registry import (
    BY_NAME,
    PAGES,
    places_of,
)
from harbourmaster.dashboard.rendering import read_assets, render
from harbourmaster.dashboard.slicing import run_sliced
from harbourmaster.dashboard.sources import SOURCES
from harbourmaster.dashboard.stream import (
    MOST,
    MOST_OF_USER,
    Hub,
    StreamReader,
    TooManyStreamsError,
)
from harbourmaster.dashboard.tokens import (
    LIFETIME,
    PAGE_RATE,
    RateLimit,
    TokenChecker,
    fault_of,
    may_be_token,
)
from harbourmaster.dashboard.visibility import find_visibility
from harbourmaster.kube.access import User
from harbourmaster.kube.errors import ApiError
from harbourmaster.providers.addresses import parse_networks
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

    from harbourmaster.api.resources import Resource
    from harbourmaster.dashboard.registry import Page
    from harbourmaster.dashboard.sources import PageSources
    from harbourmaster.dashboard.tokens import Sealer
    from harbourmaster.dashboard.visibility import UserAccess, Visibility
    from harbourmaster.kube.client import Client

COOKIE: Final = "harbourmaster"
_USER: Final = web.RequestKey("user", User)
_LONGEST_FORM: Final = 16 * 1024
_FORM_PATIENCE: Final = 10.0
"""Seconds for a form to arrive."""
_BEARER: Final = "bearer "
_HTML: Final = "text/html"
_FORM: Final = "application/x-www-form-urlencoded"
_FOREVER: Final = "public, max-age=31536000, immutable"


class ReadSources(Protocol):
    """A function that returns the current sources."""

    def __call__(self, *, counts: bool) -> Awaitable[PageSources]:
        """Return the sources, with ``counts`` of pods."""


class Dashboard:
    """The application that answers requests."""

    def __init__(  # noqa: PLR0913 - what to read, for whom and how
        self,
        sources: ReadSources,
        access: UserAccess,
        sealer: Sealer,
        client: Client,
        *,
        is_tls: bool,
        proxies: Sequence[str] = (),
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.hub = Hub()
        self._read_sources = sources
        self._access = access
        self._sealer = sealer
        self._client = client
        self._is_tls = is_tls
        self._proxies = parse_networks(proxies)
        self._now = now
        self._cookie = f"__Host-{COOKIE}" if is_tls else COOKIE
        self._assets = read_assets()
        self._by_path = {asset.path: asset for asset in self._assets.values()}
        self._tokens = TokenChecker(access, _monotonic)
        self._page_rate = RateLimit(PAGE_RATE, _monotonic)
        self._log = get_logger("dashboard")

    def app(self) -> web.Application:
        """Create the application of aiohttp."""
        app = web.Application(middlewares=[self._middleware()], client_max_size=_LONGEST_FORM)
        for page in BY_NAME.values():
            app.router.add_get(page.path, self._page_handler(page))
        app.router.add_get("/login", self._login_page)
        app.router.add_post("/login", self._login)
        app.router.add_post("/logout", self._logout)
        app.router.add_get("/stream", self._stream, allow_head=False)
        app.router.add_get("/static/{name}", self._static)
        app.on_response_prepare.append(harden)

        async def close(_app: web.Application) -> None:
            self.hub.close()

        app.on_shutdown.append(close)
        return app

    def notify(self, source: str, keys: frozenset[str]) -> None:
        """Notify open pages of a change in the source of this name."""
        kind = _KINDS.get(source)
        if kind is not None:
            self.hub.notify(kind, keys)

    # Middleware.

    def _middleware(self) -> Any:  # noqa: ANN401 - aiohttp's own type is private
        @web.middleware
        async def answer_errors(
            request: web.Request,
            handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
        ) -> web.StreamResponse:
            try:
                self._check_host(request)
                return await handler(request)
            except PageRefused as error:
                refused = error
            except web.HTTPException as error:
                status = HTTPStatus(error.status)
                if status < HTTPStatus.BAD_REQUEST:
                    raise
                refused = PageRefused(status, _TEXTS.get(status, status.phrase))
                response = self._refusal(request, refused)
                if hdrs.ALLOW in error.headers:
                    response.headers[hdrs.ALLOW] = error.headers[hdrs.ALLOW]
                return response
            except TooManyStreamsError:
                refused = PageRefused(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    f"Too many open pages: {MOST} at most, and {MOST_OF_USER} of one user.",
                    "Reload the page to see what is new.",
                    retry_after=60,
                )
            except MalformedError as error:
                text = f"The pod cannot be explained: {error}."
                refused = PageRefused(HTTPStatus.UNPROCESSABLE_ENTITY, text)
            except (ApiError, TimeoutError) as error:
                self._log.warning("access check failed", error=reason(error))
                refused = check_failed(error)
            return self._refusal(request, refused)

        return answer_errors

    def _check_host(self, request: web.Request) -> None:
        if not self._is_tls and not is_host_of_loopback(request):
            raise PageRefused(
                HTTPStatus.MISDIRECTED_REQUEST,
                "This address is available only on this machine.",
                "Open http://localhost with the port that you forwarded.",
            )

    def _refusal(self, request: web.Request, refused: PageRefused) -> web.Response:
        if _wants_html(request):
            response = self._html(request, "error.html", refused.status, refused=refused)
        else:
            text = " ".join(filter(None, (refused.text, refused.advice, refused.command)))
            response = web.Response(status=refused.status, text=f"{int(refused.status)}: {text}\n")
        if refused.retry_after:
            response.headers[hdrs.RETRY_AFTER] = str(math.ceil(refused.retry_after))
        if refused.status is HTTPStatus.UNAUTHORIZED:
            response.headers[hdrs.WWW_AUTHENTICATE] = 'Bearer realm="harbourmaster"'
        return response

    # Users and permissions.

    def _token(self, request: web.Request) -> str:
        """Return the token of the header, else of the cookie; empty without one."""
        given = request.headers.get(hdrs.AUTHORIZATION, "")
        if given:
            token = given[len(_BEARER) :].strip() if given.lower().startswith(_BEARER) else ""
            return token if may_be_token(token) else ""
        cookie = request.cookies.get(self._cookie)
        return (self._sealer.open(cookie) or "") if cookie else ""

    async def _user(self, request: web.Request) -> User:
        """Return the user. Raises PageRefused, or HTTPSeeOther to the login page."""
        token = self._token(request)
        is_bearer = hdrs.AUTHORIZATION in request.headers
        user = None
        if token:
            # A cookie has a token that was valid once, so clients cannot try tokens by cookies.
            user = await (
                self._tokens.find_user(token, client_of(request, self._proxies))
                if is_bearer
                else self._access.user(token)
            )
        if user is not None:
            request[_USER] = user
            return user
        if is_bearer or not _wants_html(request):
            raise PageRefused(
                HTTPStatus.UNAUTHORIZED,
                "The API server rejected this token." if token else "No token was given.",
                "Log in at /login, or send a ServiceAccount's token as Authorization: Bearer.",
            )
        raise web.HTTPSeeOther(f"/login?next={quote(local_path(request.path_qs), safe='/')}")

    async def _find_visible(
        self,
        user: User,
        kinds: tuple[Resource, ...],
        sources: PageSources,
        only: str,
        *,
        whole: bool,
    ) -> Visibility:
        """Find what the user may see; with ``whole``, also in namespaces without objects."""
        known = frozenset() if sources.namespaces is None else frozenset(sources.namespaces.store)
        wanted = {kind: places_of(kind, sources) | (known if whole else set()) for kind in kinds}
        besides = dict.fromkeys(DEFINITIONS, sources.definition_namespaces)
        return await find_visibility(self._access, user, wanted, known, only, besides)

    # Pages.

    def _page_handler(self, page: Page) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            query = replace(read_query(request.query), **request.match_info)
            sources, visible = await self._read_visible(request, page, query.namespace)
            if page.reads is not None:
                read = await page.reads(self._client, sources, visible, query)
                sources = dataclasses.replace(sources, read=read)
            live = query.link(view=page.name, q="", state="", version="")
            view = page.build(sources, visible, query, self._now())
            if isinstance(view, Generator):
                view = await run_sliced(view)
            if view is None:
                raise PageRefused(
                    HTTPStatus.NOT_FOUND,
                    f"Nothing is called {query.name} in the namespace {query.namespace}.",
                    "It may have been deleted.",
                )
            return self._html(
                request,
                page.template,
                view=view,
                page=page,
                query=query,
                notes=notes_on(page, sources, visible),
                hidden=hidden_on(page, request[_USER], query.namespace, visible),
                live=f"/stream{live}" if page.is_live else "",
            )

        return handle

    async def _read_visible(
        self, request: web.Request, page: Page, namespace: str
    ) -> tuple[PageSources, Visibility]:
        """Return the sources of a page, and what the user may see of them. Raises PageRefused."""
        user = await self._user(request)
        self._note_page(user)
        sources = await self._read_sources(counts=page.counts)
        visible = await self._find_visible(user, page.kinds, sources, namespace, whole=False)
        if page.is_refused(visible):
            raise forbidden(page, user, namespace, visible.unchecked_namespaces)
        return sources, visible

    def _note_page(self, user: User) -> None:
        check_rate(self._page_rate, user.name, "Too many requests.")
        self._page_rate.note(user.name)

    def _html(
        self,
        request: web.Request,
        template: str,
        status: HTTPStatus = HTTPStatus.OK,
        **values: Any,  # noqa: ANN401 - what the template shows
    ) -> web.Response:
        user = request.get(_USER)
        body = render(
            template,
            self._now(),
            **({"page": None, "query": None, "notes": (), "hidden": ("",), "live": ""} | values),
            pages=PAGES,
            user="" if user is None else user.name,
            assets={name: asset.path for name, asset in self._assets.items()},
        )
        return web.Response(status=status, text=body, content_type=_HTML)

    # Logging in and out.

    async def _login_page(self, request: web.Request) -> web.Response:
        return self._login_form(request, local_path(request.query.get("next", "/")))

    def _login_form(
        self,
        request: web.Request,
        after: str,
        fault: str = "",
        status: HTTPStatus = HTTPStatus.OK,
    ) -> web.Response:
        return self._html(request, "login.html", status, after=after, fault=fault)

    async def _login(self, request: web.Request) -> web.Response:
        self._check_form(request)
        try:
            async with asyncio.timeout(_FORM_PATIENCE):
                form = await request.post()
        except TimeoutError:
            raise PageRefused(HTTPStatus.REQUEST_TIMEOUT, "The form was sent too slowly.") from None
        except (ValueError, LookupError):
            raise PageRefused(HTTPStatus.BAD_REQUEST, "The form cannot be read.") from None
        after, token = local_path(str(form.get("next", "/"))), str(form.get("token", "")).strip()
        if token.lower().startswith(_BEARER):
            token = token[len(_BEARER) :].strip()
        fault = fault_of(token)
        if fault:
            return self._login_form(request, after, fault, HTTPStatus.BAD_REQUEST)
        try:
            user = await self._tokens.find_user(token, client_of(request, self._proxies))
        except PageRefused as refused:
            text = f"{refused.text} {refused.advice}"
            response = self._login_form(request, after, text, refused.status)
            response.headers[hdrs.RETRY_AFTER] = str(math.ceil(refused.retry_after))
            return response
        if user is None:
            fault = "The API server rejected this token, or it expired."
            return self._login_form(request, after, fault, HTTPStatus.UNAUTHORIZED)
        self._log.info("logged in", user=user.name)
        response = web.Response(status=HTTPStatus.SEE_OTHER, headers={hdrs.LOCATION: after})
        response.set_cookie(
            self._cookie,
            self._sealer.seal(token),
            max_age=LIFETIME,
            path="/",
            secure=self._is_tls,
            httponly=True,
            samesite="Strict",
        )
        return response

    async def _logout(self, request: web.Request) -> web.Response:
        self._check_form(request)
        response = web.Response(status=HTTPStatus.SEE_OTHER, headers={hdrs.LOCATION: "/login"})
        response.del_cookie(
            self._cookie, path="/", secure=self._is_tls, httponly=True, samesite="Strict"
        )
        return response

    def _check_form(self, request: web.Request) -> None:
        if request.body_exists and request.content_type != _FORM:
            raise PageRefused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Unknown form.")
        if not is_from_our_page(request):
            raise PageRefused(
                HTTPStatus.FORBIDDEN,
                "This form was not sent by a page of this dashboard.",
                "Open the dashboard, and send it from there.",
            )

    # Streams and static files.

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        user = await self._user(request)
        page = BY_NAME.get(request.query.get("view", ""))
        if page is None:
            raise PageRefused(HTTPStatus.NOT_FOUND, "This page does not exist.")
        only = read_query(request.query).namespace
        # First, because it takes as many access reviews as a page.
        self.hub.check(user.name)
        self._note_page(user)
        token = self._token(request)

        async def find_visible() -> Visibility:
            sources = await self._read_sources(counts=False)
            return await self._find_visible(user, page.kinds, sources, only, whole=True)

        async def recheck() -> Visibility | None:
            try:
                if await self._access.user(token) != user or not self._token(request):
                    return None
                visible = await find_visible()
            except (ApiError, TimeoutError):
                # Without an answer the stream ends, and the browser connects again.
                return None
            return None if page.is_refused(visible) else visible

        first = await find_visible()
        if page.is_refused(first):
            raise forbidden(page, user, only, first.unchecked_namespaces)
        return await self.hub.serve(request, user.name, StreamReader(page.kinds, first), recheck)

    async def _static(self, request: web.Request) -> web.Response:
        asset = self._by_path.get(request.path)
        if asset is None:
            raise PageRefused(HTTPStatus.NOT_FOUND, "This file does not exist.")
        headers = {hdrs.CACHE_CONTROL: _FOREVER, hdrs.ETAG: f'"{asset.etag}"'}
        if asset.etag in request.headers.get(hdrs.IF_NONE_MATCH, ""):
            return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
        headers[hdrs.CONTENT_TYPE] = asset.content_type
        return web.Response(body=asset.body, headers=headers)


_KINDS: Final = {name: kind for kind, name in SOURCES.items()} | {"waits": PODS}
_TEXTS: Final = {
    HTTPStatus.NOT_FOUND: "This page does not exist.",
    HTTPStatus.METHOD_NOT_ALLOWED: "This dashboard is read-only.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The token is too long.",
}


def _monotonic() -> float:
    return asyncio.get_running_loop().time()


def _wants_html(request: web.Request) -> bool:
    return _HTML in request.headers.get(hdrs.ACCEPT, "")
