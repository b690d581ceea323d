"""The wheels, built by make from a copy of the sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

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


def built(source, directory, umask=0o022):
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
    """Make a wheel in a copy of the sources that ``built`` made; return it."""
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
