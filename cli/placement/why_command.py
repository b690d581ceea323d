"""The arguments of ``harbourmaster placement why``; what it does is imported when it is run."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from harbourmaster.cli.connection import add_connection

if TYPE_CHECKING:
    from harbourmaster.cli.connection import Commands

_NAMESPACE: Final = "default"


def add_why(actions: Commands) -> None:
    """Add ``why`` to the actions of ``placement``."""
    why = actions.add_parser(
        "why",
        help="say why an application is where it is, by what the controller has recorded",
    )
    why.add_argument(
        "application",
        type=_application,
        metavar="[NAMESPACE/]APPLICATION",
        help=f"without a namespace it is {_NAMESPACE}",
    )
    add_connection(why)
    why.add_argument(
        "-o",
        "--output",
        choices=("text", "json"),
        default="text",
        help="how to print it [text]",
    )
    why.set_defaults(command="harbourmaster.cli.placement.why:why", settings_type=None)


def _application(text: str) -> tuple[str, str]:
    namespace, slash, name = text.rpartition("/")
    if not name or "/" in namespace or (slash and not namespace):
        raise argparse.ArgumentTypeError(f"{text} is no application: give NAMESPACE/APPLICATION")
    return namespace or _NAMESPACE, name
