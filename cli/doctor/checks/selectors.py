"""Whether the webhooks select what they should: not our own namespace, and not nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.resources import MUTATING_WEBHOOKS
from harbourmaster.cli.doctor.model import fault, note, warning
from harbourmaster.cli.doctor.selecting import covers_pods, labels_for, named, selects
from harbourmaster.registration.desired import GATED_PODS

if TYPE_CHECKING:
    from harbourmaster.cli.doctor.context import Context
    from harbourmaster.cli.doctor.model import Finding
    from harbourmaster.cli.metadata import Metadata

CHECK: Final = "selectors"
_SYSTEM: Final = "kube-system"
_SETTING: Final = "look at webhook.excludedNamespaces and webhook.namespaceSelector"


async def check(context: Context) -> list[Finding]:
    """Judge each mutating webhook by the namespaces that there are."""
    configuration = (await context.configurations())[MUTATING_WEBHOOKS]
    if configuration is None:
        text = "nothing is selected, for there is no configuration"
        return [note(CHECK, MUTATING_WEBHOOKS.kind, text, "see configurations")]
    namespaces = await context.namespaces()
    entries = [each for each in configuration.get("webhooks") or () if isinstance(each, dict)]
    findings = []
    for entry in entries:
        findings += _judged(entry, namespaces, context.namespace)
    on_pods = [entry for entry in entries if covers_pods(entry)]
    if not on_pods:
        text = "no webhook is asked about pods, so policies and gates reach templates at most"
        remedy = "put pods into webhook.kinds"
        return [*findings, warning(CHECK, MUTATING_WEBHOOKS.kind, text, remedy)]
    twice = [one for one in namespaces if sum(selects(each, one) for each in on_pods) > 1]
    if twice:
        names = " and ".join(str(each.get("name")) for each in on_pods)
        text = f"both select pods of {named(twice)}: each is reviewed twice"
        findings.append(warning(CHECK, names, text, "the controller puts it right where it runs"))
    if not any(selects(each, one) for each in on_pods for one in namespaces):
        text = "no webhook on pods selects any namespace of this cluster: nothing is ever changed"
        findings.append(fault(CHECK, "pods", text, _SETTING))
    return findings


def _judged(entry: dict[str, Any], namespaces: list[Metadata], home: str) -> list[Finding]:
    name = str(entry.get("name"))
    findings = []
    chosen = {one.name for one in namespaces if selects(entry, one)}
    if home in chosen:
        closed = entry.get("failurePolicy") == "Fail"
        text = f"selects our own namespace {home}: " + (
            "while no webhook answers, none can be started" if closed else "we ask ourselves"
        )
        findings.append((fault if closed else warning)(CHECK, name, text, _SETTING))
    if _SYSTEM in chosen:
        text = f"selects {_SYSTEM}: what the cluster itself needs waits for us"
        findings.append(warning(CHECK, name, text, _SETTING))
    if name != GATED_PODS and not chosen:
        text = "its namespaceSelector selects no namespace of this cluster"
        findings.append(warning(CHECK, name, text, _SETTING))
    if labels_for(entry.get("objectSelector")) is None:
        text = "its objectSelector can select no object"
        findings.append(fault(CHECK, name, text, "look at webhook.objectSelector"))
    return findings
