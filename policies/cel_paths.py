"""The CEL paths of pod specs, and conditions by which policies select pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.selectors import Matcher
from harbourmaster.policies import cel
from harbourmaster.policies.cel import Cel, literal
from harbourmaster.policies.pods import PODS_OF
from harbourmaster.policies.targets import ALL_CONTROLLERS, CREATORS

if TYPE_CHECKING:
    from harbourmaster.policies.compiled import CompiledPolicy

PROBE_NAMESPACE: Final = "harbourmaster-probe"
"""The namespace of dry runs of compiled objects; annotations of objects act as its labels."""
NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
_LABELS: Final = "variables.labels"
_NAMESPACE_LABELS: Final = "variables.namespaceLabels"


class PodPaths(Struct, frozen=True):
    """Kinds whose pod spec stands at the same place."""

    name: str
    spec: Cel
    """The path of the pod spec."""
    metadata: Cel
    pointer: str
    """The JSON Pointer of the pod spec."""
    condition: Cel
    """Whether an object has a pod spec that policies may change."""
    kinds: Cel = "[request.kind.kind]"
    """A list of the kinds of ``PodView``."""


PODS: Final = PodPaths(
    "pods",
    "object.spec",
    "object.metadata",
    "/spec",
    '!("kubernetes.io/config.mirror" in object.metadata.?annotations.orValue({}))',
    f'["Pod"] + (request.userInfo.username == {literal(ALL_CONTROLLERS)} ? '
    "object.metadata.?ownerReferences.orValue([]).filter(o, o.?controller.orValue(false))"
    f".map(o, o.kind) : [{literal(CREATORS)}[?request.userInfo.username].orValue('')])"
    f".map(kind, {literal(PODS_OF)} + kind)",
)
TEMPLATES: Final = PodPaths(
    "templates",
    "object.spec.template.spec",
    "object.spec.template.?metadata",
    "/spec/template/spec",
    "has(object.spec.template)",
)
CRON_JOBS: Final = PodPaths(
    "cronjobs",
    "object.spec.jobTemplate.spec.template.spec",
    "object.spec.jobTemplate.spec.template.?metadata",
    "/spec/jobTemplate/spec/template/spec",
    "true",
)
PARTS: Final = (CRON_JOBS, PODS, TEMPLATES)


def namespace_labels() -> Cel:
    """The labels of the namespace of the object: a map."""
    return (
        f"request.namespace == {literal(PROBE_NAMESPACE)} && request.?dryRun.orValue(false) "
        "? object.metadata.?annotations.orValue({}) "
        ": namespaceObject.metadata.?labels.orValue({})"
    )


def matching(policy: CompiledPolicy) -> Cel:
    """Whether the policy selects the pod.

    It uses the variables ``kinds``, ``namespaceLabels`` and ``labels``.
    """
    namespaces = policy.namespaces
    if policy.namespace is not None:
        namespaces = Matcher(one_of=((NAMESPACE_NAME, frozenset((policy.namespace,))),))
    if namespaces is None or policy.pods is None:
        return "false"
    return cel.every(
        condition
        for condition in (
            cel.selects(namespaces, _NAMESPACE_LABELS),
            cel.selects(policy.pods, _LABELS),
            f"!variables.kinds.exists(k, k in {literal(sorted(policy.excluded_kinds))})"
            if policy.excluded_kinds
            else "true",
        )
        if condition != "true"
    )
