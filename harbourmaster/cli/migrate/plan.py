"""The order in which to migrate from kupid and Keptn: a pure function of what was observed.

What holds after each step: every policy and every other object of the users' lives, pods can be
created, no pod goes without a policy or a gate that it would have had, and no task runs twice. So:
whatever refuses pods now goes first; definitions are made safe before anything that could take them
along; Harbourmaster answers before kupid and Keptn are silenced, and takes up Keptn's work only
once Keptn has stopped; what calls a Service goes before the Service; namespaces go last. Asked
again after each step, the plan is what remains of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harbourmaster.api.patches import escape
from harbourmaster.cli.installed import DEFAULT_NAMESPACE
from harbourmaster.cli.migrate.legacy import INJECTED
from harbourmaster.cli.migrate.model import (
    KEPTN,
    KUPID,
    Command,
    MigrationStep,
    Ref,
    delete,
    kubectl,
)
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.metadata import REMOVED_KEY

if TYPE_CHECKING:
    from harbourmaster.cli.migrate.model import (
        Observed,
        Policy,
        Release,
        ReplacedDefinition,
        StuckPod,
    )

KEEP_OBJECT: Final = "resources.gardener.cloud/keep-object"
_TIMEOUT: Final = "--timeout=120s"
_REGISTERED: Final = "mutatingwebhookconfiguration/harbourmaster"
_HAS_AUTHORITY: Final = "--for=jsonpath={.webhooks[0].clientConfig.caBundle}"
OVERLAY: Final = "deploy/migrated"
"""The folder of the overlay, in the checkout."""
_OVERLAY_FILE: Final = f"{OVERLAY}/kustomization.yaml"
STEPS: Final = (
    MigrationStep(
        "unblock",
        "Remove webhooks and conversions that get no answer",
        "until then no pods can be created, or objects cannot be read",
    ),
    MigrationStep(
        "back-up",
        "Save every object of their kinds to a file",
        "if something goes wrong, kubectl apply -f restores them",
    ),
    MigrationStep(
        "keep",
        "Protect the definitions and their objects from deletion",
        "helm uninstall deletes what its record lists, so the record is deleted; Gardener keeps"
        " what is annotated",
    ),
    MigrationStep(
        "install",
        "Install Harbourmaster beside what it replaces and wait until it serves",
        "both answer for a while, with the same result; a gap would admit pods without their"
        " policies and gates",
    ),
    MigrationStep(
        "mend",
        "Correct what Harbourmaster refuses or gives fewer rights",
        "Harbourmaster would skip such policies, refuse references across namespaces without"
        " consent, and start tasks without a token: kubectl patch gives tasks of these definitions"
        " the token of the ServiceAccount default again",
    ),
    MigrationStep(
        "silence",
        "Delete their webhook configurations",
        "without a configuration, no request waits for their webhooks when they stop",
    ),
    MigrationStep(
        "stop",
        "Stop their controllers",
        "kupid registers itself at each start, so its configurations are deleted again; if a"
        " garden cluster has a ControllerRegistration, delete it there first",
    ),
    MigrationStep(
        "take-over",
        "Let Harbourmaster do Keptn's work",
        "it continues where Keptn stopped, with the same objects: pods that wait are released once"
        " their checks have passed, and metrics are fetched and served to HPAs again",
    ),
    MigrationStep(
        "free",
        "Release the pods that wait for Keptn",
        "nothing else releases them: gates are removed, and a pod for Keptn's scheduler is"
        " deleted so that its owner recreates it; a pod without an owner is saved to a file"
        " first; a pod whose check failed stays",
    ),
    MigrationStep("remove", "Delete their other objects", "nothing uses them any more"),
    MigrationStep(
        "namespaces",
        "Delete their namespaces",
        "namespaces that contain your objects are not listed: they stay",
    ),
)
"""The steps in their order, without their commands."""
_REPLACED: Final = f"; {_OVERLAY_FILE} is replaced: save what you have added to it first"
_ON_A_SEED: Final = "; on a Gardener seed use an overlay with deploy/components/gardener"
_BESIDE_KEPTN: Final = "deploy-beside-keptn"
_USING_CERTMANAGER: Final = "deploy-using-certmanager"
_VALUES: Final = {
    _BESIDE_KEPTN: " --set besideKeptn=true",
    _USING_CERTMANAGER: " --set certificates=certManager",
}
"""The values of the Helm chart that correspond to a make target."""
_METRICS_APIS: Final = frozenset(
    Ref("apiservice", f"{version}.custom.metrics.k8s.io") for version in ("v1beta1", "v1beta2")
)
"""A cluster has them once; installing us leads them to us."""


def plan(observed: Observed) -> tuple[MigrationStep, ...]:
    """Return the remaining steps, in order; none if only definitions are left.

    If something could not be read, return only the first step: the others might lose what was not
    seen.
    """
    definitions = _going(observed)
    unblock = _unblock(observed, definitions)
    install, take_over = _install(observed), _take_over(observed)
    commands = {
        "unblock": unblock,
        "back-up": _back_up(definitions),
        "keep": _keep(observed),
        "install": install,
        "mend": _mend(observed),
        "silence": _silence(observed, definitions),
        "stop": _stop(observed),
        "take-over": take_over,
        "free": _free(observed),
        "remove": _remove(observed, [*unblock, *install, *take_over]),
        "namespaces": [
            delete(namespace.ref) for namespace in observed.namespaces if not namespace.keeps
        ],
    }
    if observed.unread:
        commands = {"unblock": unblock}
    is_seed = observed.gardener or any(
        definition.of_gardener for definition in observed.definitions
    )
    remaining = []
    for step in STEPS:
        if command := commands.get(step.code):
            why = step.why
            if step.code == "install":
                is_lost = observed.keptn.is_overlaid and observed.keptn.unset
                why += (_REPLACED if is_lost else "") + (_ON_A_SEED if is_seed else "")
                why += _by_helm(observed)
            remaining.append(replace(step, why=why, commands=tuple(command)))
    # Where nothing goes any more, nothing need be saved.
    return () if all(step.code == "back-up" for step in remaining) else tuple(remaining)


def _going(observed: Observed) -> list[ReplacedDefinition]:
    """The definitions whose system is removed: one that is installed, and a dead Keptn.

    Of a dead Keptn something must remain to which a definition refers. All else that was observed
    is of systems that are installed.
    """
    refers = any(
        definition.conversion or definition.is_injected for definition in observed.definitions
    )
    is_dead = refers and not observed.is_running(KEPTN)
    return [
        definition
        for definition in observed.definitions
        if observed.is_installed(definition.system) or (is_dead and definition.system == KEPTN)
    ]


def _unblock(observed: Observed, definitions: list[ReplacedDefinition]) -> list[Command]:
    broken = [registration.ref for registration in observed.registrations if registration.is_broken]
    commands = list(map(delete, broken))
    adopts = _adopts_at_once(observed)
    if commands or adopts:
        # The configurations say which namespaces have gates.
        commands = [*_save_overlay(observed), *commands]
    if adopts:
        return [*commands, _make(observed, target(observed))]
    return [
        *commands,
        *(conversion_off(definition) for definition in definitions if definition.is_unconverted),
    ]


def _back_up(definitions: list[ReplacedDefinition]) -> list[Command]:
    everything = ("--all-namespaces", "-o", "yaml")
    return [
        kubectl("get", definition.name, *everything, output=f"{definition.name}.yaml")
        for definition in definitions
        if definition.objects != 0
    ]


def _keep(observed: Observed) -> list[Command]:
    commands = [
        keep_definition(definition)
        for definition in observed.definitions
        if definition.of_gardener and not definition.is_kept
    ]
    return [*commands, *map(forget_release, observed.releases)]


def _adopts_at_once(observed: Observed) -> bool:
    """Whether no webhook converts some kind, although Harbourmaster is here to do it."""
    return observed.serves and any(definition.is_unconverted for definition in observed.definitions)


def _save_overlay(observed: Observed) -> list[Command]:
    """Save the overlay with the settings that keep what Keptn does, if there are any."""
    if not observed.keptn.unset:
        return []
    own = observed.ours.namespace
    where = () if own == DEFAULT_NAMESPACE else (f"--installed-in={own}",)
    save = ("harbourmaster", "migrate", "--output=yaml", *where)
    return [Command(("mkdir", "-p", OVERLAY)), Command(save, output=_OVERLAY_FILE)]


def _make(observed: Observed, target: str) -> Command:
    overlay = (f"OVERLAY={OVERLAY}",) if _has_overlay(observed) else ()
    return Command(("make", target, *overlay))


def _has_overlay(observed: Observed) -> bool:
    return bool(observed.keptn.unset) or observed.keptn.is_overlaid


def target(observed: Observed) -> str:
    """Return the make target that installs us; a running Keptn keeps its work."""
    if observed.has_operator:
        return _BESIDE_KEPTN
    certmanager = any(
        registration.of_certmanager and registration.system == KUPID
        for registration in observed.registrations
    )
    return _USING_CERTMANAGER if certmanager else "deploy"


def _install(observed: Observed) -> list[Command]:
    adopts = _adopts_at_once(observed)
    if not observed.needs_successor and (adopts or not observed.keptn.unset):
        return []
    is_saved = adopts or any(registration.is_broken for registration in observed.registrations)
    return [
        # It deletes the namespace, so what follows makes it again.
        *([kubectl("delete", "-k", "deploy/shadow")] if observed.ours.is_shadow else ()),
        *(() if is_saved else _save_overlay(observed)),
        _make(observed, target(observed)),
        _await_rollout(observed, "webhook"),
        kubectl("wait", _REGISTERED, _HAS_AUTHORITY, _TIMEOUT),
    ]


def _by_helm(observed: Observed) -> str:
    """Return how the Helm chart takes over definitions that name the release that made them."""
    if not any(definition.release for definition in observed.definitions):
        return ""
    return (
        "; by Helm instead, as definitions belong to another release: helm install harbourmaster"
        f" harbourmaster-VERSION.tgz --namespace {observed.ours.namespace} --create-namespace"
        f" --take-ownership{_VALUES.get(target(observed), '')}"
    )


def _await_rollout(observed: Observed, role: str) -> Command:
    what = ("rollout", "status", f"deployment/harbourmaster-{role}")
    return kubectl(*what, _TIMEOUT, namespace=observed.ours.namespace)


def _silence(observed: Observed, definitions: list[ReplacedDefinition]) -> list[Command]:
    injected = [definition.name for definition in definitions if definition.is_injected]
    return [
        *(kubectl("label", "crd", name, f"{INJECTED}-") for name in injected),
        *(
            delete(registration.ref)
            for registration in observed.registrations
            if not registration.is_broken
        ),
    ]


def _stop(observed: Observed) -> list[Command]:
    """Delete what restores an object before the object; kupid registers itself at start."""
    # The operators first: the scheduler serves their pods until they are released.
    workloads = sorted(observed.workloads, key=lambda workload: workload.role == "scheduler")
    return [
        *map(delete, observed.gardener),
        *(delete(workload.ref, "--cascade=foreground") for workload in workloads),
        *map(delete, _delete_again(observed)),
    ]


def _delete_again(observed: Observed) -> list[Ref]:
    if not any(workload.system == KUPID for workload in observed.workloads):
        return []
    return [
        registration.ref for registration in observed.registrations if registration.system == KUPID
    ] or [
        Ref(f"{kind}webhookconfiguration", "gardener-extension-kupid")
        for kind in ("mutating", "validating")
    ]


def _take_over(observed: Observed) -> list[Command]:
    installs = _adopts_at_once(observed) or observed.needs_successor or observed.keptn.unset
    if not (observed.has_operator if installs else observed.ours.is_beside_keptn):
        return []
    # The same file, as settings of the user's own may have been added to it.
    switch = Command(("sed", "-i.bak", "s,/beside-keptn,/default,", _OVERLAY_FILE))
    return [
        *([switch] if _has_overlay(observed) else ()),
        _make(observed, "deploy"),
        _await_rollout(observed, "controller"),
    ]


def _mend(observed: Observed) -> list[Command]:
    commands = [edit_policy(policy) for policy in observed.policies if policy.faults]
    if observed.is_installed(KEPTN):
        commands += [kubectl(*reference.command) for reference in observed.references]
        tokens = [judged for judged in observed.keptn.findings if judged.code == "task-token"]
        commands += [token.command for token in tokens if token.command]
    return commands


def _free(observed: Observed) -> list[Command]:
    """Release pods of Keptn's scheduler, which is stopped; gates are Harbourmaster's by then."""
    commands = []
    for pod in observed.pods:
        if pod.gate is None and not pod.failure:
            if not pod.is_owned:
                file = f"pod-{pod.namespace}-{pod.name}.yaml"
                save = ("get", "pod", pod.name, "-o", "yaml")
                commands.append(kubectl(*save, namespace=pod.namespace, output=file))
            commands.append(release_pod(pod))
    return commands


def _remove(observed: Observed, before: list[Command]) -> list[Command]:
    """Delete leftovers, except APIServices that ``before`` directs to us."""
    installs = {command.arguments[1] for command in before if command.arguments[0] == "make"}
    taken_over = _METRICS_APIS if installs - {_BESIDE_KEPTN} else frozenset()
    leftovers = [leftover for leftover in observed.leftovers if leftover.ref not in taken_over]
    # An APIService without its Service blocks the deletion of every namespace.
    leftovers.sort(key=lambda leftover: leftover.service is None)
    return [delete(leftover.ref) for leftover in leftovers]


def edit_policy(policy: Policy) -> Command:
    """Return the command that opens a policy in an editor."""
    return kubectl("edit", policy.ref.kind, policy.ref.name, namespace=policy.ref.namespace)


def forget_release(release: Release) -> Command:
    """Return the command that makes Helm forget a release without touching what it installed."""
    return kubectl(
        "delete", "secret", "-l", f"owner=helm,name={release.name}", namespace=release.namespace
    )


def keep_definition(definition: ReplacedDefinition) -> Command:
    """Return the command that protects a definition from the deletion of its ManagedResource."""
    return kubectl("annotate", "crd", definition.name, f"{KEEP_OBJECT}=true", "--overwrite")


def conversion_off(definition: ReplacedDefinition) -> Command:
    """Return the command after which the API server converts: it changes only apiVersion."""
    value = '{"spec":{"conversion":{"strategy":"None","webhook":null}}}'
    return kubectl("patch", "crd", definition.name, "--type=merge", "-p", value)


def release_pod(pod: StuckPod) -> Command:
    """Return the command that removes a pod's gate if it has not moved, or deletes the pod."""
    if pod.gate is None:
        return delete(pod.ref)
    at = f"/spec/schedulingGates/{pod.gate}"
    path = escape(REMOVED_KEY)
    annotate = (
        f'{{"op":"add","path":"/metadata/annotations/{path}","value":"true"}}'
        if pod.is_annotated
        else f'{{"op":"add","path":"/metadata/annotations","value":{{"{REMOVED_KEY}":"true"}}}}'
    )
    patch = (
        f'[{{"op":"test","path":"{at}/name","value":"{GATE}"}},'
        f'{{"op":"remove","path":"{at}"}},{annotate}]'
    )
    return kubectl("patch", "pod", pod.name, "--type=json", "-p", patch, namespace=pod.namespace)
