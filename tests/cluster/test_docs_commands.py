"""Every command of the manual and of README.md is run, page by page, as it stands there.

Pages that start an installation of their own get it; the others share one. What can't be run here
says so on the page (``<!-- not run: why -->``), and tests/unit/test_docs_commands.py lists it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harbourmaster.playground.build import ensure_binaries, find_kubectl
from harbourmaster.playground.ports import free_ports
from helpers.cluster import eventually
from helpers.command import harbourmaster
from helpers.manual_commands import PAGES, ROOT, blocks, script
from helpers.patience import PATIENCE

pytestmark = pytest.mark.timeout(12 * PATIENCE)

BIN = Path(sys.executable).parent
RUN = [page for page in PAGES if any(block.how != "not run" for block in blocks(page))]
OWN = "/tmp/harbour"  # noqa: S108 - the manual's folder, of which each test has one of its own
STATE = "state"
"""The folder of a page's own installation if the page names none."""
SERVE = re.compile(r"(harbourmaster server files\b)(?! .*--port)")


def environment(**more):
    path = f"{BIN}:{Path(find_kubectl(ensure_binaries())).parent}:{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    return {**kept, "PATH": path, **more}


def local(action, directory):
    return subprocess.run(
        [BIN / "harbourmaster", "local", action, f"--dir={directory}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * PATIENCE,
        env=environment(),
    )


@pytest.fixture(scope="module")
def shared_kubeconfig(tmp_path_factory):
    """The kubeconfig of the installation for all pages that start none."""
    directory = tmp_path_factory.mktemp("manual") / "harbour"
    up = local("up", directory)
    assert up.returncode == 0, up.stderr
    yield str(directory / "kubeconfig")
    local("down", directory)


def here(text, folder):
    """The script with this test's folder and ports for those that the manual says."""
    ports = [str(port) for port in free_ports(4)]
    # The environment in which this test runs is not created again.
    text = re.sub(r"^make ", "make --old-file=.venv/installed ", text, flags=re.MULTILINE)
    text = SERVE.sub(rf"\1 --port={ports[0]} --health-port={ports[1]}", text)
    for told, port in zip(("9543", "8580"), ports[2:], strict=True):
        text = text.replace(told, port)
    return text.replace(OWN, str(folder))


@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_work(page, tmp_path, request):
    folder = tmp_path / "harbour"
    commands = here(script(page), folder)
    is_alone = str(folder) in commands or "local up" in commands
    more = {} if is_alone else {"KUBECONFIG": request.getfixturevalue("shared_kubeconfig")}
    # As the folder of the repository, but what a page writes stays here.
    work = tmp_path / "work"
    work.mkdir()
    for entry in ROOT.iterdir():
        (work / entry.name).symlink_to(entry)
    log = tmp_path / "log"
    with log.open("w") as said:
        # A session of its own, so that nothing that it leaves behind outlives the test.
        running = subprocess.Popen(
            ["bash", "-c", commands],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            cwd=work,
            env=environment(
                OUTPUT=str(tmp_path / "output"),
                TMPDIR=str(tmp_path),
                XDG_STATE_HOME=str(tmp_path / STATE),
                **more,
            ),
            start_new_session=True,
        )
    try:
        code = running.wait(timeout=4 * PATIENCE)
    finally:
        for started in ("harbour*/pids.json", "*/*/pids.json", f"{STATE}/*/*/pids.json"):
            for path in tmp_path.glob(started):
                local("down", path.parent)
        end(running.pid)
    assert code == 0, log.read_text()


def end(session):
    """End what is left of the page's own processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)


ENOUGH = 5


@pytest.fixture
def state(tmp_path):
    """The directory of states, in which nothing runs afterwards."""
    yield tmp_path / "state"
    directory = tmp_path / "state/harbourmaster/local"
    ended = harbourmaster("local", "down", f"--dir={directory}", seconds=4 * PATIENCE)
    assert ended.returncode == 0, ended.stderr


def test_the_first_commands_of_the_readme_lead_to_a_failed_check_and_its_reason(state):
    ensure_binaries()
    first = next(block for block in blocks(ROOT / "README.md") if block.how != "not run")
    commands = first.text.splitlines()
    assert len(commands) <= ENOUGH
    assert commands[0] == "make venv"
    # The environment in which this test runs is not created again.
    text = "\n".join(commands[1:]).replace(".venv/bin", str(BIN))
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{text}"],
        cwd=ROOT,
        env=environment(XDG_STATE_HOME=str(state)),
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    kubeconfig = state / "harbourmaster/local/kubeconfig"
    command, *words = commands[-1].split()
    assert command == ".venv/bin/harbourmaster"
    told = eventually(
        lambda: harbourmaster(*words, kubeconfig=kubeconfig).stdout,
        is_right=lambda text: re.search(r"\bfew-errors\b.*\bFailed\b", text),
    )
    # The check with its value and target, and what to do.
    assert re.search(r"errors-per-minute\b.*\b7\b.*<5", told)
    assert "new keptn.sh/version" in told
    assert "invalid" not in told
    assert "harbourmaster gate release shop/till-" in told
