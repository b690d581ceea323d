"""The steps of the Dockerfile, run without an engine: each RUN of the first stage as it stands."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.manifests import ROOT, VERSION
from helpers.releases import HOME, build_wheel, clean, environment, values

# Packages are fetched once, by the locked hashes.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel") / "here")


@pytest.fixture(scope="module")
def image(wheel, tmp_path_factory):
    """The folder of the image's environment, after every RUN of the first stage."""
    source = tmp_path_factory.mktemp("source")
    home = tmp_path_factory.mktemp("image") / "harbourmaster"
    copied = {line.split()[0]: line for line in values("build", "COPY")}
    scripts = {"requirements-tracing.txt", "deploy/image/strip.py"}
    assert copied.keys() == scripts | {"dist/harbourmaster-*.whl", "dist/harbourmaster-*.cdx.json"}
    for script in scripts:
        shutil.copy(ROOT / script, source)
    shutil.copy(wheel, source)
    tools = Path(sys.executable).parent
    for command in values("build", "RUN"):
        result = subprocess.run(
            ["sh", "-ec", command.replace(HOME, str(home))],
            cwd=source,
            env={**clean(), **environment("build"), "PATH": f"{tools}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return home


@pytest.fixture
def run(image, tmp_path):
    """Return ``run(*command)``, which runs it in an empty directory with the image's PATH."""

    def run(*command):
        return subprocess.run(
            command,
            cwd=tmp_path,
            env={**clean(), "PATH": f"{image / 'bin'}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_the_command_knows_its_version(run):
    assert run("harbourmaster", "--version").stdout == f"{VERSION}\n"


@pytest.mark.parametrize("process", ["webhook", "controller"])
def test_both_processes_start_either_way(run, process):
    by_name = run("harbourmaster", process, "--help")
    by_module = run("python", "-m", f"harbourmaster.{process}", "--help")
    assert by_name.returncode == by_module.returncode == 0
    assert "--health-port" in by_name.stdout
    assert "--health-port" in by_module.stdout


@pytest.mark.parametrize("process", ["webhook", "controller"])
def test_outside_a_cluster_each_says_in_one_line_what_it_lacks(run, process, tmp_path):
    missing = tmp_path / "kubeconfig"
    result = run("harbourmaster", process, f"--kubeconfig={missing}", "--namespace=placement")
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert str(missing) in result.stderr


def test_nothing_is_there_but_what_is_locked_and_the_wheel(image, run):
    folders = image.glob("lib/python3.*/site-packages/*.dist-info")
    names = {path.stem.partition("-")[0].lower() for path in folders}
    text = (ROOT / "requirements-tracing.txt").read_text()
    locked = {
        line.partition("==")[0].lower().replace("-", "_")
        for line in text.splitlines()
        if line[:1].isalnum()
    }
    assert names == locked | {"harbourmaster"}
    assert run("python", "-c", "import pip").returncode == 1


def test_every_module_is_compiled_and_read_without_a_look_at_its_source(image):
    (packages,) = image.glob("lib/python3.*/site-packages")
    for package in ("webhook", "controller", "policies"):
        sources = list((packages / "harbourmaster" / package).glob("*.py"))
        assert sources, package
        for source in sources:
            (compiled,) = (source.parent / "__pycache__").glob(f"{source.stem}.*.pyc")
            # Flags: by hash, and never checked (PEP 552).
            assert compiled.read_bytes()[4:8] == b"\x01\0\0\0"


def test_extension_modules_are_as_long_as_what_is_loaded_of_them(image):
    modules = list(image.glob("lib/python3.*/site-packages/**/*.so"))
    assert len(modules) > 10
    for module in modules:
        # Sections, which debug symbols are, are nothing that a process loads.
        assert module.read_bytes()[40:48] == bytes(8), module
    assert sum(module.stat().st_size for module in modules) < 40_000_000


def test_the_same_sources_give_the_same_wheel_whatever_the_modes_of_the_checkout(wheel, tmp_path):
    def digest(path):
        return hashlib.sha256(path.read_bytes()).hexdigest()

    again = build_wheel(wheel.parents[1], tmp_path / "elsewhere", umask=0o077)
    assert digest(again) == digest(wheel)
