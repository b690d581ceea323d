"""The arguments of ``harbourmaster migrate``; what they run is imported when it is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.cli.arguments import add_command, add_flags, add_installation, add_output

if TYPE_CHECKING:
    from harbourmaster.cli.arguments import Commands


def add_parser(commands: Commands) -> None:
    """Add ``migrate``."""
    text = "find objects of kupid and Keptn in a cluster, and print how to migrate"
    parser = add_command(commands, "migrate", text, run="migrate.run:run")
    add_installation(parser, "--namespace")
    add_output(parser, "text", "json", "yaml", more="; yaml is an overlay with Keptn's settings")
    add_flags(parser, shadow="report how kupid and Keptn differ, found by make deploy-shadow")
