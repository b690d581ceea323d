"""The arguments of ``harbourmaster uninstall``; what they run is imported when it is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.cli.arguments import add_flags, add_installation, positive, set_command
from harbourmaster.gates.gate import SCHEDULER_NAME

if TYPE_CHECKING:
    from argparse import ArgumentParser


def add_uninstall(parser: ArgumentParser) -> None:
    """Add the arguments of ``uninstall``."""
    set_command(parser, run="uninstall.run:run")
    add_installation(parser, "--namespace")
    add_flags(
        parser,
        delete_crds="also delete the CRDs, and with them every policy in the cluster",
        dry_run="only print what would be removed",
        yes="do not ask for confirmation",
    )
    text = "time limit for each deletion [60]"
    parser.add_argument("--timeout", type=positive, default=60.0, metavar="SECONDS", help=text)
    text = "scheduler in which pods without a gate wait; they are deleted, and their owners"
    text += f" recreate them; empty deletes none [{SCHEDULER_NAME}]"
    parser.add_argument("--scheduler", default=SCHEDULER_NAME, metavar="NAME", help=text)
