"""Whether the webhook configurations are as the controller writes them, and what they select."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.api.resources import MUTATING_WEBHOOKS
from harbourmaster.cli.batches import shorten
from harbourmaster.cli.diagnosis import fault, mistake, note, warning
from harbourmaster.cli.installed import OUR_DOMAIN
from harbourmaster.cli.live.installation import CONFIGURATIONS
from harbourmaster.controller.names import LIFECYCLE, NAMESPACES, REGISTRATION
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.gates.mistakes import opt_in_mistakes
from harbourmaster.gates.waits import REQUIRED, WAIT_FOR_KEY
from harbourmaster.registration import additions
from harbourmaster.registration.break_glass import break_glass_of, is_open, with_open_webhooks
from harbourmaster.registration.desired import (
    ENABLED,
    GATED_PODS,
    GATES_LABEL,
    HELD_PODS,
    NAME,
    Home,
    desired_configurations,
)
from harbourmaster.registration.drift import compare

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.diagnosis import Finding
    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.cli.live.webhooks import Webhook
    from harbourmaster.registration.break_glass import BreakGlass
    from harbourmaster.registration.drift import Repair

_SHOWN: Final = 80
_NAMES: Final = 3
_HARMLESS: Final = "metadata."
_SERVICE: Final = "clientConfig.service."
_APPLY: Final = "make deploy-with-certmanager IMG=..., or apply your overlay"
_CREATED: Final = "a running controller creates it within seconds: see its Lease and log"
_REPAIRED: Final = "a running controller repairs it"
_MIRRORED: Final = "a running controller mirrors it within seconds: see its Lease and log"
_UNJUDGED: Final = "check that no pod with gates or policies is excluded"
_SYSTEM: Final = "kube-system"
_SETTING: Final = "see webhook.excludedNamespaces and webhook.namespaceSelector"


async def check(live: Installation) -> AsyncIterator[Finding]:
    """Report missing configurations, drift, break-glass mode, and duplicates."""
    settings = await live.none_if_unreadable(live.controller_settings())
    home = await live.home()
    place = Home(live.namespace, home.uid if home else None)
    wanted = desired_configurations((settings or ControllerSettings()).webhook, place, None)
    keeps = settings is None or REGISTRATION in settings.running
    unknown: dict[str, Repair] = {}
    pairs = []
    for resource, stored in (await live.stored_configurations()).items():
        if stored is None:
            text = "not found: the API server does not call the webhooks that it would contain"
            yield fault(f"{resource.kind} {NAME}", text, _CREATED if keeps else _APPLY)
            continue
        expected = wanted[resource]
        # Manifests have no note of what is ours.
        observed = stored if keeps else additions.with_applied(stored, expected)
        pairs.append((resource, additions.merge(observed, expected), expected))
        glass = break_glass_of(stored)
        if glass is not None:
            yield _break_glass_finding(resource, stored, glass, keeps=keeps)
            # A webhook that fails closed all the same is in that finding.
            observed, expected = with_open_webhooks(observed), with_open_webhooks(expected)
        for repair in compare(observed, expected):
            if settings is None and repair.field.startswith(_SERVICE):
                # The address of a process outside of the cluster is unknown here.
                continue
            if settings is None and repair.setting:
                unknown[repair.setting] = repair
            else:
                yield _drift(resource, repair, keeps=keeps)
    for repair in unknown.values():
        text = f"is {_value(repair.observed)}, by default {_value(repair.wanted)}"
        yield note(repair.setting, f"{text}; no Deployment says which it should be")
    for finding in (*await _duplicates(live), *await _additions(live, pairs)):
        yield finding


async def _duplicates(live: Installation) -> list[Finding]:
    """Configurations of another name with webhooks of ours."""
    text = f"has webhooks of ours as well as {NAME}: each object is reviewed twice"
    return [
        warning(f"{resource.kind} {name}", text, f"kubectl delete {resource.plural} {name}")
        for resource in CONFIGURATIONS
        for configuration in await live.configurations(resource)
        if (name := configuration.metadata.name) != NAME
        and any(entry.name.endswith(f".{OUR_DOMAIN}") for entry in configuration.entries)
    ]


async def _additions(
    live: Installation, pairs: list[tuple[Resource, dict[str, Any], dict[str, Any]]]
) -> list[Finding]:
    """Name what other clients have added, and the namespaces with gates or policies it excludes."""
    findings = []
    for resource, merged, expected in pairs:
        if not (texts := additions.describe(merged, expected)):
            continue
        # Which objects an addition to another field excludes is unknown.
        is_judged = all(text.startswith(additions.NAMESPACE_SELECTOR) for text in texts)
        text = f"keeps what others added: {'; '.join(texts)}"
        findings.append((note if is_judged else warning)(resource.kind, text, _UNJUDGED))
        subjects = [await live.items(kind, additions.decode_subject) for kind in additions.SUBJECTS]
        text = f"has gates or policies, but what others added to {resource.kind} excludes it"
        findings += [
            warning(f"namespace {name}", text, "change its labels, or remove the addition")
            for name in additions.excluded_namespaces(merged, expected, *subjects)
        ]
    return findings


def _break_glass_finding(
    resource: Resource, stored: dict[str, Any], glass: BreakGlass, *, keeps: bool
) -> Finding:
    closed = [
        str(entry.get("name")) for entry in stored.get("webhooks") or () if not is_open(entry)
    ]
    if not closed:
        text = f"break-glass mode is on, {glass}: all its webhooks fail open"
        end = "harbourmaster doctor --break-glass off, when the incident is over"
        return warning(resource.kind, text, end)
    text = f"break-glass mode is on, {glass}: but {', '.join(closed)} fails closed"
    who = "a running controller opens it" if keeps else "stop what applies the manifests"
    switch = "harbourmaster doctor --break-glass"
    again = f"{switch} on --reason {shlex.quote(glass.reason)}, or {switch} off"
    return warning(resource.kind, text, f"{who}; {again}")


def _drift(resource: Resource, repair: Repair, *, keeps: bool) -> Finding:
    subject = f"{repair.subject} ({short_kind(resource)})"
    if not repair.field:
        text = "is missing" if repair.observed is None else "is not one of ours"
    else:
        text = f"is {_value(repair.observed)}, {_value(repair.wanted)} expected"
    if repair.field.startswith(_HARMLESS):
        return warning(subject, text, _REPAIRED)
    remedy = f"{_REPAIRED}: see its Lease and log"
    if not keeps:
        remedy = _APPLY
    elif repair.setting:
        remedy = f"{_REPAIRED}; to keep it, set {repair.setting}"
    return fault(subject, text, remedy)


def short_kind(resource: Resource) -> str:
    """The kind of a configuration, in a word."""
    return "mutating" if resource.kind.startswith("Mutating") else "validating"


def _value(value: Any) -> str:  # noqa: ANN401
    if value is None:
        return "absent"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


async def check_selectors(live: Installation) -> AsyncIterator[Finding]:
    """Judge each mutating webhook by the namespaces of the cluster."""
    configuration = await live.configuration(MUTATING_WEBHOOKS)
    if configuration is None:
        text = "nothing is selected: there is no configuration"
        yield note(MUTATING_WEBHOOKS.kind, text, "see configurations")
        return
    namespaces = await live.namespaces()
    for entry in configuration.entries:
        for finding in _selector_findings(entry, namespaces, live.namespace):
            yield finding
    on_pods = [entry for entry in configuration.entries if entry.covers_pods]
    if not on_pods:
        text = "no webhook is registered for pods, so policies and gates reach templates at most"
        yield warning(MUTATING_WEBHOOKS.kind, text, "add pods to webhook.kinds")
        return
    # Conditions tell this one from the other of namespaces with gates.
    on_pods = [entry for entry in on_pods if entry.name != HELD_PODS]
    twice = [
        namespace for namespace in namespaces if sum(pod.selects(namespace) for pod in on_pods) > 1
    ]
    if twice:
        names = " and ".join(on_pod.name for on_pod in on_pods)
        text = f"both select pods of {_names(twice)}: each is reviewed twice"
        yield warning(names, text, _REPAIRED)
    if not any(pods_entry.selects(namespace) for pods_entry in on_pods for namespace in namespaces):
        text = "no webhook on pods selects any namespace of this cluster: nothing is ever changed"
        yield fault("pods", text, _SETTING)


def _selector_findings(entry: Webhook, namespaces: list[Metadata], home: str) -> Iterator[Finding]:
    chosen = {namespace.name for namespace in namespaces if entry.selects(namespace)}
    if home in chosen:
        closed = entry.failure_policy == "Fail"
        text = f"selects our own namespace {home}: " + (
            "while no webhook answers, none can be started" if closed else "we ask ourselves"
        )
        yield (fault if closed else warning)(entry.name, text, _SETTING)
    if _SYSTEM in chosen:
        text = f"selects {_SYSTEM}: what the cluster itself needs waits for us"
        yield warning(entry.name, text, _SETTING)
    if entry.name not in {GATED_PODS, HELD_PODS} and not chosen:
        text = "its namespaceSelector selects no namespace of this cluster"
        yield warning(entry.name, text, _SETTING)
    if entry.labels() is None:
        text = "its objectSelector can select no object"
        yield fault(entry.name, text, "see webhook.objectSelector")


async def check_gates(live: Installation) -> AsyncIterator[Finding]:
    """Opt-ins without effect, labels that differ, and gates that no controller would open."""
    settings = await live.known_settings()
    excluded = {*settings.webhook.excluded_namespaces, live.namespace}
    spaces = [
        (
            namespace,
            namespace.annotations.get(OPT_IN_KEY) == OPT_IN
            or namespace.labels.get(WAIT_FOR_KEY) == REQUIRED,
            namespace.labels.get(GATES_LABEL) == ENABLED,
        )
        for namespace in await live.namespaces()
        if namespace.name not in excluded and not namespace.deletion_timestamp
    ]
    for namespace, _, _ in spaces:
        for opt_in_mistake in opt_in_mistakes(
            namespace.name, namespace.annotations, namespace.labels
        ):
            yield mistake(f"namespace {namespace.name}", opt_in_mistake.text)
    asking = [namespace for namespace, asks, _ in spaces if asks]
    if lacking := [namespace for namespace, asks, labelled in spaces if asks and not labelled]:
        text = f"asks for gates, without the label {GATES_LABEL}: its pods fail open"
        yield fault(f"namespace {_names(lacking)}", text, _MIRRORED)
    if left := [namespace for namespace, asks, labelled in spaces if labelled and not asks]:
        asked = f"the annotation {OPT_IN_KEY} or the label {WAIT_FOR_KEY}={REQUIRED}"
        text = f"labelled {GATES_LABEL} without {asked}"
        yield warning(f"namespace {_names(left)}", text, _MIRRORED)
    if NAMESPACES not in settings.controllers:
        text = "does not mirror the annotation of namespaces, so no new one gets gates"
        yield warning("controller", text, f"add {NAMESPACES} to the setting controllers")
    if asking and await _has_gates(live) and LIFECYCLE not in settings.controllers:
        text = f"releases no pod, and pods of {_names(asking)} wait at gates"
        remedy = f"add {LIFECYCLE} to controllers, or remove gates from the webhook's features"
        yield fault("controller", text, remedy)


async def _has_gates(live: Installation) -> bool:
    settings = await live.none_if_unreadable(live.webhook_settings())
    return settings is None or "gates" in settings.features


def _names(namespaces: Iterable[Metadata]) -> str:
    """The names, the first few of many."""
    return shorten(sorted(namespace.name for namespace in namespaces), _NAMES)
