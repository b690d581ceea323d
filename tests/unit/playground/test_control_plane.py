from __future__ import annotations

import pytest

from harbourmaster.playground.control_plane import ControlPlane, shut_down, survey
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.processes import Process, Record, write_records
from helpers.stubs import write_program

BROKEN = "#!/bin/sh\nfor number in 1 2 3; do echo line $number; done\nexit 7\n"


@pytest.fixture
def binaries(tmp_path):
    folder = tmp_path / "binaries"
    folder.mkdir()
    return folder


@pytest.fixture
def control_plane(tmp_path, binaries):
    plane = ControlPlane(tmp_path / "plane", binaries=binaries, optional=())
    yield plane
    plane.stop()


def test_a_component_that_ends_is_named_with_its_log_and_its_last_lines(control_plane, binaries):
    write_program(binaries / "etcd", BROKEN)
    with pytest.raises(PlaygroundError) as raised:
        control_plane.start()
    log = control_plane.layout.log("etcd")
    assert str(raised.value).splitlines() == [
        f"etcd ended with exit code 7: see {log}",
        "line 1",
        "line 2",
        "line 3",
    ]


def test_a_failed_start_leaves_no_process(control_plane, binaries, monkeypatch):
    write_program(binaries / "etcd", "#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr("harbourmaster.playground.control_plane.READY_SECONDS", 0.1)
    started = []
    spawn = control_plane._spawn

    def spy(name):
        spawn(name)
        started.append(control_plane._group.record(name))

    control_plane._spawn = spy
    with pytest.raises(PlaygroundError, match=r"^etcd is not ready after"):
        control_plane.start()
    assert [Process.find(record) for record in started] == [None]


def test_a_missing_binary_is_one_clear_line(control_plane, binaries):
    with pytest.raises(PlaygroundError) as raised:
        control_plane.start()
    assert str(raised.value) == (
        f"etcd cannot run: {binaries / 'etcd'} is missing or not executable"
    )


def test_settings_of_another_etcd_do_not_reach_ours(control_plane, binaries, monkeypatch):
    monkeypatch.setenv("ETCD_NAME", "another")
    write_program(binaries / "etcd", '#!/bin/sh\necho "name=$ETCD_NAME"\nexit 1\n')
    with pytest.raises(PlaygroundError, match=r"\nname=$"):
        control_plane.start()


def test_a_folder_with_other_files_is_refused_untouched(control_plane):
    directory = control_plane.layout.directory
    directory.mkdir()
    (directory / "thesis.tex").touch()
    with pytest.raises(PlaygroundError, match="is not empty and no playground"):
        control_plane.start()
    assert [path.name for path in directory.iterdir()] == ["thesis.tex"]


def test_nodes_need_kwok(control_plane):
    with pytest.raises(PlaygroundError, match="nodes need kwok"):
        control_plane.add_nodes(1)


def test_a_scheduler_needs_a_started_control_plane(control_plane):
    with pytest.raises(PlaygroundError, match="is not started"):
        control_plane.add_scheduler("second", {})


def test_killing_what_does_not_run_is_an_error(control_plane):
    with pytest.raises(PlaygroundError, match="kube-scheduler is not running"):
        control_plane.kill("kube-scheduler")


def test_kubectl_needs_a_started_control_plane(tmp_path):
    with pytest.raises(PlaygroundError, match="is not started"):
        ControlPlane(tmp_path / "plane").kubectl("get", "pods")


def test_shutting_down_never_touches_a_process_with_a_used_again_pid(tmp_path):
    # Pid 1 is alive and surely not etcd.
    write_records(tmp_path / "pids.json", [Record("etcd", 1, "other-boot:1")])
    assert shut_down(tmp_path) == []


def test_a_folder_that_is_no_playground_has_no_state(tmp_path):
    assert survey(tmp_path) is None


def test_shutting_down_leaves_nothing_in_a_folder_that_is_no_playground(tmp_path):
    assert shut_down(tmp_path) == []
    assert not list(tmp_path.iterdir())
