"""Wheels, images and releases that make builds, of today and of the release before."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from helpers.manifests import ROOT
from helpers.manifests import VERSION as CURRENT

ADDED = "added_by_a_test_"
"""The first letters of modules that a test adds to the sources for a moment."""
_UNRELATED = shutil.ignore_patterns(
    ".*", "__pycache__", "build", "dist", "*.egg-info", "tests", f"{ADDED}*"
)


def clean():
    """An environment in which nothing of the checkout is importable."""
    return {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("MAKE", "MFLAGS", "PYTHON", "VIRTUAL_ENV"))
    }


def build_wheel(source, directory, umask=0o022):
    """Make the wheel in a copy of the sources, of other times, modes and name; return it."""
    before = os.umask(umask)
    try:
        shutil.copytree(
            source, directory, ignore=_UNRELATED, symlinks=True, copy_function=shutil.copyfile
        )
    finally:
        os.umask(before)
    (directory / ".venv").mkdir()
    (directory / ".venv/installed").touch()
    return make_wheel(directory, "webhook", umask)


def make_wheel(directory, target, umask=0o022):
    """Make a wheel in a copy of the sources that ``build_wheel`` made; return it."""
    result = subprocess.run(
        ["make", "--no-print-directory", target, f"BIN={Path(sys.executable).parent}"],
        cwd=directory,
        env={**clean(), "SOURCE_DATE_EPOCH": "1700000000"},
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    wheel = directory / result.stdout.removesuffix("\n")
    assert wheel.suffix == ".whl"
    return wheel


def needs(*programs):
    """The marks of tests that run containers by these programs."""
    missing = [name for name in programs if not shutil.which(name)]
    return [
        pytest.mark.skipif(os.geteuid() != 0, reason="containers need root here"),
        pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}"),
    ]


def run(*command, **options):
    """Run a command that must succeed; return what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def make_clone(source, directory, umask=0o022):
    """A clone in which make finds an environment."""
    run("git", "clone", "--quiet", source, directory, umask=umask)
    (directory / ".venv").mkdir()
    (directory / ".venv/installed").touch()
    return directory


VERSION = "0.1.0"
COMMIT = "d89dcdb54953cab37e034ab788b4c35d64bffdb4"
KEPT = {}
"""Rights of the controller that only the release before uses, by its version."""
REPOSITORY = "registry.example.com/harbourmaster"
PACKERS = (".dockerignore", "Dockerfile", "Makefile", "deploy/image", "deploy/release.py")
PACKERS = (*PACKERS, "deploy/sbom.py")
"""The files that pack; everything packed is of the commit."""


class Release(NamedTuple):
    """A folder ``dist`` as ``make release`` leaves it, without the chart."""

    dist: Path

    @property
    def image(self):
        """The archive of the image."""
        return self.dist / f"harbourmaster-{VERSION}-image.tar"

    @property
    def manifests(self):
        """The path of install.yaml, which names the image by its digest."""
        return self.dist / "install.yaml"


def pack(directory):
    """Pack the release on a base of Debian's packages; functions run in today's images."""
    tree = directory / f"harbourmaster-{VERSION}"
    _run(ROOT, "git", "clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(tree))
    _run(tree, "git", "checkout", "--quiet", COMMIT)
    for name in PACKERS:
        source, target = ROOT / name, tree / name
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)
    _run(tree, "git", "add", "--all")
    author = ("-c", "user.name=packer", "-c", "user.email=packer@example.com")
    _run(tree, "git", *author, "commit", "--quiet", "--message=release: pack")
    (tree / ".venv").mkdir()
    (tree / ".venv/installed").touch()
    make = ("make", "--no-print-directory", f"BIN={Path(sys.executable).parent}")
    base = _run(tree, *make, "base-image").split()[-1]
    given = [f"IMG={REPOSITORY}", f"PYTHON_IMAGE={base}", "BUILDER=https://example.com"]
    given += [
        f"{name.upper()}_RUNNER=registry.example.com/harbourmaster-{name}:{CURRENT}"
        for name in ("python", "deno")
    ]
    _run(tree, *make, "image", f"IMG={REPOSITORY}:{VERSION}", f"PYTHON_IMAGE={base}")
    _run(tree, sys.executable, "deploy/release.py", "pack", *given)
    return Release(tree / "dist")


def _run(folder, *command):
    return run(*command, cwd=folder, env=clean())


DOCKERFILE = ROOT / "Dockerfile"
HOME = "/opt/harbourmaster"


def stages():
    """The instructions of each stage, as pairs of keyword and arguments; before the first: ''."""
    by_stage = {"": []}
    current = ""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip():
            continue
        keyword, _, rest = line.partition(" ")
        # Secrets are lent by an engine, and modes are its affair.
        rest = re.sub(r"^\s*(--(mount|chmod)=\S+\s+)+", "", rest)
        if keyword == "FROM":
            _, _, current = rest.partition(" AS ")
            current = current or "final"
            by_stage[current] = []
        by_stage[current].append((keyword, rest.strip()))
    return by_stage


def values(stage, keyword):
    """The arguments of each instruction of the kind, in order."""
    return [rest for word, rest in stages()[stage] if word == keyword]


def environment(stage):
    """The variables that ENV sets."""
    pairs = (pair for line in values(stage, "ENV") for pair in shlex.split(line))
    return dict(pair.split("=", 1) for pair in pairs)


def labels():
    """The labels of the image; build arguments stay as they are written."""
    pairs = (pair for line in values("final", "LABEL") for pair in shlex.split(line))
    return dict(pair.split("=", 1) for pair in pairs)
