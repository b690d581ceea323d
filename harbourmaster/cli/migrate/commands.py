"""The arguments of ``harbourmaster migrate``; what they run is imported when it is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.cli.arguments import add_flags, add_installation, add_output, set_command

if TYPE_CHECKING:
    from argparse import ArgumentParser


def add_migrate(parser: ArgumentParser) -> None:
    """Add the arguments of ``migrate``."""
    set_command(parser, run="migrate.run:run")
    add_installation(parser, "--namespace")
    add_output(parser, "text", "json", "yaml", more="; yaml is an overlay with Keptn's settings")
    add_flags(parser, shadow="report how kupid and Keptn differ, found by make deploy-shadow")
