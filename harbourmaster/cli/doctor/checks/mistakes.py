"""Keys, targets and references of gates and evaluations that have no effect (D19)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec.json import Decoder

from harbourmaster.api import resources
from harbourmaster.api.suggestions import VERY_NEAR, did_you_mean
from harbourmaster.cli.batches import shorten
from harbourmaster.cli.diagnosis import mistake, warning
from harbourmaster.cli.installed import KEPTN_RESOURCES
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.evaluation.model import Metric
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.gates.mistakes import key_mistakes, owner_mistakes
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.keptn_config import (
    adopting,
    choose_config,
    is_in_force,
    status_text,
    waits_for_adoption,
)
from harbourmaster.lifecycle.model import (
    AppContext,
    AppVersion,
    Config,
    EvaluationDefinition,
    WorkloadVersion,
)
from harbourmaster.webhook.checked_objects import faults_of, is_checked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import msgspec

    from harbourmaster.cli.diagnosis import Finding
    from harbourmaster.cli.live.installation import Installation

_WORKLOADS: Final = (
    resources.DEPLOYMENTS,
    resources.STATEFUL_SETS,
    resources.DAEMON_SETS,
    resources.ROLLOUTS,
)
_CHECKED: Final = tuple(
    keptn_resource
    for keptn_resource in KEPTN_RESOURCES
    if is_checked(keptn_resource.group, keptn_resource.kind)
)
_REFERRING: Final[dict[resources.Resource, Any]] = {
    resources.WORKLOAD_VERSIONS: WorkloadVersion,
    resources.APP_VERSIONS: AppVersion,
    resources.APP_CONTEXTS: AppContext,
    resources.EVALUATION_DEFINITIONS: EvaluationDefinition,
    resources.KEPTN_METRICS: Metric,
}
_DEFINITIONS: Final = (
    (resources.TASK_DEFINITIONS, "tasks"),
    (resources.EVALUATION_DEFINITIONS, "evaluations"),
)
To: TypeAlias = tuple[resources.Resource, str, str]
"""The object of a reference: kind, name, and namespace, or "" if the reference has none."""
Wanted: TypeAlias = dict[tuple[str, To], str]
"""The first object that refers to another one, by the namespace of the reference and its object."""


async def check(live: Installation) -> AsyncIterator[Finding]:
    """Each mistake with its object; pods of one owner count once."""
    settings = await live.known_settings()
    excluded = {*settings.webhook.excluded_namespaces, live.namespace}
    places = (live.namespace, *settings.lifecycle.definition_namespaces)
    wanted: Wanted = {}
    for space in await live.namespaces():
        is_asking = space.annotations.get(OPT_IN_KEY) == OPT_IN
        if is_asking and space.name not in excluded and not space.deletion_timestamp:
            async for subject, text in _keys(live, space.name, wanted):
                yield mistake(subject, text)
    for resource in _CHECKED:
        for fault in await live.items(resource, partial(_faults, resource)):
            for text in fault[1]:
                yield mistake(fault[0], text)
    for rest in (_missing(live, wanted, places), _configs(live, places)):
        async for finding in rest:
            yield finding


async def _configs(live: Installation, places: tuple[str, ...]) -> AsyncIterator[Finding]:
    """KeptnConfigs that do not count, and those of which a part does not."""
    configs = await live.items(resources.KEPTN_CONFIGS, Decoder(Config).decode)
    choice = choose_config(configs, places)
    for config in configs:
        text, own = status_text(config, choice, places), config.metadata
        if waits_for_adoption(config, choice, places):
            yield warning(f"KeptnConfig {own.key}", text, adopting(config))
        elif config not in (choice.first, choice.counts):
            remedy = f"copy its spec to one in namespace {live.namespace}, and delete it here"
            yield warning(f"KeptnConfig {own.key}", text, remedy)
        elif not is_in_force(text):
            remedy = f"kubectl -n {own.namespace} edit keptnconfig {own.name}"
            yield warning(f"KeptnConfig {own.key}", text, remedy)


async def _keys(
    live: Installation, namespace: str, wanted: Wanted
) -> AsyncIterator[tuple[str, str]]:
    """On workloads, and on the first pod of each owner; what they name is ``wanted``."""
    seen: set[tuple[str, str]] = set()
    for resource in (*_WORKLOADS, resources.PODS):
        kind = "pod" if resource == resources.PODS else resource.kind
        for own in await live.items(resource, metadata_in, namespace, metadata_only=True):
            mistakes = key_mistakes(own.annotations, own.labels)
            if resource == resources.PODS:
                mistakes += owner_mistakes(own.annotations, own.labels, own.owner_references)
            owner = own.controller.uid if own.controller else own.uid
            for found_mistake in mistakes:
                if (owner, found_mistake.text) not in seen:
                    seen.add((owner, found_mistake.text))
                    yield f"{kind} {own.key}", found_mistake.text
            for to in _checks_of(workload_of(own.annotations, own.labels)):
                wanted.setdefault((namespace, to), f"{kind} {own.key}")


def _faults(resource: resources.Resource, raw: msgspec.Raw) -> tuple[str, list[str]] | None:
    """Return the name of a stored object and why admission would refuse it, or None."""
    faults = faults_of(resource.group, resource.kind, raw)
    return (f"{resource.kind} {metadata_in(raw).key}", [*map(str, faults)]) if faults else None


def _checks_of(spec: Any) -> Iterator[To]:  # noqa: ANN401 - of any kind that names checks, or None
    for resource, plural in _DEFINITIONS:
        for when in ("pre_deployment", "post_deployment", "promotion"):
            for name in getattr(spec, f"{when}_{plural}", ()):
                yield resource, name, ""


def _references_of(obj: Any) -> Iterator[To]:  # noqa: ANN401 - of a kind in _REFERRING
    """Yield the references of an object; a version that has ended has none."""
    spec, own = obj.spec, obj.metadata
    if isinstance(obj, EvaluationDefinition):
        for to in (objective.keptn_metric_ref for objective in obj.spec.objectives):
            yield resources.KEPTN_METRICS, to.name, to.namespace
    elif isinstance(obj, Metric):
        yield resources.METRICS_PROVIDERS, spec.provider.name, own.namespace
    elif isinstance(obj, AppContext):
        yield resources.APPS, own.name, own.namespace
        yield from _checks_of(spec)
    elif not obj.status.is_finished:
        yield from _checks_of(spec)


async def _missing(
    live: Installation, wanted: Wanted, places: tuple[str, ...]
) -> AsyncIterator[Finding]:
    """References to what does not exist where it is looked for."""
    for resource, kind in _REFERRING.items():
        for obj in await live.items(resource, Decoder(kind).decode):
            for to in _references_of(obj):
                own = obj.metadata
                wanted.setdefault((own.namespace, to), f"{resource.kind} {own.key}")
    for (origin, (resource, name, place)), by in wanted.items():
        known = await live.items(resource, metadata_in, metadata_only=True)
        looked = (place,) if place else tuple(dict.fromkeys((origin, *places)))
        there = [candidate.name for candidate in known if candidate.namespace in looked]
        if name in there:
            continue
        near = did_you_mean(name, there, VERY_NEAR)
        # A context may be there before its app.
        if resource == resources.APPS and not near:
            continue
        remedy = near or f"create it; kubectl -n {looked[0]} get {resource.plural} lists others"
        if others := [candidate.namespace for candidate in known if candidate.name == name]:
            remedy = f"one exists in namespace {shorten(others)}: create it in {looked[0]}"
        text = f'{resource.kind} "{name}" not found in namespace {" or ".join(looked)}'
        yield warning(by, text, remedy)
