"""Completion in real shells, where they are installed; bash always is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harbourmaster.cli import program
from harbourmaster.cli.main import main
from helpers.stubs import write_program

CASES = {
    "wh": {"why"},
    "completion ": {"bash", "zsh", "fish", "kubectl"},
    "why whatever": set(),
    "why deploymen": {"deployment", "deployments"},
    "gate list --kubec": {"--kubeconfig"},
    "gate list --output ": {"text", "wide", "json", "yaml", "name"},
    "gate list --all-n": {"--all-namespaces"},
    "doctor --inst": {"--installed-in"},
    "vers": {"version"},
    "server controller --lifecycle-on-expiry ": {"Keep", "Release"},
    "validat": set(),
    "--installed": {"--installed-in"},
    "--context a -n shop gat": {"gate"},
    "gate --kubec": {"--kubeconfig"},
    "gate -n shop lis": {"list"},
    "server w": {"webhook"},
    "render --policies pol": {"policies.yaml"},
}
BASH = """\
source {script}
COMP_WORDS=(harbourmaster {words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_shtab_harbourmaster
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
# A terminal of its own, in which Tab completes the only candidate.
ZSH = """\
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PS1=; stty columns 500; fpath=({folder} $fpath)'
zpty -w shell 'autoload -U compinit; compinit -u -D; print READ""Y'
zpty -r -m shell out '*READY*'
zpty -n -w shell $'harbourmaster {typed}\\t'
zpty -r -m shell out '*{whole}*'
"""


@pytest.fixture
def script(tmp_path, capsys):
    """Return ``script(shell)``, the path of its script, beside a file of policies."""
    (tmp_path / "policies.yaml").touch()

    def script(shell, run=main):
        token = program.name.set(program.PLUGIN)
        try:
            assert run(["completion", shell]) == 0
        finally:
            program.name.reset(token)
        path = tmp_path / f"kubectl_complete-harbourmaster.{shell}"
        path.write_text(capsys.readouterr().out)
        return path

    return script


def lines(*command, cwd):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("typed", CASES)
def test_bash_completes_commands_flags_values_and_files(script, typed):
    path = script("bash")
    words = f"{typed}''" if typed.endswith(" ") else typed
    choices = lines("bash", "-c", BASH.format(script=path, words=words), cwd=path.parent)
    assert set(choices) - {""} == CASES[typed]


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
@pytest.mark.parametrize("typed", [typed for typed in CASES if CASES[typed]])
def test_fish_completes_the_same(script, typed):
    path = script("fish")
    command = f'source {path}; complete -C "harbourmaster {typed}"'
    choices = lines("fish", "--no-config", "-c", command, cwd=path.parent)
    assert CASES[typed] <= {line.partition("\t")[0] for line in choices}


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
@pytest.mark.parametrize("typed", [typed for typed in CASES if len(CASES[typed]) == 1])
def test_zsh_completes_the_same(script, typed):
    path = script("zsh")
    path.rename(path.with_name("_harbourmaster"))
    (whole,) = CASES[typed]
    command = ZSH.format(folder=path.parent, typed=typed, whole=whole)
    done = subprocess.run(["zsh", "-f", "-c", command], cwd=path.parent, check=False, timeout=30)
    assert done.returncode == 0


@pytest.mark.parametrize("typed", CASES)
def test_kubectl_completes_the_plugin(script, typed):
    path = script("kubectl")
    path = path.rename(path.with_suffix(""))
    path.chmod(0o755)
    kubectl = shutil.which("kubectl", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    write_program(path.with_name("kubectl-harbourmaster"))
    done = subprocess.run(
        [kubectl, "__complete", "harbourmaster", *typed.split(" ")],
        cwd=path.parent,
        env={"PATH": f"{path.parent}:/usr/bin:/bin", "HOME": str(path.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    *choices, directive = done.stdout.splitlines()
    assert set(choices) == CASES[typed]
    # Where we know nothing, the shell completes files.
    assert directive == ":0"
