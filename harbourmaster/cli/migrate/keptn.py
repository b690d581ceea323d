"""Reads Keptn's installation and objects, and judges what they mean for a migration.

Keptn is configured by the environment of its operators and by the selector of its webhook.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from harbourmaster.api import resources
from harbourmaster.api.sizes import size_errors
from harbourmaster.cli.installed import CONTROLLER
from harbourmaster.cli.live.kinds import decode_config_map, decode_workload, metadata_in
from harbourmaster.cli.migrate.model import (
    KEPTN,
    MIGRATED,
    OVERLAY_LABEL,
    Command,
    Judged,
    KeptnFacts,
    Ref,
    Setting,
    kubectl,
    parts,
)
from harbourmaster.controller.exposure.plain import gauge_name
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.lifecycle.apps import listed_fields, older_checks
from harbourmaster.lifecycle.keptn_config import choose_config, waits_for_adoption
from harbourmaster.lifecycle.model import App, Config, TaskDefinition
from harbourmaster.registration.settings import EXCLUDED_NAMESPACES
from harbourmaster.webhook.checked_objects import review_object
from harbourmaster.webhook.review import Request
from harbourmaster.webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from msgspec import Struct

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.cli.live.webhooks import Configuration, Webhook
    from harbourmaster.cli.migrate.model import ReplacedWorkload

T = TypeVar("T")

_POD_WEBHOOK: Final = "mpod.keptn.sh"
_DEFINITION_NAMESPACES: Final = "lifecycle.definitionNamespaces"
_POLICY: Final = "webhook.gatedFailurePolicy"
_ALLOWED: Final = "allowedNamespaces"
_DENIED: Final = "deniedNamespaces"
_VARIABLES: Final = {
    "PROMOTION_TASKS_ENABLED": "lifecycle.promotionTasks",
    "FUNCTION_RUNNER_IMAGE": "lifecycle.denoImage",
    "PYTHON_RUNNER_IMAGE": "lifecycle.pythonImage",
    "ENABLE_CUSTOM_METRICS_API_SERVICE": "metrics.customMetricsApi",
}
"""The setting that each variable of an operator becomes."""
_TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "_FALSE", "false", "False"))
"""The texts that Go's ``strconv.ParseBool`` reads as true and as false."""
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
_WORDS: Final = re.compile(r"[^\W_]+")
_DIFFERENT: Final = {
    ("series-change", "Service lifecycle-operator-metrics-service"): "it is deleted: to scrape its"
    " series at port 2222 under the old name, add deploy/components/keptn-metrics-address",
    ("series-change", "series keptn_task_* and keptn_evaluation_*"): "task_name and evaluation_name"
    " are names of definitions instead of runs: change queries that select by them",
    ("runner-context", "functions"): "",
}
"""Differences for everything that the lifecycle-operator did: code and subject, and why."""
_CHECKED: Final = (
    resources.TASK_DEFINITIONS,
    resources.KEPTN_METRICS,
    resources.METRICS_PROVIDERS,
    resources.ANALYSES,
    resources.ANALYSIS_DEFINITIONS,
    resources.ANALYSIS_VALUE_TEMPLATES,
)
"""The kinds of Keptn whose objects our webhook checks."""
_decode_task: Final = msgspec.json.Decoder(TaskDefinition).decode


def flatten(*settings: Struct) -> dict[str, str]:
    """Return the values of settings by their paths, in the form of flags."""
    values: dict[str, str] = {}

    def walk(value: Any, path: str) -> None:  # noqa: ANN401
        if isinstance(value, dict) and value:
            for key, member in value.items():
                walk(member, f"{path}.{key}" if path else key)
        elif isinstance(value, list | tuple):
            values[path] = ",".join(map(str, value))
        else:
            values[path] = str(value).lower() if isinstance(value, bool) else str(value)

    for group in settings:
        walk(msgspec.to_builtins(group), "")
    return values


_DEFAULTS: Final = flatten(ControllerSettings(), WebhookSettings())


def settings_of(
    environments: Mapping[Ref, Mapping[str, str]], pods: Webhook | None, ours: Mapping[str, str]
) -> tuple[Setting, ...]:
    """Return the settings that keep what Keptn does where our defaults do not.

    ``environments`` are the variables of the operators, ``pods`` is their webhook for pods, and
    ``ours`` has the settings of our processes.
    """
    wanted: dict[str, tuple[str, str]] = {}
    for ref, variables in environments.items():
        for name, key in _VARIABLES.items():
            if text := variables.get(name):
                value = "true" if text in _TRUE else "false" if text in _FALSE else text
                wanted[key] = (value, f"{name} of {ref}")
        namespaces = wanted.get(_DEFINITION_NAMESPACES, (ref.namespace, ""))[0]
        wanted[_DEFINITION_NAMESPACES] = (
            ",".join(sorted({ref.namespace, *parts(namespaces)})),
            str(ref),
        )
    if pods is not None:
        source = f"webhook {_POD_WEBHOOK}"
        wanted[_POLICY] = (pods.failure_policy, source)
        allowed, denied = _namespaces(pods)
        wanted[_ALLOWED if allowed else _DENIED] = (allowed or denied, source)
    return tuple(
        Setting(key, value, source, ours[key])
        for key, (value, source) in wanted.items()
        if parts(value) != parts(_DEFAULTS[key])
    )


def _namespaces(pods: Webhook) -> tuple[str, str]:
    """Return the namespaces that the webhook is limited to, and those that it leaves out."""
    selector = pods.namespace_selector
    rules = [
        (expression.operator, set(expression.values or ()))
        for expression in (selector.match_expressions if selector else None) or ()
        if expression.key == _NAMESPACE_NAME
    ]
    # Keptn never gates its own pods.
    out = {pods.service[0]} if pods.service else set()
    out.update(*(names for operator, names in rules if operator == "NotIn"))
    inside = [names for operator, names in rules if operator == "In"]
    allowed = set.intersection(*inside) - out if inside else set()
    return ",".join(sorted(allowed)), ",".join(sorted(out - set(EXCLUDED_NAMESPACES)))


def config_findings(configs: Sequence[Config], namespaces: Sequence[str]) -> Iterator[Judged]:
    """Report KeptnConfigs that Keptn reads but we ignore; ``namespaces`` begin with ours."""
    choice = choose_config(configs, namespaces)
    for config in configs:
        if waits_for_adoption(config, choice, namespaces):
            own, command = config.metadata, None
            if choice.first is not None:
                why = f": {choice.first.metadata.key} comes first"
            else:
                command = Command(("harbourmaster", "config", "adopt", own.key))
                why = (
                    ": if you adopt it, once Keptn's operators have stopped, each user that can"
                    f" write {own.key} configures the whole cluster"
                )
            texts = {"why": why, "places": " and ".join(dict.fromkeys(namespaces))}
            ref = Ref("keptnconfig", own.name, own.namespace)
            yield Judged("config-elsewhere", ref, texts, command)


def refusal(raw: msgspec.Raw, resource: Resource) -> Judged | None:
    """Report an object that our webhook would refuse if it was created, unless it is too large."""
    metadata, of = metadata_in(raw), (resource.group, resource.kind)
    answer = review_object(Request(operation="CREATE", name=metadata.name, object=raw), *of)
    if answer.allowed or size_errors(*of, raw):
        return None
    ref = Ref(resource.kind.lower(), metadata.name, metadata.namespace)
    command = kubectl("edit", ref.kind, ref.name, namespace=ref.namespace)
    faults = msgspec.json.decode(answer.encoded)["status"]["message"]
    return Judged("object-refused", ref, {"faults": faults}, command)


def task_token(raw: msgspec.Raw) -> Judged | None:
    """Report a definition whose tasks had a token that they do not request."""
    task = _decode_task(raw)
    account = task.spec.service_account
    if task.spec.automount_service_account_token or (account and account.name):
        return None
    ref = Ref("keptntaskdefinition", task.metadata.name, task.metadata.namespace)
    value = '{"spec":{"automountServiceAccountToken":{"type":true}}}'
    patch = ("patch", ref.kind, ref.name, "--type=merge", "-p", value)
    return Judged("task-token", ref, {}, kubectl(*patch, namespace=ref.namespace))


def ignored_checks(apps: Sequence[App], contexts: Sequence[Metadata]) -> Iterator[Judged]:
    """Report apps whose own lists of checks are ignored, because a KeptnAppContext counts."""
    keys = {context.key for context in contexts}
    for app in apps:
        if app.metadata.key in keys and (ignored := listed_fields(older_checks(app))):
            ref = Ref("keptnapp", app.metadata.name, app.metadata.namespace)
            yield Judged("checks-ignored", ref, {"ignored": ignored})


def series_findings(metrics: Sequence[Metadata]) -> Iterator[Judged]:
    """Report metrics whose gauge gets another name or labels."""
    shared = Counter(gauge_name(metric.name) for metric in metrics)
    for metric in metrics:
        ours, theirs = gauge_name(metric.name), "_".join(_WORDS.findall(metric.name))
        ref = Ref("keptnmetric", metric.name, metric.namespace)
        if ours.lstrip("_") != theirs:
            yield Judged("series-change", ref, {"why": f"its gauge {theirs} becomes {ours}"})
        if shared[ours] > 1:
            why = f"several metrics have the gauge {ours}: each gets the labels namespace and name"
            yield Judged("series-change", ref, {"why": why})


def lifecycle_findings(context: str) -> Iterator[Judged]:
    """Report what differs for all objects; ``context`` is our runnerSecurityContext."""
    for (code, subject), why in _DIFFERENT.items():
        if code != "runner-context" or context != "Keptn":
            yield Judged(code, subject, {"why": why})


async def survey_keptn(
    live: Installation,
    settings: ControllerSettings | None,
    kinds: Sequence[Resource],
    workloads: Sequence[ReplacedWorkload],
    mutating: Sequence[Configuration],
) -> KeptnFacts:
    """Read Keptn's installation and objects, and judge them.

    ``settings`` are those of our controller, None if unknown; ``kinds`` are those of the CRDs in
    the cluster.
    """
    stored = {kind.plural: kind for kind in kinds}

    async def read(kind: Resource, pick: Callable[[msgspec.Raw], T | None]) -> list[T]:
        objects = live.items(stored.get(kind.plural, kind), pick, skipped=lambda _: None)
        return await live.attempt(objects, [])

    webhook = await live.attempt(live.none_if_unreadable(live.webhook_settings()), None)
    ours = flatten(settings or ControllerSettings(), webhook or WebhookSettings())
    refs = {workload.role: workload.ref for workload in workloads if workload.system == KEPTN}
    environments = {
        refs[role]: await live.attempt(_environment(live, refs[role]), {})
        for role in ("lifecycle", "metrics")
        if role in refs
    }
    entries = (
        entry
        for configuration in mutating
        for entry in configuration.entries
        if entry.name == _POD_WEBHOOK
    )
    kept = settings_of(environments, next(entries, None), ours)

    values = ours | {setting.key: setting.value for setting in kept}
    namespaces = values[_DEFINITION_NAMESPACES].split(",")
    configs = await read(resources.KEPTN_CONFIGS, msgspec.json.Decoder(Config).decode)
    judged = list(config_findings(configs, (live.namespace, *namespaces)))
    for kind in _CHECKED:
        # Our webhook gets objects of older versions converted, and judges none as they are stored.
        if stored.get(kind.plural, kind) == kind:
            judged += await read(kind, partial(refusal, resource=kind))
    if "lifecycle" in refs:
        apps = await read(resources.APPS, msgspec.json.Decoder(App).decode)
        judged += ignored_checks(apps, await read(resources.APP_CONTEXTS, metadata_in))
        judged += await read(resources.TASK_DEFINITIONS, task_token)
        judged += lifecycle_findings(ours.get("lifecycle.runnerSecurityContext", ""))
    if "metrics" in refs:
        judged += series_findings(await read(resources.KEPTN_METRICS, metadata_in))
    controller = await live.attempt(live.deployment(CONTROLLER), None)
    is_overlaid = (
        controller is not None and controller.metadata.labels.get(OVERLAY_LABEL) == MIGRATED
    )
    exposed = [environment.get("EXPOSE_KEPTN_METRICS") for environment in environments.values()]
    return KeptnFacts(kept, is_overlaid, _FALSE.isdisjoint(exposed), tuple(judged))


async def _environment(live: Installation, ref: Ref) -> dict[str, str]:
    """Return the variables of a Deployment, including those from ConfigMaps."""
    body = await live.get(resources.DEPLOYMENTS, ref.name, ref.namespace)
    values = {}
    for name, value, source in decode_workload(body).variables:
        values[name] = value
        if source is not None:
            config_map = await live.read(
                resources.CONFIG_MAPS, source.name, decode_config_map, ref.namespace
            )
            data = config_map.data if config_map else None
            values[name] = (data or {}).get(source.key, "")
    return values
