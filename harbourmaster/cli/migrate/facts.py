"""Decides what the objects of a cluster mean for a migration. Pure functions.

kupid leaves alone the namespaces labelled ``role=kube-system``, Harbourmaster some by their names
(kupid-spec 6.6, decision D6): a policy may reach other namespaces than before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from harbourmaster.api.decoding import MalformedError, decode
from harbourmaster.api.field_errors import reason
from harbourmaster.cli.live.kinds import decode_workload, metadata_in
from harbourmaster.cli.migrate.legacy import (
    INJECTED,
    KUPID_EXCLUDED,
    OF_CERTMANAGER,
    SCHEDULER,
    is_of_gardener,
    release_of,
    system_of_group,
)
from harbourmaster.cli.migrate.model import (
    KEPTN,
    CalledService,
    Policy,
    Ref,
    Registration,
    ReplacedDefinition,
    StuckPod,
)
from harbourmaster.cli.migrate.plan import KEEP_OBJECT
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.metadata import PARENT_KEY, UNRESOLVED
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.gate_verdict import pre_checks, wait_of
from harbourmaster.lifecycle.gated_pods import decode_whole
from harbourmaster.lifecycle.model import FAILED
from harbourmaster.lifecycle.waiting import app_obstacle, app_version_of
from harbourmaster.lifecycle.workloads import names_of_pod, version_of_pod
from harbourmaster.policies.compiled import compile_policy
from harbourmaster.policies.model import CLUSTER_POLICY
from harbourmaster.policies.model import Policy as StoredPolicy
from harbourmaster.policies.validation import validate
from harbourmaster.registration.settings import EXCLUDED_NAMESPACES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from harbourmaster.cli.live.webhooks import Configuration, Definition
    from harbourmaster.cli.migrate.model import System
    from harbourmaster.lifecycle.model import AppVersion, WorkloadVersion
    from harbourmaster.policies.compiled import CompiledPolicy

    Namespaces = Mapping[str, Mapping[str, str]]

_decoder: Final = msgspec.json.Decoder(StoredPolicy)


def registration_of(
    kind: str,
    configuration: Configuration,
    system: System,
    answers: Mapping[tuple[str, str], bool | None],
) -> Registration:
    """Project a webhook configuration of kupid or Keptn."""
    closed = [entry for entry in configuration.entries if entry.failure_policy == "Fail"]
    asked = closed or configuration.entries
    called = {service for entry in asked if (service := entry.service)}
    return Registration(
        ref=Ref(kind.lower(), configuration.metadata.name),
        system=system,
        services=tuple(CalledService(*service, answers.get(service)) for service in sorted(called)),
        fails_closed=bool(closed),
        covers_pods=any(entry.covers("", "pods") for entry in asked),
        of_certmanager=bool(configuration.metadata.annotations.get(OF_CERTMANAGER)),
    )


def definition_of(
    definition: Definition, objects: int | None, converter: CalledService | None
) -> ReplacedDefinition:
    """Project a CRD of kupid or Keptn; ``converter`` is None if Harbourmaster converts."""
    metadata = definition.metadata
    return ReplacedDefinition(
        name=metadata.name,
        system=system_of_group(definition.spec.group) or KEPTN,
        stored_versions=definition.stored,
        storage_version=definition.storage,
        objects=objects,
        conversion=converter,
        is_injected=metadata.labels.get(INJECTED) == "true",
        release=release_of(metadata),
        of_gardener=is_of_gardener(metadata),
        is_kept=metadata.annotations.get(KEEP_OBJECT) == "true",
    )


def stuck_pod(raw: msgspec.Raw) -> StuckPod | None:
    """The pod if it waits for Keptn; a gate counts before a scheduler that comes after it."""
    pod = decode_workload(raw)
    metadata, gates = pod.metadata, pod.gates
    if metadata.deletion_timestamp or not (GATE in gates or pod.spec.scheduler_name == SCHEDULER):
        return None
    whole = decode_whole(raw, SCHEDULER)
    workload = workload_of(whole.annotations, whole.labels)
    is_open = whole.annotations.get(PARENT_KEY) == UNRESOLVED or (workload and not workload.version)
    return StuckPod(
        namespace=metadata.namespace,
        name=metadata.name,
        gate=gates.index(GATE) if GATE in gates else None,
        is_annotated=whole.has_annotations,
        is_owned=metadata.controller is not None,
        workload=workload,
        is_told=bool(whole.refusal or whole.checks_state),
        failure=_unknown("its workload and version are not known yet") if is_open else "",
    )


def with_failure(
    pod: StuckPod,
    stored: tuple[list[WorkloadVersion], list[AppVersion]] | None,
    unreadable: Collection[str],
) -> StuckPod:
    """The pod with its check that failed; ``unreadable`` has versions, and namespaces of apps."""
    if pod.workload is None or pod.failure:
        return pod
    key = f"{pod.namespace}/{names_of_pod(pod.workload).version}"
    if stored is None or key in unreadable or pod.namespace in unreadable:
        return replace(pod, failure=_unknown("its KeptnWorkloadVersion could not be read"))
    versions, apps = stored
    of_name = next(
        (workload_version for workload_version in versions if workload_version.metadata.key == key),
        None,
    )
    version = version_of_pod(pod.workload, of_name, None)
    app = None
    if version is not None:
        local = [
            app_version for app_version in apps if app_version.metadata.namespace == pod.namespace
        ]
        app = app_version_of(version, local)
    return replace(pod, failure=_failure_of(version, app))


def _unknown(why: str) -> str:
    """The text for a pod whose checks cannot be looked up."""
    return f"whether its check failed is unknown: {why}"


def _failure_of(version: WorkloadVersion | None, app: AppVersion | None) -> str:
    """The text for a pod of this version whose check, or its app's, failed; empty for none."""
    if version is None:
        return ""
    wait = wait_of(version, "")
    if wait.code == "waits-for-app" and app is not None and app_obstacle(app) is not None:
        return f"a check of its app failed: {(pre_checks(app) or wait).reason}"
    has_failed = version.status.status == FAILED and wait.code != "waits-for-owner"
    if has_failed or wait.code == "checks-failed":
        return f"its check failed: {wait.reason}"
    return ""


def reach_of(namespaces: Namespaces, own: str) -> tuple[Namespaces, Namespaces]:
    """The namespaces that only Harbourmaster excludes, and those that only kupid does.

    All are given with their labels; ``own`` is Harbourmaster's.
    """
    key, value = KUPID_EXCLUDED
    excluded = {*EXCLUDED_NAMESPACES, own}
    only: dict[bool, dict[str, Mapping[str, str]]] = {True: {}, False: {}}
    for name, labels in namespaces.items():
        if (name in excluded) != (labels.get(key) == value):
            only[name in excluded][name] = labels
    return only[True], only[False]


def judge(
    raw: bytes | msgspec.Raw, kind: str, reach: tuple[Namespaces, Namespaces]
) -> Policy | None:
    """Return a policy about which there is something to report, else None."""
    metadata = metadata_in(raw)
    ref = Ref(kind.lower(), metadata.name, "" if kind == CLUSTER_POLICY else metadata.namespace)
    try:
        policy = decode(_decoder, raw, "")
    except MalformedError as error:
        return Policy(ref, faults=(str(error),))
    # Validation asks the object for its kind, and lists need not carry it.
    policy = replace(policy, kind=kind)
    compiled = compile_policy(policy)
    errors = validate(policy)
    judged = Policy(
        ref,
        faults=(reason(errors),) if errors else (),
        lost=_reached_namespaces(compiled, reach[0]),
        gained=_reached_namespaces(compiled, reach[1]),
        is_audited=compiled.is_audited,
    )
    return judged if judged != Policy(ref) else None


def _reached_namespaces(policy: CompiledPolicy, namespaces: Namespaces) -> tuple[str, ...]:
    if policy.pods is not None and policy.namespace is not None:
        return (policy.namespace,) if policy.namespace in namespaces else ()
    if policy.pods is None or policy.namespaces is None:
        return ()
    return tuple(
        name
        for name, labels in sorted(namespaces.items())
        if policy.namespaces.matches({"kubernetes.io/metadata.name": name, **labels})
    )
