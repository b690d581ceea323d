"""The arguments of ``harbourmaster migrate``; what they run is imported when it is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.cli.connection import add_installation

if TYPE_CHECKING:
    from harbourmaster.cli.connection import Commands


def add_parser(commands: Commands) -> None:
    """Add ``migrate``; its function is ``harbourmaster.cli.migrate.run:run``."""
    parser = commands.add_parser(
        "migrate",
        help="find what kupid and Keptn left in a cluster, and say in which order to go over",
    )
    add_installation(parser)
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="how to print it [text]"
    )
    parser.set_defaults(command="harbourmaster.cli.migrate.run:run", settings_type=None)
