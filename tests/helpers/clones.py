"""Clones in which make builds images and releases, and what it needs there."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


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


def cloned(source, directory, umask=0o022):
    """A clone in which make finds an environment."""
    run("git", "clone", "--quiet", source, directory, umask=umask)
    (directory / ".venv").mkdir()
    (directory / ".venv/installed").touch()
    return directory
