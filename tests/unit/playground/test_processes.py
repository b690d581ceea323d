from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading

import pytest

from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.processes import (
    Process,
    Record,
    end_all,
    identity,
    read_records,
    spawn,
    write_records,
)

SLEEP = ["/bin/sleep", "60"]
# Says that it is up, then outlives SIGTERM.
STUBBORN = ["/bin/sh", "-c", "trap '' TERM; echo up; while :; do read line < /dev/zero; done"]
# Starts a program as told and then lives until it is killed; prints the program's pid.
STARTER = """
import os, sys, time
from pathlib import Path
from harbourmaster.playground.processes import spawn
process = spawn(
    "sleep", ["/bin/sleep", "60"], Path(sys.argv[1]), os.environ, attached=sys.argv[2] == "attached"
)
print(process.record.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def start_process(tmp_path):
    processes = []

    def start(command=SLEEP, *, attached=True):
        process = spawn("x", command, tmp_path / "log", os.environ, attached=attached)
        processes.append(process)
        return process

    yield start
    for process in processes:
        if identity(process.record.pid) == process.record.identity:
            os.kill(process.record.pid, signal.SIGKILL)
        process.exit_code()


@pytest.fixture
def starter(tmp_path):
    children = []

    def start(how):
        child = subprocess.Popen(
            [sys.executable, "-c", STARTER, str(tmp_path / "log"), how], stdout=subprocess.PIPE
        )
        children.append(child)
        pid = int(child.stdout.readline())
        return child, os.pidfd_open(pid)

    yield start
    for child in children:
        child.kill()
        child.wait()
        child.stdout.close()


def has_ended(descriptor, seconds):
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def test_a_process_is_found_again_by_its_record(start_process):
    record = start_process().record
    process = Process.find(record)
    assert process.record == record
    process.close()


def test_a_later_process_with_the_same_pid_is_not_found(start_process):
    record = start_process().record
    assert Process.find(Record(record.name, record.pid, "other-boot:1")) is None


def test_an_ended_process_is_not_found_before_it_is_reaped(start_process):
    process = start_process()
    os.kill(process.record.pid, signal.SIGKILL)
    assert process.wait(5)
    assert Process.find(process.record) is None


def test_a_process_leads_a_group_of_its_own(start_process):
    pid = start_process().record.pid
    assert os.getpgid(pid) == pid


def test_a_process_keeps_its_identity_when_it_becomes_the_program(start_process, tmp_path):
    process = start_process(["/bin/sh", "-c", "echo up; sleep 60"])
    while "up" not in (tmp_path / "log").read_text():
        assert not process.wait(0.01)
    assert identity(process.record.pid) == process.record.identity


def test_a_second_signal_does_not_interrupt_what_the_first_one_began():
    """A second Ctrl-C must not leave files and processes behind."""
    code = (
        "import os, signal\n"
        "from harbourmaster.playground.processes import interrupt_on\n"
        "interrupt_on(signal.SIGINT, signal.SIGHUP)\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "except KeyboardInterrupt:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('removed')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "removed\n"


def test_ending_asks_first(start_process):
    process = start_process()
    end_all([process], 5)
    assert process.exit_code() == -signal.SIGTERM


def test_ending_kills_what_does_not_listen(start_process, tmp_path):
    process = start_process(STUBBORN)
    while "up" not in (tmp_path / "log").read_text():
        assert not process.wait(0.01)
    end_all([process], 0.1)
    assert process.exit_code() == -signal.SIGKILL


def test_ending_what_has_ended_is_no_error(start_process):
    process = start_process()
    os.kill(process.record.pid, signal.SIGKILL)
    assert process.wait(5)
    end_all([process], 1)
    assert process.exit_code() == -signal.SIGKILL


def test_an_attached_process_outlives_the_thread_that_asked_for_it(start_process):
    processes = []
    thread = threading.Thread(target=lambda: processes.append(start_process()))
    thread.start()
    thread.join()
    assert not processes[0].wait(0.2)


def test_an_attached_process_ends_with_a_killed_starter(starter):
    child, descriptor = starter("attached")
    child.kill()
    assert has_ended(descriptor, 5)
    os.close(descriptor)


def test_a_detached_process_outlives_its_starter(starter):
    child, descriptor = starter("detached")
    child.kill()
    child.wait()
    assert not has_ended(descriptor, 0.2)
    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    os.close(descriptor)


def test_records_survive_the_file(tmp_path):
    records = [Record("etcd", 12, "boot:34")]
    write_records(tmp_path / "pids.json", records)
    assert read_records(tmp_path / "pids.json") == records


def test_a_folder_without_records_is_told_from_an_empty_one(tmp_path):
    assert read_records(tmp_path / "pids.json") is None


def test_damaged_records_are_one_clear_line(tmp_path):
    (tmp_path / "pids.json").write_text('{"processes": [{}]}')
    with pytest.raises(PlaygroundError, match=r"pids\.json is damaged .*name.*: end its processes"):
        read_records(tmp_path / "pids.json")
