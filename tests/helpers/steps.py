"""The commands in the steps that commands print, and a shell into which a user pastes them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from harbourmaster.cli.main import create_parser
from harbourmaster.playground.build import ensure_binaries, find_kubectl
from helpers.patience import PATIENCE

COMMAND = re.compile(
    r"""\b(?:kubectl|harbourmaster)(?= )"""
    r"""(?:"[^"]*"|'[^']*'|(?![,;:)](?:\s|$)|\)|\ (?:shows|lists|which|says|prints)\b).)+"""
)


def commands_in(step):
    """The commands of a step, each as it is pasted."""
    return [match[0].strip() for match in COMMAND.finditer(step)]


def faults_in(step, objects):
    """Yield what is wrong with the commands of a step; ``objects`` are those of a fake cluster."""
    stored = {key: json.dumps(obj, default=str) for key, obj in objects.items()}
    for command in commands_in(step):
        program, *words = shlex.split(command.partition(" | ")[0])
        if program == "harbourmaster":
            try:
                with contextlib.redirect_stderr(io.StringIO()) as told:
                    create_parser().parse_args(words)
            except SystemExit:
                yield f"{command}: {told.getvalue()}"
        elif fault := _fault_of_kubectl(words, stored):
            yield f"{command}: {fault}"


CHANGES = {"annotate", "delete", "edit", "label", "logs", "restart", "scale"}


def _fault_of_kubectl(words, objects):
    """Return what is wrong with the arguments of a kubectl that changes something, or ""."""
    flags = {"-n", "-l", "-f", "-k", "-o", "--namespace", "--for"}
    values = {at + 1 for at, word in enumerate(words) if word in flags}
    verb, *named = [
        word for at, word in enumerate(words) if not word.startswith("-") and at not in values
    ]
    if verb == "rollout":
        verb, *named = named
    if verb not in CHANGES:
        return ""
    name = named[0].rpartition("/")[2] if "/" in named[0] else named[1] if named[1:] else ""
    if not name:
        return "no object"
    # Of some, only objects that refer to them are in the fake cluster.
    is_there = any(name == key[-1] or f'"{name}"' in text for key, text in objects.items())
    return "" if is_there else f"{name} does not exist"


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
