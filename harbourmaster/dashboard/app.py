"""The dashboard's routes: who asks, what they may see, and the page that is made of it."""

from __future__ import annotations

import asyncio
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
from harbourmaster.dashboard import attempts
from harbourmaster.dashboard.answers import (
    PageRefused,
    check,
    forbidden,
    hidden_on,
    notes_on,
    unchecked,
)
from harbourmaster.dashboard.attempts import RateLimit
from harbourmaster.dashboard.guard import (
    client_of,
    harden,
    is_from_our_page,
    is_host_of_loopback,
    local_path,
)
from harbourmaster.dashboard.pages.gate_facts import DEFINITIONS
from harbourmaster.dashboard.query import read_query
from harbourmaster.dashboard.registry import (
    BY_NAME,
    PAGES,
    places_of,
)
from harbourmaster.dashboard.rendering import read_assets, render
from harbourmaster.dashboard.session import LIFETIME
from harbourmaster.dashboard.slicing import run_sliced
from harbourmaster.dashboard.sources import SOURCES
from harbourmaster.dashboard.stream import (
    MOST,
    MOST_OF_ONE,
    Hub,
    StreamReader,
    TooManyStreamsError,
)
from harbourmaster.dashboard.tokens import TriedTokens, fault_of, may_be_token
from harbourmaster.dashboard.visibility import look
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
    from harbourmaster.dashboard.session import Sealer
    from harbourmaster.dashboard.sources import PageSources
    from harbourmaster.dashboard.visibility import UserAccess, Visibility

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
    """Gives the current sources."""

    def __call__(self, *, counts: bool, pod: str = "") -> Awaitable[PageSources]:
        """The sources; with ``counts`` of the pods that policies select, and one pod by its key."""


class Dashboard:
    """Answers requests."""

    def __init__(
        self,
        sources: ReadSources,
        access: UserAccess,
        sealer: Sealer,
        *,
        is_tls: bool,
        proxies: Sequence[str] = (),
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.hub = Hub()
        self._read_sources = sources
        self._access = access
        self._sealer = sealer
        self._is_tls = is_tls
        self._proxies = parse_networks(proxies)
        self._now = now
        self._cookie = f"__Host-{COOKIE}" if is_tls else COOKIE
        self._assets = read_assets()
        self._by_path = {asset.path: asset for asset in self._assets.values()}
        self._tokens = TriedTokens(access, _elapsed)
        self._made = RateLimit(attempts.PAGES, _elapsed)
        self._log = get_logger("dashboard")

    def app(self) -> web.Application:
        """The application to serve."""
        app = web.Application(middlewares=[self._guarded], client_max_size=_LONGEST_FORM)
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

    def changed(self, source: str, keys: frozenset[str]) -> None:
        """Something has changed in the source of this name in the sources."""
        kind = _KINDS.get(source)
        if kind is not None:
            self.hub.changed(kind, keys)

    # What every request goes through.

    @property
    def _guarded(self) -> Any:  # noqa: ANN401 - aiohttp's own type is private
        @web.middleware
        async def guarded(
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
                found = self._refusal(request, refused)
                if hdrs.ALLOW in error.headers:
                    found.headers[hdrs.ALLOW] = error.headers[hdrs.ALLOW]
                return found
            except TooManyStreamsError:
                refused = PageRefused(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    f"Too many open pages: {MOST} at most, and {MOST_OF_ONE} of one user.",
                    "Reload the page to see what is new.",
                    retry_after=60,
                )
            except MalformedError as error:
                text = f"The pod cannot be explained: {error}."
                refused = PageRefused(HTTPStatus.UNPROCESSABLE_ENTITY, text)
            except (ApiError, TimeoutError) as error:
                self._log.warning("access check failed", error=reason(error))
                refused = unchecked(error)
            return self._refusal(request, refused)

        return guarded

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

    # Who asks.

    def _token(self, request: web.Request) -> str:
        """The token of the header, else of the cookie; empty for none."""
        given = request.headers.get(hdrs.AUTHORIZATION, "")
        if given:
            token = given[len(_BEARER) :].strip() if given.lower().startswith(_BEARER) else ""
            return token if may_be_token(token) else ""
        cookie = request.cookies.get(self._cookie)
        return (self._sealer.open(cookie) or "") if cookie else ""

    async def _user(self, request: web.Request) -> User:
        """Who asks. Raises PageRefused, and a redirection to the login page for who has none."""
        token = self._token(request)
        is_bearer = hdrs.AUTHORIZATION in request.headers
        user = None
        if token:
            # What we sealed was good once, so nobody can try tokens by cookies.
            user = await (
                self._tokens.tried(token, client_of(request, self._proxies))
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

    async def _visible(
        self,
        user: User,
        kinds: tuple[Resource, ...],
        sources: PageSources,
        only: str,
        *,
        whole: bool,
    ) -> Visibility:
        """What the user may see; ``whole`` asks about namespaces without any objects, too."""
        known = frozenset() if sources.namespaces is None else frozenset(sources.namespaces.store)
        wanted = {kind: places_of(kind, sources) | (known if whole else set()) for kind in kinds}
        besides = dict.fromkeys(DEFINITIONS, sources.definition_namespaces)
        return await look(self._access, user, wanted, known, only, besides)

    # Pages.

    def _page_handler(self, page: Page) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            query = replace(read_query(request.query), **request.match_info)
            sources, visible = await self._seen(request, page, query.namespace)
            if page.reads_pod:
                sources = await self._read_sources(
                    counts=False, pod=f"{query.namespace}/{query.name}"
                )
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
                live=f"/stream{query.link(view=page.name, q='', state='', version='')}",
            )

        return handle

    async def _seen(
        self, request: web.Request, page: Page, namespace: str
    ) -> tuple[PageSources, Visibility]:
        """What a page is made of, and what the user may see of it. Raises PageRefused."""
        user = await self._user(request)
        self._note_page(user)
        sources = await self._read_sources(counts=page.counts)
        visible = await self._visible(user, page.kinds, sources, namespace, whole=False)
        if page.is_refused(visible):
            raise forbidden(page, user, namespace, visible.unasked)
        return sources, visible

    def _note_page(self, user: User) -> None:
        check(self._made, user.name, "Too many requests.")
        self._made.note(user.name)

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
            assets={name: each.path for name, each in self._assets.items()},
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
            user = await self._tokens.tried(token, client_of(request, self._proxies))
        except PageRefused as refused:
            found = self._login_form(
                request, after, f"{refused.text} {refused.advice}", refused.status
            )
            found.headers[hdrs.RETRY_AFTER] = str(math.ceil(refused.retry_after))
            return found
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

    # What comes besides.

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        user = await self._user(request)
        page = BY_NAME.get(request.query.get("view", ""))
        if page is None:
            raise PageRefused(HTTPStatus.NOT_FOUND, "This page does not exist.")
        only = read_query(request.query).namespace
        # Before anything is asked: it takes as many questions as a page does.
        self.hub.check(user.name)
        self._note_page(user)
        token = self._token(request)

        async def visible() -> Visibility:
            sources = await self._read_sources(counts=False)
            return await self._visible(user, page.kinds, sources, only, whole=True)

        async def recheck() -> Visibility | None:
            try:
                if await self._access.user(token) != user or not self._token(request):
                    return None
                found = await visible()
            except (ApiError, TimeoutError):
                # Who can't be asked about sees nothing more; the browser comes again.
                return None
            return None if page.is_refused(found) else found

        first = await visible()
        if page.is_refused(first):
            raise forbidden(page, user, only, first.unasked)
        return await self.hub.serve(request, user.name, StreamReader(page.kinds, first), recheck)

    async def _static(self, request: web.Request) -> web.Response:
        found = self._by_path.get(request.path)
        if found is None:
            raise PageRefused(HTTPStatus.NOT_FOUND, "This file does not exist.")
        headers = {hdrs.CACHE_CONTROL: _FOREVER, hdrs.ETAG: f'"{found.etag}"'}
        if found.etag in request.headers.get(hdrs.IF_NONE_MATCH, ""):
            return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
        headers[hdrs.CONTENT_TYPE] = found.content_type
        return web.Response(body=found.body, headers=headers)


_KINDS: Final = {name: kind for kind, name in SOURCES.items()} | {"waits": PODS}
_TEXTS: Final = {
    HTTPStatus.NOT_FOUND: "This page does not exist.",
    HTTPStatus.METHOD_NOT_ALLOWED: "This dashboard is read-only.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The token is too long.",
}


def _elapsed() -> float:
    return asyncio.get_running_loop().time()


def _wants_html(request: web.Request) -> bool:
    return _HTML in request.headers.get(hdrs.ACCEPT, "")
