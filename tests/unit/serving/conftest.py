"""A site with an echo application behind it, on both event loops that we run on."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
import uvloop

from harbourmaster.certs.reload import CertificateHolder, TlsOptions
from harbourmaster.certs.store import ensure
from harbourmaster.serving.http_connection import Timeouts
from harbourmaster.serving.site import Site
from helpers.certificates import strict_client
from helpers.logs import captured_log
from helpers.raw_http import Connection, Echo


def pytest_asyncio_loop_factories():
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def quiet_log():
    """Structlog's default would print every local variable of a failure."""
    with captured_log("debug"):
        yield


@pytest.fixture(scope="session")
def bundle(tmp_path_factory):
    return ensure(tmp_path_factory.mktemp("certs"), ("localhost", "127.0.0.1"), datetime.now(UTC))


@pytest.fixture
def holder(bundle):
    return CertificateHolder(bundle, TlsOptions())


@pytest.fixture
def trusting(bundle):
    return strict_client(bundle.files.ca_crt)


@pytest.fixture
async def serve():
    """Start a site: ``await serve(echo, tls=..., keepalive=...)``."""
    sites = []

    async def start(echo=None, *, tls=None, host="127.0.0.1", **timeouts):
        app = (echo or Echo()).app() if echo is None or isinstance(echo, Echo) else echo
        limits = echo.limits if isinstance(echo, Echo) else None
        site = Site(
            app,
            host=host,
            port=0,
            tls=tls,
            timeouts=Timeouts(**timeouts),
            limits=limits,
        )
        await site.start()
        sites.append(site)
        return site

    yield start
    await asyncio.gather(*(site.stop() for site in sites))


@pytest.fixture
async def connect():
    """Open a raw connection to a site: ``await connect(site, tls)``; ``first`` is there at once."""
    opened = []

    async def start(site, tls=None, *, first=None, **options):
        opening = (
            Connection.open_with(site, first) if first else Connection.open(site, tls, **options)
        )
        opened.append(await opening)
        return opened[-1]

    yield start
    await asyncio.gather(*(connection.drop() for connection in opened))
