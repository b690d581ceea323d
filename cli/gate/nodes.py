"""``harbourmaster gate clear-nodes``: a workload version forgets the nodes on which it failed.

Only a request is written, for the controller to fulfil: only the controller writes the status.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import WORKLOAD_VERSIONS
from harbourmaster.cli.live.cluster import DONE, LEFT, complain, run_with_client, say
from harbourmaster.kube.errors import ApiError, ForbiddenError, NotFoundError
from harbourmaster.lifecycle.failed_nodes import CLEAR_KEY
from harbourmaster.lifecycle.model import WorkloadVersion

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from harbourmaster.kube.client import Client

_WANTED: Final = "wanted"
_decode: Final = msgspec.json.Decoder(WorkloadVersion).decode


def clear(arguments: Arguments) -> int:
    """Ask for it; 0 asked, or there are none, 1 it can't be, 2 no cluster."""
    return run_with_client(arguments, partial(_clear, arguments))


async def _clear(arguments: Arguments, client: Client) -> int:
    namespace, name = arguments.version
    shown = f"{namespace}/{name}"
    patch = MergePatch({"metadata": {"annotations": {CLEAR_KEY: _WANTED}}})
    try:
        version = _decode(await client.get(WORKLOAD_VERSIONS, name, namespace))
        nodes = [each.name for each in version.status.failed_nodes]
        if not nodes:
            say(f"{shown} avoids no node")
            return DONE
        await client.patch(WORKLOAD_VERSIONS, name, patch, namespace)
    except NotFoundError:
        complain(f"{shown}: there is no such KeptnWorkloadVersion")
        return LEFT
    except ForbiddenError as error:
        complain(f"{shown}: not cleared: missing permission: {error.message}")
        return LEFT
    except ApiError as error:
        complain(f"{shown}: not cleared: {error}")
        return LEFT
    say(f"{shown}: the controller will clear the failed nodes {', '.join(nodes)}")
    return DONE
