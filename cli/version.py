"""``harbourmaster version``: of the command, of the installation, and of the API server."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from harbourmaster.cli.installed import CONTROLLER, WEBHOOK
from harbourmaster.cli.live.cluster import DONE, print_out, run_with_client
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.live.reader import cause
from harbourmaster.kube.errors import ApiError
from harbourmaster.kube.server_version import server_version
from harbourmaster.webhook.canary import our_version

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from harbourmaster.kube.client import Client


def run(arguments: Arguments) -> int:
    """Print them; why no cluster can be asked goes to standard error; returns 0 all the same."""
    found = {"client": our_version()}
    if not arguments.client:
        run_with_client(arguments, partial(_ask, arguments.installed_in, found))
    print_out(arguments, found, [f"{name}: {text}" for name, text in found.items()])
    return DONE


async def _ask(namespace: str, found: dict[str, str], client: Client) -> int:
    live = Installation(client, namespace)
    for name, asking in (
        ("controller", _image(live, CONTROLLER)),
        ("webhook", _image(live, WEBHOOK)),
        ("kubernetes", server_version(client)),
    ):
        try:
            found[name] = str(await asking)
        except ApiError as error:
            found[name] = f"unknown: {cause(error)}"
    return DONE


async def _image(live: Installation, name: str) -> str:
    """The image of a process, and its version where a label says it."""
    found = await live.deployment(name)
    if found is None:
        return f"not found in namespace {live.namespace}"
    label = found.metadata.labels.get("app.kubernetes.io/version", "")
    return f"{label} ({found.image})" if label else found.image
