"""``harbourmaster gate wait``: waits until the newest version of something is released.

It looks at the cluster after each change, with the caller's permissions.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from harbourmaster.api import resources
from harbourmaster.api.durations import format_duration
from harbourmaster.api.resources import APP_VERSIONS, APPS, PODS, WORKLOAD_VERSIONS
from harbourmaster.api.times import format_rfc3339, utc_now
from harbourmaster.cli.arguments import subject_of
from harbourmaster.cli.installed import CONTROLLER
from harbourmaster.cli.lines import print_lines
from harbourmaster.cli.live.changes import GATE_CHANGES, Watched, look_until_done
from harbourmaster.cli.live.cluster import DONE, LEFT, complain, run_with_client, say
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.live.kinds import decode_anything, metadata_in
from harbourmaster.cli.live.reader import cause
from harbourmaster.cli.live.waits import is_of_workload
from harbourmaster.cli.why.missing_gate import PARENTS, template_pod, why_not_made
from harbourmaster.cli.why.model import Report, WhyContext
from harbourmaster.cli.why.render import NOTHING, step_of
from harbourmaster.cli.why.sections import section_of
from harbourmaster.cli.why.sections.gate import GateDetail
from harbourmaster.cli.why.subjects import fetch_subject, owners_of
from harbourmaster.controller.lifecycle.owners import decode_rollout
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.gates.names import version_name, workload_name
from harbourmaster.gates.owners import SUPPORTED, parent_of
from harbourmaster.gates.release import was_released
from harbourmaster.gates.waits import MET, WAITED_KEY
from harbourmaster.gates.workload import workload_of
from harbourmaster.kube.errors import ForbiddenError, NotFoundError
from harbourmaster.lifecycle.apps import version_of
from harbourmaster.lifecycle.gate_report import GateReport
from harbourmaster.lifecycle.gate_verdict import (
    BLOCKED,
    pre_checks,
    sentence,
    verdict_on_stage,
    wait_of,
)
from harbourmaster.lifecycle.gate_waits import gate_wait
from harbourmaster.lifecycle.gated_pods import decode_whole
from harbourmaster.lifecycle.model import App, AppVersion, Workload, WorkloadVersion, is_generated
from harbourmaster.lifecycle.reruns import is_rerun_wanted
from harbourmaster.lifecycle.stages import is_staging
from harbourmaster.lifecycle.workloads import has_observed, names_of_pod, owners_of_pods
from harbourmaster.placement.gated_pods import pod_selector

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import AsyncIterator

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client
    from harbourmaster.lifecycle.gate_verdict import GateVerdict
    from harbourmaster.lifecycle.gated_pods import Pod

TIMED_OUT: Final = 124
"""The exit code after the time limit, as that of timeout(1)."""
State: TypeAlias = Literal["Failed", "NotGated", "Pending", "Succeeded"]
"""The state of what is waited for; the first of several counts."""
_STATES: Final = get_args(State)
_UNGATED: Final = frozenset(
    (
        "namespace-excluded",
        "no-keys",
        "not-opted-in",
        "not-reviewed",
        "owner-unsupported",
        "waits-forbidden",
    )
)
"""Codes of workloads whose pods do not get a gate."""
_PLANNED: Final = frozenset(("definition-missing", "to-be-gated"))
"""Codes of workloads whose pods will get a gate."""
_WITHOUT_PODS: Final = frozenset(("scaled-to-zero", "no-node-matches"))
"""Codes of workloads of which no pods are wanted."""
_decode_version: Final = Decoder(WorkloadVersion).decode
_decode_app_version: Final = Decoder(AppVersion).decode


class GateProgress(Struct, frozen=True, rename="camel"):
    """The state of what is waited for; ``code`` says why, as in the output of ``why``."""

    state: State
    code: str
    message: str
    next: str = ""
    """The next step of a person; empty if there is none."""
    report: GateReport | None = None
    """The report on the pod that waits longest."""


def wait(arguments: Arguments) -> int:
    """Wait; 0 released, 1 it failed or cannot be waited for, 2 no cluster, 124 time-out."""
    return run_with_client(arguments, partial(_wait, arguments))


async def _wait(arguments: Arguments, client: Client) -> int:
    resource, given = arguments.subject
    namespace, name = subject_of(arguments, given, client.connection.namespace)
    subject = f"{resource.kind.lower()}/{name}"
    last: GateProgress | None = None

    def tell(progress: GateProgress) -> None:
        nonlocal last
        if last is None or _content(last) != _content(progress):
            _print(arguments, subject, namespace, progress)
        last = progress

    async def look_once() -> int | None:
        live = Installation(client, arguments.installed_in)
        try:
            progress = await look(live, resource, namespace, name)
        except NotFoundError as error:
            text = f"{resource.kind} {namespace}/{name} was deleted"
            text = text if last else await live.not_found(error, resource, name, namespace)
            progress = GateProgress("Failed", "not-found", text)
        tell(progress)
        if progress.state == "Pending":
            return None
        fine = {"Succeeded", "NotGated"} if arguments.allow_ungated else {"Succeeded"}
        return DONE if progress.state in fine else LEFT

    try:
        watched = await _watched(Installation(client, ""), resource, namespace, name)
        async with asyncio.timeout(arguments.timeout):
            return await look_until_done(client, watched, namespace, look_once)
    except TimeoutError:
        why = last.message if last is not None else "the cluster could not be read"
        text = f"not released in {format_duration(arguments.timeout)}: {why}"
        step = f"harbourmaster why {subject} -n {namespace}"
        step = f"harbourmaster gate list -n {namespace}" if resource == APPS else step
        tell(GateProgress("Failed", "timed-out", text, step))
        return TIMED_OUT
    except ForbiddenError as error:
        complain(f"{resource.kind} {namespace}/{name}: {cause(error)}")
        return LEFT


async def _watched(
    live: Installation, resource: Resource, namespace: str, name: str
) -> list[Watched]:
    """Return all whose changes may change what ``look`` sees."""
    raw = await live.attempt(live.find(resource, name, namespace), None)
    selector = pod_selector(decode_anything(raw)) if raw is not None else ""
    pods = {PODS, resources.REPLICA_SETS} - {resource}
    watched = [Watched(resource, "", f"metadata.name={name}"), Watched(resources.EVALUATIONS)]
    return [*watched, *(Watched(kind, selector) for kind in pods), *GATE_CHANGES]


def _content(progress: GateProgress) -> tuple[object, ...]:
    """Return what has to change for a new line: no ages."""
    report = progress.report
    text = progress.message if report is None or report.code == progress.code else report.text
    return progress.state, progress.code, text


def _print(arguments: Arguments, subject: str, namespace: str, progress: GateProgress) -> None:
    if arguments.output == "json":
        place = {"time": format_rfc3339(utc_now()), "object": subject, "namespace": namespace}
        print_lines((place | msgspec.to_builtins(progress),))
        return
    tell = say if progress.state in {"Pending", "Succeeded"} else complain
    is_done = progress.state == "Succeeded" and progress.code == "released"
    tell(f"{subject}: {'released: ' if is_done else ''}{progress.message}")
    if progress.next and tell is complain:
        complain(f"next: {progress.next}")


async def look(live: Installation, resource: Resource, namespace: str, name: str) -> GateProgress:
    """Return the state of one object. Raises NotFoundError if it does not exist, and ApiError."""
    if resource == APPS:
        return await _look_at_app(live, namespace, name)
    subject = await fetch_subject(live, resource, namespace, name)
    owners, _ = await owners_of(live, subject)
    context = WhyContext(subject, live, utc_now(), owners)
    pods, has_newest = await _pods_of_version(context)
    held = [pod for pod in pods if pod.is_ours]
    passed = [pod for pod in pods if has_newest and _has_passed(pod)]
    for pod in sorted(held, key=lambda pod: pod.creation_timestamp) or passed:
        with suppress(NotFoundError):
            own = await fetch_subject(live, PODS, namespace, pod.name)
            above, _ = await owners_of(live, own)
            progress = await _explain(replace(context, subject=own, owners=above))
            key = progress.report.version_object if progress.report else ""
            if held or resource == PODS or not key:
                return progress
            version = await live.read(WORKLOAD_VERSIONS, key, _decode_version, namespace)
            if version is None or not is_staging(version):
                return progress
            return _of_verdict(name, verdict_on_stage(version))
    # As if it was applied now: pods of former templates do not count.
    progress = await _explain(replace(context, created_with=frozenset()))
    if progress.code not in _PLANNED:
        return progress
    unmade = await why_not_made(context, []) if resource != PODS else None
    if unmade is not None and unmade[0] != "no-pods":
        is_done = unmade[0] in _WITHOUT_PODS
        return GateProgress("Succeeded" if is_done else "Pending", unmade[0], unmade[2])
    present = await _explain(context)
    if present.code == "superseded":
        return present
    text = f"no pod of the newest template exists yet; {progress.message}"
    waits = GateProgress("Pending", "no-pods", text)
    return replace(present, state="NotGated") if has_newest else waits


async def _pods_of_version(context: WhyContext) -> tuple[list[Pod], bool]:
    """Return the pods of the version that the newest template names, whether or not they wait.

    And whether there are pods of the newest template.
    """
    subject, live = context.subject, context.live
    settings, unknown = await live.assumed_settings(CONTROLLER, ControllerSettings)
    scheduler = settings.scheduler.scheduler_name if unknown else settings.scheduler.of_pods
    if context.is_pod:
        return [decode_whole(subject.raw, scheduler)], True
    from_tag = settings.lifecycle.version_from_tag
    wanted = template_pod(subject, context.owners, version_from_tag=from_tag)

    def pick(raw: msgspec.Raw) -> Pod | None:
        pod = decode_whole(raw, scheduler)
        is_own = is_of_workload(pod, (subject.kind, subject.name))
        return pod if is_own and not pod.is_ending else None

    selector = pod_selector(decode_anything(subject.raw))
    pods = await live.list_all(PODS, pick, subject.namespace, label_selector=selector)
    owner = decode_rollout(subject.raw)
    updated = owner.status.updated_replicas or owner.status.updated_number_scheduled
    is_observed = has_observed(owner.metadata.generation, owner.status.observed_generation)
    has_newest = bool(pods) and (subject.kind not in PARENTS or (is_observed and updated > 0))
    alike = [pod for pod in pods if wanted is not None and _version_of(pod) == _version_of(wanted)]
    return alike, has_newest


def _version_of(pod: Pod) -> tuple[object, ...]:
    """Return what is the same for pods that wait for the same."""
    described = workload_of(pod.annotations, pod.labels) if pod.has_checks else None
    return names_of_pod(described) if described is not None else None, pod.wait_conditions


def _has_passed(pod: Pod) -> bool:
    return was_released(pod.annotations) or pod.annotations.get(WAITED_KEY) == MET


async def _explain(context: WhyContext) -> GateProgress:
    """Return the state that the gate section of ``why`` shows."""
    subject, live = context.subject, context.live
    section = await section_of("gate", context)
    if section is None:
        text = f"the {subject.kind} names neither checks nor objects to wait for"
        return GateProgress("NotGated", "no-keys", text)
    if not isinstance(section.detail, GateDetail):
        return GateProgress("Pending", section.code, section.summary)
    report = section.detail.report
    step = step_of(section, Report(subject, "", (section,), context.owners))
    state: State = "Pending"
    # The pods of a template, which have no age, are released as soon as they could be.
    is_due = report.is_waiting and bool(report.since)
    if section.code in _UNGATED:
        # Without permission to read the namespace, it seems not to have opted in.
        space = await live.attempt(live.find(resources.NAMESPACES, subject.namespace), None)
        state = "NotGated" if space is not None else "Pending"
    elif report.code == "waits-in-scheduler" or (report.code == "released" and not is_due):
        state = "Succeeded"
    elif report.code in BLOCKED and section.code not in _PLANNED:
        state = "Pending" if await _is_repeated(live, report) else "Failed"
    event = gate_wait(report) if report.code == section.code else None
    text = event.text if event is not None else section.summary
    return GateProgress(state, section.code, text, step if step != NOTHING else "", report)


async def _is_repeated(live: Installation, report: GateReport) -> bool:
    """Whether the failed checks are about to be repeated."""
    for kind, name, decode in (
        (WORKLOAD_VERSIONS, report.version_object, _decode_version),
        (APP_VERSIONS, report.app_version_object, _decode_app_version),
    ):
        raw = await live.attempt(live.find(kind, name, report.namespace), None) if name else None
        if raw is not None and is_rerun_wanted(decode(raw)):
            return True
    return False


async def _look_at_app(live: Installation, namespace: str, name: str) -> GateProgress:
    """Return the state of the workloads of a KeptnApp, the worst first, and of its own checks."""
    app = Decoder(App).decode(await live.get(APPS, name, namespace))
    version = await live.read(APP_VERSIONS, version_of(app), _decode_app_version, namespace)
    if version is None or not is_generated(version, app.metadata.uid):
        text = f"waits for KeptnAppVersion {version_of(app)}, which is not there yet"
        return GateProgress("Pending", "waits-for-version", text)
    looks: list[GateProgress] = []
    for entry in version.spec.workloads:
        workload = workload_name(name, entry.name)
        looks += [progress async for progress in _look_at_owners(live, namespace, workload)]
        key = version_name(workload, entry.version)
        stored = await live.read(WORKLOAD_VERSIONS, key, _decode_version, namespace)
        verdict = wait_of(stored, stored.spec.resource_reference.uid if stored is not None else "")
        looks.append(_of_verdict(f"{entry.name}@{entry.version}", verdict))
    looks.append(_of_verdict("the app", pre_checks(version)))
    return min(looks, key=lambda progress: _STATES.index(progress.state))


async def _look_at_owners(
    live: Installation, namespace: str, workload: str
) -> AsyncIterator[GateProgress]:
    """Yield the states of the Deployments and so on whose pods are of a KeptnWorkload."""
    stored = await live.read(resources.WORKLOADS, workload, Decoder(Workload).decode, namespace)
    tops = set()
    for owner in owners_of_pods(stored) if stored is not None else ():
        own = await live.read(SUPPORTED[owner.kind], owner.name, metadata_in, namespace)
        if own is not None:
            top = parent_of(own.owner_references) or owner
            tops.add((top.kind, top.name))
    for kind, name in sorted(tops):
        with suppress(NotFoundError):
            progress = await look(live, SUPPORTED[kind], namespace, name)
            yield replace(progress, message=f"{kind.lower()}/{name}: {progress.message}")


def _of_verdict(subject: str, verdict: GateVerdict | None) -> GateProgress:
    if verdict is None or verdict.code == "released":
        return GateProgress("Succeeded", "released", f"{subject}: its checks passed")
    state: State = "Failed" if verdict.code in BLOCKED else "Pending"
    text = f"{subject} {sentence(verdict.code, verdict.text)}"
    return GateProgress(state, verdict.code, text, verdict.advice)
