"""Published events and their times, in virtual time."""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict, deque
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

import pytest

from harbourmaster.kube.errors import UnreachableError, error_from
from harbourmaster.kube.event_series import Allowance
from harbourmaster.kube.events import DROPS, EventRecorder, ObjectReference
from helpers.logs import captured_log
from helpers.tasks import background
from helpers.virtual_time import virtual

HANG = object()


class Sent(NamedTuple):
    time: float
    method: str
    path: str
    body: dict


class Api:
    """Answers each request with the next of ``answers``, None for success."""

    def __init__(self):
        self.sent: list[Sent] = []
        self.answers = deque()
        self.down = None
        self.latency = 0.0

    async def request(self, method, path, *, body, content_type, timeout, retries):  # noqa: ASYNC109 - the client's
        assert (method, content_type) in {
            ("POST", "application/json"),
            ("PATCH", "application/merge-patch+json"),
        }
        assert retries == 0
        assert timeout == 5
        now = asyncio.get_running_loop().time()
        self.sent.append(Sent(now, method, path, json.loads(body)))
        answer = self.answers.popleft() if self.answers else self.down
        await asyncio.sleep(self.latency)
        if answer is HANG:
            await asyncio.sleep(60)
        if answer is not None:
            raise answer
        return b"{}"


def status(code, reason="", headers=None):
    body = {"kind": "Status", "message": "on demand", "reason": reason, "code": code}
    return error_from(code, json.dumps(body).encode(), headers, call="create /events")


POD = ObjectReference("v1", "Pod", "a", "prod", uid="1")
NODE = ObjectReference("v1", "Node", "n")
EVENTS_OF_PROD = "/apis/events.k8s.io/v1/namespaces/prod/events"
EPOCH = datetime(2026, 3, 1, tzinfo=UTC)


@asynccontextmanager
async def recording(api, **options):
    loop = asyncio.get_running_loop()
    recorder = EventRecorder(
        api,
        controller="registration",
        instance="pod-1",
        namespace="harbourmaster-system",
        clock=loop.time,
        now=lambda: EPOCH + timedelta(seconds=loop.time()),
        chance=lambda: 0.0,
        **options,
    )
    async with background(recorder.run()) as task:
        yield recorder
    assert task.cancelled()


def count_dropped(recorder):
    """Events lost so far."""
    return sum(recorder.counts[outcome] for outcome in DROPS)


def pod(number, namespace="prod"):
    return ObjectReference("v1", "Pod", f"pod-{number}", namespace)


def emit_each(recorder, numbers, note="done"):
    """An event of each of these pods."""
    for number in numbers:
        recorder.emit(pod(number), "Normal", "Done", note)


@pytest.fixture(autouse=True)
def log():
    with captured_log() as stream:
        yield stream


@pytest.fixture
def api():
    return Api()


@virtual
async def test_an_event_is_told_as_the_api_wants_it(api):
    async with recording(api) as recorder:
        recorder.emit(POD, "Warning", "Repaired", "the webhook was changed by hand", "Repair")
        await asyncio.sleep(1)
    (sent,) = api.sent
    name = sent.body["metadata"].pop("name")
    assert re.fullmatch(r"registration\.[0-9a-f]{16}", name)
    assert sent.path == EVENTS_OF_PROD
    assert sent.body == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "prod"},
        "eventTime": "2026-03-01T00:00:00.000000Z",
        "reportingController": "harbourmaster.dev/registration",
        "reportingInstance": "harbourmaster-system/pod-1",
        "type": "Warning",
        "reason": "Repaired",
        "action": "Repair",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "a",
            "namespace": "prod",
            "uid": "1",
        },
        "note": "the webhook was changed by hand",
    }
    assert recorder.counts == {"created": 1}


@virtual
async def test_another_note_of_one_identity_is_a_repetition_and_another_identity_is_not(api):
    async with recording(api) as recorder:
        for note, identity in [("value 1", "a"), ("value 2", "a"), ("value 2", "b")]:
            recorder.emit(POD, "Normal", "Waits", note, identity=identity)
        await asyncio.sleep(60)
    assert [
        (request.body["note"], request.body.get("series", {}).get("count")) for request in api.sent
    ] == [
        ("value 1", 2),
        ("value 2", None),
    ]


@virtual
async def test_an_event_names_a_related_object_and_carries_annotations(api):
    app = ObjectReference("lifecycle.keptn.sh/v1", "KeptnApp", "shop", "prod")
    async with recording(api) as recorder:
        recorder.emit(POD, "Normal", "Done", "again", related=app, annotations={"phase": "A"})
        await asyncio.sleep(1)
        recorder.emit(POD, "Normal", "Done", "again", annotations={"phase": "B"})
        await asyncio.sleep(60)
    created, counted = api.sent
    assert created.body["metadata"]["annotations"] == {"phase": "A"}
    assert created.body["related"] == {
        "apiVersion": "lifecycle.keptn.sh/v1",
        "kind": "KeptnApp",
        "name": "shop",
        "namespace": "prod",
    }
    assert counted.body["series"]["count"] == 2


@virtual
async def test_lanes_send_at_the_same_time_and_keep_the_order_of_each_object(api):
    api.latency = 0.01
    limits = {"queue_size": 10**4, "per_object": Allowance(100, 1), "overall": Allowance(10**4, 1)}
    async with recording(api, lanes=16, **limits) as recorder:
        for number in range(20):
            for index in range(50):
                recorder.emit(pod(index), "Normal", f"Step{number}", "done")
        await asyncio.sleep(3)
        assert recorder.counts == {"created": 1000}
    assert api.sent[-1].time < 1000 * 0.01 / 5
    for index in range(50):
        mine = [
            sent.body["reason"]
            for sent in api.sent
            if sent.body["regarding"]["name"] == f"pod-{index}"
        ]
        assert mine == [f"Step{number}" for number in range(20)]


@virtual
async def test_one_lane_that_hangs_holds_up_no_other_and_counts_go_on(api):
    # Three of each lane: hashes differ in each process.
    lanes = defaultdict(list)
    for regarding in map(pod, range(1000)):
        lanes[hash(regarding) % 8].append(regarding)
    pods = [regarding for lane in lanes.values() for regarding in lane[:3]]
    async with recording(api, lanes=8) as recorder:
        api.answers += [HANG, HANG]
        for regarding in pods:
            recorder.emit(regarding, "Normal", "Done", "done")
        await asyncio.sleep(1)
        assert recorder.counts["created"] == 18
        for regarding in pods:
            recorder.emit(regarding, "Normal", "Done", "done")
        await asyncio.sleep(60)
    assert recorder.counts["created"] == 24
    counted = [
        sent for sent in api.sent if sent.body.get("series") and sent.body["series"]["count"] == 2
    ]
    assert len(counted) == 24
    assert count_dropped(recorder) == 0


@virtual
async def test_a_repetition_on_the_way_is_told_once_and_counted_by_the_first_lane(api):
    api.latency = 1.0
    # One of each lane, but none of the first one's own, because it would check the counts anyway.
    lanes = {hash(regarding) % 8: regarding for regarding in map(pod, range(200))}
    others = [lanes[number] for number in range(1, 6)]
    async with recording(api, lanes=8) as recorder:
        await asyncio.sleep(100)
        for regarding in others:
            recorder.emit(regarding, "Normal", "Done", "again")
        await asyncio.sleep(0.5)
        recorder._lanes[0].wake.set()
        for regarding in others:
            recorder.emit(regarding, "Normal", "Done", "again")
        await asyncio.sleep(60)
        assert [sent.method for sent in api.sent] == ["POST"] * 5 + ["PATCH"] * 5
    assert recorder.counts == {"created": 5, "aggregated": 5, "updated": 5}


@virtual
async def test_all_lanes_are_flushed_at_the_end(api):
    async with recording(api, lanes=4) as recorder:
        await asyncio.sleep(1)
        api.latency = 0.01
        emit_each(recorder, range(20), "stopping")
    assert recorder.counts == {"created": 20}


@virtual
async def test_an_event_of_a_cluster_scoped_object_stands_in_default(api):
    async with recording(api) as recorder:
        recorder.emit(NODE, "Normal", "Seen", "it is there")
        await asyncio.sleep(1)
    (sent,) = api.sent
    assert sent.path == "/apis/events.k8s.io/v1/namespaces/default/events"
    assert sent.body["metadata"]["namespace"] == "default"
    assert "namespace" not in sent.body["regarding"]
    assert sent.body["action"] == "Reconcile"


@virtual
async def test_repetitions_are_one_event_and_a_count_each_30_s(api):
    async with recording(api) as recorder:
        for _ in range(600):
            recorder.emit(POD, "Normal", "Done", "again")
            await asyncio.sleep(0.1)
        await asyncio.sleep(60)
        created, first, second = api.sent
        assert "series" not in created.body
        assert [round(sent.time) for sent in api.sent] == [0, 30, 60]
        assert first.method == "PATCH"
        assert first.path == f"{EVENTS_OF_PROD}/{created.body['metadata']['name']}"
        assert first.body["series"]["count"] == pytest.approx(301, abs=1)
        assert first.body["series"]["lastObservedTime"].startswith("2026-03-01T00:00:2")
        assert second.body["series"]["count"] == 600
    assert len(api.sent) == 3
    assert recorder.counts == {"created": 1, "aggregated": 599, "updated": 2}


@virtual
async def test_after_six_quiet_minutes_it_is_a_new_event(api):
    async with recording(api) as recorder:
        recorder.emit(POD, "Normal", "Done", "again")
        await asyncio.sleep(361)
        recorder.emit(POD, "Normal", "Done", "again")
        await asyncio.sleep(1)
    assert [sent.method for sent in api.sent] == ["POST", "POST"]
    first, two = (sent.body["metadata"]["name"] for sent in api.sent)
    assert first != two


@virtual
async def test_what_is_repeated_before_it_was_told_is_told_with_its_count(api):
    async with recording(api) as recorder:
        for _ in range(3):
            recorder.emit(POD, "Normal", "Done", "again")
        await asyncio.sleep(100)
    (sent,) = api.sent
    assert sent.body["series"] == {"count": 3, "lastObservedTime": "2026-03-01T00:00:00.000000Z"}


@virtual
async def test_what_is_repeated_while_it_is_told_is_counted_later(api):
    api.latency = 1.0
    async with recording(api) as recorder:
        recorder.emit(POD, "Normal", "Done", "again")
        await asyncio.sleep(0.5)
        recorder.emit(POD, "Normal", "Done", "again")
        await asyncio.sleep(31.5)
        recorder.emit(POD, "Normal", "Done", "again")
        await asyncio.sleep(100)
    assert [round(sent.time) for sent in api.sent] == [0, 31, 62]
    assert [sent.body["series"]["count"] for sent in api.sent[1:]] == [2, 3]


@virtual
async def test_an_event_deleted_meanwhile_is_told_anew(api):
    async with recording(api) as recorder:
        recorder.emit(POD, "Normal", "Done", "again")
        await asyncio.sleep(1)
        api.answers.append(status(404, "NotFound"))
        recorder.emit(POD, "Normal", "Done", "again")
        await asyncio.sleep(40)
        recorder.emit(POD, "Normal", "Done", "again")
        await asyncio.sleep(40)
    assert [sent.method for sent in api.sent] == ["POST", "PATCH", "POST", "PATCH"]
    assert api.sent[2].body["series"]["count"] == 2
    assert api.sent[3].body["series"]["count"] == 3
    assert api.sent[3].path.endswith(api.sent[2].body["metadata"]["name"])
    assert count_dropped(recorder) == 0


@virtual
async def test_an_object_has_25_events_and_one_more_each_5_minutes(api):
    async with recording(api) as recorder:
        for number in range(100):
            recorder.emit(POD, "Normal", "Done", f"number {number}")
        recorder.emit(NODE, "Normal", "Done", "another object")
        await asyncio.sleep(10)
        assert len(api.sent) == 26
        assert recorder.counts["over_rate"] == 75
        await asyncio.sleep(300)
        recorder.emit(POD, "Normal", "Done", "number 100")
        recorder.emit(POD, "Normal", "Done", "number 101")
        await asyncio.sleep(10)
    assert len(api.sent) == 27
    assert count_dropped(recorder) == 76


@virtual
async def test_all_objects_together_have_an_allowance_too(api):
    async with recording(api, overall=Allowance(5, 2.0)) as recorder:
        for number in range(9):
            recorder.emit(pod(number, f"team-{number}"), "Normal", "Done", "done")
        await asyncio.sleep(4)
        for number in range(9, 12):
            recorder.emit(pod(number, f"team-{number}"), "Normal", "Done", "done")
        await asyncio.sleep(1)
    assert len(api.sent) == 7
    assert recorder.counts["over_rate"] == 5


@virtual
async def test_a_full_queue_drops_and_counts(api):
    api.down = HANG
    async with recording(api, queue_size=3) as recorder:
        for number in range(10):
            recorder.emit(pod(number, f"team-{number}"), "Normal", "Done", "done")
        assert recorder.counts["queue_full"] == 7
        assert count_dropped(recorder) == 7


@virtual
@pytest.mark.claim("O25")
async def test_a_namespace_leaves_events_to_others(api):
    async with recording(api, queue_size=40) as recorder:
        emit_each(recorder, range(100))
        recorder.emit(pod(0, "quiet"), "Normal", "Done", "done")
        await asyncio.sleep(1)
    namespaces = [sent.body["metadata"]["namespace"] for sent in api.sent]
    assert namespaces == ["prod", "quiet", *["prod"] * 29]
    assert recorder.counts["queue_full"] == 70
    async with recording(api, overall=Allowance(40, 10.0), queue_size=1000) as recorder:
        emit_each(recorder, range(100))
        recorder.emit(pod(0, "quiet"), "Normal", "Done", "done")
        assert recorder.counts["over_rate"] == 70


@virtual
async def test_emitting_needs_no_api_and_no_loop_turn(api):
    async with recording(api) as recorder:
        await asyncio.sleep(1)
        before = asyncio.get_running_loop().time()
        recorder.emit(POD, "Normal", "Done", "done")
        assert asyncio.get_running_loop().time() == before
        assert api.sent == []
        await asyncio.sleep(0.001)
        assert len(api.sent) == 1


@virtual
async def test_emitting_never_raises(api, log):
    async with recording(api) as recorder:
        recorder.emit(None, "Normal", "Done", "done")
        recorder.emit(POD, "Normal", None, "done")
        recorder.emit(POD, "Normal", "Done", "fine")
        await asyncio.sleep(1)
    assert len(api.sent) == 1
    assert recorder.counts["bug"] == 2
    assert log.getvalue().count(b"event lost") == 2


@pytest.mark.parametrize(
    "error",
    [
        status(403, "Forbidden"),
        status(404, "NotFound"),
        status(422, "Invalid"),
        status(400, "BadRequest"),
        ValueError("a bug of ours"),
    ],
    ids=["403", "404", "422", "400", "bug"],
)
@virtual
async def test_what_is_refused_is_dropped_at_once_and_harms_no_other(api, error, log):
    api.answers += [error, error]
    async with recording(api) as recorder:
        for number in range(3):
            recorder.emit(pod(number), "Normal", "Done", "done")
        await asyncio.sleep(1)
    assert len(api.sent) == 3
    assert recorder.counts == {"refused": 2, "created": 1}
    assert log.getvalue().count(b"event not published") == 1
    assert log.getvalue().count(b"event publishing recovered") == 1


@virtual
async def test_an_event_that_is_there_already_was_ours(api):
    api.answers += [UnreachableError("the answer was lost"), status(409, "AlreadyExists")]
    async with recording(api) as recorder:
        recorder.emit(POD, "Normal", "Done", "done")
        await asyncio.sleep(10)
    first, two = api.sent
    assert first.body == two.body
    assert recorder.counts == {"created": 1}


@pytest.mark.parametrize(
    "error",
    [
        status(429, "TooManyRequests"),
        status(500),
        status(401, "Unauthorized"),
        error_from(502, b"<html>"),
        UnreachableError("reset"),
        HANG,
    ],
    ids=["429", "500", "401", "502", "reset", "hang"],
)
@virtual
async def test_a_fault_makes_no_storm(api, error):
    api.down = error
    async with recording(api) as recorder:
        for number in range(50):
            recorder.emit(pod(number), "Normal", "Done", "done")
        await asyncio.sleep(300)
        times = [sent.time for sent in api.sent]
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert gaps[0] >= 0.5
        assert gaps == sorted(gaps)
        assert len(api.sent) < 20
        assert recorder.counts["unreachable"] == len(api.sent) // 3
        api.down = None
        await asyncio.sleep(60)
        assert recorder.counts["created"] == 50 - recorder.counts["unreachable"]


@virtual
async def test_a_server_that_names_a_time_is_left_alone_for_it(api):
    api.answers.append(status(429, "TooManyRequests", {"Retry-After": "20"}))
    async with recording(api) as recorder:
        recorder.emit(POD, "Normal", "Done", "done")
        await asyncio.sleep(60)
    assert [round(sent.time) for sent in api.sent] == [0, 20]
    assert recorder.counts == {"created": 1}


@virtual
async def test_a_count_that_can_not_be_told_is_told_with_the_next_one(api):
    async with recording(api) as recorder:
        recorder.emit(POD, "Normal", "Done", "done")
        await asyncio.sleep(1)
        api.answers.append(status(503))
        recorder.emit(POD, "Normal", "Done", "done")
        await asyncio.sleep(100)
    assert [round(sent.time) for sent in api.sent] == [0, 30, 60]
    assert count_dropped(recorder) == 0


@virtual
async def test_at_the_end_what_is_left_is_told(api):
    async with recording(api) as recorder:
        recorder.emit(POD, "Normal", "Done", "again")
        await asyncio.sleep(1)
        recorder.emit(POD, "Normal", "Done", "again")
        recorder.emit(NODE, "Normal", "Done", "stopping")
    assert [sent.method for sent in api.sent] == ["POST", "POST", "PATCH"]
    assert api.sent[2].body["series"]["count"] == 2
    assert count_dropped(recorder) == 0


@pytest.mark.parametrize("error", [HANG, status(503)], ids=["hang", "503"])
@virtual
async def test_the_end_takes_a_second_at_most(api, error):
    async with recording(api) as recorder:
        await asyncio.sleep(1)
        api.down = error
        emit_each(recorder, range(5), "stopping")
    assert asyncio.get_running_loop().time() <= 2.001
    assert recorder.counts["shutdown"] == 5


@virtual
async def test_memory_is_bounded(api):
    async with recording(api, overall=Allowance(10**6, 1)) as recorder:
        for number in range(3000):
            recorder.emit(pod(number), "Normal", "Done", "done")
            await asyncio.sleep(0.01)
        assert len(recorder._table) == 1024
        assert len(recorder._by_object) == 1024
    assert recorder.counts == {"created": 3000}


@virtual
async def test_outcomes_are_told_as_they_happen(api):
    seen = []
    async with recording(api, on_outcome=seen.append, queue_size=1) as recorder:
        recorder.emit(POD, "Normal", "Done", "done")
        recorder.emit(POD, "Normal", "Done", "done")
        recorder.emit(NODE, "Normal", "Done", "done")
        await asyncio.sleep(1)
    assert seen == ["aggregated", "queue_full", "created"]
