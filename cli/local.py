"""The arguments of ``harbourmaster local``; ``harbourmaster.playground.local`` does the rest."""

from __future__ import annotations

import argparse
import shlex
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harbourmaster.cli.arguments import add_command
from harbourmaster.serving.settings import StartError

if TYPE_CHECKING:
    from harbourmaster.cli.arguments import Commands

_EXAMPLES: Final = """examples:
  eval "$(harbourmaster local up --dir /tmp/harbour)"
  harbourmaster local up --dir /tmp/harbour --audit --webhook-args="--log-level=debug"
  eval "$(harbourmaster local up --node --dir /tmp/harbour)"
  harbourmaster local status --dir /tmp/harbour
  harbourmaster local down --dir /tmp/harbour
"""


def add_parser(commands: Commands) -> None:
    """Add ``local`` with its three actions; the command takes no settings."""
    text = "run Harbourmaster on this machine, on a real control plane with simulated or real nodes"
    local = add_command(commands, "local", text, run="local:run", examples=_EXAMPLES)
    actions = local.add_subparsers(title="actions", required=True, metavar="ACTION", dest="action")
    up = actions.add_parser("up", help="start all processes, and return when they are ready")
    down = actions.add_parser("down", help="stop all processes; data is kept for the next up")
    status = actions.add_parser(
        "status", help="print the state of each process; exit with 1 if one is not ready"
    )
    for action in (up, down, status):
        action.add_argument("--dir", type=Path, required=True, help="directory for all files")
    up.add_argument(
        "--nodes", type=_count, metavar="N", help="number of nodes [2 simulated, or 1 real]"
    )
    up.add_argument(
        "--node",
        action="store_true",
        help="start real nodes; needs root",
    )
    up.add_argument(
        "--images",
        type=Path,
        default=Path("build/images"),
        metavar="DIR",
        help="image archives for real nodes, from make node-images [build/images]",
    )
    up.add_argument("--audit", action="store_true", help="write an audit log to logs/audit.log")
    for role in ("webhook", "controller"):
        up.add_argument(
            f"--{role}-args",
            type=_flags,
            action="extend",
            default=[],
            metavar="FLAGS",
            help=f"flags for the {role}; can be repeated",
        )


def run(arguments: argparse.Namespace) -> int:
    """Do what is asked, where the playground is installed: a distribution of its own."""
    try:
        playground = import_module("harbourmaster.playground.local")
    except ModuleNotFoundError as error:
        if error.name != "harbourmaster.playground":
            raise
        needed = f"harbourmaster-playground=={version('harbourmaster')}"
        text = f"package harbourmaster.playground not found: local: pip install {needed}"
        raise StartError(text) from None
    code: int = playground.run(arguments)
    return code


def _flags(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from None


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return count
