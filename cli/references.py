"""References across namespaces without consent, for ``doctor``, ``migrate`` and ``why``."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.references import DEFAULT_MODE, Reference, consent, consenting
from harbourmaster.api.resources import (
    ANALYSES,
    ANALYSIS_DEFINITIONS,
    ANALYSIS_VALUE_TEMPLATES,
    EVALUATION_DEFINITIONS,
    KEPTN_METRICS,
    MAGNUM_CLUSTERS,
    METRICS_PROVIDERS,
    PROJECTS,
)
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.evaluation.model import Analysis, AnalysisDefinition, AnalysisValueTemplate
from harbourmaster.lifecycle.model import EvaluationDefinition
from harbourmaster.placement.model import MagnumCluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from harbourmaster.api.references import ReferenceMode
    from harbourmaster.api.resources import (
        Resource,
    )
    from harbourmaster.cli.live.installation import Installation

KINDS: Final[Mapping[Resource, Any]] = {
    ANALYSES: Analysis,
    ANALYSIS_DEFINITIONS: AnalysisDefinition,
    ANALYSIS_VALUE_TEMPLATES: AnalysisValueTemplate,
    EVALUATION_DEFINITIONS: EvaluationDefinition,
    MAGNUM_CLUSTERS: MagnumCluster,
}
"""The kinds whose objects may name objects of other namespaces."""


class Unconsented(Struct, frozen=True):
    """An object without the consent to references from ``origins``; ``allowed`` are others."""

    to: Reference
    origins: tuple[str, ...]
    allowed: tuple[str, ...] = ()

    @property
    def command(self) -> tuple[str, ...]:
        """The arguments of kubectl by which it allows these namespaces, too."""
        found = consent(self.to, sorted({*self.allowed, *self.origins}))
        return (*found, "--overwrite") if self.allowed else found


def references_in(raw: msgspec.Raw | bytes, resource: Resource) -> tuple[Reference, ...]:
    """The references of an object to those of named namespaces. Raises DecodeError."""
    found = msgspec.json.decode(raw, type=KINDS[resource])
    origin = found.metadata.namespace
    references = tuple(
        Reference(kind, namespace or origin, name, origin)
        for kind, namespace, name in dict.fromkeys(_named(found))
        # A template's provider without a namespace is looked up where the definition is.
        if name and (namespace or kind != METRICS_PROVIDERS)
    )
    if resource != MAGNUM_CLUSTERS:
        return references
    # Its project takes it: both consent.
    name = found.metadata.name
    return references + tuple(
        Reference(resource, origin, name, each.namespace) for each in references
    )


def _named(found: object) -> Iterator[tuple[Resource, str, str]]:
    """Kind, namespace and name of what it refers to."""
    match found:
        case Analysis():
            wanted = found.spec.analysis_definition
            yield ANALYSIS_DEFINITIONS, wanted.namespace, wanted.name
        case AnalysisDefinition():
            for each in found.spec.objectives:
                wanted = each.analysis_value_template_ref
                yield ANALYSIS_VALUE_TEMPLATES, wanted.namespace, wanted.name
        case AnalysisValueTemplate():
            yield METRICS_PROVIDERS, found.spec.provider.namespace, found.spec.provider.name
        case EvaluationDefinition():
            for one in found.spec.objectives:
                yield KEPTN_METRICS, one.keptn_metric_ref.namespace, one.keptn_metric_ref.name
        case MagnumCluster() if found.status.project is not None:
            yield PROJECTS, found.status.project.namespace, found.status.project.name


async def unconsented(
    live: Installation, mode: ReferenceMode, versions: Mapping[str, Resource] | None = None
) -> list[Unconsented]:
    """What lacks consent, of objects that exist; ``Open`` asks for the default. Raises an ApiError.

    ``versions`` are kinds by plural, where a cluster has other versions of them.
    """
    mode, known = (DEFAULT_MODE if mode == "Open" else mode), versions or {}
    origins: defaultdict[Reference, set[str]] = defaultdict(set)
    for resource in KINDS:

        def pick(raw: msgspec.Raw, resource: Resource = resource) -> tuple[Reference, ...]:
            return references_in(raw, resource)

        listed = await live.items(known.get(resource.plural, resource), pick)
        for to in (each for found in listed for each in found):
            if to.needs_consent(mode):
                origins[replace(to, origin="")].add(to.origin)
    lacking = []
    for to, those in origins.items():
        stored = known.get(to.resource.plural, to.resource)
        metadata = await live.read(stored, to.name, metadata_in, to.namespace)
        if metadata is None:
            continue
        refused = [
            each
            for each in sorted(those)
            if not replace(to, origin=each).is_allowed(mode, metadata.annotations)
        ]
        if refused:
            allowed = tuple(sorted(consenting(metadata.annotations)))
            lacking.append(Unconsented(to, tuple(refused), allowed))
    return sorted(
        lacking, key=lambda each: (each.to.namespace, each.to.resource.kind, each.to.name)
    )
