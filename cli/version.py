"""``harbourmaster version``: of the command, of the installation, and of the API server."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from harbourmaster.api.resources import DEPLOYMENTS
from harbourmaster.cli.installed import CONTROLLER, WEBHOOK
from harbourmaster.cli.live.cluster import DONE, print_out, run_with_client
from harbourmaster.cli.live.kinds import decode_workload
from harbourmaster.cli.live.reader import cause
from harbourmaster.kube.errors import ApiError, NotFoundError
from harbourmaster.kube.server_version import server_version
from harbourmaster.webhook.canary import our_version

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from harbourmaster.kube.client import Client


class Versions(Struct, omit_defaults=True):
    """What ``-o json`` prints; what could not be asked for is left out, or says why."""

    client: str
    controller: str = ""
    webhook: str = ""
    kubernetes: str = ""


def run(arguments: Arguments) -> int:
    """Print them; why no cluster can be asked goes to standard error; returns 0 all the same."""
    found = Versions(our_version())
    if not arguments.client:
        run_with_client(arguments, partial(_ask, arguments, found))
    shown = {name: getattr(found, name) for name in found.__struct_fields__}
    print_out(arguments, found, [f"{name}: {text}" for name, text in shown.items() if text])
    return DONE


async def _ask(arguments: Arguments, found: Versions, client: Client) -> int:
    try:
        found.kubernetes = str(await server_version(client))
    except ApiError as error:
        found.kubernetes = f"unknown: {cause(error)}"
    found.controller = await _image(client, CONTROLLER, arguments.installed_in)
    found.webhook = await _image(client, WEBHOOK, arguments.installed_in)
    return DONE


async def _image(client: Client, name: str, namespace: str) -> str:
    """The image of a process, and its version where a label says it."""
    try:
        deployment = decode_workload(await client.get(DEPLOYMENTS, name, namespace))
    except NotFoundError:
        return f"not found in namespace {namespace}"
    except ApiError as error:
        return f"unknown: {cause(error)}"
    label = deployment.metadata.labels.get("app.kubernetes.io/version", "")
    return f"{label} ({deployment.image})" if label else deployment.image
