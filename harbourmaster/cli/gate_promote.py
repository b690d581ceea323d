"""``harbourmaster gate promote``: ends the stage of a version, and releases the next or all pods.

Only a request is written, since only the controller writes the status and releases the pods.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import PODS, WORKLOAD_VERSIONS, WORKLOADS
from harbourmaster.cli.arguments import subject_of
from harbourmaster.cli.gate import explain_refusal
from harbourmaster.cli.live.cluster import DONE, LEFT, complain, run_with_client, say
from harbourmaster.cli.live.reader import ClusterReader, caller_name
from harbourmaster.cli.live.waits import is_of_workload
from harbourmaster.gates.stages import (
    PROMOTE_BY_KEY,
    PROMOTE_KEY,
    PROMOTE_REASON_KEY,
    STAGED,
    STAGED_LABEL,
    parse_stages,
)
from harbourmaster.gates.workload import workload_of
from harbourmaster.kube.errors import ApiError
from harbourmaster.lifecycle.gated_pods import decode_whole
from harbourmaster.lifecycle.model import DEPRECATED, WorkloadVersion
from harbourmaster.lifecycle.stages import OVER
from harbourmaster.lifecycle.workloads import names_of_pod

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Sequence

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client

_STAGED: Final = f"{STAGED_LABEL}={STAGED}"
_decode_version: Final = msgspec.json.Decoder(WorkloadVersion).decode


def promote(arguments: Arguments) -> int:
    """Request the release of the next stage, or of all; 0 requested, 1 not possible, 2 no cluster.

    The request names the stage that it ends, so it has no effect once that stage has ended.
    """
    return run_with_client(arguments, partial(_promote, arguments))


async def _promote(arguments: Arguments, client: Client) -> int:
    resource, given = arguments.subject
    namespace, name = subject_of(arguments, given, client.connection.namespace)
    try:
        versions = await _versions_of(ClusterReader(client), resource, namespace, name)
        version, number, text = _find_request(versions, is_all=arguments.all)
        if version is None:
            step = f"harbourmaster why {resource.kind.lower()}/{name} -n {namespace}"
            complain(f"{namespace}/{name}: not promoted: {text}: {step}")
            return LEFT
        who, metadata = await caller_name(client), version.metadata
        notes = {
            PROMOTE_KEY: f"{number}/{secrets.token_hex(8)}",
            PROMOTE_BY_KEY: who,
            PROMOTE_REASON_KEY: arguments.reason,
        }
        own = {"resourceVersion": metadata.resource_version, "annotations": notes}
        await client.patch(
            WORKLOAD_VERSIONS, metadata.name, MergePatch({"metadata": own}), namespace
        )
    except ApiError as error:
        return await explain_refusal(client, error, resource, (namespace, name), "promoted")
    say(f"{WORKLOAD_VERSIONS.kind} {metadata.key}: {text} for {who}")
    return DONE


async def _versions_of(
    live: ClusterReader, resource: Resource, namespace: str, name: str
) -> list[WorkloadVersion]:
    """Return the versions of a workload's staged pods, or of a pod. Raises ApiError."""
    if resource == WORKLOADS:
        listed = await live.list_all(WORKLOAD_VERSIONS, _decode_version, namespace)
        return [version for version in listed if version.spec.workload_name == name]
    if resource == PODS:
        pods = [decode_whole(await live.get(PODS, name, namespace))]
    else:
        pods = await live.list_all(PODS, decode_whole, namespace, label_selector=_STAGED)
        pods = [pod for pod in pods if is_of_workload(pod, (resource.kind, name))]
    described = (workload_of(pod.annotations, pod.labels) for pod in pods)
    names = {names_of_pod(workload).version for workload in described if workload is not None}
    read = partial(live.read, WORKLOAD_VERSIONS, decode=_decode_version, namespace=namespace)
    versions = [await read(name) for name in sorted(names)]
    return [version for version in versions if version is not None]


def _find_request(
    versions: Sequence[WorkloadVersion], *, is_all: bool
) -> tuple[WorkloadVersion | None, int, str]:
    """Return the newest version, the stage to release (after the last: all pods), and a text.

    The text says what is released; without a version, why nothing can be.
    """
    current = [version for version in versions if version.status.status != DEPRECATED]
    if not current:
        why = "its version is superseded" if versions else "none of its pods has stages"
        return None, 0, why
    version = max(current, key=lambda version: version.metadata.creation_timestamp)
    spec, stage, name = version.spec, version.status.stage, version.metadata.name
    if stage is None:
        why = f"the stages of {name} have not begun" if spec.stages else f"{name} has no stages"
        return None, 0, why
    if stage.state in OVER:
        return None, 0, f"all pods of {name} may be released ({stage.state})"
    following = parse_stages(spec.stages, spec.stage_pause).next(stage.number, stage.wanted)
    if is_all or following is None:
        return version, stage.of + 1, "all pods are released"
    return version, following, f"stage {following} of {stage.of} is released"
