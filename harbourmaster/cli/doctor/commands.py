"""The arguments of ``harbourmaster doctor``; what it does is imported when it is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.cli.arguments import add_installation, add_output, reason, set_command

if TYPE_CHECKING:
    import argparse

_EXAMPLES: Final = """examples:
  harbourmaster doctor
  harbourmaster doctor -o json
  harbourmaster doctor --fail-on warning
  harbourmaster doctor --break-glass on --reason "incident 4711, webhooks hang"
  harbourmaster doctor --break-glass off
"""


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``doctor``."""
    set_command(parser, run="doctor.commands:run", examples=_EXAMPLES)
    add_installation(parser, "--namespace")
    text = "namespace for the dry run of a pod [default, or another one that our webhooks select]"
    parser.add_argument("--canary-namespace", metavar="NAME", help=text)
    text = "exit with 1 for warnings too, for example in CI; or only for faults, not for what "
    text += "could not be read"
    parser.add_argument("--fail-on", choices=("fault", "warning"), help=text)
    text = "start or end break-glass mode; while it is on, all our webhooks fail open, "
    text += "also those for pods with gates"
    parser.add_argument("--break-glass", choices=("on", "off"), help=text)
    text = "reason for break-glass mode; recorded with your name in an annotation and an event"
    parser.add_argument("--reason", type=reason, metavar="TEXT", help=text)
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check, or start or end break-glass mode."""
    # The checks take a while to import, and break-glass is urgent.
    if arguments.break_glass is not None:
        from harbourmaster.cli.doctor.break_glass import run as change  # noqa: PLC0415

        return change(arguments)
    from harbourmaster.cli.doctor.run import run as look  # noqa: PLC0415

    return look(arguments)
