from __future__ import annotations

import contextlib
from types import SimpleNamespace

import aiohttp
import pytest

from helpers.dashboard import Filled, StubAccess, bearer, serve_dashboard

HTML = {"Accept": "text/html"}


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def stores():
    return Filled(max_age=3600)


@pytest.fixture
def access():
    return StubAccess(sailor=["shop"], stowaway=[])


@pytest.fixture
async def place(stores, access):
    """A served dashboard and its visitors."""
    async with serve_dashboard(stores, access) as site, aiohttp.ClientSession() as session:

        @contextlib.asynccontextmanager
        async def ask(path, token="captain", method="GET", **more):  # noqa: S107 - of a stub
            headers = {**(bearer(token) if token else {}), **HTML, **more.pop("headers", {})}
            async with session.request(
                method, f"{site.url}{path}", headers=headers, allow_redirects=False, **more
            ) as answer:
                yield answer

        async def page(path, token="captain", status=200, **more):  # noqa: S107 - of a stub
            async with ask(path, token, **more) as answer:
                text = await answer.text()
                assert answer.status == status, text
                return text

        yield SimpleNamespace(
            site=site, ask=ask, page=page, filled=stores, access=access, session=session
        )
