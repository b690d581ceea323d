"""The Deno runner's entry point, with something in Deno's place that tells how it was called."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from helpers.manifests import ROOT
from helpers.patience import PATIENCE
from helpers.stubs import write_program

ENTRYPOINT = ROOT / "deploy/runtimes/deno/entrypoint.sh"
ALLOWED = [
    "run",
    "--no-prompt",
    "--allow-net",
    "--allow-read",
    "--allow-write",
    "--allow-env=DATA,SECURE_DATA,KEPTN_CONTEXT",
]
HOSTILE = ["$(touch pwned)", "`touch pwned`", "; touch pwned", "* ?", "a\nb", "'\"", "a b"]


@pytest.fixture
def run(tmp_path):
    """Return a function that runs the entry point with an environment."""
    programs = tmp_path / "bin"
    script = f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n"
    write_program(programs / "deno", script)
    work = tmp_path / "work"
    work.mkdir()

    def start(**environment):
        return subprocess.run(
            ["/bin/sh", ENTRYPOINT],
            env={"PATH": str(programs), **environment},
            cwd=work,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    return start


@pytest.mark.parametrize(
    "script", ["/var/data/function.ts", "https://example.com/f.ts", "http://example.com/f.ts"]
)
def test_a_function_may_do_just_this(run, script):
    result = run(SCRIPT=script, CMD_ARGS="--allow-all")
    assert json.loads(result.stdout) == [*ALLOWED, script]


@pytest.mark.parametrize("given", ["", "function.ts", "--allow-all", "-", "file:///etc/passwd"])
def test_what_is_neither_path_nor_url_never_runs(run, given):
    result = run(SCRIPT=given)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "SCRIPT must be an absolute path, or a URL of http or https\n"


def test_without_a_script_nothing_runs(run):
    assert run().returncode == 2


@pytest.mark.parametrize("text", HOSTILE)
def test_s28_no_shell_reads_the_script(run, tmp_path, text):
    result = run(SCRIPT=f"/{text}", DATA=text)
    assert json.loads(result.stdout)[-1] == f"/{text}"
    assert list((tmp_path / "work").iterdir()) == []
