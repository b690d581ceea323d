"""The arguments of the commands for a live cluster; what they run is imported when it is run."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Final

from gates.gate import SCHEDULER_NAME

if TYPE_CHECKING:
    from argparse import ArgumentParser

    Commands = argparse._SubParsersAction[ArgumentParser]  # noqa: SLF001 - it has no other name

DEFAULT_NAMESPACE: Final = "harbourmaster-system"


def add_uninstall(commands: Commands) -> None:
    """Add ``uninstall``; its function is ``cli.uninstall:run``."""
    parser = commands.add_parser(
        "uninstall",
        help="remove Harbourmaster from a cluster, also where nothing of it works any more",
    )
    _add_connection(parser)
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
    parser.set_defaults(command="cli.uninstall:run", settings_type=None)


def add_migrate(commands: Commands) -> None:
    """Add ``migrate``; its function is ``cli.migrate:run``."""
    parser = commands.add_parser(
        "migrate",
        help="find what kupid and Keptn left in a cluster, and say in which order to go over",
    )
    _add_connection(parser)
    parser.add_argument(
        "--output", choices=("text", "json"), default="text", help="how to print it [text]"
    )
    parser.set_defaults(command="cli.migrate:run", settings_type=None)


def _add_connection(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="by default $KUBECONFIG, then ~/.kube/config",
    )
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig")
    parser.add_argument(
        "--namespace",
        default=DEFAULT_NAMESPACE,
        metavar="NAME",
        help=f"where Harbourmaster is installed [{DEFAULT_NAMESPACE}]",
    )


def _seconds(text: str) -> float:
    seconds = float(text)
    if not (seconds > 0 and math.isfinite(seconds)):
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above 0")
    return seconds
