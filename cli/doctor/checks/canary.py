"""Whether the API server asks us about a pod, and nobody takes away what we give it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.resources import MUTATING_WEBHOOKS
from harbourmaster.cli.doctor.canary import again, differences, failed_call, tried, why_silent
from harbourmaster.cli.doctor.model import fault, note, ok, unread, warning
from harbourmaster.cli.doctor.selecting import covers_pods, matcher, selects
from harbourmaster.cli.installed import OUR_DOMAIN
from harbourmaster.kube.errors import ForbiddenError
from harbourmaster.registration.break_glass import standing
from harbourmaster.registration.desired import NAME
from harbourmaster.webhook.canary import our_version

if TYPE_CHECKING:
    from harbourmaster.cli.doctor.canary import Tried
    from harbourmaster.cli.doctor.context import Context
    from harbourmaster.cli.doctor.model import Finding

CHECK: Final = "canary"
FOREIGN: Final = "other webhooks"
_REFUSED: Final = "denied the request"
_REMEDIES: Final = (
    ("x509", "compare caBundle and Secret: see certificates"),
    ("certificate", "compare caBundle and Secret: see certificates"),
    ("no endpoints", "no webhook is ready: kubectl get pods in its namespace shows why"),
    ("not found", "the Service is gone: install it again by make deploy"),
    ("refused", "no webhook runs where the Service leads: see its process, or kubectl get pods"),
    ("deadline", "the control plane does not reach the pods: look for a firewall before port 9443"),
    ("timeout", "the control plane does not reach the pods: look for a firewall before port 9443"),
)


async def check(context: Context) -> list[Finding]:
    """Try a pod, and say who answered or why nobody did."""
    configuration = (await context.configurations())[MUTATING_WEBHOOKS]
    if configuration is None:
        text = "not tried: no webhook is asked about pods, for there is no configuration"
        return [note(CHECK, "pod", text, "see configurations")]
    found = await tried(context)
    if found is None:
        if context.options.canary_namespace:
            where = context.options.canary_namespace
            text = f"no webhook on pods selects the namespace {where}, or it is not there"
            return [unread(CHECK, "pod", text, "name another one by --canary-namespace")]
        return []
    subject = f"pod in {found.namespace}"
    if found.error is not None:
        return [_failed(subject, found)]
    if not found.version:
        if not _is_ours_to_answer(configuration):
            return []
        return [await _silent(context, subject, found, is_open=standing(configuration) is not None)]
    if found.version != our_version():
        text = f"answered by version {found.version}; this command is {our_version()}"
        return [note(CHECK, subject, text, "use the command of the same version")]
    text = f"a pod tried in {found.namespace} was answered by version {found.version}"
    return [ok(CHECK, text)]


def _is_ours_to_answer(configuration: dict[str, Any]) -> bool:
    return any(covers_pods(one) for one in configuration.get("webhooks") or ())


def _failed(subject: str, found: Tried) -> Finding:
    error = found.error
    assert error is not None  # noqa: S101 - for the type checker
    called = failed_call(error)
    if called is not None:
        webhook, why = called
        if OUR_DOMAIN in webhook:
            return fault(
                CHECK, subject, f"refused, for {webhook} can't be called: {why}", _cure(why)
            )
        text = f"refused, for the webhook {webhook} of somebody else can't be called: {why}"
        return unread(CHECK, subject, text, "mend or remove that webhook")
    if isinstance(error, ForbiddenError) and _REFUSED not in error.message:
        text = f"you may not create pods there: {error.message}"
        remedy = "name a namespace in which you may by --canary-namespace"
        return unread(CHECK, subject, text, remedy)
    text = f"refused before we could see an answer: {error.message}"
    return unread(CHECK, subject, text, "name another namespace by --canary-namespace")


async def _silent(context: Context, subject: str, found: Tried, *, is_open: bool) -> Finding:
    why, words = await why_silent(context, found.namespace)
    if why == "unreachable":
        text = f"came in unreviewed, for the webhook can't be called: {words}"
        return fault(CHECK, subject, text, _cure(words))
    if why == "pods-only":
        text = (
            "came in without our answer, though the webhook refuses a wrong policy: what is "
            "registered for pods can't be called, another webhook took the answer away, or ours "
            "is older than this command"
        )
        remedy = "see certificates, configurations and other webhooks; compare versions"
        return fault(CHECK, subject, text, remedy)
    text = "came in unreviewed: no webhook answered, and what can't be reviewed is let in"
    if is_open:
        text += " (break-glass)"
    remedy = (
        f"kubectl -n {context.namespace} get pods,endpointslices shows whether any is ready; "
        "outside of the cluster, see its process"
    )
    return fault(CHECK, subject, text, remedy)


def _cure(why: str) -> str:
    low = why.lower()
    return next(
        (remedy for word, remedy in _REMEDIES if word in low),
        "see whether webhooks run, are ready, and can be reached from the control plane",
    )


async def check_others(context: Context) -> list[Finding]:
    """Whoever changes pods after us, and whether the two ever agree."""
    first = await tried(context)
    if first is None or first.error is not None or not first.version:
        return []
    others = await _others(context, first)
    named = f"one of {', '.join(others)}" if others else "another mutating webhook or policy"
    if not first.is_marked:
        text = f"the pod lacks part of what we gave it: {named} takes it away"
        remedy = "exclude our fields there, or have it asked before us (its name sorts first)"
        return [fault(FOREIGN, "pod", text, remedy)]
    second = await again(context, first)
    if second.error is not None:
        text = f"a pod that came in is refused the second time: {second.error.message}"
        return [warning(FOREIGN, "pod", text, "see who refuses it")]
    changed = differences(first, second)
    if changed:
        text = f"{', '.join(changed)} of a pod change each time that it is reviewed: {named}"
        remedy = "have only one of the two set these fields"
        return [fault(FOREIGN, "pod", text, remedy)]
    if others:
        text = f"{', '.join(others[:5])} change pods too, and all agree"
        return [ok(FOREIGN, text)]
    return [ok(FOREIGN, "nobody else changes pods")]


async def _others(context: Context, found: Tried) -> list[str]:
    """The names of the configurations of others that are asked about the canary."""
    namespace = next(one for one in await context.namespaces() if one.name == found.namespace)
    labels = ((found.pod or {}).get("metadata") or {}).get("labels") or {}
    names = []
    for one in await context.all_configurations(MUTATING_WEBHOOKS):
        name = str((one.get("metadata") or {}).get("name"))
        if name != NAME and any(
            covers_pods(entry)
            and selects(entry, namespace)
            and matcher(entry.get("objectSelector")).matches(labels)
            for entry in one.get("webhooks") or ()
        ):
            names.append(name)
    return sorted(names)
