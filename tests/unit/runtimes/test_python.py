"""The Python runner's entry point, as its image runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from helpers.manifests import ROOT
from helpers.patience import PATIENCE
from helpers.stubs import web_server

ENTRYPOINT = ROOT / "deploy/runtimes/python/entrypoint.py"
SHOW = """
import json, os, sys
names = ("DATA", "SECURE_DATA", "KEPTN_CONTEXT")
print(json.dumps([sys.argv, sys.flags.utf8_mode, {each: os.environ.get(each) for each in names}]))
"""
HOSTILE = ["$(touch pwned)", "`touch pwned`", "; touch pwned", "{{ ''.__class__ }}", "a\nb", "'"]


@pytest.fixture
def run(tmp_path):
    """Return a function that runs the entry point with an environment."""

    def start(**environment):
        return subprocess.run(
            [sys.executable, "-I", ENTRYPOINT],
            env={"PATH": os.environ["PATH"], **environment},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    return start


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "function.py"
    path.write_text(SHOW)
    return str(path)


@pytest.fixture
def site():
    """A web server on a free port; ``pages`` has a status and a text for each path."""
    pages = {}
    with web_server(lambda _, path, __: pages.get(path, (404, "print('page not found')"))) as port:
        yield SimpleNamespace(pages=pages, url=f"http://127.0.0.1:{port}")


def test_a_file_is_run_with_what_it_is_given(run, script):
    given = {"DATA": '{"a":"<b>"}', "SECURE_DATA": "s", "KEPTN_CONTEXT": "{}"}
    result = run(SCRIPT=script, CMD_ARGS="", **given)
    assert json.loads(result.stdout) == [[script], 0, given]
    assert result.returncode == 0


def test_arguments_are_the_interpreters(run, script):
    result = run(SCRIPT=script, CMD_ARGS="-X utf8")
    assert json.loads(result.stdout)[1] == 1


def test_quotes_hold_an_argument_together(run, script):
    result = run(SCRIPT=script, CMD_ARGS="-c 'import sys; print(sys.argv)'")
    assert result.stdout == f"['-c', '{script}']\n"


def test_code_behind_a_url_is_run(run, site):
    site.pages["/f.py"] = (200, SHOW)
    result = run(SCRIPT=f"{site.url}/f.py", DATA="d")
    assert json.loads(result.stdout)[0] == ["-"]
    assert json.loads(result.stdout)[2]["DATA"] == "d"


def test_a_page_that_says_not_found_never_runs(run, site):
    result = run(SCRIPT=f"{site.url}/gone.py")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"{site.url}/gone.py cannot be fetched: HTTP Error 404: Not Found\n"


def test_what_is_too_large_never_runs(run, site):
    site.pages["/big.py"] = (200, "print(1)\n" + "#" * (10 * 1024 * 1024))
    result = run(SCRIPT=f"{site.url}/big.py")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"{site.url}/big.py has more than 10 MiB\n"


def test_the_exit_code_is_the_functions(run, tmp_path):
    path = tmp_path / "fails.py"
    path.write_text("raise SystemExit(7)")
    assert run(SCRIPT=str(path)).returncode == 7


@pytest.mark.parametrize("given", ["", "function.py", "-c", "--version", "file:///etc/passwd"])
def test_what_is_neither_path_nor_url_never_runs(run, given):
    result = run(SCRIPT=given)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "SCRIPT must be an absolute path, or a URL of http or https\n"


def test_arguments_that_cannot_be_split_are_told(run, script):
    result = run(SCRIPT=script, CMD_ARGS="'open")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "CMD_ARGS cannot be split into arguments: No closing quotation\n"


@pytest.mark.parametrize("text", HOSTILE)
def test_s28_no_shell_reads_anything(run, script, tmp_path, text):
    result = run(SCRIPT=script, DATA=text, KEPTN_CONTEXT=text, SECURE_DATA=text)
    assert json.loads(result.stdout)[2]["DATA"] == text
    run(SCRIPT=f"{script}{text}", CMD_ARGS=text)
    assert [path.name for path in tmp_path.iterdir()] == ["function.py"]
