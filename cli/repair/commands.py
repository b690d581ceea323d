"""The arguments of ``harbourmaster repair``; what they run is imported when it is run."""

from __future__ import annotations

import argparse
import math
from functools import partial
from typing import TYPE_CHECKING, Final

from harbourmaster.cli.arguments import (
    add_command,
    add_flags,
    add_installation,
    add_namespace,
    add_output,
)

if TYPE_CHECKING:
    from harbourmaster.cli.arguments import Commands

_EXAMPLES: Final = """examples:
  harbourmaster repair --dry-run -A
  harbourmaster repair -n shop
  harbourmaster repair -A --rate 30 --timeout 1800
"""


def add_parser(commands: Commands) -> None:
    """Add ``repair``; its function is ``harbourmaster.cli.repair.run:run``."""
    text = "find pods and workloads that policies should have changed, and repair them"
    parser = add_command(commands, "repair", text, run="repair.run:run", examples=_EXAMPLES)
    add_installation(parser)
    add_namespace(parser)
    parser.add_argument(
        "-A",
        "--all-namespaces",
        dest="namespace",
        action="store_const",
        const="",
        help="repair objects of all namespaces",
    )
    add_flags(parser, dry_run="only print what would be repaired")
    parser.add_argument(
        "--rate",
        type=partial(_above_zero, what="rate"),
        default=300.0,
        metavar="NUMBER",
        help="maximum number of changed pods and restarted workloads in a minute [300]",
    )
    parser.add_argument(
        "--timeout",
        type=partial(_above_zero, what="duration"),
        default=600.0,
        metavar="SECONDS",
        help="time limit for each rollout, and for disruption budgets to allow the next [600]",
    )
    add_output(parser, "text", "json")


def _above_zero(text: str, what: str) -> float:
    number = float(text)
    if not (number > 0 and math.isfinite(number)):
        raise argparse.ArgumentTypeError(f'invalid {what} "{text}": expected a number above 0')
    return number
