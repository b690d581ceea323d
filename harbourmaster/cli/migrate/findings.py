"""The findings about what kupid and Keptn leave: a pure function of what was observed.

Facts: kupid-spec 6.6-6.8, 8 and 9; keptn-spec 1.4, 2, 6, 7 and 8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import asdict

from harbourmaster.cli.batches import plural
from harbourmaster.cli.migrate.model import (
    KEPTN,
    KUPID,
    SEVERITIES,
    Command,
    MigrationFinding,
    Ref,
    delete,
    kubectl,
    title,
)
from harbourmaster.cli.migrate.plan import (
    conversion_off,
    edit_policy,
    forget_release,
    keep_definition,
    release_pod,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harbourmaster.cli.migrate.model import Observed, Severity, StuckPod

TEXTS: Final[dict[Severity, dict[str, str]]] = {
    "blocking": {
        "webhook-broken": "failurePolicy is Fail and no endpoint answers at Service {services}: "
        "{what} is refused",
        "pod-gated": "waits behind Keptn's scheduling gate, and no operator is there to remove it: "
        "Harbourmaster removes it once it runs; or release the pod without its checks",
        "keptn-stopped": "it has stopped, and Harbourmaster is configured to leave its work to it: "
        "pods wait",
        "pod-unscheduled": "waits for Keptn's scheduler, and its schedulerName cannot be changed",
    },
    "danger": {
        "conversion-broken": "versions are converted by Service {service}, where no endpoint "
        "answers: objects of other versions than the stored one can be neither read nor deleted, "
        "nor can their namespaces",
        "conversion": "versions are converted by Service {service}: once it is gone, objects "
        "cannot be read",
        "objects-uncounted": "its objects cannot be listed",
        "chart-deletes-definitions": "helm uninstall would delete {definitions} with {objects}; an "
        "annotation helm.sh/resource-policy on the live definition does not stop it, because "
        "Helm reads its own record: delete that record first",
        "gardener-returns": "Gardener restores kupid from it, and deletes the definitions with all "
        "policies together with it: mark the definitions to be kept first",
        "gardener-deletes-definitions": "it is deleted, with all its objects, when Gardener's "
        "ManagedResource is deleted",
        "policy-refused": "Harbourmaster skips it, with a warning on each pod: {faults}",
        "policies-idle": "neither kupid nor Harbourmaster runs: pods are created without "
        "these policies",
        "both-at-work": "it and Harbourmaster both {what}: stop it in the order below",
        "namespace-in-use": "deleting it deletes {objects}: it stays",
    },
    "change": {
        "policy-excluded": "matches {namespaces}, which Harbourmaster never changes",
        "policy-audited": "is not enforced, because its mode is Audit: kupid or another system "
        "would enforce it",
        "policy-included": "matches {namespaces}, which kupid excluded because of the label "
        "role=kube-system: exclude the namespace by name in Harbourmaster's settings, or narrow "
        "the namespaceSelector",
        "both-registered": "kupid and Harbourmaster change the same objects: the meaning stays the "
        "same, but kupid repeats terms of the node affinity whenever it is asked again",
        "old-versions": "some objects may still be stored as {versions}: write each once, for "
        "example by kubectl replace, before that version is removed from the definition",
        "keptn-running": "Harbourmaster does the same work with the same objects: migrate in the "
        "order below",
        "over-limits": "larger than new objects may be: {errors}: it keeps working, but an update "
        "that makes it larger is refused",
        "metrics-address": "it is deleted, and port 9999 is off by default, because it has no "
        "authentication: to read values there, also under the old name, add "
        "deploy/components/keptn-metrics-address",
        "reference": "objects of {origins} use it: unless it consents, such references are refused "
        "where crossNamespaceReferences is AllNeedConsent, as in new installations",
        "setting": "Keptn has {value} by {source}, and here it is {ours}: set {flag}",
        "config-elsewhere": "Keptn reads it there, and here only a KeptnConfig in {places} counts"
        "{why}",
        "object-refused": "it stays, but cannot be created again: {faults}",
        "checks-ignored": "the KeptnAppContext of its name counts instead of {ignored}: move them",
        "task-token": "its tasks had the token of the ServiceAccount default, and here they have "
        "none: if they call the API server, request it, or name a serviceAccount",
        "runner-context": "they run without root and capabilities, which Keptn does not require: "
        "set --lifecycle-runner-security-context=Keptn if they need more",
        "series-change": "{why}",
        "scheduler": "Keptn's scheduler: pods that name keptn-scheduler wait forever if it is "
        "deleted",
    },
    "remains": {
        "webhook-registered": "the API server still calls it for each object: remove it in the "
        "order below",
        "deployment": "{system}, {state}",
        "leftover": "made for {system}",
        "shadow-left": "shadow mode is no longer installed, and the configuration has stayed",
        "paths": "config/default is deploy/default here (make deploy), config/using-certmanager "
        "and config/with-certmanager are deploy/with-certmanager (make deploy-using-certmanager), "
        "config/crd is deploy/crds, config/samples is deploy/samples",
    },
}
"""The text of each code, by severity; codes are stable, for scripts."""
_SEVERITY: Final = {code: severity for severity, texts in TEXTS.items() for code in texts}


def findings(observed: Observed) -> tuple[MigrationFinding, ...]:
    """Return all findings, the most severe first."""
    results = (
        *_registrations(observed),
        *_definitions(observed),
        *_releases(observed),
        *_keptn(observed),
        *_policies(observed),
        *_references(observed),
        *(
            _finding("over-limits", large.subject, errors=large.errors)
            for large in observed.oversized
        ),
        *(
            _finding("setting", f"setting {setting.key}", **asdict(setting), flag=setting.flag)
            for setting in observed.keptn.unset
        ),
        *(
            _finding(judged.code, judged.subject, judged.command, **judged.parts)
            for judged in observed.keptn.findings
            # The doctor reports what concerns us alone.
            if observed.is_installed(KEPTN)
        ),
        *_remains(observed),
    )
    return tuple(sorted(results, key=lambda finding: SEVERITIES.index(finding.severity)))


def _finding(
    code: str, subject: Ref | str, command: Command | None = None, more: str = "", **parts: str
) -> MigrationFinding:
    """A finding with the text of its code, ``parts`` put into it and ``more`` behind it."""
    severity = _SEVERITY[code]
    text = TEXTS[severity][code].format(**parts)
    return MigrationFinding(code, severity, str(subject), f"{text}{more}", command)


def _registrations(observed: Observed) -> Iterator[MigrationFinding]:
    for registration in observed.registrations:
        if registration.is_broken:
            dead = ", ".join(
                str(service) for service in registration.services if not service.answers
            )
            what = (
                "every pod" if registration.covers_pods else "every object that it is asked about"
            )
            yield _finding(
                "webhook-broken",
                registration.ref,
                delete(registration.ref),
                services=dead,
                what=what,
            )
        elif registration.system == KUPID and observed.ours.is_registered:
            yield _finding("both-registered", registration.ref, delete(registration.ref))
        else:
            yield _finding("webhook-registered", registration.ref)


def _definitions(observed: Observed) -> Iterator[MigrationFinding]:
    for definition in observed.definitions:
        if definition.conversion is not None:
            code = "conversion-broken" if definition.is_unconverted else "conversion"
            yield _finding(
                code, definition.ref, conversion_off(definition), service=str(definition.conversion)
            )
        old = [
            version
            for version in definition.stored_versions
            if version != definition.storage_version
        ]
        if old:
            yield _finding("old-versions", definition.ref, versions=", ".join(old))
        if definition.objects is None:
            yield _finding("objects-uncounted", definition.ref)


def _releases(observed: Observed) -> Iterator[MigrationFinding]:
    for release in observed.releases:
        name = f"{release.namespace}/{release.name}"
        owned = [definition for definition in observed.definitions if definition.release == name]
        yield _finding(
            "chart-deletes-definitions",
            f"helm release {release.name} in namespace {release.namespace}",
            forget_release(release),
            definitions=plural(len(owned), "definition"),
            objects=plural(sum(definition.objects or 0 for definition in owned), "object"),
        )
    for ref in observed.gardener:
        yield _finding("gardener-returns", ref)
    for definition in observed.definitions:
        if definition.of_gardener and not definition.is_kept:
            yield _finding(
                "gardener-deletes-definitions", definition.ref, keep_definition(definition)
            )


def _keptn(observed: Observed) -> Iterator[MigrationFinding]:
    # Once we are at work, a pod behind the gate is one of ours that waits for its checks.
    served = observed.ours.is_at_work and not observed.ours.is_beside_keptn
    yield from _stuck_pods(
        observed, [pod for pod in observed.stuck_pods() if pod.gate is None or not served]
    )
    if observed.has_lifecycle:
        operator = "Keptn's lifecycle-operator"
        if served:
            yield _finding("both-at-work", operator, what="start the tasks of each version")
        else:
            yield _finding("keptn-running", operator, more=", so that no task runs twice")
    elif observed.ours.is_at_work and observed.ours.is_beside_keptn:
        yield _finding("keptn-stopped", "Keptn's operator", Command(("make", "deploy")))
    if observed.has_metrics:
        operator = "Keptn's metrics-operator"
        if served:
            what = "fetch each metric and finish each analysis"
            yield _finding("both-at-work", operator, what=what)
        else:
            yield _finding("keptn-running", operator)
        if observed.keptn.exposes:
            yield _finding("metrics-address", "Service metrics-operator-service")


def _stuck_pods(observed: Observed, stuck: list[StuckPod]) -> Iterator[MigrationFinding]:
    for pod in stuck:
        code = _waiting(pod)
        if pod.failure:
            why = f"{pod.failure}: see harbourmaster why pod {pod.namespace}/{pod.name}"
            yield MigrationFinding(code, _SEVERITY[code], str(pod.ref), why)
        else:
            lost = "" if pod.is_owned else "; nothing recreates this pod, so keep its manifest"
            yield _finding(
                code, pod.ref, release_pod(pod), more="" if pod.gate is not None else lost
            )
    counts = {"pod-gated": observed.gated_pods, "pod-unscheduled": observed.scheduled_pods}
    for code in sorted({_waiting(pod) for pod in stuck}):
        more = counts[code] - sum(_waiting(pod) == code for pod in observed.pods)
        if more > 0:
            why = "the same; the next run lists more of them"
            yield MigrationFinding(code, _SEVERITY[code], f"{more} more pods", why)


def _waiting(pod: StuckPod) -> str:
    return "pod-unscheduled" if pod.gate is None else "pod-gated"


def _policies(observed: Observed) -> Iterator[MigrationFinding]:
    stored = sum(
        definition.objects or 0 for definition in observed.definitions if definition.system == KUPID
    )
    if stored and not observed.is_running(KUPID) and not observed.ours.is_ready:
        yield _finding("policies-idle", plural(stored, "policy", "policies"))
    for policy in observed.policies:
        if policy.faults:
            yield _finding(
                "policy-refused", policy.ref, edit_policy(policy), faults="; ".join(policy.faults)
            )
        if policy.is_audited:
            yield _finding("policy-audited", policy.ref)
        # Once kupid is gone, the difference is history.
        if observed.is_installed(KUPID):
            if policy.lost:
                yield _finding("policy-excluded", policy.ref, namespaces=", ".join(policy.lost))
            if policy.gained:
                yield _finding("policy-included", policy.ref, namespaces=", ".join(policy.gained))


def _references(observed: Observed) -> Iterator[MigrationFinding]:
    for reference in observed.references:
        ref = Ref(reference.to.resource.kind.lower(), reference.to.name, reference.to.namespace)
        yield _finding(
            "reference", ref, kubectl(*reference.command), origins=", ".join(reference.origins)
        )


def _remains(observed: Observed) -> Iterator[MigrationFinding]:
    if observed.is_installed(KUPID):
        yield _finding("paths", "kupid's manifests")
    for ref in observed.shadows:
        yield _finding("shadow-left", ref, delete(ref))
    for work in observed.workloads:
        if work.role == "scheduler":
            yield _finding("scheduler", work.ref)
        else:
            state = "running" if work.is_ready else "not ready"
            more = ", restored by Gardener when deleted" if work.of_gardener else ""
            yield _finding(
                "deployment", work.ref, more=more, system=title(work.system), state=state
            )
    for left in observed.leftovers:
        yield _finding("leftover", left.ref, system=title(left.system))
    for namespace in observed.namespaces:
        if namespace.keeps:
            yield _finding("namespace-in-use", namespace.ref, objects=", ".join(namespace.keeps))
        else:
            yield _finding("leftover", namespace.ref, system=title(namespace.system))
