"""Ready or not, and why; alive; metrics."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime

import pytest
import trustme

from harbourmaster.certs.reload import CertificateHolder, TlsOptions
from harbourmaster.certs.store import ensure
from harbourmaster.serving import readiness as readiness_module
from harbourmaster.serving.readiness import CACHED, Readiness, SharedPage, health_app, tls_probe
from harbourmaster.telemetry.metrics import create_metrics
from helpers.virtual_time import virtual


def get(path, method="GET"):
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


@pytest.fixture
async def readiness():
    return Readiness()


@pytest.fixture
async def health(serve, connect, readiness):
    return await connect(await serve(health_app(readiness, create_metrics("1.0").registry)))


async def test_nothing_failing_is_ready(readiness):
    assert await readiness.failing() == {}


async def test_conditions_come_and_go(readiness):
    readiness.set("policies", "2 files can't be read")
    assert await readiness.failing() == {"policies": "2 files can't be read"}
    readiness.set("policies", None)
    assert await readiness.failing() == {}


async def test_a_probe_is_asked_once_in_a_while_only(readiness):
    asked = []

    async def probe():
        asked.append(1)
        await asyncio.sleep(0)
        return "no"

    readiness.add_probe("serving", probe)
    results = await asyncio.gather(*(readiness.failing() for _ in range(10)))
    assert results == [{"serving": "no"}] * 10
    assert len(asked) == 1
    readiness._probed_at -= CACHED
    await readiness.failing()
    assert len(asked) == 2


@pytest.mark.parametrize("path", ["/healthz", "/healthz/webhook", "/readyz"])
async def test_well_is_ok(health, path):
    answer = await health.ask(get(path))
    assert (answer.status, answer.body) == (200, b"ok\n")


async def test_unready_names_each_reason_and_is_alive_all_the_same(health, readiness):
    readiness.set("policies", "none read")
    readiness.set("draining", "the server is stopping")
    answer = await health.ask(get("/readyz"))
    assert answer.status == 503
    assert answer.body == b"draining: the server is stopping\npolicies: none read\n"
    assert (await health.ask(get("/healthz"))).status == 200


async def test_metrics_are_prometheus_text(health):
    answer = await health.ask(get("/metrics"))
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert b'harbourmaster_build_info{version="1.0"} 1.0' in answer.body


@pytest.mark.parametrize("method", ["POST", "HEAD", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_other_methods_are_not_allowed(health, method, path):
    health.send(get(path, method))
    head = await health.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 405 ")


@pytest.mark.claim("W14")
@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/"])
async def test_of_requests_that_come_at_once_the_first_is_answered(health, path):
    assert (await health.ask(get("/healthz"))).status == 200
    health.send(get(path) * 1000)
    assert (await health.rest()).count(b"HTTP/1.1 ") == 1


async def test_health_names_no_software(health):
    assert "server" not in (await health.ask(get("/healthz"))).headers


async def test_a_serving_site_passes_its_probe(serve, holder, bundle):
    site = await serve(tls=holder.context)
    assert await tls_probe(site, lambda: bundle.serving_der)() is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "0::0"])  # noqa: S104 - for a moment
async def test_a_site_on_all_addresses_is_dialled_on_this_machine(serve, holder, bundle, host):
    site = await serve(tls=holder.context, host=host)
    assert await tls_probe(site, lambda: bundle.serving_der)() is None


async def test_a_site_that_wants_client_certificates_passes_its_probe(serve, bundle):
    options = TlsOptions(client_ca=trustme.CA().cert_pem.bytes())
    site = await serve(tls=CertificateHolder(bundle, options).context)
    assert await tls_probe(site, lambda: bundle.serving_der)() is None


async def test_another_certificate_than_the_current_one_fails_the_probe(serve, holder, tmp_path):
    site = await serve(tls=holder.context)
    foreign = ensure(tmp_path, ("localhost",), datetime.now(UTC))
    reason = await tls_probe(site, lambda: foreign.serving_der)()
    assert reason == f"{site.url} does not present the current certificate"


async def test_a_stopped_site_fails_the_probe(serve, holder, bundle):
    site = await serve(tls=holder.context)
    site.stop_listening()
    await asyncio.sleep(0)
    reason = await tls_probe(site, lambda: bundle.serving_der)()
    assert reason.startswith(f"{site.url} does not serve TLS: ")


async def test_a_site_that_does_not_answer_fails_the_probe_in_time(bundle):
    given_up = asyncio.Event()

    async def say_nothing(reader, writer):
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
        given_up.set()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    host, port = silent.sockets[0].getsockname()

    class Silent:
        url = "https://silent"

    Silent.loopback, Silent.port = host, port
    reason = await tls_probe(Silent, lambda: bundle.serving_der, timeout=0.1)()
    assert reason == "https://silent did not complete a handshake within 0.1 s"
    await given_up.wait()
    silent.close()
    await asyncio.sleep(0)


async def test_a_site_without_tls_fails_the_probe(serve, bundle):
    site = await serve()
    reason = await tls_probe(site, lambda: bundle.serving_der)()
    assert "does not serve TLS" in reason
    assert "\n" not in reason


async def test_the_startup_probe_is_answered_when_the_process_is_ready(readiness, health):
    looks = asyncio.Event()
    state = ["caches are empty"]

    async def probe():
        looks.set()
        return state[0]

    readiness.add_probe("caches", probe)
    readiness.set("starting", "not serving yet")
    answer = asyncio.create_task(health.ask(get("/startupz")))
    await looks.wait()
    readiness.set("starting", None)
    looks.clear()
    await looks.wait()
    assert not answer.done()
    state[0] = None
    assert (await answer).status == 200
    assert (await health.ask(get("/readyz"))).status == 200


async def test_the_startup_probe_is_answered_where_a_start_takes_too_long(
    readiness, health, monkeypatch
):
    monkeypatch.setattr(readiness_module, "STARTUP_WAIT", 0.01)
    readiness.set("certificates", "tls.crt is missing")
    assert (await health.ask(get("/startupz"))).status == 200
    assert (await health.ask(get("/readyz"))).status == 503


async def test_startup_probes_share_one_check_until_the_process_is_ready(readiness, monkeypatch):
    # Else the cached result hides further checks.
    monkeypatch.setattr(readiness_module, "CACHED", 0.0)
    checks = 0

    async def probe():
        nonlocal checks
        checks += 1
        await asyncio.sleep(0)
        return None if checks > 2 else "caches are empty"

    readiness.add_probe("caches", probe)
    await asyncio.gather(*(readiness.until_ready() for _ in range(100)))
    assert checks == 3


async def test_a_startup_probe_is_answered_at_once_after_the_first_success(readiness, health):
    assert (await health.ask(get("/startupz"))).status == 200
    readiness.set("draining", "the server is stopping")
    async with asyncio.timeout(readiness_module.STARTUP_WAIT / 2):
        assert (await health.ask(get("/startupz"))).status == 200


async def test_the_wait_passes_to_the_next_caller_where_one_gives_up(readiness):
    readiness.set("certificates", "tls.crt is missing")
    first = asyncio.create_task(readiness.until_ready())
    second = asyncio.create_task(readiness.until_ready())
    await asyncio.sleep(0)
    first.cancel()
    readiness.set("certificates", None)
    await second
    assert first.cancelled()


async def test_startup_probes_beyond_the_cap_do_not_wait(serve, connect, readiness, monkeypatch):
    monkeypatch.setattr(readiness_module, "_MAX_WAITING", 1)
    site = await serve(health_app(readiness, create_metrics("1.0").registry))
    looks = asyncio.Event()

    async def probe():
        looks.set()
        return "caches are empty"

    readiness.add_probe("caches", probe)
    first = asyncio.create_task((await connect(site)).ask(get("/startupz")))
    await looks.wait()
    assert (await (await connect(site)).ask(get("/startupz"))).status == 200
    assert not first.done()
    first.cancel()


COST = 0.1


class Page:
    """A page that takes time to render; each rendering has another number."""

    def __init__(self):
        self.count = 0
        self.shared = SharedPage(self.render)

    def render(self):
        self.count += 1
        asyncio.get_running_loop()._now += COST
        return b"%d" % self.count


@virtual
async def test_who_asks_at_the_same_time_gets_one_rendering():
    page = Page()
    pages = await asyncio.gather(*(page.shared.get() for _ in range(100)))
    assert set(pages) == {b"1"}


@virtual
async def test_a_page_is_rendered_after_it_was_asked_for():
    page = Page()
    assert await page.shared.get() == b"1"
    assert await page.shared.get() == b"2"


@pytest.mark.claim("W14")
@virtual
async def test_a_flood_takes_a_fifth_of_the_loop():
    page = Page()
    clock = asyncio.get_running_loop().time

    async def flood():
        while clock() < end:
            await page.shared.get()

    began = clock()
    end = began + 10
    await asyncio.gather(*(flood() for _ in range(20)))
    spent = page.count * COST
    assert 1 < spent <= (clock() - began) / 5 + COST


@virtual
async def test_a_rendering_that_fails_is_tried_again():
    def render():
        if not failures:
            failures.append(1)
            raise ValueError
        return b"page"

    failures = []
    shared = SharedPage(render)
    with pytest.raises(ValueError):  # noqa: PT011 - it has no text
        await shared.get()
    assert await shared.get() == b"page"


@virtual
async def test_who_leaves_takes_the_page_from_nobody():
    page = Page()
    await page.shared.get()
    first, second = (asyncio.create_task(page.shared.get()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == b"2"
