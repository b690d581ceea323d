"""``harbourmaster version``: of the command, of the installation, and of the API server."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from harbourmaster.cli.terminal import print_out
from harbourmaster.webhook.probe_pod import our_version

if TYPE_CHECKING:
    from argparse import Namespace as Arguments


def run(arguments: Arguments) -> int:
    """Print them; why no cluster can be asked goes to standard error; returns 0 all the same."""
    versions = {"client": our_version()}
    if not arguments.client:
        # The client takes 0.2 s to import.
        from harbourmaster.cli.live.cluster import run_with_client  # noqa: PLC0415
        from harbourmaster.cli.live.installation import add_versions  # noqa: PLC0415

        run_with_client(arguments, partial(add_versions, arguments.installed_in, versions))
    print_out(arguments, versions, [f"{name}: {text}" for name, text in versions.items()])
    return 0
