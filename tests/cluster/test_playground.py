from __future__ import annotations

import json
import os
import select
import stat
import subprocess
import sys

import pytest

from harbourmaster.playground.control_plane import survey
from harbourmaster.playground.group import lives, living
from harbourmaster.playground.processes import Process, read_records
from helpers.patience import PATIENCE, WAIT

# A grace period is 30 s.
QUICK = "--timeout=20s"

# Starts the smallest control plane, says so, and then hangs.
PARENT = """
import signal, sys
from pathlib import Path
from harbourmaster.playground.control_plane import ControlPlane
ControlPlane(Path(sys.argv[1]), optional=()).start()
print("started", flush=True)
signal.pause()
"""


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "harbourmaster.playground", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * PATIENCE,
    )


@pytest.fixture
def directory(tmp_path):
    yield tmp_path / "plane"
    run("down", "--dir", str(tmp_path / "plane"))


@pytest.fixture(scope="module")
def node(control_plane):
    return control_plane.add_nodes(1, labels={"test": "playground"})[0]


def test_the_api_server_is_ready_and_says_its_version(kubectl):
    assert kubectl("get", "--raw", "/readyz").stdout == "ok"
    version = json.loads(kubectl("get", "--raw", "/version").stdout)
    assert (version["gitVersion"], version["major"], version["minor"]) == ("v1.36.3", "1", "36")


def test_a_deleted_pod_on_a_kwok_node_goes_without_its_grace_period(kubectl, namespace, node):
    in_namespace = f"--namespace={namespace}"
    kubectl("run", "pod", "--image=none", in_namespace)
    kubectl("wait", "--for=condition=Ready", "pod/pod", WAIT, in_namespace)
    kubectl("delete", "pod/pod", QUICK, in_namespace)
    assert kubectl("get", "pods", "-o=name", in_namespace).stdout == ""


def test_nodes_are_numbered_on(control_plane, node):
    names = control_plane.add_nodes(2)
    assert len({node, *names}) == 3


def test_a_user_without_a_role_is_refused(kubectl):
    answer = kubectl("auth", "can-i", "list", "pods", "--as=nobody", check=False)
    assert answer.stdout.strip() == "no"


def test_only_the_owner_reads_the_kubeconfig(control_plane):
    assert stat.S_IMODE(control_plane.kubeconfig.stat().st_mode) == 0o600


def test_stopping_ends_every_process(throwaway_control_plane):
    plane = throwaway_control_plane()
    records = read_records(plane.layout.records)
    plane.stop()
    assert len(records) == 5
    assert [record.name for record in records if lives(record)] == []


def test_data_survives_stop_and_start(throwaway_control_plane):
    plane = throwaway_control_plane(optional=())
    plane.kubectl("create", "namespace", "kept")
    plane.stop()
    plane.start()
    assert plane.kubectl("get", "namespace/kept", "-o=name").stdout == "namespace/kept\n"


def test_pods_are_accepted_without_a_controller_manager(throwaway_control_plane):
    plane = throwaway_control_plane(optional=("kube-scheduler", "kwok"))
    plane.add_nodes(1)
    plane.kubectl("run", "pod", "--image=none")
    plane.kubectl("wait", "--for=condition=Ready", "pod/pod", WAIT)
    phase = plane.kubectl("get", "pod/pod", "-o=jsonpath={.status.phase}")
    assert phase.stdout == "Running"


def test_the_command_line_starts_shows_and_ends_one(directory):
    up = run("up", "--dir", str(directory), "--nodes", "2", "--without", "controller-manager")
    assert up.returncode == 0, up.stderr
    assert up.stdout == f"export KUBECONFIG={directory / 'kubeconfig'}\n"
    status = run("status", "--dir", str(directory))
    assert status.returncode == 0
    assert status.stdout.splitlines() == [
        "etcd running",
        "kube-apiserver running",
        "kube-scheduler running",
        "kwok running",
    ]
    down = run("down", "--dir", str(directory))
    assert (down.returncode, living(directory / "pids.json")) == (0, [])
    assert down.stderr == "ended etcd, kube-apiserver, kube-scheduler, kwok\n"


def test_a_second_up_leaves_the_first_alone(directory):
    slim = ("--without", "scheduler,controller-manager,kwok")
    run("up", "--dir", str(directory), *slim)
    records = read_records(directory / "pids.json")
    again = run("up", "--dir", str(directory), *slim)
    assert again.returncode == 0
    assert again.stderr == f"the control plane in {directory} is running already\n"
    assert again.stdout == f"export KUBECONFIG={directory / 'kubeconfig'}\n"
    assert read_records(directory / "pids.json") == records


def test_up_beside_the_rest_of_a_crashed_one_asks_for_down(directory):
    slim = ("--without", "scheduler,controller-manager,kwok")
    run("up", "--dir", str(directory), *slim)
    etcd = Process.find(read_records(directory / "pids.json")[0])
    etcd.finish(0)
    again = run("up", "--dir", str(directory), *slim)
    assert again.returncode == 1
    assert again.stderr.splitlines()[-1] == (
        f"playground: {directory}: kube-apiserver of an earlier start still running: "
        f"python -m harbourmaster.playground down --dir {directory}"
    )
    assert survey(directory) == {"etcd": False, "kube-apiserver": True}


def test_a_killed_parent_leaves_no_process(directory):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(directory)], stdout=subprocess.PIPE
    )
    with parent:
        assert parent.stdout.readline() == b"started\n"
        records = read_records(directory / "pids.json")
        descriptors = [os.pidfd_open(record.pid) for record in records]
        parent.kill()
    assert [record.name for record in records] == ["etcd", "kube-apiserver"]
    for descriptor in descriptors:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        assert poll.poll(5000)
        os.close(descriptor)
