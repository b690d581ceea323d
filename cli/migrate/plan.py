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

from harbourmaster.api.patches import escape
from harbourmaster.cli.migrate.legacy import INJECTED
from harbourmaster.cli.migrate.model import KEPTN, KUPID, Command, Ref, Step, delete, kubectl
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.metadata import REMOVED_KEY

if TYPE_CHECKING:
    from harbourmaster.cli.migrate.model import (
        Definition,
        Observed,
        Release,
        StuckPod,
        System,
        Workload,
    )

KEEP_OBJECT: Final = "resources.gardener.cloud/keep-object"
_BACK_UP: Final = "back-up"
BOTH: Final[tuple[System, ...]] = (KUPID, KEPTN)
ROLLOUT_TIMEOUT: Final = "120s"
_BESIDE_KEPTN: Final = "deploy-beside-keptn"
_METRICS_APIS: Final = frozenset(
    Ref("apiservice", f"{version}.custom.metrics.k8s.io") for version in ("v1beta1", "v1beta2")
)
"""A cluster has them once; installing us leads them to us."""


def plan(observed: Observed) -> tuple[Step, ...]:
    """The steps that remain, in order; none where nothing of theirs is left but definitions.

    Where something could not be read, only the first: what was not seen might be lost by the rest.
    """
    going = _going(observed)
    first = _unblock(observed, going)
    if observed.unread:
        return (first,) if first.commands else ()
    steps = (
        first,
        _back_up(observed, going),
        _keep(observed, going),
        _install(observed),
        _mend(observed),
        _silence(observed, going),
        _stop(observed, going),
        _take_over(observed),
        _free(observed),
    )
    last = (_remove(observed, going, _taken_over(steps)), _namespaces(observed, going))
    remaining = tuple(step for step in (*steps, *last) if step.commands)
    # Where nothing goes any more, nothing need be saved.
    return () if all(step.code == _BACK_UP for step in remaining) else remaining


def _going(observed: Observed) -> frozenset[System]:
    """The systems to be removed: those installed, and a dead Keptn that definitions refer to."""
    refers = any(one.conversion or one.is_injected for one in observed.definitions)
    dead = (KEPTN,) if refers and not observed.is_running(KEPTN) else ()
    return frozenset((*(one for one in BOTH if observed.is_installed(one)), *dead))


def _unblock(observed: Observed, going: frozenset[System]) -> Step:
    broken = [one for one in observed.definitions if one.system in going and one.is_unconverted]
    conversions = [conversion_off(one) for one in broken]
    if _adopts_at_once(observed):
        conversions = [Command(("make", _target(observed)))]
    return Step(
        "unblock",
        "Remove webhooks and conversions that get no answer",
        "until then no pods can be created, or objects cannot be read",
        (*(delete(one.ref) for one in observed.registrations if one.is_broken), *conversions),
    )


def _back_up(observed: Observed, going: frozenset[System]) -> Step:
    definitions = [one for one in observed.definitions if one.system in going and one.objects != 0]
    return Step(
        _BACK_UP,
        "Save every object of their kinds to a file",
        "if something goes wrong, kubectl apply -f restores them",
        tuple(
            kubectl("get", one.name, "--all-namespaces", "-o", "yaml", output=f"{one.name}.yaml")
            for one in definitions
        ),
    )


def _keep(observed: Observed, going: frozenset[System]) -> Step:
    gardener = [one for one in observed.definitions if one.of_gardener and not one.is_kept]
    return Step(
        "keep",
        "Protect the definitions and their objects from deletion",
        "helm uninstall deletes what its record lists, so the record is deleted; Gardener keeps "
        "what is annotated",
        (
            *(kept(one) for one in gardener),
            *(forgotten(one) for one in observed.releases if one.system in going),
        ),
    )


def _adopts_at_once(observed: Observed) -> bool:
    """Whether nobody converts what we, who are there, would convert if it were led to us."""
    return observed.serves and any(one.is_unconverted for one in observed.definitions)


def _target(observed: Observed) -> str:
    """How we are installed: two that do Keptn's work would do all of it twice."""
    if observed.has_operator:
        return _BESIDE_KEPTN
    certmanager = any(one.of_certmanager and one.system == KUPID for one in observed.registrations)
    return "deploy-using-certmanager" if certmanager else "deploy"


def _install(observed: Observed) -> Step:
    seed = observed.gardener or any(one.of_gardener for one in observed.definitions)
    return Step(
        "install",
        "Install Harbourmaster beside what it replaces and wait until it serves",
        "both answer for a while, with the same result; a gap would admit pods without their "
        "policies and gates"
        + ("; on a Gardener seed use an overlay with deploy/components/gardener" if seed else ""),
        (
            Command(("make", _target(observed))),
            _rolled_out(observed, "webhook"),
            kubectl(
                "wait",
                "mutatingwebhookconfiguration/harbourmaster",
                "--for=jsonpath={.webhooks[0].clientConfig.caBundle}",
                f"--timeout={ROLLOUT_TIMEOUT}",
            ),
        )
        if observed.needs_successor
        else (),
    )


def _rolled_out(observed: Observed, role: str) -> Command:
    return kubectl(
        "rollout",
        "status",
        f"deployment/harbourmaster-{role}",
        f"--timeout={ROLLOUT_TIMEOUT}",
        namespace=observed.ours.namespace,
    )


def _mend(observed: Observed) -> Step:
    return Step(
        "mend",
        "Correct the policies that Harbourmaster refuses",
        "kupid accepted them, and Harbourmaster would skip them",
        tuple(
            kubectl("edit", one.ref.kind, one.ref.name, namespace=one.ref.namespace)
            for one in observed.policies
            if one.faults
        ),
    )


def _silence(observed: Observed, going: frozenset[System]) -> Step:
    return Step(
        "silence",
        "Delete their webhook configurations",
        "without a configuration, no request waits for their webhooks when they stop",
        (
            *(
                kubectl("label", "crd", one.name, f"{INJECTED}-")
                for one in observed.definitions
                if one.system in going and one.is_injected
            ),
            *(
                delete(one.ref)
                for one in observed.registrations
                if one.system in going and not one.is_broken
            ),
        ),
    )


def _stop(observed: Observed, going: frozenset[System]) -> Step:
    """Whoever restores goes before what it restores; a starting kupid registers itself again."""
    workloads = [one for one in observed.workloads if one.system in going]
    gardener = observed.gardener if KUPID in going else ()
    # The operators first: the scheduler serves their pods until they are released.
    workloads.sort(key=lambda one: one.role == "scheduler")
    again = _again(observed, workloads)
    return Step(
        "stop",
        "Stop their controllers",
        "kupid registers itself at each start, so its configurations are deleted again; if a "
        "garden cluster has a ControllerRegistration, delete it there first",
        (
            *(delete(ref) for ref in gardener),
            *(delete(one.ref, "--cascade=foreground") for one in workloads),
            *(delete(ref) for ref in again),
        ),
    )


def _again(observed: Observed, stopped: list[Workload]) -> list[Ref]:
    if not any(one.system == KUPID for one in stopped):
        return []
    return [one.ref for one in observed.registrations if one.system == KUPID] or [
        Ref(f"{kind}webhookconfiguration", "gardener-extension-kupid")
        for kind in ("mutating", "validating")
    ]


def _take_over(observed: Observed) -> Step:
    installs = _adopts_at_once(observed) or observed.needs_successor
    is_beside = observed.has_operator if installs else observed.ours.is_beside_keptn
    return Step(
        "take-over",
        "Let Harbourmaster do Keptn's work",
        "it continues where Keptn stopped, with the same objects: pods that wait are released once"
        " their checks have passed, and metrics are fetched and served to HPAs again",
        (Command(("make", "deploy")), _rolled_out(observed, "controller")) if is_beside else (),
    )


def _free(observed: Observed) -> Step:
    """Those for Keptn's scheduler, which has been stopped; a gate is ours to judge by now."""
    return Step(
        "free",
        "Release the pods that wait for Keptn",
        "nothing else releases them: gates are removed, and a pod for Keptn's scheduler is "
        "deleted so that its owner recreates it; a pod without an owner is saved to a file "
        "first; a pod whose check failed stays",
        tuple(
            command
            for pod in observed.pods
            if pod.gate is None and not pod.failure
            for command in _freed(pod)
        ),
    )


def _freed(pod: StuckPod) -> tuple[Command, ...]:
    if pod.is_owned:
        return (released(pod),)
    file = f"pod-{pod.namespace}-{pod.name}.yaml"
    save = kubectl("get", "pod", pod.name, "-o", "yaml", namespace=pod.namespace, output=file)
    return (save, released(pod))


def _taken_over(steps: tuple[Step, ...]) -> frozenset[Ref]:
    """What is led to us by then, and so no longer theirs."""
    installs = {
        command.arguments[1:]
        for step in steps
        for command in step.commands
        if command.arguments[0] == "make"
    }
    return _METRICS_APIS if installs - {(_BESIDE_KEPTN,)} else frozenset()


def _remove(observed: Observed, going: frozenset[System], taken_over: frozenset[Ref]) -> Step:
    leftovers = [
        one for one in observed.leftovers if one.system in going and one.ref not in taken_over
    ]
    # An APIService without its Service blocks the deletion of every namespace.
    leftovers.sort(key=lambda one: one.service is None)
    return Step(
        "remove",
        "Delete their other objects",
        "nothing uses them any more",
        tuple(delete(one.ref) for one in leftovers),
    )


def _namespaces(observed: Observed, going: frozenset[System]) -> Step:
    return Step(
        "namespaces",
        "Delete their namespaces",
        "namespaces that contain your objects are not listed: they stay",
        tuple(
            delete(Ref("namespace", one.name))
            for one in observed.namespaces
            if one.system in going and not one.keeps
        ),
    )


def forgotten(release: Release) -> Command:
    """What makes Helm forget a release without touching what it installed."""
    return kubectl(
        "delete", "secret", "-l", f"owner=helm,name={release.name}", namespace=release.namespace
    )


def kept(definition: Definition) -> Command:
    """What makes Gardener leave a definition alone when its ManagedResource goes."""
    return kubectl("annotate", "crd", definition.name, f"{KEEP_OBJECT}=true", "--overwrite")


def conversion_off(definition: Definition) -> Command:
    """What makes the API server convert by itself: it changes apiVersion, and nothing else."""
    value = '{"spec":{"conversion":{"strategy":"None","webhook":null}}}'
    return kubectl("patch", "crd", definition.name, "--type=merge", "-p", value)


def released(pod: StuckPod) -> Command:
    """What lets a pod go: its gate is removed if it stands where it stood; or it is deleted."""
    if pod.gate is None:
        return delete(Ref("pod", pod.name, pod.namespace))
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
