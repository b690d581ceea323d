"""What Keptn's installation and objects mean for a migration. Pure functions.

Keptn is configured by the environment of its operators and by the selector of its webhook.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.api.sizes import size_errors
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.cli.migrate.model import Command, Judged, Ref, Setting, kubectl, parts
from harbourmaster.controller.exposure.plain import gauge_name
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.lifecycle.keptn_config import chosen, waits_for_adoption
from harbourmaster.lifecycle.model import TaskDefinition
from harbourmaster.registration.settings import EXCLUDED_NAMESPACES
from harbourmaster.webhook.checked_objects import review_object
from harbourmaster.webhook.review import Request
from harbourmaster.webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from msgspec import Struct

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.live.webhooks import Webhook
    from harbourmaster.lifecycle.model import Config

POD_WEBHOOK: Final = "mpod.keptn.sh"
PLACES: Final = "lifecycle.definitionNamespaces"
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
FALSE: Final = frozenset(("0", "f", "F", "FALSE", "false", "False"))
"""How Go reads them."""
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
_WORDS: Final = re.compile(r"[^\W_]+")
_DIFFERENT: Final = {
    ("series-change", "Service lifecycle-operator-metrics-service"): "it is deleted: to scrape its"
    " series at port 2222 under the old name, add deploy/components/keptn-metrics-address",
    ("series-change", "series keptn_task_* and keptn_evaluation_*"): "task_name and evaluation_name"
    " are names of definitions instead of runs: change queries that select by them",
    ("runner-context", "functions"): "",
}
"""What differs for all that the lifecycle-operator did: codes and subjects, and why."""
_decode_task: Final = msgspec.json.Decoder(TaskDefinition).decode


def stated(*settings: Struct) -> dict[str, str]:
    """Settings by their paths, as flags have them."""
    found: dict[str, str] = {}

    def walk(value: Any, path: str) -> None:  # noqa: ANN401
        if isinstance(value, dict) and value:
            for key, each in value.items():
                walk(each, f"{path}.{key}" if path else key)
        elif isinstance(value, list | tuple):
            found[path] = ",".join(map(str, value))
        else:
            found[path] = str(value).lower() if isinstance(value, bool) else str(value)

    for each in settings:
        walk(msgspec.to_builtins(each), "")
    return found


_DEFAULTS: Final = stated(ControllerSettings(), WebhookSettings())


def settings_of(
    environments: Mapping[Ref, Mapping[str, str]], pods: Webhook | None, ours: Mapping[str, str]
) -> tuple[Setting, ...]:
    """The settings that keep what Keptn does, as far as our defaults do not.

    ``environments`` are the variables of the operators, ``pods`` is their webhook for pods, and
    ``ours`` has the settings of our processes.
    """
    wanted: dict[str, tuple[str, str]] = {}
    for ref, variables in environments.items():
        for name, key in _VARIABLES.items():
            if text := variables.get(name):
                value = "true" if text in _TRUE else "false" if text in FALSE else text
                wanted[key] = (value, f"{name} of {ref}")
        places = wanted.get(PLACES, (ref.namespace, ""))[0]
        wanted[PLACES] = (",".join(sorted({ref.namespace, *parts(places)})), str(ref))
    if pods is not None:
        source = f"webhook {POD_WEBHOOK}"
        wanted[_POLICY] = (pods.failure_policy, source)
        allowed, denied = _namespaces(pods)
        wanted[_ALLOWED if allowed else _DENIED] = (allowed or denied, source)
    return tuple(
        Setting(key, value, source, ours[key])
        for key, (value, source) in wanted.items()
        if parts(value) != parts(_DEFAULTS[key])
    )


def _namespaces(pods: Webhook) -> tuple[str, str]:
    """The namespaces that the webhook is limited to, or those that it leaves out."""
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
    """KeptnConfigs that Keptn reads and that do not count here; ``namespaces`` begin with ours."""
    choice = chosen(configs, namespaces)
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
            told = {"why": why, "places": " and ".join(dict.fromkeys(namespaces))}
            ref = Ref("keptnconfig", own.name, own.namespace)
            yield Judged("config-elsewhere", ref, told, command)


def refusal(raw: msgspec.Raw, resource: Resource) -> Judged | None:
    """Why our webhook would refuse a new object like this, unless it is too large."""
    metadata, of = metadata_in(raw), (resource.group, resource.kind)
    answer = review_object(Request(operation="CREATE", name=metadata.name, object=raw), *of)
    if answer.allowed or size_errors(*of, raw):
        return None
    ref = Ref(resource.kind.lower(), metadata.name, metadata.namespace)
    command = kubectl("edit", ref.kind, ref.name, namespace=ref.namespace)
    faults = msgspec.json.decode(answer.encoded)["status"]["message"]
    return Judged("object-refused", ref, {"faults": faults}, command)


def task_token(raw: msgspec.Raw) -> Judged | None:
    """A definition whose tasks had a token that they do not request."""
    task = _decode_task(raw)
    account = task.spec.service_account
    if task.spec.automount_service_account_token or (account and account.name):
        return None
    ref = Ref("keptntaskdefinition", task.metadata.name, task.metadata.namespace)
    value = '{"spec":{"automountServiceAccountToken":{"type":true}}}'
    patch = ("patch", ref.kind, ref.name, "--type=merge", "-p", value)
    return Judged("task-token", ref, {}, kubectl(*patch, namespace=ref.namespace))


def series_findings(metrics: Sequence[Metadata]) -> Iterator[Judged]:
    """Metrics whose gauge gets another name or labels."""
    shared = Counter(gauge_name(metric.name) for metric in metrics)
    for each in metrics:
        ours, theirs = gauge_name(each.name), "_".join(_WORDS.findall(each.name))
        ref = Ref("keptnmetric", each.name, each.namespace)
        if ours.lstrip("_") != theirs:
            yield Judged("series-change", ref, {"why": f"its gauge {theirs} becomes {ours}"})
        if shared[ours] > 1:
            why = f"several metrics have the gauge {ours}: each gets the labels namespace and name"
            yield Judged("series-change", ref, {"why": why})


def lifecycle_findings(context: str) -> Iterator[Judged]:
    """What differs for all of them; ``context`` is our runnerSecurityContext."""
    for (code, subject), why in _DIFFERENT.items():
        if code != "runner-context" or context != "Keptn":
            yield Judged(code, subject, {"why": why})
