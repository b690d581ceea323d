"""``harbourmaster gate``: shows waiting pods, releases them, and has failed checks repeated.

It uses the caller's permissions, and works if nothing of Harbourmaster runs in the cluster.
"""

from __future__ import annotations

import secrets
import time
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.api.patches import JsonPatch, MergePatch
from harbourmaster.api.resources import (
    APP_VERSIONS,
    APPLICATIONS,
    EVENTS,
    PODS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.cli.arguments import subject_of
from harbourmaster.cli.batches import short_age
from harbourmaster.cli.live.cluster import DONE, LEFT, complain, event_of, run_with_client, say
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.cli.live.reader import ClusterReader, caller_name
from harbourmaster.cli.live.waits import live_waits, pod_of_workload, waiting_pod
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.metadata import PARENT_KEY
from harbourmaster.gates.owners import DEPLOYMENT, REPLICA_SET
from harbourmaster.gates.release import (
    BY_HAND,
    RELEASED_BY_KEY,
    RELEASED_KEY,
    RELEASED_REASON_KEY,
    RERUN_BY_KEY,
    RERUN_KEY,
    RERUN_REASON_KEY,
    removal,
    wakeup_patch,
)
from harbourmaster.gates.stages import (
    PROMOTE_BY_KEY,
    PROMOTE_KEY,
    PROMOTE_REASON_KEY,
    parse_stages,
)
from harbourmaster.gates.workload import workload_of
from harbourmaster.kube import errors
from harbourmaster.lifecycle.check_facts import Facts, with_version
from harbourmaster.lifecycle.failed_nodes import CLEAR_KEY
from harbourmaster.lifecycle.gate_report import gate_report
from harbourmaster.lifecycle.gate_verdict import GateWaitRules
from harbourmaster.lifecycle.gated_pods import PENDING_PODS, decode_pod, decode_whole
from harbourmaster.lifecycle.model import DEPRECATED, AppVersion, WorkloadVersion
from harbourmaster.lifecycle.reruns import failed_checks
from harbourmaster.lifecycle.stages import is_staging
from harbourmaster.lifecycle.workloads import names_of_pod
from harbourmaster.placement.model import Application

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.cli.live.waits import WaitFacts
    from harbourmaster.kube.client import Client
    from harbourmaster.lifecycle.gate_report import GateReport
    from harbourmaster.lifecycle.gated_pods import Pod

    _WaitsByPlace = dict[str, WaitFacts]

TRIES: Final = 3
"""Attempts to patch a pod that other clients change meanwhile."""


_WANTED: Final = "wanted"
_COPIED: Final = ("namespace", "pod", "age", "app", "workload", "version", "code")
"""Fields of a report that programs get, besides those of ``fields_of``."""
_decode_version: Final = msgspec.json.Decoder(WorkloadVersion).decode
_decode_app: Final = msgspec.json.Decoder(AppVersion).decode
_decode_application: Final = msgspec.json.Decoder(Application).decode


def release(arguments: Arguments) -> int:
    """Release a pod or the pods of a workload; 0 released, 1 not released, 2 no cluster."""
    return run_with_client(arguments, partial(_release, arguments))


def rerun(arguments: Arguments) -> int:
    """Have the failed checks of waiting pods, or of an Application, repeated.

    Only a request is written, into which admission writes the user. 0 requested, 1 not possible,
    2 no cluster.
    """
    return run_with_client(arguments, partial(_rerun, arguments))


def promote(arguments: Arguments) -> int:
    """Request the release of the next stage, or of all; 0 requested, 1 not possible, 2 no cluster.

    The request names the stage to release, so it has no effect once that has begun.
    """
    return run_with_client(arguments, partial(_promote, arguments))


def clear(arguments: Arguments) -> int:
    """Have a workload version forget the nodes on which it failed.

    Only a request is written, since only the controller writes the status. 0 requested, or there
    are no such nodes, 1 not possible, 2 no cluster.
    """
    return run_with_client(arguments, partial(_clear, arguments))


async def waiting_in(
    live: Installation, scheduler: str, namespace: str, selector: str | None
) -> list[tuple[Pod, GateReport]]:
    """The waiting pods of a namespace, or of all, the oldest first. Raises an ApiError."""
    pick, place = partial(waiting_pod, scheduler), namespace or None
    read = partial(live.list_all, PODS, pick, place, field_selector=PENDING_PODS)
    pods = await read(label_selector=selector or "")
    # Cycles of waits may go through pods that are not selected.
    others = await read(label_selector="")
    versions = await live.items(WORKLOAD_VERSIONS, _decode_version, place)
    apps = await live.attempt(live.items(APP_VERSIONS, _decode_app, place), None)
    places = {pod.namespace for pod in pods}
    waits = {space: await live_waits(live, space, others) for space in places}
    return reports_on(pods, versions, apps, (await live.caller()).now, waits)


def reports_on(
    pods: Iterable[Pod],
    versions: Iterable[WorkloadVersion],
    app_versions: Iterable[AppVersion] | None,
    now: datetime,
    waits: _WaitsByPlace,
) -> list[tuple[Pod, GateReport]]:
    """Return the reports on pods, the oldest first; ``waits`` are by namespace.

    ``app_versions`` are None if they could not be read.
    """
    by_key = {version.metadata.key: version for version in versions}
    apps: defaultdict[tuple[str, str], list[AppVersion]] = defaultdict(list)
    for app in app_versions or ():
        apps[app.metadata.namespace, app.spec.app_name].append(app)
    unread = ("KeptnAppVersion",) if app_versions is None else ()
    reports = []
    for pod in pods:
        described = workload_of(pod.annotations, pod.labels)
        name = names_of_pod(described).version if described is not None else ""
        # Two lists are enough for thousands of pods; ``why`` tells more of a single one.
        version, facts = by_key.get(f"{pod.namespace}/{name}"), Facts(unread=unread)
        if version is not None:
            known = apps[pod.namespace, version.spec.app]
            facts = with_version(facts, version, known, lambda *_: None)
        if pod.namespace in waits:
            facts = waits[pod.namespace].of(pod, facts)
        reports.append((pod, gate_report(pod, facts, GateWaitRules(), now)))
    return sorted(reports, key=lambda pair: (-pair[1].age, pair[0].key))


def fields_of(report: GateReport) -> dict[str, Any]:
    """Return the fields of a report that programs get; ``orphaned``: no check releases the pod."""
    copied = {field: getattr(report, field) for field in _COPIED}
    is_orphaned = report.code == "orphaned"
    return {**copied, "waitsFor": report.text, "orphaned": is_orphaned, "items": report.items}


def table(pods: Iterable[GateReport], widths: list[int], *, is_wide: bool) -> list[str]:
    """Return the lines of the text output; ``widths`` are those of earlier lines, and grow."""
    rows = [("POD", "AGE", "APP", "WORKLOAD", "CODE", "WAITS FOR")]
    rows += [
        (
            f"{pod.namespace}/{pod.pod}",
            short_age(pod.age),
            pod.app or "-",
            f"{pod.workload}@{pod.version}" if pod.workload else "-",
            pod.code,
            pod.description,
        )
        for pod in pods
    ]
    shown = range(6) if is_wide else (0, 1, 3, 5)
    widths[:] = [max(width, *(len(row[at]) for row in rows)) for at, width in enumerate(widths)]
    return ["  ".join(row[at].ljust((*widths, 0)[at]) for at in shown) for row in rows]


async def _release(arguments: Arguments, client: Client) -> int:
    resource, given = arguments.subject
    namespace, name = subject_of(arguments, given, client.connection.namespace)
    names = [name]
    try:
        who = await caller_name(client)
        if resource != PODS:
            pods = await _pods_of(arguments, ClusterReader(client), namespace, name)
            names = [pod.name for pod in pods]
    except errors.ApiError as error:
        return await _explain_refusal(client, error, resource, (namespace, name), "released")
    if not names:
        lists = f"harbourmaster gate list -n {namespace} lists those that wait"
        complain(f"no pod of {resource.kind} {namespace}/{name} waits: {lists}")
        return LEFT
    return max(
        [await _release_one(arguments, client, who, namespace, pod_name) for pod_name in names]
    )


async def _pods_of(
    arguments: Arguments, live: ClusterReader, namespace: str, name: str
) -> list[Pod]:
    pick = partial(pod_of_workload, arguments.scheduler, (arguments.subject[0].kind, name))
    return await live.list_all(PODS, pick, namespace, field_selector=PENDING_PODS)


async def _rerun(arguments: Arguments, client: Client) -> int:
    resource, given = arguments.subject
    namespace, name = subject_of(arguments, given, client.connection.namespace)
    live = ClusterReader(client)
    try:
        if resource == APPLICATIONS:
            failed, what = await _failed_of_application(live, namespace, name), "it names"
        else:
            failed = await _failed_of_pods(arguments, live, namespace, name)
            what = "a pod waits for"
        if not failed:
            complain(f"{namespace}/{name}: not repeated: no check that {what} has failed")
            return LEFT
        notes = {RERUN_BY_KEY: None, RERUN_REASON_KEY: arguments.reason}
        request = {"labels": {RERUN_KEY: str(time.time_ns())}, "annotations": notes}
        for kind, version in sorted(failed, key=str):
            patch = MergePatch({"metadata": request})
            stored = metadata_in(await client.patch(kind, version, patch, namespace))
            who = stored.annotations.get(RERUN_BY_KEY)
            if who is None:
                why = "no webhook wrote who asks: run harbourmaster doctor"
                complain(f"{kind.kind} {namespace}/{version}: not repeated: {why}")
                return LEFT
            say(f"{kind.kind} {namespace}/{version}: its failed checks are repeated for {who}")
    except errors.ApiError as error:
        return await _explain_refusal(client, error, resource, (namespace, name), "repeated")
    return DONE


async def _failed_of_pods(
    arguments: Arguments, live: ClusterReader, namespace: str, name: str
) -> set[tuple[Resource, str]]:
    """Return the versions whose failed checks pods wait for. Raises an ApiError."""
    if arguments.subject[0] == PODS:
        pods = [decode_pod(await live.get(PODS, name, namespace), arguments.scheduler)]
    else:
        pods = await _pods_of(arguments, live, namespace, name)
    versions = await live.list_all(WORKLOAD_VERSIONS, _decode_version, namespace)
    apps = await live.list_all(APP_VERSIONS, _decode_app, namespace)
    reports = reports_on(pods, versions, apps, (await live.caller()).now, {})
    return {
        (APP_VERSIONS, report.app_version_object)
        if report.code == "app-failed"
        else (WORKLOAD_VERSIONS, report.version_object)
        for _, report in reports
        if report.code in {"app-failed", "checks-failed"}
    }


async def _failed_of_application(
    live: ClusterReader, namespace: str, name: str
) -> set[tuple[Resource, str]]:
    """Return the version whose failed checks an Application waits for. Raises an ApiError."""
    application = _decode_application(await live.get(APPLICATIONS, name, namespace))
    check = application.status.check
    version = await live.read(APP_VERSIONS, check, _decode_app, namespace) if check else None
    return {(APP_VERSIONS, check)} if version is not None and failed_checks(version) else set()


async def _release_one(
    arguments: Arguments, client: Client, who: str, namespace: str, name: str
) -> int:
    shown = f"{namespace}/{name}"
    try:
        pod = await _let_go(client, arguments, namespace, name, who)
    except errors.ApiError as error:
        return await _explain_refusal(client, error, PODS, (namespace, name), "released")
    if pod is None:
        where = f"does not wait in the scheduler {arguments.scheduler}"
        complain(f"{shown}: not released: it does not have the gate {GATE} and {where}")
        return LEFT
    say(f"released {shown} for {who}")
    what = "its checks" if pod.has_checks else "what it waited for"
    note = f"released without {what} by {who}: {arguments.reason}"
    how = {"type": "Warning", "reason": "GateReleased", "action": "Release"}
    own = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    regarding = {**PODS.type_fields, **own}
    try:
        await client.create(EVENTS, event_of(regarding, namespace, note, **how), namespace)
    except errors.ApiError as error:
        complain(f"{shown}: released, but the event could not be written: {error.message}")
    return DONE


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
    except errors.ApiError as error:
        return await _explain_refusal(client, error, resource, (namespace, name), "promoted")
    say(f"{WORKLOAD_VERSIONS.kind} {metadata.key}: {text} for {who}")
    return DONE


async def _versions_of(
    live: ClusterReader, resource: Resource, namespace: str, name: str
) -> list[WorkloadVersion]:
    """Return the versions of a workload, or of that of a pod. Raises ApiError."""
    if resource == PODS:
        pod = decode_whole(await live.get(PODS, name, namespace))
        described = workload_of(pod.annotations, pod.labels)
        resource, name = WORKLOADS, names_of_pod(described).workload if described else ""

    def pick(raw: msgspec.Raw) -> WorkloadVersion | None:
        version = _decode_version(raw)
        owner = version.spec.resource_reference
        # A Deployment names its ReplicaSets; to read these needs a further permission.
        own = owner.name if owner.kind != REPLICA_SET else owner.name.rpartition("-")[0]
        kind = DEPLOYMENT if owner.kind == REPLICA_SET else owner.kind
        given = {(WORKLOADS.kind, version.spec.workload_name), (kind, own)}
        return version if (resource.kind, name) in given else None

    return await live.list_all(WORKLOAD_VERSIONS, pick, namespace)


def _find_request(
    versions: Sequence[WorkloadVersion], *, is_all: bool
) -> tuple[WorkloadVersion | None, int, str]:
    """Return the newest version, the stage to release (after the last: all pods), and a text.

    The text says what is released; without a version, why nothing can be.
    """
    current = [version for version in versions if version.status.status != DEPRECATED]
    if not current:
        why = "its version is superseded" if versions else "it has no version with checks or stages"
        return None, 0, why
    # After an undo, an older version may be the one under way.
    version = max(current, key=lambda of: (is_staging(of), of.metadata.creation_timestamp))
    spec, stage, name = version.spec, version.status.stage, version.metadata.name
    if stage is None:
        why = f"the stages of {name} have not begun" if spec.stages else f"{name} has no stages"
        return None, 0, why
    if not is_staging(version):
        return None, 0, f"all pods of {name} may be released ({stage.state})"
    try:
        following = parse_stages(spec.stages, spec.stage_pause).next(stage.number, stage.wanted)
    except ValueError as error:
        return None, 0, str(error)
    if is_all or following is None:
        return version, stage.of + 1, "all pods are released"
    return version, following, f"stage {following} of {stage.of} is released"


async def _clear(arguments: Arguments, client: Client) -> int:
    namespace, name = subject_of(arguments, arguments.version, client.connection.namespace)
    shown = f"{namespace}/{name}"
    patch = MergePatch({"metadata": {"annotations": {CLEAR_KEY: _WANTED}}})
    try:
        version = _decode_version(await client.get(WORKLOAD_VERSIONS, name, namespace))
        nodes = [node.name for node in version.status.failed_nodes]
        if not nodes:
            say(f"{shown} avoids no node")
            return DONE
        await client.patch(WORKLOAD_VERSIONS, name, patch, namespace)
    except errors.ApiError as error:
        return await _explain_refusal(
            client, error, WORKLOAD_VERSIONS, (namespace, name), "cleared"
        )
    say(f"{shown}: the controller will clear the failed nodes {', '.join(nodes)}")
    return DONE


async def _explain_refusal(
    client: Client, error: errors.ApiError, resource: Resource, key: tuple[str, str], done: str
) -> int:
    """Say why something could not be done; returns the exit code."""
    namespace, name = key
    if isinstance(error, errors.NotFoundError):
        complain(await ClusterReader(client).not_found(error, resource, name, namespace))
        return LEFT
    is_forbidden = isinstance(error, errors.ForbiddenError)
    why = f"missing permission: {error.message}" if is_forbidden else str(error)
    complain(f"{namespace}/{name}: not {done}: {why}")
    return LEFT


async def _let_go(
    client: Client, arguments: Arguments, namespace: str, name: str, who: str
) -> Pod | None:
    """Release the pod; returns it as it was, None if it does not wait. Raises ApiError."""
    add = {RELEASED_KEY: BY_HAND, RELEASED_BY_KEY: who, RELEASED_REASON_KEY: arguments.reason}
    for attempt in range(TRIES):
        raw = await client.get(PODS, name, namespace)
        pod = decode_pod(raw, arguments.scheduler)
        annotations = pod.annotations if pod.has_annotations else None
        held: Any = {"drop": (PARENT_KEY,), "revision": pod.resource_version}
        if pod.is_in_scheduler:
            operations = wakeup_patch(pod.uid, annotations, add, **held)
        else:
            operations = removal(pod.uid, pod.gates, annotations, add=add, **held)
        if operations is None:
            return None
        try:
            await client.patch(PODS, name, JsonPatch(operations), namespace)
        except (errors.ConflictError, errors.InvalidError):
            if attempt == TRIES - 1:
                raise
        else:
            return pod
    raise AssertionError
