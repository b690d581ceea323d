"""References across namespaces that lack consent (decision D17)."""

from __future__ import annotations

import shlex
from collections import defaultdict
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api import resources
from harbourmaster.api.references import STRICT, Reference, consent, consenting
from harbourmaster.cli.batches import plural, shorten
from harbourmaster.cli.diagnosis import note, warning
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.evaluation.model import Analysis, AnalysisDefinition, AnalysisValueTemplate
from harbourmaster.lifecycle.model import EvaluationDefinition
from harbourmaster.placement.model import MagnumCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.controller.settings import ControllerSettings

    Named = Iterable[tuple[Resource, Any]]
    from collections.abc import AsyncIterator

    from harbourmaster.cli.diagnosis import Finding

KINDS: Final[Mapping[Resource, tuple[type, Callable[[Any], Named]]]] = {
    resources.ANALYSES: (
        Analysis,
        lambda obj: [(resources.ANALYSIS_DEFINITIONS, obj.spec.analysis_definition)],
    ),
    resources.ANALYSIS_DEFINITIONS: (
        AnalysisDefinition,
        lambda obj: [
            (resources.ANALYSIS_VALUE_TEMPLATES, objective.analysis_value_template_ref)
            for objective in obj.spec.objectives
        ],
    ),
    resources.ANALYSIS_VALUE_TEMPLATES: (
        AnalysisValueTemplate,
        lambda obj: [(resources.METRICS_PROVIDERS, obj.spec.provider)],
    ),
    resources.EVALUATION_DEFINITIONS: (
        EvaluationDefinition,
        lambda obj: [
            (resources.KEPTN_METRICS, objective.keptn_metric_ref)
            for objective in obj.spec.objectives
        ],
    ),
    resources.MAGNUM_CLUSTERS: (
        MagnumCluster,
        lambda obj: [(resources.PROJECTS, obj.status.project)],
    ),
}
"""The kinds whose objects may name objects of other namespaces, and what each of them names."""


class Unconsented(Struct, frozen=True):
    """An object without the consent to references from ``origins``; ``allowed`` are others."""

    to: Reference
    origins: tuple[str, ...]
    allowed: tuple[str, ...] = ()

    @property
    def command(self) -> tuple[str, ...]:
        """The arguments of kubectl by which it allows these namespaces, too."""
        arguments = consent(self.to, sorted({*self.allowed, *self.origins}))
        return (*arguments, "--overwrite") if self.allowed else arguments


def references_in(raw: msgspec.Raw | bytes, resource: Resource) -> tuple[Reference, ...]:
    """The references of an object to those of named namespaces. Raises DecodeError."""
    kind, named = KINDS[resource]
    obj: Any = msgspec.json.decode(raw, type=kind)
    origin = obj.metadata.namespace
    references = dict.fromkeys(
        Reference(to, named_object.namespace or origin, named_object.name, origin)
        for to, named_object in named(obj)
        # A template's provider without a namespace is looked up where the definition is.
        if named_object
        and named_object.name
        and (named_object.namespace or to != resources.METRICS_PROVIDERS)
    )
    # Its project takes a Magnum cluster: both consent.
    name = obj.metadata.name if resource == resources.MAGNUM_CLUSTERS else ""
    back = [
        Reference(resource, origin, name, reference.namespace) for reference in references if name
    ]
    return (*references, *back)


def shared_namespaces(live: Installation, settings: ControllerSettings) -> tuple[str, ...]:
    """Return the namespaces in which definitions and metrics of all namespaces are looked up."""
    return live.namespace, *settings.lifecycle.definition_namespaces


async def list_unconsented(
    live: Installation,
    settings: ControllerSettings,
    versions: Mapping[str, Resource] | None = None,
) -> list[Unconsented]:
    """Return objects without consent to a reference, where all need it. Raises an ApiError.

    ``versions`` are kinds by plural, where a cluster has other versions of them.
    """
    known, shared = versions or {}, shared_namespaces(live, settings)
    origins: defaultdict[Reference, set[str]] = defaultdict(set)
    for resource in KINDS:
        pick = partial(references_in, resource=resource)
        listed = await live.items(known.get(resource.plural, resource), pick)
        for to in chain.from_iterable(listed):
            if to.needs_consent(STRICT, shared):
                origins[replace(to, origin="")].add(to.origin)
    lacking = []
    for to, namespaces in origins.items():
        stored = known.get(to.resource.plural, to.resource)
        metadata = await live.read(stored, to.name, metadata_in, to.namespace)
        if metadata is None:
            continue
        refused = [
            origin
            for origin in sorted(namespaces)
            if not replace(to, origin=origin).is_allowed(STRICT, metadata.annotations)
        ]
        if refused:
            allowed = tuple(sorted(consenting(metadata.annotations)))
            lacking.append(Unconsented(to, tuple(refused), allowed))
    return sorted(
        lacking, key=lambda item: (item.to.namespace, item.to.resource.kind, item.to.name)
    )


async def check(live: Installation) -> AsyncIterator[Finding]:
    """Each reference without consent, and how many more would be refused if all needed it."""
    settings = await live.known_settings()
    mode = settings.cross_namespace_references
    followed: list[Unconsented] = []
    for obj in await list_unconsented(live, settings):
        subject = f"{obj.to.resource.kind} {obj.to.namespace}/{obj.to.name}"
        origins = ", ".join(obj.origins)
        remedy = f"to consent: kubectl {shlex.join(obj.command)}"
        text = f"references from {origins} have no consent: crossNamespaceReferences is {mode}, so"
        if obj.to.needs_consent(mode):
            yield warning(subject, f"{text} they are refused", remedy)
        else:
            followed.append(obj)
            yield note(subject, f"{text} they are followed", remedy)
    if mode != STRICT and (followed or not (live.scope or await live.is_local())):
        origins = shorten(sorted({origin for obj in followed for origin in obj.origins}))
        objects = plural(len(followed), "object")
        refused = f"references from {origins} to {objects}" if followed else "no reference"
        text = f"it is {mode}: {STRICT}, as in new installations, would refuse {refused}"
        step = f"set it to {STRICT}: docs/reference/metrics.md#references-across-namespaces"
        yield note("crossNamespaceReferences", text, f"consent, then {step}" if followed else step)
