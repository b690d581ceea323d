"""The arguments of ``harbourmaster doctor``; what it does is imported when it is run."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from harbourmaster.cli.connection import add_installation
from harbourmaster.telemetry.text import clean

if TYPE_CHECKING:
    from harbourmaster.cli.connection import Commands

LONGEST_REASON: Final = 512
"""Characters of a reason: it stands in an annotation and in an event."""
_EXAMPLES: Final = """examples:
  harbourmaster doctor
  harbourmaster doctor -o json
  harbourmaster doctor --break-glass on --reason "incident 4711, webhooks hang"
  harbourmaster doctor --break-glass off
"""


def add_parser(commands: Commands) -> None:
    """Add ``doctor``."""
    parser = commands.add_parser(
        "doctor",
        help="check whether the installation is healthy, and say what to do where it is not",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_installation(parser)
    parser.add_argument(
        "--canary-namespace",
        metavar="NAME",
        help="where to try a pod, by a dry run [default, or another that webhooks select]",
    )
    parser.add_argument(
        "--break-glass",
        choices=("on", "off"),
        help="on: let all webhooks fail open, also those for pods with gates, until switched off",
    )
    parser.add_argument(
        "--reason",
        type=_reason,
        default="",
        metavar="TEXT",
        help="why break-glass mode is on; stored and written to an event with your name",
    )
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="how to print it [text]"
    )
    parser.set_defaults(command="harbourmaster.cli.doctor.commands:run", settings_type=None)


def run(arguments: argparse.Namespace) -> int:
    """Check, or switch break-glass mode on or off."""
    # The checks take a while to import, and break-glass is urgent.
    if arguments.break_glass is not None:
        from harbourmaster.cli.doctor.break_glass import run as change  # noqa: PLC0415

        return change(arguments)
    from harbourmaster.cli.doctor.run import run as look  # noqa: PLC0415

    return look(arguments)


def _reason(text: str) -> str:
    line = clean(" ".join(text.split()))
    if len(line) > LONGEST_REASON:
        raise argparse.ArgumentTypeError(f"it is longer than {LONGEST_REASON} characters")
    return line
