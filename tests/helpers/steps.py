"""The commands in the steps that commands print, and a shell into which a user pastes them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from harbourmaster.playground.build import ensure_binaries, find_kubectl
from helpers.patience import PATIENCE

COMMAND = re.compile(
    r"""\b(?:kubectl|harbourmaster)(?= )"""
    r"""(?:"[^"]*"|'[^']*'|(?![,;:)](?:\s|$)|\)|\ shows\b|\ lists\b|\ which\b|\ says\b).)+"""
)


def commands_in(step):
    """The commands of a step, each as it is pasted."""
    return [match[0].strip() for match in COMMAND.finditer(step)]


def run_in_shell(command, kubeconfig, *, editor=(), folder):
    """Run a command with ours and kubectl on the path; return the exit code and all output.

    ``editor`` are scripts of sed that stand for the user in ``kubectl edit``.
    """
    script = folder / "editor.sh"
    lines = (f"sed --in-place --regexp-extended {shlex.quote(text)} $1" for text in editor)
    script.write_text("\n".join(lines))
    programs = Path(sys.executable).parent, Path(find_kubectl(ensure_binaries())).parent
    given = {
        "PATH": ":".join((*map(str, programs), os.environ["PATH"])),
        "KUBECONFIG": str(kubeconfig),
        "KUBE_EDITOR": f"bash {script}" if editor else "false",
    }
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, **given},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    return done.returncode, done.stdout
