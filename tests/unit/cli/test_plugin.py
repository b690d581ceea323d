"""``kubectl harbourmaster``: the same commands, called by kubectl under its own name."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harbourmaster.cli import program
from harbourmaster.cli.main import main, plugin

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def name_as_before():
    token = program.name.set(program.OWN)
    yield
    program.name.reset(token)


def test_help_and_errors_name_the_plugin(capsys):
    with pytest.raises(SystemExit):
        plugin(["gate", "--help"])
    text = capsys.readouterr().out
    assert text.startswith("usage: kubectl harbourmaster gate")
    assert "\n  kubectl harbourmaster gate list" in text
    with pytest.raises(SystemExit):
        plugin(["nonsense"])
    assert capsys.readouterr().err.startswith("kubectl harbourmaster: argument COMMAND: ")
    assert plugin(["why", "pod", "a/b", "--kubeconfig", "/nonexistent"]) == 2
    assert capsys.readouterr().err.startswith("kubectl harbourmaster: kubeconfig /nonexistent")


def test_the_command_of_its_own_keeps_its_name(capsys):
    assert main(["why", "pod", "a/b", "--kubeconfig", "/nonexistent"]) == 2
    assert capsys.readouterr().err.startswith("harbourmaster: ")


def test_it_is_installed_under_the_name_that_kubectl_looks_for():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    scripts = config["options.entry_points"]["console_scripts"].split("\n")
    assert "kubectl-harbourmaster = harbourmaster.cli.main:plugin" in scripts


def test_kubectl_finds_it(tmp_path):
    kubectl = shutil.which("kubectl", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert kubectl, "kubectl comes with the development requirements"
    script = tmp_path / "kubectl-harbourmaster"
    script.write_text(
        f"#!{sys.executable}\nimport sys\n"
        "from harbourmaster.cli.main import plugin\nsys.exit(plugin())\n"
    )
    script.chmod(0o755)
    done = subprocess.run(
        [kubectl, "harbourmaster", "why", "--help"],
        env={"PATH": str(tmp_path), "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("usage: kubectl harbourmaster why")
