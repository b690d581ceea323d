"""CloudEvents over HTTP, read by the CloudEvents SDK, and what faults cost."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
import trustme
from aiohttp import web

from harbourmaster.telemetry import cloud_events
from harbourmaster.telemetry.cloud_events import CLOUD_EVENT_OUTCOMES, CloudEventSender
from helpers.logs import captured_log
from helpers.patience import PATIENCE
from helpers.tracing import Listener

DATA = {"message": "has started", "version": "1"}


@pytest.fixture(autouse=True)
def log():
    with captured_log() as stream:
        yield stream


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Pauses of milliseconds."""
    monkeypatch.setattr(cloud_events, "FIRST_PAUSE", 0.01)


class Sending:
    """A sender that runs, and the outcomes of its events."""

    def __init__(self, url, **options):
        self.url = url
        self.outcomes = Counter()
        self._changed = asyncio.Event()
        self.sender = CloudEventSender(lambda: self.url, self._note, **options)
        self.task = asyncio.create_task(self.sender.run())

    def put(self, kind="App Deployment.Started", about="one", namespace="", **data):
        name = str(about)
        self.sender.put(kind, {**DATA, **data}, ("Pod", namespace or f"team-{name}", name))

    async def until(self, **outcomes):
        while not all(self.outcomes[each] >= count for each, count in outcomes.items()):
            self._changed.clear()
            await self._changed.wait()

    async def stop(self):
        self.task.cancel()
        await asyncio.wait([self.task])

    def _note(self, outcome):
        assert outcome in CLOUD_EVENT_OUTCOMES
        self.outcomes[outcome] += 1
        self._changed.set()


@asynccontextmanager
async def sending(url, **options):
    sender = Sending(url, **options)
    try:
        async with asyncio.timeout(PATIENCE):
            yield sender
    finally:
        await sender.stop()


async def deliver(url, *, puts=1, tls=None, timeout=cloud_events.TIMEOUT, **outcomes):  # noqa: ASYNC109 - of the sender
    """Put events and wait for these outcomes; returns all outcomes."""
    async with sending(url, tls=tls, timeout=timeout) as sent:
        for _ in range(puts):
            sent.put()
        await sent.until(**outcomes)
    return sent


@pytest.fixture
async def listener():
    async with Listener() as listener:
        yield listener


async def test_an_event_is_one_that_the_sdk_understands(listener):
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    async with sending(listener.url) as sent:
        sent.put("App Pre-Deployment Tasks.Started")
        await sent.until(sent=1)
    (event,) = listener.events
    assert event.get_source() == "keptn.sh"
    assert event.get_type() == "App Pre-Deployment Tasks.Started"
    assert event.get_specversion() == "1.0"
    assert event.get_datacontenttype() == "application/json"
    assert event.get_data() == DATA
    assert before <= event.get_time() <= datetime.now(UTC)
    ((request, _),) = listener.requests
    assert (request.method, request.path) == ("POST", "/events")
    # As Keptn sends it: not encoded.
    assert request.headers["ce-type"] == "App Pre-Deployment Tasks.Started"


async def test_each_event_is_sent_once_with_an_id_of_its_own(listener):
    async with sending(listener.url) as sent:
        for number in range(50):
            sent.put(about=number)
        await sent.until(sent=50)
    assert len({event.get_id() for event in listener.events}) == 50
    assert len(listener.requests) == 50
    assert sent.outcomes == {"sent": 50}


@pytest.mark.parametrize("status", [500, 503, 429, 408, 425])
async def test_a_passing_fault_is_tried_again_with_the_same_event(listener, status):
    async def fails_twice(_request):
        return status if len(listener.requests) <= 2 else 200

    listener.answer = fails_twice
    sent = await deliver(listener.url, sent=1)
    first, two, three = listener.events
    assert first.get_id() == two.get_id() == three.get_id()
    assert first.get_time() == three.get_time()
    assert sent.outcomes == {"sent": 1}


@pytest.mark.parametrize("status", [400, 401, 404, 413])
async def test_what_is_refused_is_not_tried_again(listener, status, log):
    listener.answer = status
    await deliver(listener.url, puts=2, refused=2)
    assert len(listener.requests) == 2
    assert log.getvalue().count(b"CloudEvent delivery failed") == 1
    assert f"status {status}".encode() in log.getvalue()


async def test_an_event_is_given_up_in_the_end(listener):
    listener.answer = 500
    await deliver(listener.url, unreachable=1)
    assert len(listener.requests) == cloud_events.ATTEMPTS


async def test_pauses_grow_and_are_not_all_alike(listener, monkeypatch):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    listener.answer = 500
    async with sending(listener.url, chance=lambda: 1.0) as sent:
        with monkeypatch.context() as patch:
            patch.setattr(cloud_events.asyncio, "sleep", sleep)
            sent.put()
            await sent.until(unreachable=1)
    assert slept == pytest.approx([0.01, 0.02, 0.04, 0.08, 0.16])
    slept.clear()
    async with sending(listener.url, chance=lambda: 0.0) as sent:
        with monkeypatch.context() as patch:
            patch.setattr(cloud_events.asyncio, "sleep", sleep)
            sent.put()
            await sent.until(unreachable=1)
    assert slept == pytest.approx([0.005, 0.01, 0.02, 0.04, 0.08])


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("1", 1.0), ("9999", 30.0), ("-4", 0.0), ("soon", 0.0), ("", 0.0), ("²", 0.0)],
)
def test_a_receiver_may_ask_for_a_pause_of_half_a_minute_at_most(value, seconds):
    assert cloud_events._retry_after(value) == seconds


def test_it_may_name_a_date():
    soon = (datetime.now(UTC) + timedelta(seconds=20)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    assert 18 < cloud_events._retry_after(soon) <= 20
    assert cloud_events._retry_after("Wed, 01 Jan 2020 00:00:00 GMT") == 0


async def test_a_pause_that_is_asked_for_is_kept(listener):
    times = []

    async def busy(_request):
        times.append(asyncio.get_running_loop().time())
        again = web.Response(status=429, headers={"Retry-After": "1"})
        return again if len(times) == 1 else 200

    listener.answer = busy
    await deliver(listener.url, sent=1)
    assert times[1] - times[0] >= 1


async def test_what_is_about_one_object_keeps_its_order_in_spite_of_faults(listener):
    seen = Counter()

    async def fails_now_and_then(request):
        seen[request.headers["ce-id"]] += 1
        is_first = seen[request.headers["ce-id"]] == 1
        return 500 if is_first and len(listener.requests) % 3 == 0 else 200

    listener.answer = fails_now_and_then
    async with sending(listener.url) as sent:
        for number in range(20):
            for about in range(10):
                sent.put(about=about, number=number, about_it=about)
        await sent.until(sent=200)
    for about in range(10):
        numbers = [
            event.get_data()["number"]
            for event in listener.events
            if event.get_data()["about_it"] == about
        ]
        assert numbers == sorted(numbers)
        assert set(numbers) == set(range(20))


async def test_a_receiver_that_hangs_for_one_object_holds_up_no_other(listener):
    forever = asyncio.Event()

    async def hangs(request):
        if request.headers["ce-type"] == "bad":
            await forever.wait()
        return 200

    listener.answer = hangs
    async with sending(listener.url) as sent:
        sent.put("bad", about="bad")
        for number in range(100):
            sent.put(about=number)
        await sent.until(sent=80)
        forever.set()


async def test_one_that_hangs_is_left_after_the_time_out(listener, log):
    forever = asyncio.Event()

    async def hangs(_request):
        if len(listener.requests) == 1:
            await forever.wait()
        return 200

    listener.answer = hangs
    await deliver(listener.url, timeout=0.1, sent=1)
    forever.set()
    assert b"no answer within 0.1 s" in log.getvalue()
    assert b"CloudEvent delivery recovered" in log.getvalue()


async def test_a_connection_that_breaks_is_tried_again(listener):
    async def breaks(request):
        if len(listener.requests) <= 2:
            request.transport.abort()
        return 200

    listener.answer = breaks
    await deliver(listener.url, sent=1)
    assert len({event.get_id() for event in listener.events}) == 1


async def test_a_slow_receiver_gets_all(listener):
    async def slow(_request):
        await asyncio.sleep(0.02)
        return 200

    listener.answer = slow
    async with sending(listener.url) as sent:
        for number in range(200):
            sent.put(about=number)
        await sent.until(sent=200)


async def test_nobody_listening_costs_events_and_one_line(log):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/a/secret/path?token=canary"
        async with sending(url) as sent:
            sent.put()
            sent.put(about="another")
            await sent.until(unreachable=2)
    text = log.getvalue().decode()
    assert text.count("CloudEvent delivery failed") == 1
    assert "127.0.0.1" in text
    assert "secret" not in text
    assert "canary" not in text


async def test_the_endpoint_may_change_on_the_way(listener):
    listener.answer = 500
    async with Listener() as second, sending(listener.url) as sent:
        sent.put(number=1)
        (first, *_) = await listener.until(1)
        sent.url = second.url
        await sent.until(sent=1)
        assert second.events[0].get_id() == first.get_id()
        sent.url = ""
        sent.put(number=2)
        assert not sent.sender.is_on
        sent.url = listener.url
        listener.answer = 200
        sent.put(number=3)
        await sent.until(sent=2)
    assert [event.get_data()["number"] for event in second.events] == [1]
    assert listener.events[-1].get_data()["number"] == 3


async def test_what_waits_when_it_is_switched_off_is_dropped_and_counted(listener):
    listener.answer = 500
    async with sending(listener.url) as sent:
        sent.put()
        sent.put()
        await listener.until(1)
        sent.url = ""
        await sent.until(switched_off=2)


async def test_a_redirect_is_not_followed(listener):
    async with Listener() as second:

        async def elsewhere(_request):
            return web.Response(status=307, headers={"Location": second.url})

        listener.answer = elsewhere
        await deliver(listener.url, refused=1)
        assert second.requests == []


@pytest.mark.parametrize(
    "url",
    [
        "receiver:8080",
        "http://receiver:99999/",
    ],
)
async def test_what_is_no_url_is_off_and_told_once(url, log):
    async with sending(url) as sent:
        sent.put()
        sent.put()
        assert not sent.sender.is_on
        assert sent.outcomes == {}
    assert log.getvalue().count(b"CloudEvents disabled") == 1


@pytest.mark.claim("O25")
async def test_a_namespace_leaves_events_to_others(listener, monkeypatch):
    monkeypatch.setattr(cloud_events, "LANES", 1)
    async with sending(listener.url, capacity=40) as sent:
        for number in range(100):
            sent.put(about=number, namespace="loud")
        sent.put(namespace="quiet", number=1)
        assert sent.outcomes == {"queue_full": 70}
        await sent.until(sent=31)
    assert ["number" in event.get_data() for event in listener.events[:3]] == [False, True, False]


async def test_a_full_queue_drops_the_newest_and_counts(listener):
    release = asyncio.Event()

    async def holds(_request):
        await release.wait()
        return 200

    listener.answer = holds
    async with sending(listener.url, capacity=5) as sent:
        for number in range(8):
            sent.put(number=number, namespace=f"team-{number}")
        assert sent.outcomes == {"queue_full": 3}
        release.set()
        await sent.until(sent=5)
    numbers = sorted(event.get_data()["number"] for event in listener.events)
    assert numbers == list(range(5))


async def test_an_event_is_64_kib_at_most(listener):
    async with sending(listener.url) as sent:
        sent.put(message="x" * 65_536)
        assert sent.outcomes == {"too_large": 1}
        sent.put(message="x" * 60_000)
        await sent.until(sent=1)


async def test_what_is_left_at_the_end_is_sent(listener):
    async with sending(listener.url) as sent:
        await asyncio.sleep(0)
        for number in range(30):
            sent.put(about=number)
    assert sent.outcomes == {"sent": 30}


async def test_the_end_does_not_wait_for_one_that_hangs(listener, monkeypatch):
    monkeypatch.setattr(cloud_events, "FLUSH_TIMEOUT", 0.1)
    forever = asyncio.Event()

    async def hangs(_request):
        await forever.wait()

    listener.answer = hangs
    async with sending(listener.url) as sent:
        for number in range(30):
            sent.put(about=number)
        await listener.until(1)
        await sent.stop()
    forever.set()
    assert sent.outcomes == {"shutdown": 30}


def create_certificate():
    authority = trustme.CA()
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(served)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    return served, trusting


async def test_a_certificate_that_nobody_vouches_for_is_not_taken(log):
    served, trusting = create_certificate()
    async with Listener(tls=served) as listener:
        await deliver(listener.url, unreachable=1)
        assert listener.requests == []
        assert b"its certificate is not trusted" in log.getvalue()
        await deliver(listener.url, tls=trusting, sent=1)


async def test_no_proxy_and_no_cookies_are_used(listener, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")

    async def sets_a_cookie(_request):
        return web.Response(headers={"Set-Cookie": "a=canary"})

    listener.answer = sets_a_cookie
    await deliver(listener.url, puts=2, sent=2)
    assert [request.headers.get("Cookie") for request, _ in listener.requests] == [None, None]


async def test_answers_are_not_decompressed():
    async with CloudEventSender(lambda: "", print)._session() as session:
        assert not session.auto_decompress


async def test_a_big_or_endless_answer_is_not_read(listener):
    async def floods(request):
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            # Until the sender has gone.
            await response.write(b"x" * 65_536)

    listener.answer = floods
    assert await deliver(listener.url, sent=1)
