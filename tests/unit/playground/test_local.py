from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path

import pytest

from harbourmaster.cli.local import add_local
from harbourmaster.playground import local
from harbourmaster.playground.node import host
from harbourmaster.playground.pki import write_pki
from harbourmaster.playground.processes import Record, identity, read_records, write_records
from helpers.stubs import web_server

NOBODY = Record("etcd", 1, "other-boot:1")
ALL = ("etcd", "kube-apiserver", "kubelet", "controller", "webhook")


def run(*arguments):
    parser = argparse.ArgumentParser()
    add_local(parser)
    return local.run(parser.parse_args(list(map(str, arguments))))


def me(name, **fields):
    """A record by which this very process is found."""
    return Record(name, os.getpid(), identity(os.getpid()), **fields)


def record(directory, *records):
    """Put the records into the file of the control plane or of the installation."""
    planes = [process for process in records if process.name in {"etcd", "kube-apiserver"}]
    directory.mkdir(exist_ok=True)
    write_records(directory / "pids.json", planes)
    write_records(
        directory / "harbourmaster.json",
        [process for process in records if process not in planes],
    )
    write_pki(directory / "pki", "10.96.0.1")


@pytest.fixture
def health():
    """A server whose every answer is 503, for a reason; yields its URL."""
    with web_server(lambda *_: (503, "policies: not synced\n")) as port:
        yield f"http://127.0.0.1:{port}/readyz"


@pytest.fixture
def sleeper():
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        yield process
        process.kill()


def test_up_on_a_running_one_says_so(tmp_path, capsys):
    record(tmp_path, *map(me, ALL))
    assert run("up", "--dir", tmp_path) == 0
    captured = capsys.readouterr()
    assert captured.err == f"harbourmaster in {tmp_path} is running already\n"
    assert captured.out == f"export KUBECONFIG={tmp_path / 'kubeconfig'}\n"


@pytest.mark.parametrize("dead", ALL)
def test_up_beside_the_rest_of_a_crashed_one_asks_for_down(tmp_path, capsys, dead):
    alive = [name for name in ALL if name != dead]
    record(tmp_path, *(NOBODY if name == dead else me(name) for name in ALL))
    assert run("up", "--dir", tmp_path) == 1
    assert capsys.readouterr().err == (
        f"harbourmaster local: {tmp_path}: {', '.join(alive)} of an earlier start still running: "
        f"harbourmaster local down --dir {tmp_path}\n"
    )


def test_up_on_a_bare_control_plane_asks_for_down(tmp_path, capsys):
    write_records(tmp_path / "pids.json", [me("etcd"), me("kube-apiserver")])
    assert run("up", "--dir", tmp_path) == 1
    assert "etcd, kube-apiserver of an earlier start" in capsys.readouterr().err


def test_up_without_what_runs_is_fine_and_with_more_asks_for_down(tmp_path, capsys):
    enabled = ["--placement-enabled=true"]
    record(tmp_path, *(me(name, command=enabled) for name in ALL))
    assert run("up", "--dir", tmp_path, "--with", "placement") == 0
    assert run("up", "--dir", tmp_path, "--members", "1") == 0
    capsys.readouterr()
    assert run("up", "--dir", tmp_path, "--with", "placement,monitoring", "--dashboard") == 1
    assert capsys.readouterr().err == (
        f"harbourmaster local: running without dashboard, monitoring: {tmp_path}: "
        f"harbourmaster local down --dir {tmp_path}, then up again\n"
    )


def test_a_capability_that_does_not_exist_is_refused_with_those_that_do(tmp_path, capsys):
    with pytest.raises(SystemExit):
        run("up", "--dir", tmp_path, "--with", "placement,dashbord")
    known = "dashboard, monitoring, placement, rescheduling"
    assert f"'dashbord' is not one of {known}" in capsys.readouterr().err


def test_a_real_node_has_the_default_installation(tmp_path, capsys):
    assert run("up", "--dir", tmp_path, "--node", "--with", "placement") == 1
    assert (
        "--with, --members and --gating schedulerName need simulated nodes"
        in capsys.readouterr().err
    )


def test_up_with_the_other_way_to_wait_asks_for_down(tmp_path, capsys):
    record(tmp_path, *map(me, ALL))
    assert run("up", "--dir", tmp_path, "--gating", "schedulerName") == 1
    assert "running without scheduler" in capsys.readouterr().err
    record(tmp_path, *(me(name, command=["--scheduler-enabled=true"]) for name in ALL))
    assert run("up", "--dir", tmp_path, "--gating", "schedulerName") == 0


def test_status_names_the_member_cluster_of_a_process(tmp_path, capsys):
    record(tmp_path, *map(me, ALL))
    record(tmp_path / "member-1", me("etcd"))
    assert run("status", "--dir", tmp_path) == 0
    assert "member-1 etcd            running\n" in capsys.readouterr().out


def test_up_in_a_folder_with_other_files_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(local, "ensure_binaries", lambda **_: tmp_path)
    monkeypatch.setattr(local.signal, "signal", lambda *_: None)
    (tmp_path / "thesis.tex").touch()
    assert run("up", "--dir", tmp_path) == 1
    assert "is not empty and no playground: name another" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_down_ends_what_runs_though_some_is_dead(tmp_path, capsys, sleeper):
    webhook = Record("webhook", sleeper.pid, identity(sleeper.pid))
    record(tmp_path, NOBODY, webhook)
    assert run("down", "--dir", tmp_path) == 0
    assert capsys.readouterr().err == "ended webhook\n"
    assert sleeper.wait(5) == -15
    assert read_records(tmp_path / "pids.json") == []


def test_down_of_a_stopped_one_says_so(tmp_path, capsys):
    assert run("down", "--dir", tmp_path) == 0
    assert capsys.readouterr().err == f"nothing is running in {tmp_path}\n"
    assert not list(tmp_path.iterdir())


def test_status_of_a_stopped_one_fails(tmp_path, capsys):
    assert run("status", "--dir", tmp_path) == 1
    assert capsys.readouterr().err == f"harbourmaster is not running in {tmp_path}\n"


def test_status_says_of_each_whether_it_runs_and_why_it_is_not_ready(tmp_path, capsys, health):
    webhook = me("webhook", ready=health, ports={"webhook": 21000, "health": 21001})
    record(tmp_path, NOBODY, me("kubelet"), webhook)
    assert run("status", "--dir", tmp_path) == 1
    logs = tmp_path / "logs"
    ports = "ports webhook 21000, health 21001"
    reason = "not ready (503: policies: not synced)"
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        f"etcd ended: see {logs / 'etcd.log'}",
        "kubelet running",
        f"webhook running, {reason}: see {logs / 'webhook.log'}; {ports}",
    ]


def test_the_suggested_policy_is_there_and_is_for_the_suggested_pod():
    _, apply, try_, _ = local._suggestions("x")
    text = Path(apply.split()[-1]).read_text()
    labels = try_.split("--labels=")[1].split()[0].split(",")
    assert all(labels)
    assert labels
    for label in labels:
        assert label.replace("=", ": ") in text


def test_a_folder_that_cannot_be_is_told_with_its_name(tmp_path, capsys):
    folder = tmp_path / "file" / "plane"
    folder.parent.touch()
    assert run("status", "--dir", folder) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"harbourmaster local: {folder}")
    assert line.endswith(": Not a directory")


def test_an_error_without_a_text_says_what_failed(monkeypatch, capsys, tmp_path):
    def fail(_directory):
        raise TimeoutError

    monkeypatch.setattr(local, "status", fail)
    assert run("status", "--dir", tmp_path) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("harbourmaster local: no answer in time: check that")


def test_a_real_node_that_cannot_be_is_one_line_that_says_why(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert run("up", "--node", "--dir", tmp_path) == 1
    assert capsys.readouterr().err == (
        "harbourmaster local: a real node needs root: --node: run the command with sudo\n"
    )


def test_up_of_a_real_node_that_runs_prints_the_export_line(tmp_path, capsys):
    write_records(tmp_path / "node.json", [me("node")])
    assert run("up", "--node", "--dir", tmp_path) == 0
    out, err = capsys.readouterr()
    assert out == f"export KUBECONFIG={tmp_path}/kubeconfig\n"
    assert err == f"a real node in {tmp_path} is running already\n"


def test_status_of_a_real_node_is_asked_in_its_namespaces(tmp_path, monkeypatch):
    write_records(tmp_path / "node.json", [me("node")])
    asked = []

    def enter(directory, *command):
        asked.append((directory, command[-4:]))
        return ["false"]

    monkeypatch.setattr(host, "enter", enter)
    assert run("status", "--dir", tmp_path) == 1
    assert asked == [(tmp_path, ("harbourmaster.cli.main", "local", "status", f"--dir={tmp_path}"))]
