"""The arguments of ``harbourmaster uninstall``; what they run is imported when it is run."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from harbourmaster.cli.connection import add_installation
from harbourmaster.gates.gate import SCHEDULER_NAME

if TYPE_CHECKING:
    from harbourmaster.cli.connection import Commands


def add_parser(commands: Commands) -> None:
    """Add ``uninstall``; its function is ``harbourmaster.cli.uninstall.run:run``."""
    parser = commands.add_parser(
        "uninstall",
        help="remove Harbourmaster from a cluster, also where nothing of it works any more",
    )
    add_installation(parser)
    parser.add_argument(
        "--delete-crds",
        action="store_true",
        help="delete the definitions too, and with them every policy in the cluster",
    )
    parser.add_argument("--dry-run", action="store_true", help="only list what would go")
    parser.add_argument("--yes", action="store_true", help="do not ask before anything goes")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=60.0,
        metavar="SECONDS",
        help="how long to wait for each thing that takes time to go [60]",
    )
    parser.add_argument(
        "--scheduler",
        default=SCHEDULER_NAME,
        metavar="NAME",
        help="the one in which pods wait that have no gate: they are deleted, for their owners to"
        f" make them anew; empty for none [{SCHEDULER_NAME}]",
    )
    parser.set_defaults(command="harbourmaster.cli.uninstall.run:run", settings_type=None)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not (seconds > 0 and math.isfinite(seconds)):
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above 0")
    return seconds
