"""The gates of a namespace, the policies and definitions for it, and what waits in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.api import resources
from harbourmaster.cli.batches import plural, shorten
from harbourmaster.cli.gate import waiting_in
from harbourmaster.cli.installed import CONTROLLER
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.cli.why.admission import policies_for
from harbourmaster.cli.why.missing_gate import why_unsent
from harbourmaster.cli.why.model import Line, Section
from harbourmaster.cli.why.workloads import refused_workloads
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.gates.mistakes import opt_in_mistakes
from harbourmaster.gates.waits import REQUIRED, WAIT_FOR_KEY
from harbourmaster.registration.desired import ENABLED, GATES_LABEL

if TYPE_CHECKING:
    from harbourmaster.api.metadata import Metadata
    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.cli.why.model import State, WhyContext


async def section(context: WhyContext) -> Section:
    """Explain a namespace."""
    live, own = context.live, metadata_in(context.subject.raw)
    known, unread = await policies_for(live, own.name)
    policies = [
        policy.reference
        for policy in (dated.compiled for dated in known)
        if policy.namespace or (policy.namespaces and policy.namespaces.matches(own.labels))
    ]
    settings, _ = await live.assumed_settings(CONTROLLER, ControllerSettings)
    shared = (own.name, live.namespace, *settings.lifecycle.definition_namespaces)
    definitions = [
        f"{resource.kind} {definition.key}"
        for place in dict.fromkeys(shared)
        for resource in (resources.TASK_DEFINITIONS, resources.EVALUATION_DEFINITIONS)
        for definition in await live.attempt(live.metadata(resource, place), [])
    ]
    scheduler = settings.scheduler.of_pods
    waiting = await live.attempt(waiting_in(live, scheduler, own.name, None), [])
    refused = await live.attempt(refused_workloads(live, own.name), [])
    code, state, gates = await _gates(live, own)
    step, text = "", gates
    if refused and state != "fault":
        code, state, step = "pods-refused", "fault", refused[0].step
        text = f"{plural(len(refused), 'workload')} cannot create pods: {refused[0].reference}"
    elif waiting and state != "fault":
        code, state = "pods-wait", "waits"
        text = f"{plural(len(waiting), 'pod waits', 'pods wait')} in it"
    lines = (
        Line(gates, label="gates"),
        Line(shorten(policies) if policies else "none applies", label="policies"),
        Line(shorten(definitions) if definitions else "none", label="checks"),
        *(Line(f"{item.reference}: {item.text}", label="refused", tone="bad") for item in refused),
        *(Line(f"{pod.key} {report.sentence}", label="waits") for pod, report in waiting[:5]),
        *(
            Line(problem, label="unknown", tone="dim")
            for problem in dict.fromkeys((*unread, *live.faults))
        ),
    )
    return Section(name="namespace", state=state, code=code, summary=text, step=step, lines=lines)


async def _gates(live: Installation, own: Metadata) -> tuple[str, State, str]:
    """Return whether pods of the namespace get gates, and why not."""
    if mistakes := opt_in_mistakes(own.name, own.annotations, own.labels):
        return mistakes[0].code, "fault", mistakes[0].text
    is_in = own.annotations.get(OPT_IN_KEY) == OPT_IN
    if own.deletion_timestamp:
        return "being-deleted", "note", "it is being deleted, and gets no new pods"
    settings = await live.known_settings()
    if own.name in {*settings.webhook.excluded_namespaces, live.namespace}:
        return "namespace-excluded", "note", "the settings exclude it from gates and policies"
    if unsent := await why_unsent(live, resources.PODS.kind, own.labels, {}):
        return "namespace-excluded", "note", unsent
    if not is_in and own.labels.get(WAIT_FOR_KEY) != REQUIRED:
        return "not-opted-in", "note", "it has not opted in to gates"
    if own.labels.get(GATES_LABEL) != ENABLED:
        text = f"it has opted in, and lacks the label {GATES_LABEL} yet: its pods fail open"
        return "label-missing", "waits", text
    what = "pods of workloads with checks get gates" if is_in else "pods that wait get gates"
    return "opted-in", "fine", f"it has opted in: {what}"
