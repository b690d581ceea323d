"""A real node, as far as no root and no cgroup is needed; ``tests/node`` runs one."""

from __future__ import annotations

import io
import json
import os
import tarfile
import tomllib
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest
import yaml

from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.node import cgroups, host, inside, machine
from harbourmaster.playground.node.cgroups import Groups
from harbourmaster.playground.node.configuration import Worker
from harbourmaster.playground.processes import Record, identity, write_records

V1 = """9:name=systemd:/
5:memory:/machine/1
4:cpuset:/gone
2:cpu,cpuacct:/
1:pids:/
0::/
"""


@pytest.fixture
def first(tmp_path):
    """A root of cgroup version 1, with ours; memory is in a group already."""
    root = tmp_path / "cgroup"
    for name in ("systemd", "memory/machine/1", "cpuset", "cpu,cpuacct", "pids", "unified"):
        (root / name).mkdir(parents=True)
    for name in ("cpuset.mems", "cpuset.cpus"):
        (root / "cpuset" / name).write_text("0-1\n")
    own = tmp_path / "own"
    own.write_text(V1)
    return root, own


@pytest.fixture
def second(tmp_path):
    """A root of cgroup version 2."""
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (tmp_path / "cgroup.subtree_control").touch()
    return tmp_path


def test_version_1_has_a_folder_in_each_hierarchy_below_our_own(first):
    root, own = first
    assert cgroups.find("ours", root, own) == Groups(
        unified=False,
        folders={
            "name=systemd": root / "systemd/ours",
            "memory": root / "memory/machine/1/ours",
            # As in a container, where the path is one of the host.
            "cpuset": root / "cpuset/ours",
            "cpu,cpuacct": root / "cpu,cpuacct/ours",
            "pids": root / "pids/ours",
        },
    )


def test_version_1_gives_new_groups_their_cpus_and_removes_all_again(first):
    root, own = first
    groups = cgroups.find("ours", root, own)
    groups.make()
    assert (root / "cpuset/ours/cpuset.cpus").read_text() == "0-1\n"
    assert (root / "cpuset/ours/cgroup.clone_children").read_text() == "1"
    assert (root / "memory/machine/1/ours/processes").is_dir()
    for path in (root / "cpuset/ours").iterdir():
        if path.is_file():
            path.unlink()
    groups.remove()
    assert not list(root.rglob("ours"))


def test_version_2_passes_the_controllers_on_and_has_processes_in_a_leaf(second):
    groups = cgroups.find("ours", second)
    assert groups == Groups(unified=True, folders={"": second / "ours"})
    groups.make()
    assert (second / "cgroup.subtree_control").read_text() == "+cpuset +cpu +io +memory +pids"
    assert [path.name for path in (second / "ours").iterdir()] == ["processes"]
    command = groups.enter(["program", "argument"])
    assert command[2] == f'echo $$ > {second}/ours/cgroup.procs && exec "$@"'
    assert command[4:6] == ["unshare", "--cgroup"]
    assert command[8] == f'echo $$ > {second}/ours/processes/cgroup.procs && exec "$@"'
    assert command[-2:] == ["program", "argument"]


def test_a_missing_controller_is_named(second):
    (second / "cgroup.controllers").write_text("cpu pids\n")
    with pytest.raises(PlaygroundError, match=r"^cgroup controllers cpuset, memory not found: "):
        cgroups.find("ours", second)


def test_a_node_gets_files_of_its_own_with_its_number_and_ranges(tmp_path, second):
    (tmp_path / "kubeconfig").write_text("clusters: [{cluster: {server: 'https://127.0.0.1:1'}}]")
    Worker(2, tmp_path).write((tmp_path / "kubeconfig").read_text(), 2345, second)
    sizes = {
        path.name: yaml.safe_load(path.read_text())
        for path in (tmp_path / "node-2").rglob("*")
        if path.suffix in {".yaml", ".conflist"} or path.name == "kubeconfig"
    }
    assert sizes["kubelet.yaml"]["cgroupRoot"] == "/node-2"
    (bridge, _) = sizes["network.conflist"]["plugins"]
    assert bridge["ipam"]["ranges"] == [[{"subnet": "10.244.2.0/24"}]]
    assert sizes["kubeconfig"]["clusters"][0]["cluster"] == {
        "server": "https://10.77.0.1:2345",
        "tls-server-name": "kubernetes",
    }
    containerd = tomllib.loads((tmp_path / "node-2/containerd.toml").read_text())
    assert containerd["root"] == f"{tmp_path}/node-2/containerd"


def test_the_kubelet_accepts_version_1_only_where_it_is_used(tmp_path, first, second):
    accepted = []
    for root in (first[0], second):
        Worker(1, tmp_path).write("clusters: [{cluster: {}}]", 1, root)
        kubelet = yaml.safe_load((tmp_path / "node-1/kubelet.yaml").read_text())
        accepted.append(not kubelet["failCgroupV1"])
    assert accepted == [True, False]


def test_two_folders_have_cgroups_of_different_names():
    assert machine.cgroup(Path("/a")) != machine.cgroup(Path("/b"))


@pytest.fixture
def able(monkeypatch, tmp_path, second):
    """A machine that has everything: a folder of images, and one of programs."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(
        cgroups, "find", lambda _name: Groups(unified=True, folders={"": second / "ours"})
    )
    programs, images = tmp_path / "programs", tmp_path / "images"
    for name in machine.PROGRAMS:
        path = programs / name
        path.parent.mkdir(exist_ok=True)
        path.touch(0o755)
    (programs / "bridge").touch()
    monkeypatch.setattr(machine, "PLUGINS", [programs])
    monkeypatch.setattr(machine, "SYSTEM", "")
    images.mkdir()
    write_image(images / "harbourmaster.tar", OURS)
    return programs, images


OURS = {
    "org.opencontainers.image.title": "harbourmaster",
    "org.opencontainers.image.version": version("harbourmaster"),
}
OLD = {**OURS, "org.opencontainers.image.version": "0.0.9"}


def write_image(path, labels, depth=None):
    """Write an archive of Docker, or of OCI with an index of this depth."""
    files = {"blobs/sha256/0": {"config": {"Labels": labels}}}
    if depth is None:
        files["manifest.json"] = [{"Config": "blobs/sha256/0"}]
    else:
        files["blobs/sha256/1"] = {"config": {"digest": "sha256:0"}}
        for level in range(1, depth):
            files[f"blobs/sha256/{level + 1}"] = {"manifests": [{"digest": f"sha256:{level}"}]}
        files["index.json"] = {"manifests": [{"digest": f"sha256:{depth}"}]}
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            data = json.dumps(content).encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def check(able):
    programs, images = able
    return machine.check(Path("/a"), images, {"PATH": str(programs)})


def test_a_machine_that_has_everything_is_accepted(able):
    assert check(able) is None


def test_without_root_the_error_says_so(able, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(PlaygroundError, match=r"^a real node needs root: .*sudo"):
        check(able)


def test_missing_programs_are_named_with_the_command_that_installs_them(able):
    programs, _ = able
    for name in ("runc", "ctr", "containerd", "bridge"):
        (programs / name).unlink()
    with pytest.raises(PlaygroundError) as caught:
        check(able)
    assert str(caught.value) == (
        "containerd, ctr, runc, CNI plugin bridge not found: apt-get install --yes "
        "--no-install-recommends containerd containernetworking-plugins runc"
    )


def test_cgroups_that_cannot_be_written_are_named(able, monkeypatch, second):
    monkeypatch.setattr(
        cgroups, "find", lambda _name: Groups(unified=True, folders={"": second / "none/ours"})
    )
    with pytest.raises(
        PlaygroundError, match=r"^cgroups cannot be written: .*none.*: No such file"
    ):
        check(able)


def test_without_images_the_error_says_how_to_build_them(able):
    _, images = able
    (images / "harbourmaster.tar").unlink()
    with pytest.raises(PlaygroundError, match=rf"found: {images}: make node-images$"):
        check(able)


@pytest.mark.parametrize("depth", [None, 1, 2])
def test_an_image_of_another_version_is_refused_in_one_line(able, depth):
    _, images = able
    archive = images / "harbourmaster.tar"
    write_image(archive, OLD, depth)
    with pytest.raises(PlaygroundError) as caught:
        check(able)
    own = version("harbourmaster")
    assert str(caught.value) == (
        f"image of version 0.0.9, but this command is {own}: {archive}: make node-images, or use "
        "the image of its release"
    )
    write_image(archive, OURS, depth)
    assert check(able) is None


@pytest.mark.parametrize("labels", [None, {}, {**OLD, "org.opencontainers.image.title": "busybox"}])
def test_images_of_others_can_have_any_version(able, labels):
    _, images = able
    write_image(images / "busybox.tar", labels)
    assert check(able) is None


def test_names_are_those_of_services_that_have_an_address(tmp_path):
    reloaded = []

    class Plane:
        port, admin = 0, None

    names = inside.Names(
        Plane(), tmp_path / "hosts", lambda: reloaded.append((tmp_path / "hosts").read_text())
    )
    for event in (
        {
            "type": "ADDED",
            "object": {
                "metadata": {"name": "a", "namespace": "x"},
                "spec": {"clusterIP": "10.96.0.7"},
            },
        },
        {
            "type": "ADDED",
            "object": {"metadata": {"name": "b", "namespace": "x"}, "spec": {"clusterIP": "None"}},
        },
        {
            "type": "DELETED",
            "object": {
                "metadata": {"name": "a", "namespace": "x"},
                "spec": {"clusterIP": "10.96.0.7"},
            },
        },
    ):
        names.take(msgspec.json.encode(event))
    assert reloaded == ["10.96.0.7 a.x.svc.cluster.local\n"] * 2 + [""]


def test_the_namespaces_of_a_folder_without_a_node_cannot_be_entered(tmp_path):
    with pytest.raises(PlaygroundError, match=r"^no node is running: "):
        host.enter(tmp_path, "ip", "address")


def test_the_namespaces_are_those_of_the_recorded_process(tmp_path):
    pid = os.getpid()
    write_records(tmp_path / "namespaces.json", [Record("namespaces", pid, identity(pid))])
    command = host.enter(tmp_path, "ip", "address")
    assert command[:2] == ["nsenter", f"--target={pid}"]
    assert command[-3:] == [f"--pid=/proc/{pid}/ns/pid_for_children", "ip", "address"]
