"""The arguments of ``harbourmaster local``; ``harbourmaster.playground.local`` does the rest."""

from __future__ import annotations

import argparse
import os
import shlex
from importlib import import_module
from pathlib import Path
from typing import Final

from harbourmaster import __version__
from harbourmaster.cli.arguments import add_flags, add_path, set_command
from harbourmaster.serving.settings import StartError

_CAPABILITIES: Final = ("dashboard", "monitoring", "placement", "rescheduling")
_EXAMPLES: Final = """examples:
  eval "$(harbourmaster local up)"
  eval "$(harbourmaster local up --with dashboard,placement --members 2)"
  harbourmaster local up --dir /tmp/harbour --audit --webhook-args="--log-level=debug"
  eval "$(harbourmaster local up --node --dir /tmp/harbour)"
  harbourmaster local status
  harbourmaster local down
"""


def add_local(local: argparse.ArgumentParser) -> None:
    """Add the three actions of ``local``; the command takes no settings."""
    set_command(local, run="local:run", examples=_EXAMPLES)
    actions = local.add_subparsers(title="actions", required=True, metavar="ACTION", dest="action")
    up = actions.add_parser(
        "up", help="start all processes, or those that ended, and return when they are ready"
    )
    down = actions.add_parser("down", help="stop all processes; data is kept for the next up")
    status = actions.add_parser(
        "status", help="print the state of each process; exit with 1 if one is not ready"
    )
    for action in (up, down, status):
        text = "directory for all files [~/.local/state/harbourmaster/local]"
        action.add_argument("--dir", type=Path, default=_directory(), help=text)
    up.add_argument(
        "--nodes", type=_count, metavar="N", help="number of nodes [2 simulated, or 1 real]"
    )
    add_flags(up, node="start real nodes; needs root")
    text = "image archives for real nodes, from make node-images [build/images]"
    add_path(up, "--images", "DIR", text, default=Path("build/images"))
    up.add_argument(
        "--with",
        dest="capabilities",
        type=_capabilities,
        action="extend",
        default=[],
        metavar="NAME,...",
        help=f"also start {', '.join(_CAPABILITIES)}",
    )
    up.add_argument(
        "--dashboard",
        dest="capabilities",
        action="append_const",
        const="dashboard",
        help="the same as --with dashboard",
    )
    text = "number of member clusters for placement [2 with placement, or 0]"
    up.add_argument("--members", type=_count, metavar="N", help=text)
    text = "how pods wait; schedulerName also starts keptn-scheduler [schedulingGates]"
    forms = ("schedulingGates", "schedulerName")
    up.add_argument("--gating", choices=forms, default=forms[0], help=text)
    add_flags(up, audit="write an audit log to logs/audit.log")
    for role in ("webhook", "controller"):
        up.add_argument(
            f"--{role}-args",
            type=_flags,
            action="extend",
            default=[],
            metavar="FLAGS",
            help=f"flags for the {role}; can be repeated",
        )


def _directory() -> Path:
    """The directory by default: below XDG_STATE_HOME, or where it is if that is not set."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")  # noqa: PTH111
    return Path(base, "harbourmaster", "local")


def run(arguments: argparse.Namespace) -> int:
    """Do what is asked, where the playground is installed: a distribution of its own."""
    try:
        playground = import_module("harbourmaster.playground.local")
    except ModuleNotFoundError as error:
        if error.name != "harbourmaster.playground":
            raise
        needed = f"harbourmaster-playground=={__version__}"
        text = f"package harbourmaster.playground not found: local: pip install {needed}"
        raise StartError(text) from None
    code: int = playground.run(arguments)
    return code


def _flags(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from None


def _capabilities(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in _CAPABILITIES:
            known = ", ".join(_CAPABILITIES)
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {known}")
    return names


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return count
