"""The canary: a pod that is only tried, through the API server and whatever is asked on the way."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import CLUSTER_POLICIES, MUTATING_WEBHOOKS, PODS, TASK_DEFINITIONS
from harbourmaster.cli.doctor.selecting import covers_pods, labels_for, selects
from harbourmaster.cli.installed import OUR_DOMAIN
from harbourmaster.kube.errors import ApiError
from harbourmaster.webhook.canary import CANARY, VERSION

if TYPE_CHECKING:
    from harbourmaster.cli.doctor.context import Context
    from harbourmaster.cli.metadata import Metadata

_FAVOURITE: Final = "default"
_CALL: Final = re.compile(r'failed calling webhook "([^"]+)": (?:failed to call webhook: )?(.*)')
_REQUEST: Final = re.compile(r'(?:Post|post) "[^"]*": ')
OWNED: Final = ("affinity", "nodeName", "nodeSelector", "schedulerName", "tolerations")
"""The fields of a pod spec that we change."""


class Tried(Struct, frozen=True):
    """What came of the canary. ``version`` is that of the webhook that answered, if one did."""

    namespace: str
    version: str = ""
    error: ApiError | None = None
    pod: dict[str, Any] | None = None
    """As the API server would have stored it."""
    is_marked: bool = False
    """Whether all of what we gave it is still there."""


async def tried(context: Context) -> Tried | None:
    """Try a pod where webhooks look; None where they look at no namespace. Raises ApiError."""

    async def attempt() -> Tried | None:
        namespace, labels = await _where(context)
        if not namespace:
            return None
        return await _attempt(context, namespace, pod(labels))

    return await context.once("canary", attempt)


async def again(context: Context, before: Tried) -> Tried:
    """Try what came of it once more: whoever changes it now never comes to an end."""
    stored = before.pod or {}
    metadata = stored.get("metadata") or {}
    kept = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
    obj = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**kept, "generateName": "harbourmaster-canary-"},
        "spec": stored.get("spec") or {},
    }
    return await _attempt(context, before.namespace, obj)


async def _attempt(context: Context, namespace: str, obj: dict[str, Any]) -> Tried:
    try:
        body = await context.client.create(PODS, obj, namespace, dry_run=True)
    except ApiError as error:
        return Tried(namespace, error=error)
    stored = msgspec.json.decode(body)
    spec = stored.get("spec") or {}
    found = (spec.get("nodeSelector") or {}).get(VERSION, "")
    marks = [each for each in spec.get("tolerations") or () if each.get("key") == CANARY]
    return Tried(namespace, found, None, stored, bool(found) and bool(marks))


def pod(labels: dict[str, str]) -> dict[str, Any]:
    """A pod that every Pod Security Standard and most quotas let in."""
    amounts = {"cpu": "1m", "memory": "1Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "harbourmaster-canary-",
            "labels": {**labels, CANARY: "true"},
        },
        "spec": {
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "canary",
                    "image": "registry.example.com/canary:1",
                    "resources": {"limits": amounts, "requests": amounts},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                        "runAsNonRoot": True,
                        "runAsUser": 65532,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                }
            ],
        },
    }


async def _where(context: Context) -> tuple[str, dict[str, str]]:
    """A namespace and labels that webhooks select: what was asked for, ``default``, or any."""
    configuration = (await context.configurations())[MUTATING_WEBHOOKS] or {}
    entries = [one for one in configuration.get("webhooks") or () if covers_pods(one)]
    namespaces = [one for one in await context.namespaces() if not one.deletion_timestamp]
    asked = context.options.canary_namespace
    namespaces = [one for one in namespaces if not asked or one.name == asked]
    # Where something fails closed comes last: an error there is a refusal, not a silence.
    for namespace in sorted(namespaces, key=_favourite):
        for entry in entries:
            labels = labels_for(entry.get("objectSelector"))
            if labels is not None and selects(entry, namespace):
                return namespace.name, labels
    return "", {}


def _favourite(namespace: Metadata) -> tuple[bool, str]:
    return namespace.name != _FAVOURITE, namespace.name


async def why_silent(context: Context, namespace: str) -> tuple[str, str]:
    """Why no webhook answered, in a word and in the API server's own.

    A task definition is reviewed by a webhook that fails closed, so the API server says what is
    wrong; and a policy that is wrong is refused wherever a webhook answers.
    """
    definition = {
        "apiVersion": TASK_DEFINITIONS.api_version,
        "kind": TASK_DEFINITIONS.kind,
        "metadata": {"generateName": "harbourmaster-canary-"},
        "spec": {"container": {"name": "canary", "image": "registry.example.com/canary:1"}},
    }
    try:
        await context.client.create(TASK_DEFINITIONS, definition, namespace, dry_run=True)
    except ApiError as error:
        called = failed_call(error)
        if called is not None and OUR_DOMAIN in called[0]:
            return "unreachable", called[1]
    policy = {
        "apiVersion": CLUSTER_POLICIES.api_version,
        "kind": CLUSTER_POLICIES.kind,
        "metadata": {"generateName": "harbourmaster-canary-"},
        "spec": {"podSelector": {"matchLabels": {"-": "-"}}},
    }
    try:
        await context.client.create(CLUSTER_POLICIES, policy, dry_run=True)
    except ApiError as error:
        called = failed_call(error)
        if called is not None:
            return ("unreachable", called[1]) if OUR_DOMAIN in called[0] else ("", "")
        if "harbourmaster.dev" in error.message:
            return "pods-only", ""
    return "", ""


def failed_call(error: ApiError) -> tuple[str, str] | None:
    """The webhook that could not be called, and why; None for any other error."""
    found = _CALL.search(error.message)
    if found is None:
        return None
    return found[1], _REQUEST.sub("", found[2]).strip() or "no answer"


def differences(before: Tried, after: Tried) -> list[str]:
    """The fields that are ours and that changed from one try to the next."""
    first, second = ((one.pod or {}).get("spec") or {} for one in (before, after))
    return [f"spec.{field}" for field in OWNED if first.get(field) != second.get(field)]
