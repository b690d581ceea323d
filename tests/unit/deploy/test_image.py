from __future__ import annotations

import fnmatch
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_asyncio

from helpers.manifests import ROOT, container, objects, of_kind
from helpers.releases import HOME, environment, labels, stages, values


def test_the_base_is_one_exact_version_and_can_be_replaced():
    (argument,) = values("", "ARG")
    name, _, image = argument.partition("=")
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+", image)
    assert [values(stage, "FROM")[0].split(" ")[0] for stage in ("build", "final")] == [
        f"${{{name}}}"
    ] * 2


def test_no_digest_is_invented():
    assert not re.search(r"sha256:[0-9a-f]", (ROOT / "Dockerfile").read_text())


def test_what_is_installed_is_what_is_locked():
    installs = [line for line in values("build", "RUN") if " install " in line]
    locked, own = installs
    assert "--require-hashes" in locked
    assert "--requirement requirements-tracing.txt" in locked
    # Nothing is compiled from uploaded sources, and our wheel has no dependencies.
    assert "--only-binary :all:" in locked
    assert {"--no-deps", "--no-index"} <= set(own.split())


def test_the_client_library_reads_kubeconfigs_without_its_generated_classes(tmp_path):
    source = Path(kubernetes_asyncio.__file__).parent
    packages = tmp_path / "lib/python3.0/site-packages"
    trimmed = packages / "kubernetes_asyncio"
    ignored = shutil.ignore_patterns("__pycache__", "*.pyi", "v1*", "v2*")
    shutil.copytree(source, trimmed, ignore=ignored)
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (command,) = (line for line in values("build", "RUN") if "kubernetes_asyncio" in line)
    subprocess.run(["sh", "-ec", command.replace(HOME, str(tmp_path))], check=True)
    assert sum(path.stat().st_size for path in trimmed.rglob("*.py")) < 1_000_000
    (tmp_path / "config").write_text(
        "clusters: [{name: a, cluster: {server: 'http://api:1'}}]\n"
        "contexts: [{name: a, context: {cluster: a}}]\n"
    )
    code = (
        "import kubernetes_asyncio\n"
        "from harbourmaster.kube.kubeconfig import connection_from\n"
        f"print(connection_from('{tmp_path}/config', 'a').server, kubernetes_asyncio.__file__)"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.split() == ["http://api:1", f"{trimmed}/__init__.py"]


def test_bytecode_is_made_last_and_never_checked_again():
    *_, last = values("build", "RUN")
    assert f"{HOME}/lib" in last
    # Times differ in every layer; a check by time would throw all of it away.
    for command in (last, *values("final", "RUN")):
        assert "compileall -q --invalidation-mode unchecked-hash" in command
    # What pip or a check imports stays without: its bytecode would know the time.
    assert environment("build")["PYTHONDONTWRITEBYTECODE"] == "1"


def test_the_final_stage_has_no_installer_and_no_root():
    instructions = stages()["final"]
    assert ("COPY", f"--from=build {HOME} {HOME}") in instructions
    assert "--without-pip" in values("build", "RUN")[0]
    (removal,) = values("final", "RUN")
    assert removal.startswith("rm -rf ")
    # The official image has site-packages, Debian's Python dist-packages.
    assert "*-packages/pip*" in removal
    assert values("final", "USER") == ["65532:65532"]
    # After USER nothing may need root any more.
    assert [
        instruction
        for instruction, _ in instructions[instructions.index(("USER", "65532:65532")) :]
    ] == [
        "USER",
        "EXPOSE",
        "STOPSIGNAL",
        "ENTRYPOINT",
    ]


def test_one_image_runs_both_processes():
    (entrypoint,) = values("final", "ENTRYPOINT")
    assert json.loads(entrypoint) == ["harbourmaster"]
    assert environment("final")["PATH"].startswith(f"{HOME}/bin:")
    deployments = of_kind(objects(), "Deployment")
    commands = [container(deployment)["args"][:2] for deployment in deployments]
    assert sorted(commands) == [["server", "controller"], ["server", "webhook"]]
    assert not any("command" in container(deployment) for deployment in deployments)


def test_it_stops_and_listens_as_the_manifests_expect():
    assert values("final", "STOPSIGNAL") == ["SIGTERM"]
    ports = {
        port["containerPort"]
        for deployment in of_kind(objects(), "Deployment")
        for port in container(deployment)["ports"]
    }
    assert {int(port) for port in values("final", "EXPOSE")[0].split()} == ports


def test_it_says_what_it_is():
    prefix = "org.opencontainers.image."
    assert labels().keys() == {
        f"{prefix}{name}"
        for name in ("title", "description", "licenses", "revision", "source", "version")
    }
    setup = (ROOT / "setup.cfg").read_text()
    assert f"description = {labels()[prefix + 'description']}\n" in setup
    assert f"license = {labels()[prefix + 'licenses']}\n" in setup


def test_the_build_sees_what_it_copies_and_nothing_else():
    ignored, *admitted = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert ignored == "*"
    sources = [source for line in values("build", "COPY") for source in line.split()[:-1]]
    assert [f"!{source}" for source in sources] == admitted
    assert not any(fnmatch.fnmatch(".git", line.lstrip("!")) for line in admitted)
