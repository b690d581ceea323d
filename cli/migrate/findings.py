"""What kupid and Keptn leave, told one by one: a pure function of what was observed.

Facts: kupid-spec 6.6-6.8, 8 and 9; keptn-spec 1.4, 2, 6, 7 and 8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.cli.migrate.model import (
    KUPID,
    SEVERITIES,
    Command,
    Finding,
    Ref,
    delete,
    kubectl,
)
from harbourmaster.cli.migrate.plan import conversion_off, forgotten, kept, released

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from harbourmaster.cli.migrate.model import (
        Definition,
        Observed,
        Policy,
        Registration,
        Service,
        StuckPod,
        System,
        Workload,
    )

PATHS = (
    "config/default is deploy/default here (make deploy), config/using-certmanager and"
    " config/with-certmanager are deploy/with-certmanager (make deploy-using-certmanager),"
    " config/crd is deploy/crds, config/samples is deploy/samples"
)


def findings(observed: Observed) -> tuple[Finding, ...]:
    """Everything worth saying, the gravest first."""
    found = (
        *_registrations(observed),
        *_definitions(observed),
        *_releases(observed),
        *_keptn(observed),
        *_policies(observed),
        *_remains(observed),
    )
    return tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)))


def _registrations(observed: Observed) -> Iterator[Finding]:
    for one in observed.registrations:
        command = delete(one.ref)
        if one.is_broken:
            yield Finding("webhook-broken", "blocking", str(one.ref), _refused(one), command)
        elif one.system == KUPID and observed.ours.is_registered:
            yield Finding(
                "both-registered",
                "change",
                str(one.ref),
                "kupid and Harbourmaster change the same objects: the meaning stays the same, but"
                " kupid repeats terms of the node affinity whenever it is asked again",
                command,
            )
        else:
            yield Finding(
                "webhook-registered",
                "remains",
                str(one.ref),
                "the API server still calls it for each object: remove it in the order below",
            )


def _refused(one: Registration) -> str:
    dead = ", ".join(
        f"{service.namespace}/{service.name}" for service in one.services if not service.answers
    )
    what = "every pod" if one.covers_pods else "every object that it is asked about"
    return f"failurePolicy is Fail and no endpoint answers at Service {dead}: {what} is refused"


def _definitions(observed: Observed) -> Iterator[Finding]:
    for one in observed.definitions:
        name = str(Ref("crd", one.name))
        if one.conversion is not None:
            yield _conversion(one, one.conversion)
        old = [version for version in one.stored_versions if version != one.storage_version]
        if old:
            yield Finding(
                "old-versions",
                "change",
                name,
                f"some objects may still be stored as {', '.join(old)}: write each once, for"
                f" example by kubectl replace, before that version is removed from the definition",
            )
        if one.objects is None:
            yield Finding("objects-uncounted", "danger", name, "its objects cannot be listed")


def _conversion(one: Definition, service: Service) -> Finding:
    where = f"Service {service.namespace}/{service.name}"
    command = conversion_off(one)
    if service.answers is False:
        why = (
            f"versions are converted by {where}, where no endpoint answers: objects of other"
            " versions than the stored one can be neither read nor deleted, nor can their"
            " namespaces"
        )
        return Finding("conversion-broken", "danger", str(Ref("crd", one.name)), why, command)
    why = f"versions are converted by {where}: once it is gone, objects cannot be read"
    return Finding("conversion", "danger", str(Ref("crd", one.name)), why, command)


def _releases(observed: Observed) -> Iterator[Finding]:
    for release in observed.releases:
        owned = [
            one
            for one in observed.definitions
            if one.release == f"{release.namespace}/{release.name}"
        ]
        objects = sum(one.objects or 0 for one in owned)
        yield Finding(
            "chart-deletes-definitions",
            "danger",
            f"helm release {release.name} in namespace {release.namespace}",
            f"helm uninstall would delete {_many(len(owned), 'definition')} with"
            f" {_many(objects, 'object')}; an annotation helm.sh/resource-policy on the live"
            " definition does not stop it, because Helm reads its own record: delete that "
            "record first",
            forgotten(release),
        )
    for ref in observed.gardener:
        yield Finding(
            "gardener-returns",
            "danger",
            str(ref),
            "Gardener restores kupid from it, and deletes the definitions with all policies "
            "together with it: mark the definitions to be kept first",
        )
    for one in observed.definitions:
        if one.of_gardener and not one.is_kept:
            yield Finding(
                "gardener-deletes-definitions",
                "danger",
                str(Ref("crd", one.name)),
                "it is deleted, with all its objects, when Gardener's ManagedResource is deleted",
                kept(one),
            )


def _keptn(observed: Observed) -> Iterator[Finding]:
    # Once we are at work, a pod behind the gate is one of ours that waits for its checks.
    served = observed.ours.does_keptns_work
    yield from _stuck(
        observed, [pod for pod in observed.stuck_pods() if pod.gate is None or not served]
    )
    if observed.has_lifecycle:
        yield _lifecycle_running(is_served=served)
    elif observed.ours.is_at_work and observed.ours.is_beside_keptn:
        yield Finding(
            "keptn-stopped",
            "blocking",
            "Keptn's operator",
            "it has stopped, and Harbourmaster is configured to leave its work to it: pods wait",
            Command(("make", "deploy")),
        )
    if observed.has_metrics:
        yield from _metrics_running(is_served=served)


def _metrics_running(*, is_served: bool) -> Iterator[Finding]:
    operator = "Keptn's metrics-operator"
    if is_served:
        why = (
            "it and Harbourmaster both fetch each metric and finish each analysis: stop it in the"
            " order below"
        )
        yield Finding("both-at-work", "danger", operator, why)
    else:
        why = "Harbourmaster does the same work with the same objects: migrate in the order below"
        yield Finding("keptn-running", "change", operator, why)
    yield Finding(
        "metrics-address",
        "change",
        "Service metrics-operator-service",
        "it is deleted, and port 9999 is off by default, because it has no authentication: to "
        "read values"
        " there, also under the old name, add deploy/components/keptn-metrics-address",
    )


def _lifecycle_running(*, is_served: bool) -> Finding:
    if is_served:
        return Finding(
            "both-at-work",
            "danger",
            "Keptn's lifecycle-operator",
            "it and Harbourmaster both start the tasks of each version: stop it in the order below",
        )
    return Finding(
        "keptn-running",
        "change",
        "Keptn's lifecycle-operator",
        "Harbourmaster does the same work with the same objects: migrate in the order below, so"
        " that no task runs twice",
    )


def _stuck(observed: Observed, stuck: Collection[StuckPod]) -> Iterator[Finding]:
    for pod in stuck:
        name = str(Ref("pod", pod.name, pod.namespace))
        if pod.failure:
            look = f"see harbourmaster why pod {pod.namespace}/{pod.name}"
            yield Finding(_waiting(pod), "blocking", name, f"{pod.failure}: {look}")
            continue
        if pod.gate is None:
            why = "waits for Keptn's scheduler, and its schedulerName cannot be changed" + (
                "" if pod.is_owned else "; nothing recreates this pod, so keep its manifest"
            )
        else:
            why = (
                "waits behind Keptn's scheduling gate, and no operator is there to remove it: "
                "Harbourmaster removes it once it runs; or release the pod without its checks"
            )
        yield Finding(_waiting(pod), "blocking", name, why, released(pod))
    counts = {"pod-gated": observed.gated_pods, "pod-unscheduled": observed.scheduled_pods}
    for code in sorted({_waiting(pod) for pod in stuck}):
        more = counts[code] - sum(_waiting(pod) == code for pod in observed.pods)
        if more > 0:
            why = "the same; the next run lists more of them"
            yield Finding(code, "blocking", f"{more} more pods", why)


def _waiting(pod: StuckPod) -> str:
    return "pod-unscheduled" if pod.gate is None else "pod-gated"


def _policies(observed: Observed) -> Iterator[Finding]:
    stored = sum(one.objects or 0 for one in observed.definitions if one.system == KUPID)
    if stored and not observed.is_running(KUPID) and not observed.ours.is_ready:
        yield Finding(
            "policies-idle",
            "danger",
            _many(stored, "policy", "policies"),
            "neither kupid nor Harbourmaster runs: pods are created without these policies",
        )
    for one in observed.policies:
        yield from _policy(one)
        # Once kupid is gone, the difference is history.
        if observed.is_installed(KUPID):
            yield from _reach(one)


def _policy(one: Policy) -> Iterator[Finding]:
    if one.faults:
        yield Finding(
            "policy-refused",
            "danger",
            str(one.ref),
            f"Harbourmaster skips it, with a warning on each pod: {'; '.join(one.faults)}",
            kubectl("edit", one.ref.kind, one.ref.name, namespace=one.ref.namespace),
        )


def _reach(one: Policy) -> Iterator[Finding]:
    if one.lost:
        yield Finding(
            "policy-excluded",
            "change",
            str(one.ref),
            f"matches {', '.join(one.lost)}, which Harbourmaster never changes",
        )
    if one.gained:
        yield Finding(
            "policy-included",
            "change",
            str(one.ref),
            f"matches {', '.join(one.gained)}, which kupid excluded because of the label "
            "role=kube-system: exclude the namespace by name in Harbourmaster's settings, or"
            " narrow the namespaceSelector",
        )


def _remains(observed: Observed) -> Iterator[Finding]:
    if observed.is_installed(KUPID):
        yield Finding("paths", "remains", "kupid's manifests", PATHS)
    for work in observed.workloads:
        yield _workload(work)
    for left in observed.leftovers:
        yield Finding("leftover", "remains", str(left.ref), f"made for {_title(left.system)}")
    for one in observed.namespaces:
        name = str(Ref("namespace", one.name))
        if one.keeps:
            why = f"deleting it deletes {', '.join(one.keeps)}: it stays"
            yield Finding("namespace-in-use", "danger", name, why)
        else:
            yield Finding("leftover", "remains", name, f"made for {_title(one.system)}")


def _workload(work: Workload) -> Finding:
    if work.role == "scheduler":
        why = "Keptn's scheduler: pods that name keptn-scheduler wait forever if it is deleted"
        return Finding("scheduler", "change", str(work.ref), why)
    state = "running" if work.is_ready else "not ready"
    why = f"{_title(work.system)}, {state}" + (
        ", restored by Gardener when deleted" if work.of_gardener else ""
    )
    return Finding("deployment", "remains", str(work.ref), why)


def _title(system: System) -> str:
    return "kupid" if system == KUPID else "Keptn"


def _many(count: int, noun: str, plural: str = "") -> str:
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"
