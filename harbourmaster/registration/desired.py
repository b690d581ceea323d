"""The webhook configurations that the settings ask for: pure, in a fixed order.

Every field that the API server would fill in is spelt out, so that what is stored equals what was
sent and no tool that compares them sees a difference (platform-spec 6.1). Nothing here needs more
than Kubernetes 1.25.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import (
    ANALYSES,
    ANALYSIS_DEFINITIONS,
    ANALYSIS_VALUE_TEMPLATES,
    APP_CONTEXTS,
    APPS,
    EVALUATION_DEFINITIONS,
    KEPTN_METRICS,
    LIFECYCLE_GROUP,
    METRICS_GROUP,
    METRICS_PROVIDERS,
    MUTATING_WEBHOOKS,
    PLACEMENT_GROUP,
    TASK_DEFINITIONS,
    VALIDATING_WEBHOOKS,
)
from harbourmaster.api.selectors import LabelSelector
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.metadata import PARENT_KEY, REMOVED_KEY, UNRESOLVED
from harbourmaster.gates.release import OURS, RERUN_KEY
from harbourmaster.policies.model import GROUP, VERSION
from harbourmaster.registration.settings import KINDS, MORE_KINDS, PODS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harbourmaster.api.resources import Resource
    from harbourmaster.registration.settings import RegistrationSettings

NAME: Final = "harbourmaster"
"""The name of both configurations."""
SHADOW: Final = "000-harbourmaster-shadow"
"""The name in shadow mode: mutating webhooks run in the order of names, so ours runs first."""
SHADOW_PATHS: Final = ("/shadow/mutate", "/shadow/validate")
"""Not served otherwise, so that a configuration that was left over changes nothing."""
SHADOW_SECONDS: Final = 2
"""The longest that a request waits for a webhook that only looks."""
TEMPLATES: Final = "templates.harbourmaster.dev"
PODS_ENTRY: Final = "pods.harbourmaster.dev"
GATED_PODS: Final = "gated-pods.harbourmaster.dev"
HELD_PODS: Final = "held-pods.harbourmaster.dev"
"""Those of namespaces with gates that the API server has gated itself."""
RERUNS: Final = "reruns.harbourmaster.dev"
"""Requests for repeated checks, into which admission writes who asks."""
POLICIES: Final = "policies.harbourmaster.dev"
TASK_DEFINITIONS_ENTRY: Final = "taskdefinitions.harbourmaster.dev"
CHECKS_ENTRY: Final = "checks.harbourmaster.dev"
METRICS_ENTRY: Final = "metrics.harbourmaster.dev"
PLACEMENT_ENTRY: Final = "placement.harbourmaster.dev"
SHADOW_ENTRY: Final = "shadow.harbourmaster.dev"
LABELS: Final = {
    "app.kubernetes.io/component": "webhook",
    "app.kubernetes.io/managed-by": "harbourmaster",
    "app.kubernetes.io/name": "harbourmaster",
}
GATES_LABEL: Final = "gates.harbourmaster.dev/enabled"
"""Mirrored from Keptn's annotation on a Namespace (decision D6)."""
ENABLED: Final = "true"
NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
NOT_HELD, HELD_NAME = "not-held", "held"
"""The names of our match conditions."""
HELD: Final = (
    f'object.spec.?schedulingGates.orValue([]).exists(gate, gate.name == "{GATE}") && '
    f'object.metadata.?annotations[?"{PARENT_KEY}"].orValue("") == "{UNRESOLVED}" && '
    f'object.metadata.annotations.all(key, key == "{PARENT_KEY}" || !key.startsWith("{OURS}")) && '
    "[object.metadata.annotations, object.metadata.?labels.orValue({})]"
    f'.all(found, !("{REMOVED_KEY}" in found))'
)
"""Whether the API server has gated a pod, which waits until the controller decides."""

_GROUPS: Final = {"replicationcontrollers": "", "jobs": "batch", "cronjobs": "batch"}
_CREATE_ONLY: Final = ("jobs",)
"""Resources with immutable templates, so that a patch of an update would block it."""
_POLICY_PLURALS: Final = ["clusterpodschedulingpolicies", "podschedulingpolicies"]
_VERSION_PLURALS: Final = ["keptnappversions", "keptnworkloadversions"]
_CHECKS_PLURALS: Final = [
    resource.plural for resource in (APP_CONTEXTS, APPS, EVALUATION_DEFINITIONS)
]
_METRICS_PLURALS: Final = [
    resource.plural
    for resource in (
        ANALYSES,
        ANALYSIS_DEFINITIONS,
        ANALYSIS_VALUE_TEMPLATES,
        KEPTN_METRICS,
        METRICS_PROVIDERS,
    )
]

_PLACEMENT_PLURALS: Final = [
    "applications",
    "clouds",
    "clusters",
    "globalclouds",
    "globalmetrics",
    "globalmetricsproviders",
    "magnumclusters",
    "metrics",
    "metricsproviders",
    "projects",
]


class Home(Struct, frozen=True):
    """Our own namespace: never reviewed, and the owner of the configurations.

    With the namespace the configurations go too; a webhook without a service is only a delay.
    """

    name: str
    uid: str | None = None
    """None leaves the owner out."""


def desired_configurations(
    settings: RegistrationSettings, home: Home, ca_bundle: bytes | None
) -> dict[Resource, dict[str, Any]]:
    """Return both configurations as the API stores them, with ``ca_bundle`` (PEM) if given."""
    entries = _Entries(settings, home, ca_bundle)
    mutating, validating = (
        entries.observing() if settings.shadow else (entries.mutating(), entries.validating())
    )
    name = name_of(settings)
    configurations = {
        MUTATING_WEBHOOKS: _configuration(MUTATING_WEBHOOKS, name, home, mutating),
        VALIDATING_WEBHOOKS: _configuration(VALIDATING_WEBHOOKS, name, home, validating),
    }
    for configuration in configurations.values() if settings.annotations else ():
        configuration["metadata"]["annotations"] = settings.annotations
    return configurations


def name_of(settings: RegistrationSettings) -> str:
    """Return the name of both configurations."""
    return SHADOW if settings.shadow else NAME


class _Entries:
    def __init__(self, settings: RegistrationSettings, home: Home, ca_bundle: bytes | None) -> None:
        self._settings = settings
        self._home = home
        self._ca_bundle = ca_bundle

    def mutating(self) -> list[dict[str, Any]]:
        settings = self._settings
        entries = []
        rules = list(_template_rules(settings)) if settings.templates else []
        if rules:
            entries.append(self._mutating(TEMPLATES, rules, settings.failure_policy, []))
        if PODS in settings.kinds:
            rules = [_rule("", "v1", [PODS], ["CREATE"])]
            # Disjoint: together they see each pod once, and only gated ones fail closed.
            for name, operator, policy in (
                (PODS_ENTRY, "NotIn", settings.failure_policy),
                (GATED_PODS, "In", settings.gated_failure_policy),
            ):
                gated = {"key": GATES_LABEL, "operator": operator, "values": [ENABLED]}
                entries.append(self._mutating(name, rules, policy, [gated]))
            if settings.api_server_gate:
                held = {**entries[-1], "name": HELD_PODS, "failurePolicy": settings.failure_policy}
                for entry, name, expression in (
                    (entries[-1], NOT_HELD, f"!({HELD})"),
                    (held, HELD_NAME, HELD),
                ):
                    ours = {"name": name, "expression": expression}
                    entry["matchConditions"] = [*entry.get("matchConditions", ()), ours]
                entries.append(held)
            rules = [_rule(LIFECYCLE_GROUP, "v1", _VERSION_PLURALS, ["UPDATE"])]
            entry = self._mutating(RERUNS, rules, settings.gated_failure_policy, [])
            entry.pop("matchConditions", None)
            # Other updates of versions, such as the controller's, never wait for us.
            is_asked = {"key": RERUN_KEY, "operator": "Exists"}
            entries.append({**entry, "objectSelector": {"matchExpressions": [is_asked]}})
        return entries

    def validating(self) -> list[dict[str, Any]]:
        settings = self._settings
        policies = {**_rule(GROUP, VERSION, _POLICY_PLURALS, ["CREATE", "UPDATE"]), "scope": "*"}
        definitions = _rule(
            TASK_DEFINITIONS.group,
            TASK_DEFINITIONS.version,
            [TASK_DEFINITIONS.plural],
            ["CREATE", "UPDATE"],
        )
        checks = _rule(LIFECYCLE_GROUP, "v1", _CHECKS_PLURALS, ["CREATE", "UPDATE"])
        metrics = _rule(METRICS_GROUP, "v1", _METRICS_PLURALS, ["CREATE", "UPDATE"])
        placement = _rule(PLACEMENT_GROUP, "v1alpha1", _PLACEMENT_PLURALS, ["CREATE", "UPDATE"])
        return [
            self._validating(POLICIES, policies, settings.failure_policy, "Exact"),
            # Older versions are judged too, by what of them v1 has a field for.
            self._validating(
                TASK_DEFINITIONS_ENTRY, definitions, settings.gated_failure_policy, "Equivalent"
            ),
            # Their size only, on which no gate depends.
            self._validating(CHECKS_ENTRY, checks, settings.failure_policy, "Equivalent"),
            # Not as with Keptn, whose entry fails closed: a metric that came past us has an error
            # in its status and passes no evaluation, so no manifest needs to wait for us.
            self._validating(METRICS_ENTRY, metrics, settings.failure_policy, "Equivalent"),
            # The same holds here: what came past us has a condition that says what is wrong. And to
            # take our finalizers off, so that something can go, is an update that must pass.
            self._validating(
                PLACEMENT_ENTRY, {**placement, "scope": "*"}, settings.failure_policy, "Equivalent"
            ),
        ]

    def observing(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Those of shadow mode: they see the same objects before and after all others."""
        rules = list(_template_rules(self._settings)) if self._settings.templates else []
        if PODS in self._settings.kinds:
            rules.append(_rule("", "v1", [PODS], ["CREATE"]))
        entry = self._mutating(SHADOW_ENTRY, rules, "Ignore", [])
        entry["timeoutSeconds"] = min(entry["timeoutSeconds"], SHADOW_SECONDS)
        entry["clientConfig"], after = map(self._client, SHADOW_PATHS)
        last = {**entry, "clientConfig": after}
        del last["reinvocationPolicy"]
        return [{**entry, "reinvocationPolicy": "Never"}], [last]

    def _validating(
        self, name: str, rule: dict[str, Any], failure_policy: str, match_policy: str
    ) -> dict[str, Any]:
        return {
            "name": name,
            "admissionReviewVersions": ["v1"],
            "clientConfig": self._client("/validate"),
            "failurePolicy": failure_policy,
            "matchPolicy": match_policy,
            # It is checked wherever it lies: also one of an excluded namespace is read.
            "namespaceSelector": {},
            "objectSelector": {},
            "rules": [rule],
            "sideEffects": "None",
            "timeoutSeconds": self._settings.timeout_seconds,
        }

    def _mutating(
        self,
        name: str,
        rules: list[dict[str, Any]],
        failure_policy: str,
        besides: list[dict[str, Any]],
    ) -> dict[str, Any]:
        settings = self._settings
        excluded = {
            "key": NAMESPACE_NAME,
            "operator": "NotIn",
            "values": list(dict.fromkeys((*settings.excluded_namespaces, self._home.name))),
        }
        texts = settings.match_conditions.items()
        conditions = [{"name": name, "expression": expression} for name, expression in texts]
        return {
            "name": name,
            "admissionReviewVersions": ["v1"],
            "clientConfig": self._client("/mutate"),
            "failurePolicy": failure_policy,
            **({"matchConditions": conditions} if conditions else {}),
            "matchPolicy": "Equivalent",
            "namespaceSelector": _join_selectors([excluded, *besides], settings.namespace_selector),
            "objectSelector": _join_selectors([], settings.object_selector),
            "reinvocationPolicy": settings.reinvocation_policy,
            "rules": rules,
            "sideEffects": "None",
            "timeoutSeconds": settings.timeout_seconds,
        }

    def _client(self, path: str) -> dict[str, Any]:
        service = {
            "name": self._settings.service_name,
            "namespace": self._settings.service_namespace or self._home.name,
            "path": path,
            "port": self._settings.service_port,
        }
        if self._ca_bundle is None:
            return {"service": service}
        return {"caBundle": base64.b64encode(self._ca_bundle).decode(), "service": service}


def _configuration(
    resource: Resource, name: str, home: Home, webhooks: list[dict[str, Any]]
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "labels": dict(LABELS)}
    if home.uid is not None:
        owner = {"apiVersion": "v1", "kind": "Namespace", "name": home.name, "uid": home.uid}
        metadata["ownerReferences"] = [owner]
    return {
        **resource.type_fields,
        "metadata": metadata,
        "webhooks": webhooks,
    }


def _template_rules(settings: RegistrationSettings) -> Iterator[dict[str, Any]]:
    """One rule for each group and set of operations, in the order of the known kinds."""
    operations = [
        operation for operation in ("CREATE", "UPDATE") if operation in settings.template_operations
    ]
    rules: dict[tuple[str, bool], list[str]] = {}
    for kind in (*KINDS, *MORE_KINDS):
        if kind in settings.kinds and kind != PODS:
            key = (_GROUPS.get(kind, "apps"), kind in _CREATE_ONLY)
            rules.setdefault(key, []).append(kind)
    for (group, create_only), kinds in rules.items():
        wanted = ["CREATE"] if create_only else operations
        yield _rule(group, "v1", kinds, wanted)


def _rule(
    group: str, version: str, resources: Sequence[str], operations: Sequence[str]
) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": list(operations),
        "resources": list(resources),
        "scope": "Namespaced",
    }


def _join_selectors(
    expressions: list[dict[str, Any]], selector: dict[str, Any] | None
) -> dict[str, Any]:
    """Our expressions and the user's selector, all of which must hold."""
    user = msgspec.convert(selector or {}, LabelSelector)
    joined: dict[str, Any] = {}
    expressions = [
        *expressions,
        *(
            {
                "key": expression.key,
                "operator": expression.operator,
                **({"values": expression.values} if expression.values else {}),
            }
            for expression in user.match_expressions or ()
        ),
    ]
    if expressions:
        joined["matchExpressions"] = expressions
    if user.match_labels:
        joined["matchLabels"] = dict(user.match_labels)
    return joined
