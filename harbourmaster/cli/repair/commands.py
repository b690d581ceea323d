"""The arguments of ``harbourmaster repair``; what they run is imported when it is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.cli.arguments import (
    add_flags,
    add_installation,
    add_namespace,
    add_output,
    positive,
    set_command,
)

if TYPE_CHECKING:
    from argparse import ArgumentParser


def add_repair(parser: ArgumentParser) -> None:
    """Add the arguments of ``repair``."""
    set_command(parser, run="repair.run:run")
    add_installation(parser)
    add_namespace(parser, all_too=True)
    add_flags(parser, dry_run="only print what would be repaired")
    text = "maximum number of changed pods and restarted workloads in a minute [300]"
    parser.add_argument("--rate", type=positive, default=300.0, metavar="NUMBER", help=text)
    text = "time limit for each rollout, and for disruption budgets to allow the next [600]"
    parser.add_argument("--timeout", type=positive, default=600.0, metavar="SECONDS", help=text)
    add_output(parser, "text", "json")
