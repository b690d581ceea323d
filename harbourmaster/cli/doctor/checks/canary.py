"""Tries a pod by a dry run: the API server must ask us, and no webhook undoes our answer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import CLUSTER_POLICIES, MUTATING_WEBHOOKS, PODS, TASK_DEFINITIONS
from harbourmaster.cli.diagnosis import fault, note, ok, unknown, warning
from harbourmaster.cli.installed import OUR_DOMAIN
from harbourmaster.kube.errors import ApiError, ForbiddenError, UnreachableError
from harbourmaster.registration.break_glass import break_glass_of
from harbourmaster.registration.desired import NAME
from harbourmaster.webhook.probe_pod import PROBE_LABEL, VERSION, our_version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.diagnosis import Finding
    from harbourmaster.cli.live.installation import Installation

_REFUSED: Final = "denied the request"
_REMEDIES: Final = (
    ("x509|certificate", "compare caBundle and Secret: see certificates"),
    ("no endpoints", "no webhook is ready: kubectl get pods -A shows why"),
    ("not found", "the Service is gone: install it again: docs/howto/installing.md"),
    ("refused", "no webhook runs behind the Service: see its process, or kubectl get pods -A"),
    ("deadline|timeout", "see whether webhooks hang, and look for a firewall before port 9443"),
)
_BREAK_GLASS: Final = (
    'to admit pods meanwhile: harbourmaster doctor --break-glass on --reason "no webhook answers"'
)
_FAVOURITE: Final = "default"
_CALL: Final = re.compile(r'failed calling webhook "([^"]+)": (?:failed to call webhook: )?(.*)')
_REQUEST: Final = re.compile(r'(?:Post|post) "[^"]*": ')
_CONTAINER: Final = {"name": "canary", "image": "registry.example.com/canary:1"}
OWNED: Final = ("affinity", "nodeName", "nodeSelector", "schedulerName", "tolerations")
"""The fields of a pod spec that we change."""


async def check(live: Installation) -> AsyncIterator[Finding]:
    """Report which version answered about a tried pod, or why none did."""
    finding = await _find_answer(live)
    if finding is not None:
        yield finding


async def _find_answer(live: Installation) -> Finding | None:
    configuration = await live.configuration(MUTATING_WEBHOOKS)
    if configuration is None:
        text = "not tried: without a configuration the API server calls no webhook for pods"
        return note("pod", text, "see configurations")
    result = await try_canary(live)
    if result is None:
        if not live.canary_namespace:
            return None
        text = f"no webhook on pods selects the namespace {live.canary_namespace}, or it is missing"
        return unknown("pod", text, "choose another one with --canary-namespace")
    subject = f"pod in {result.namespace}"
    if result.error is not None:
        return _explain_error(subject, result.error)
    if result.version == our_version():
        return ok(f"a pod tried in {result.namespace} was answered by version {result.version}")
    if result.version:
        text = f"answered by version {result.version}; this command is {our_version()}"
        return note(subject, text, "use the command of the same version")
    if not any(entry.covers_pods for entry in configuration.entries):
        return None
    stored = (await live.stored_configurations())[MUTATING_WEBHOOKS]
    return await _explain_silence(live, subject, result, is_open=break_glass_of(stored) is not None)


def _explain_error(subject: str, error: ApiError) -> Finding:
    if isinstance(error, UnreachableError):
        text = f"no answer, so a webhook for pods hangs: {error.message}"
        return fault(subject, text, _remedy_for("timeout"))
    called = failed_call(error)
    if called is not None and OUR_DOMAIN in called[0]:
        return fault(
            subject, f"refused: {called[0]} can't be called: {called[1]}", _remedy_for(called[1])
        )
    if called is not None:
        text = f"refused: another party's webhook {called[0]} can't be called: {called[1]}"
        return unknown(subject, text, "repair or remove that webhook")
    if isinstance(error, ForbiddenError) and _REFUSED not in error.message:
        text = f"missing permission to create pods there: {error.message}"
        remedy = "choose a namespace where you have it with --canary-namespace"
        return unknown(subject, text, remedy)
    text = f"refused before our answer could be seen: {error.message}"
    return unknown(subject, text, "choose another namespace with --canary-namespace")


async def _explain_silence(
    live: Installation, subject: str, result: CanaryResult, *, is_open: bool
) -> Finding:
    why, words = await why_silent(live, result.namespace)
    if why == "unreachable":
        text = f"admitted without a review: the webhook can't be called: {words}"
        return fault(subject, text, _remedy_for(words, is_open=is_open))
    if why == "pods-only":
        text = (
            "admitted without our answer, though the webhook refuses an invalid policy: what is "
            "registered for pods can't be called, another webhook removed the answer, or ours "
            "is older than this command"
        )
        remedy = "see certificates, configurations and other webhooks; compare versions"
        return fault(subject, text, remedy)
    text = "admitted without a review: no webhook answered, and its webhooks fail open"
    remedy = (
        f"kubectl -n {live.namespace} get pods,endpointslices shows whether any is ready; "
        "outside of the cluster, see its process"
    )
    remedy = remedy if is_open else f"{remedy}; {_BREAK_GLASS}"
    return fault(subject, f"{text} (break-glass)" if is_open else text, remedy)


def _remedy_for(why: str, *, is_open: bool = False) -> str:
    remedy = next(
        (remedy for words, remedy in _REMEDIES if re.search(words, why, re.IGNORECASE)),
        "see whether webhooks run, are ready, and can be reached from the control plane",
    )
    return remedy if is_open else f"{remedy}; {_BREAK_GLASS}"


async def check_others(live: Installation) -> AsyncIterator[Finding]:
    """Report other webhooks that change pods after us, and whether both agree."""
    first = await try_canary(live)
    if first is not None and first.error is None and first.version:
        yield await _compare_reviews(live, first, await _others(live, first))
    elif first is not None:
        yield unknown("pod", "not tried: the canary got no answer", "see canary")


async def _compare_reviews(live: Installation, first: CanaryResult, others: list[str]) -> Finding:
    named = f"one of {', '.join(others)}" if others else "another mutating webhook or policy"
    if not first.is_marked:
        text = f"the pod lacks part of our changes: {named} removes them"
        remedy = "exclude our fields there, or have it called before us (its name sorts first)"
        return fault("pod", text, remedy)
    second = await try_again(live, first)
    if second.error is not None:
        text = f"an admitted pod is refused at its second review: {second.error.message}"
        return warning("pod", text, "find the webhook or policy that refuses it")
    if changed := differences(first, second):
        text = f"{', '.join(changed)} of a pod change each time that it is reviewed: {named}"
        return fault("pod", text, "have only one of the two set these fields")
    if others:
        return ok(f"{', '.join(others[:5])} change pods too, and all agree")
    return ok("no other webhook changes pods")


async def _others(live: Installation, result: CanaryResult) -> list[str]:
    """The names of the configurations of others that are asked about the canary."""
    namespace = next(space for space in await live.namespaces() if space.name == result.namespace)
    labels = ((result.pod or {}).get("metadata") or {}).get("labels") or {}
    return sorted(
        configuration.metadata.name
        for configuration in await live.configurations(MUTATING_WEBHOOKS)
        if configuration.metadata.name != NAME
        and any(
            entry.covers_pods and entry.selects(namespace) and entry.selects_labels(labels)
            for entry in configuration.entries
        )
    )


class CanaryResult(Struct, frozen=True):
    """The result of the canary. ``version`` is that of the webhook that answered, if one did."""

    namespace: str
    version: str = ""
    error: ApiError | None = None
    pod: dict[str, Any] | None = None
    """The pod that the API server would have stored."""
    is_marked: bool = False
    """Whether all of what we gave it is still there."""


async def try_canary(live: Installation) -> CanaryResult | None:
    """Try a pod where webhooks look; None where they look at no namespace. Raises ApiError."""

    async def attempt() -> CanaryResult | None:
        namespace, labels = await _where(live)
        if not namespace:
            return None
        return await _attempt(live, namespace, pod(labels))

    return await live.once("canary", attempt)


async def try_again(live: Installation, before: CanaryResult) -> CanaryResult:
    """Try the result again: a webhook that changes it now would change it every time."""
    stored = before.pod or {}
    metadata = stored.get("metadata") or {}
    kept = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
    return await _attempt(
        live, before.namespace, _object_of(PODS, stored.get("spec") or {}, **kept)
    )


async def _attempt(live: Installation, namespace: str, obj: dict[str, Any]) -> CanaryResult:
    try:
        body = await live.client.create(PODS, obj, namespace, dry_run=True)
    except ApiError as error:
        return CanaryResult(namespace, error=error)
    stored = msgspec.json.decode(body)
    spec = stored.get("spec") or {}
    version = (spec.get("nodeSelector") or {}).get(VERSION, "")
    marks = [
        toleration
        for toleration in spec.get("tolerations") or ()
        if toleration.get("key") == PROBE_LABEL
    ]
    return CanaryResult(namespace, version, None, stored, bool(version) and bool(marks))


def pod(labels: dict[str, str]) -> dict[str, Any]:
    """A pod that every Pod Security Standard and most quotas let in."""
    amounts = {"cpu": "1m", "memory": "1Mi"}
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        **_CONTAINER,
        "resources": {"limits": amounts, "requests": amounts},
        "securityContext": security,
    }
    spec = {
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "containers": [container],
    }
    return _object_of(PODS, spec, labels={**labels, PROBE_LABEL: "true"})


def _object_of(resource: Resource, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:  # noqa: ANN401
    """An object to be tried."""
    return {
        **resource.type_fields,
        "metadata": {**metadata, "generateName": "harbourmaster-canary-"},
        "spec": spec,
    }


async def _where(live: Installation) -> tuple[str, dict[str, str]]:
    """A namespace and labels that webhooks select: what was asked for, ``default``, or any."""
    configuration = await live.configuration(MUTATING_WEBHOOKS)
    entries = (
        [candidate for candidate in configuration.entries if candidate.covers_pods]
        if configuration
        else []
    )
    asked = live.canary_namespace
    namespaces = [
        candidate
        for candidate in await live.namespaces()
        if not candidate.deletion_timestamp and asked in {"", candidate.name}
    ]
    # Where something fails closed comes last: an error there is a refusal, not a silence.
    for namespace in sorted(
        namespaces, key=lambda candidate: (candidate.name != _FAVOURITE, candidate.name)
    ):
        for entry in entries:
            labels = entry.labels()
            if labels is not None and entry.selects(namespace):
                return namespace.name, labels
    return "", {}


async def why_silent(live: Installation, namespace: str) -> tuple[str, str]:
    """Why no webhook answered, in a word and in the API server's own.

    A task definition is reviewed by a webhook that fails closed, so the API server says what is
    wrong; and a policy that is wrong is refused wherever a webhook answers.
    """
    error = await _refusal(live, TASK_DEFINITIONS, {"container": _CONTAINER}, namespace)
    called = failed_call(error)
    if called is not None and OUR_DOMAIN in called[0]:
        return "unreachable", called[1]
    error = await _refusal(live, CLUSTER_POLICIES, {"podSelector": {"matchLabels": {"-": "-"}}})
    called = failed_call(error)
    if called is not None:
        return ("unreachable", called[1]) if OUR_DOMAIN in called[0] else ("", "")
    if error is not None and "harbourmaster.dev" in error.message:
        return "pods-only", ""
    return "", ""


async def _refusal(
    live: Installation, resource: Resource, spec: dict[str, Any], namespace: str | None = None
) -> ApiError | None:
    """The error that the creation of an object would end with."""
    try:
        await live.client.create(resource, _object_of(resource, spec), namespace, dry_run=True)
    except ApiError as error:
        return error
    return None


def failed_call(error: ApiError | None) -> tuple[str, str] | None:
    """The webhook that could not be called, and why; None for any other error, and for none."""
    match = _CALL.search(error.message) if error else None
    if match is None:
        return None
    return match[1], _REQUEST.sub("", match[2]).strip() or "no answer"


def differences(before: CanaryResult, after: CanaryResult) -> list[str]:
    """The fields that are ours and that changed from one try to the next."""
    first, second = ((result.pod or {}).get("spec") or {} for result in (before, after))
    return [f"spec.{field}" for field in OWNED if first.get(field) != second.get(field)]
