from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest

from harbourmaster.cli.main import main
from harbourmaster.cli.offline import replay_case
from harbourmaster.telemetry.metrics import (
    FAILED,
    NOT_KEPT,
    QUEUE_FULL,
    RECORD_OUTCOMES,
    TOO_LARGE,
    UNFAITHFUL,
    WRITTEN,
    create_metrics,
)
from harbourmaster.webhook import recording
from harbourmaster.webhook.handlers import answer_failed
from harbourmaster.webhook.record_files import RecordFiles
from harbourmaster.webhook.recording import MAX_REVIEW, MAX_WAITING, Recorder
from harbourmaster.webhook.review import ReviewBody
from harbourmaster.webhook.server import ReviewServer
from harbourmaster.webhook.settings import RecordSettings, Settings
from helpers.admission import CANARY, engine_of, take
from helpers.known_nodes import knowing, node
from helpers.objects import body, cluster_policy, workload
from helpers.patience import PATIENCE

FIXTURES = Path(__file__).parents[2] / "fixtures"
POLICY = cluster_policy(nodeSelector={"disk": "ssd"})


class Files:
    """A stand-in for record files, which can refuse lines, or wait until it is set free."""

    def __init__(self):
        self.lines = []
        self.error = None
        self.free = threading.Event()
        self.free.set()
        self.is_closed = False

    def write(self, lines):
        self.free.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        self.lines += lines

    def close(self):
        self.is_closed = True
        if self.error is not None:
            raise self.error


class Stage:
    """A recorder, its files, and the outcomes of the reviews that it takes."""

    def __init__(self, share=1.0, **options):
        self.files = Files()
        self.metrics = create_metrics("0")
        self.engine = engine_of((), POLICY)
        self.recorder = Recorder(self.files, share, self.metrics.recorded, **options)

    def take(self, data=None):
        record = take(body(workload()) if data is None else data, self.engine)
        self.recorder.take(
            record.body, record.result, record.decision, record.engine, may_patch=True
        )

    @property
    def outcomes(self):
        registry = self.metrics.registry
        counts = {
            outcome: registry.get_sample_value(
                "harbourmaster_recorded_reviews_total", {"outcome": outcome}
            )
            for outcome in RECORD_OUTCOMES
        }
        return {outcome: count for outcome, count in counts.items() if count}

    async def until(self, outcome, count):
        async with asyncio.timeout(PATIENCE):
            while self.outcomes.get(outcome, 0) < count:  # noqa: ASYNC110 - a thread writes
                await asyncio.sleep(0.001)


async def test_what_is_taken_is_written_and_answered_again():
    stage = Stage()
    stage.recorder.start()
    for index in range(40):
        stage.take(body(workload(name=f"web-{index}"), uid=str(index)))
    await stage.until(WRITTEN, 40)
    await stage.recorder.close()
    assert [json.loads(line)["id"] for line in stage.files.lines] == [str(n) for n in range(40)]
    for line in stage.files.lines:
        case = json.loads(line)
        assert json.loads(bytes(replay_case(line).response)) == case["response"]
    assert stage.outcomes == {WRITTEN: 40}
    assert stage.files.is_closed


async def test_chance_decides_which_are_taken():
    draws = iter([0.0, 0.24, 0.25, 0.9])
    stage = Stage(0.25, chance=lambda: next(draws))
    stage.recorder.start()
    for _ in range(4):
        stage.take()
    await stage.recorder.close()
    assert stage.outcomes == {WRITTEN: 2}


async def test_nothing_is_taken_of_a_share_of_nought():
    stage = Stage(0.0, chance=lambda: 0.0)
    stage.take()
    assert stage.outcomes == {}


async def test_what_finds_no_place_is_dropped_and_counted():
    stage = Stage()
    for _ in range(MAX_WAITING + 7):
        stage.take()
    assert stage.outcomes == {QUEUE_FULL: 7}


async def test_what_waits_is_bounded_in_bytes_too(monkeypatch):
    stage = Stage()
    record = take(body(workload()), stage.engine)
    monkeypatch.setattr(
        recording,
        "MAX_WAITING_BYTES",
        3 * (len(record.body) + len(record.result)) + len(record.body),
    )
    for _ in range(5):
        stage.take()
    assert stage.outcomes == {QUEUE_FULL: 2}
    # What was worked off makes room for as many.
    stage.recorder.start()
    await stage.until(WRITTEN, 3)
    for _ in range(3):
        stage.take()
    await stage.recorder.close()
    assert stage.outcomes == {QUEUE_FULL: 2, WRITTEN: 6}


async def test_an_answer_that_is_large_is_not_kept_either(monkeypatch):
    stage = Stage()
    record = take(body(workload()), stage.engine)
    monkeypatch.setattr(recording, "MAX_REVIEW", len(record.body) + len(record.result) - 1)
    stage.take()
    assert stage.outcomes == {TOO_LARGE: 1}


async def test_what_would_hold_up_others_or_says_nothing_is_not_kept():
    stage = Stage()
    stage.take(body(workload(), note="x" * MAX_REVIEW))
    stage.take(b"nonsense")
    data = body(workload())
    result, decision = answer_failed(ReviewBody(data), stage.engine, "deadline", "it ran out")
    stage.recorder.take(data, result, decision, stage.engine, may_patch=True)
    # Replay does not know the nodes.
    stage.engine = knowing(stage.engine, node())
    stage.take()
    assert stage.outcomes == {TOO_LARGE: 1, NOT_KEPT: 3}


async def test_a_fault_in_one_review_harms_no_other(monkeypatch):
    stage = Stage()
    line_of, faulty = recording.line_of, iter([True])

    def fail_once(record):
        if next(faulty, False):
            raise RuntimeError(CANARY)
        return line_of(record)

    monkeypatch.setattr(recording, "line_of", fail_once)
    stage.recorder.start()
    stage.take()
    stage.take()
    await stage.until(WRITTEN, 1)
    await stage.recorder.close()
    assert stage.outcomes == {UNFAITHFUL: 1, WRITTEN: 1}


async def test_a_fault_when_a_review_is_taken_harms_no_answer(monkeypatch):
    stage = Stage()
    monkeypatch.setattr(recording, "parents_now", lambda *_: 1 / 0)
    stage.take()
    assert stage.outcomes == {UNFAITHFUL: 1}


async def test_a_disk_that_fails_is_counted_and_told_once(log):
    stage = Stage()
    stage.files.error = OSError(28, "No space left on device")
    stage.recorder.start()
    stage.take()
    await stage.until(FAILED, 1)
    stage.take()
    await stage.until(FAILED, 2)
    stage.files.error = None
    stage.take()
    await stage.until(WRITTEN, 1)
    await stage.recorder.close()
    told = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [(line["event"], line["error"]) for line in told] == [
        ("reviews can't be recorded", "No space left on device")
    ]


async def test_admission_does_not_wait_for_a_slow_disk():
    stage = Stage()
    stage.files.free.clear()
    stage.recorder.start()
    stage.take()
    # The first is being written: it has left the queue, and no outcome is known yet.
    async with asyncio.timeout(PATIENCE):
        while stage.recorder._writing is None:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)
    for _ in range(MAX_WAITING + 3):
        stage.take()
    assert stage.outcomes == {QUEUE_FULL: 3}
    stage.files.free.set()
    await stage.until(WRITTEN, 1)
    await stage.recorder.close()
    assert stage.outcomes[WRITTEN] == len(stage.files.lines)


async def test_what_waits_at_the_end_is_written():
    stage = Stage()
    stage.recorder.start()
    for _ in range(20):
        stage.take()
    await stage.recorder.close()
    await stage.recorder.close()
    assert len(stage.files.lines) == 20


async def test_a_disk_that_fails_at_the_end_harms_nobody_who_ends_after():
    stage = Stage()
    stage.files.error = OSError(5, "Input/output error")
    stage.recorder.start()
    stage.take()
    await stage.recorder.close()
    assert stage.files.is_closed
    assert stage.outcomes == {FAILED: 1}


async def test_a_server_that_is_told_nothing_records_nothing():
    assert ReviewServer(Settings(), None, None)._recorder is None


async def test_a_server_records_where_it_is_told(tmp_path):
    settings = Settings(record=RecordSettings(directory=str(tmp_path / "records"), sample=1.0))
    server = ReviewServer(settings, None, None)
    assert isinstance(server._recorder, Recorder)
    assert (tmp_path / "records").is_dir()


def test_a_folder_without_a_name_is_not_the_one_that_the_server_was_started_in(capsys, tmp_path):
    assert main(["server", "files", "--policies", str(tmp_path), "--record", ""]) == 2
    assert capsys.readouterr().err == "harbourmaster: --record: expected string of length >= 1\n"


@pytest.fixture
def recording_of(tmp_path):
    """A file with what a recorder wrote of some reviews."""

    async def record():
        stage = Stage()
        stage.recorder._files = RecordFiles(tmp_path, max_bytes=1 << 20, max_files=1)
        stage.recorder.start()
        for index in range(3):
            stage.take(body(workload(), uid=str(index)))
        await stage.recorder.close()

    asyncio.run(record())
    (path,) = tmp_path.glob("*.jsonl")
    return path


def test_replay_checks_a_recording(recording_of, capsysbinary):
    assert main(["replay", "--check", str(recording_of)]) == 0
    count = len(recording_of.read_text().splitlines())
    told = f"{count} of {count} answered as recorded\n".encode()
    assert capsysbinary.readouterr() == (b"", told)


def test_replay_tells_which_cases_are_answered_otherwise(recording_of, tmp_path, capsysbinary):
    lines = recording_of.read_text().splitlines()
    changed = tmp_path / "changed.jsonl"
    changed_case = json.loads(lines[1])
    changed_case["policies"][0]["spec"]["nodeSelector"]["disk"] = "hdd"
    unanswered = json.loads(lines[2])
    del unanswered["response"]
    changed.write_text(
        "\n".join((lines[0], *map(json.dumps, (changed_case, unanswered)), "nonsense"))
    )
    assert main(["replay", "--check", str(changed)]) == 1
    out, err = capsysbinary.readouterr()
    assert err == b"1 of 4 answered as recorded\n"
    reports = [json.loads(line) for line in out.splitlines()]
    assert reports[0]["id"] == "1"
    assert reports[0]["recorded"] == json.loads(lines[1])["response"]
    assert reports[0]["answered"] != reports[0]["recorded"]
    assert reports[1] == {
        "line": 3,
        "id": "2",
        "error": "the case has no response to compare with",
    }
    assert reports[2]["error"].startswith("JSON is malformed")
    assert len(reports) == 3


@pytest.mark.parametrize("text", ["", "\n  \n"])
def test_a_check_of_nothing_does_not_pass(tmp_path, capsys, text):
    file = tmp_path / "empty.jsonl"
    file.write_text(text)
    assert main(["replay", "--check", str(file)]) == 1
    assert capsys.readouterr() == ("", f"harbourmaster: {file}: no case in it\n")
    assert main(["replay", str(file)]) == 0


def test_the_recording_among_the_fixtures_is_answered_as_ever(capsysbinary):
    assert main(["replay", "--check", str(FIXTURES / "recorded.jsonl")]) == 0
    assert capsysbinary.readouterr().out == b""
