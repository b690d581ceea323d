from __future__ import annotations

import os

import pytest
from msgspec import structs

from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.group import Group, lives, living
from harbourmaster.playground.processes import Process, read_records, write_records

SLEEP = ["/bin/sleep", "60"]


@pytest.fixture
def group(tmp_path):
    group = Group(tmp_path / "records.json", tmp_path, detached=False)
    yield group
    group.end(group.names, 5)


def start(group, *names, command=SLEEP, **fields):
    for name in names:
        group.start(name, command, os.environ, **fields)


def test_a_started_process_is_recorded_with_its_ports(group, tmp_path):
    start(group, "a", ready="http://127.0.0.1:1/readyz", ports={"health": 1})
    (record,) = read_records(tmp_path / "records.json")
    assert (record.name, record.ready, record.ports) == (
        "a",
        "http://127.0.0.1:1/readyz",
        {"health": 1},
    )
    assert record == group.record("a")
    assert lives(record)


def test_a_killed_process_leaves_its_record_too(group, tmp_path):
    start(group, "a", "b")
    record = group.record("a")
    group.kill("a")
    assert not lives(record)
    assert group.names == living(tmp_path / "records.json") == ["b"]


def test_what_ended_is_started_again_as_it_was_and_what_lives_is_left_alone(
    group, tmp_path, monkeypatch
):
    environment = {**os.environ, "OURS": "1"}
    # /proc/PID/environ is empty while the kernel replaces a program by another.
    script = (
        f"env >{tmp_path}/new.$$; mv {tmp_path}/new.$$ {tmp_path}/environment.$$; exec sleep 60"
    )
    command = ["/bin/sh", "-c", script]
    group.start("a", command, environment, ready="a file", ports={"health": 1})
    start(group, "b")
    before = {record.name: record for record in read_records(tmp_path / "records.json")}
    Process.find(before["a"]).finish(0)
    monkeypatch.setenv("KUBECONFIG", "/admin")
    again = Group.find(tmp_path / "records.json", tmp_path)

    def why_not(_url):
        pid = again.record("a").pid
        return None if (tmp_path / f"environment.{pid}").exists() else "no file"

    assert again.revive(why_not) == ["a"]
    after = {record.name: record for record in read_records(tmp_path / "records.json")}
    assert list(after) == ["a", "b"]
    assert after["b"] == before["b"]
    assert after["a"].pid != before["a"].pid
    assert structs.replace(after["a"], pid=0, identity="") == structs.replace(
        before["a"], pid=0, identity=""
    )
    variables = (tmp_path / f"environment.{after['a'].pid}").read_text().splitlines()
    assert "OURS=1" in variables
    assert "KUBECONFIG=/admin" not in variables
    again.end(["a"], 5)


def test_what_cannot_be_started_again_leaves_the_rest_recorded(group, tmp_path):
    start(group, "a", "b", ready="http://127.0.0.1:1/readyz")
    for record in read_records(tmp_path / "records.json"):
        Process.find(record).finish(0)
    again = Group.find(tmp_path / "records.json", tmp_path)
    records = read_records(tmp_path / "records.json")
    failing = structs.replace(records[0], command=["/bin/false"])
    write_records(tmp_path / "records.json", [failing, records[1]])
    with pytest.raises(PlaygroundError, match=r"^a ended with exit code 1"):
        again.revive(lambda _: "no answer")
    assert [record.name for record in read_records(tmp_path / "records.json")] == ["a", "b"]


def test_killing_what_does_not_run_is_an_error(group, tmp_path):
    with pytest.raises(PlaygroundError, match=rf"^a is not running: {tmp_path}$"):
        group.kill("a")


def test_a_process_that_ended_by_itself_runs_no_more_but_is_known(group):
    start(group, "a", command=["/bin/true"])
    with pytest.raises(PlaygroundError, match=r"^a ended with exit code 0: see"):
        group.wait_until("a", lambda: "never", 5)
    assert (group.names, group.running()) == (["a"], [])


def test_the_end_of_a_process_ends_a_wait_with_its_last_lines(group):
    start(group, "a", command=["/bin/sh", "-c", "seq 20; exit 7"])
    with pytest.raises(PlaygroundError) as raised:
        group.wait_until("a", lambda: "never", 5)
    first, *lines = str(raised.value).splitlines()
    assert first == f"a ended with exit code 7: see {group.log('a')}"
    assert lines == [str(number) for number in range(11, 21)]


def test_a_wait_that_takes_too_long_says_what_was_missing(group):
    start(group, "a")
    with pytest.raises(PlaygroundError, match=r"^a is not ready after 0 s \(no token\): see"):
        group.wait_until("a", lambda: "no token", 0)


def test_a_wait_asks_until_there_is_no_reason(group):
    start(group, "a")
    reasons = iter(["one", "two", None])
    group.wait_until("a", lambda: next(reasons), 5)
    assert next(reasons, "asked all") == "asked all"


def test_ending_names_those_that_it_ended(group, tmp_path):
    start(group, "a", "b")
    assert group.end(["b", "other"], 5) == ["b"]
    assert [record.name for record in read_records(tmp_path / "records.json")] == ["a"]


def test_what_another_process_started_is_found_unless_it_ended(group, tmp_path):
    start(group, "a", "b")
    os.kill(group.record("a").pid, 9)
    assert group._processes["a"].wait(5)
    found_group = Group.find(tmp_path / "records.json", tmp_path)
    assert found_group.names == ["b"]
    assert found_group.end(["b"], 5) == ["b"]
    assert found_group.running() == []
