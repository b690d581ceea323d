"""``harbourmaster local up --node``: how it starts beside another node, and what it leaves."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from harbourmaster.playground.node import cgroups, host
from harbourmaster.playground.node.machine import cgroup
from harbourmaster.playground.processes import Process, read_records
from helpers.node import IMAGES, figure, output

PROGRAM = Path(sys.executable).with_name("harbourmaster")
END_SECONDS = 60


def local(action, directory, *arguments, **options):
    return output(PROGRAM, "local", action, f"--dir={directory}", *arguments, **options)


@contextlib.contextmanager
def starting(directory):
    """``local up`` of a node whose control plane runs and the rest does not; and its keeper."""
    command = [PROGRAM, "local", "up", "--node", f"--dir={directory}", f"--images={IMAGES}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as up:
        assert "control plane" in up.stderr.readline()
        (record,) = read_records(host.records(directory))
        yield up, record


def leftovers(directory):
    """Cgroups and processes of a folder's node."""
    groups = cgroups.find(cgroup(directory)).folders.values()
    commands = (path / "cmdline" for path in Path("/proc").iterdir() if path.name.isdigit())
    return [folder for folder in groups if folder.exists()] + [
        path for path in commands if str(directory).encode() in read(path)
    ]


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_second_node_starts_beside_the_first_and_ends_without_a_trace(bare_node, tmp_path):
    directory = tmp_path / "second"
    said = local("up", directory, "--node", f"--images={IMAGES}")
    assert said.splitlines()[-5].startswith("export KUBECONFIG=")
    figure(f"local up --node: {next(line for line in said.splitlines() if 'ready after' in line)}")
    status = local("status", directory)
    assert {"etcd", "containerd-1", "kubelet-1", "kube-proxy-1"} <= set(status.split())
    environment = {**os.environ, "KUBECONFIG": str(directory / "kubeconfig")}
    kubectl = PROGRAM.with_name("kubectl")
    nodes = output(kubectl, "get", "nodes", "--output=name", env=environment)
    assert nodes.split() == ["node/node-1"]
    assert len(bare_node.get("nodes")) == 2
    assert local("down", directory) == "ended node\n"
    assert leftovers(directory) == []


def test_a_killed_up_leaves_nothing(tmp_path):
    directory = tmp_path / "killed"
    with starting(directory) as (up, record):
        keeper = Process.find(record)
        up.send_signal(signal.SIGKILL)
    assert keeper.wait(END_SECONDS)
    keeper.close()
    assert leftovers(directory) == []


def test_a_killed_keeper_takes_the_node_with_it_and_down_removes_the_cgroups(tmp_path):
    directory = tmp_path / "orphan"
    with starting(directory) as (up, record):
        (namespaces,) = read_records(directory / "namespaces.json")
        inside = Process.find(namespaces)
        os.kill(record.pid, signal.SIGKILL)
        assert up.wait(END_SECONDS) == 1
    assert inside.wait(END_SECONDS)
    inside.close()
    local("down", directory)
    assert leftovers(directory) == []
