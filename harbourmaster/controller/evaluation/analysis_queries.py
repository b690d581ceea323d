"""The queries of an analysis, and the value of each (keptn-spec 4.3, 4.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.references import Reference
from harbourmaster.api.resources import ANALYSIS_VALUE_TEMPLATES, METRICS_PROVIDERS
from harbourmaster.evaluation.analysis import range_step, timeframe_bounds
from harbourmaster.evaluation.model import AnalysisDefinition, AnalysisValueTemplate, Provider
from harbourmaster.evaluation.templates import parse_template, render
from harbourmaster.providers.errors import NotFiniteError, NoValuesError
from harbourmaster.providers.model import Question
from harbourmaster.providers.numbers import format_shortest
from harbourmaster.providers.registry import PROVIDERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harbourmaster.api.references import ReferenceMode
    from harbourmaster.controller.evaluation.caches import MetricCaches
    from harbourmaster.controller.evaluation.query_service import QueryService
    from harbourmaster.evaluation.model import ObjectReference, Timeframe
    from harbourmaster.kube.reflector import Reflector

T = TypeVar("T", AnalysisDefinition, AnalysisValueTemplate, Provider)

METRIC_PATH: Final = "metricPath"
"""The argument that selects one of Elasticsearch's numbers."""
_BY_PATH: Final = "elastic"
_SERIES: Final = frozenset(("prometheus", "thanos", "cortex"))
"""The types that return values over time, of which the first one counts."""


class AnalysisQuery(Struct, frozen=True):
    """The question of an objective, and the provider that answers it."""

    provider: Provider
    question: Question

    def is_like(self, query: AnalysisQuery) -> bool:
        """Return whether ``query`` has the same question for the same provider."""
        return (
            self.question == query.question
            and self.provider.metadata.uid == query.provider.metadata.uid
            and self.provider.spec == query.provider.spec
        )


class UnaskableError(Exception):
    """A query that cannot be sent before an object changes; the text is one line."""


class RefusedError(UnaskableError):
    """A reference into another namespace lacks consent; the text has the command for it."""


def query_for(
    reference: ObjectReference,
    namespace: str,
    arguments: Mapping[str, str],
    timeframe: Timeframe,
    caches: MetricCaches,
    *,
    mode: ReferenceMode,
) -> AnalysisQuery:
    """Return the query of the template ``reference``. Raises UnaskableError, and RefusedError.

    ``namespace`` is that of the definition, which is the default for templates and for their
    providers (keptn-spec 4.5).
    """
    to_template = Reference(
        ANALYSIS_VALUE_TEMPLATES, reference.namespace or namespace, reference.name, namespace
    )
    template = resolve_reference(caches.templates, to_template, mode)
    target = template.spec.provider
    # A name without a namespace refers to the namespace of the definition.
    origin = template.metadata.namespace if target.namespace else namespace
    to_provider = Reference(METRICS_PROVIDERS, target.namespace or namespace, target.name, origin)
    provider = resolve_reference(caches.providers, to_provider, mode)
    kind = provider.type
    if kind not in PROVIDERS:
        raise UnaskableError(f"unsupported provider: {kind}")
    path = arguments.get(METRIC_PATH, "") if kind == _BY_PATH else ""
    if kind == _BY_PATH and not path:
        raise UnaskableError(f"a provider of type {_BY_PATH} needs the argument {METRIC_PATH}")
    try:
        text = render(parse_template(template.spec.query), arguments, kind)
        begin, end = timeframe_bounds(timeframe)
    except ValueError as error:
        raise UnaskableError(str(error)) from None
    return AnalysisQuery(provider, Question(query=text, start=begin, end=end, path=path))


def resolve_reference(cache: Reflector[T], to: Reference, mode: ReferenceMode) -> T:
    """Return the object. Raises RefusedError without its consent, UnaskableError without it."""
    obj = cache.store.get(f"{to.namespace}/{to.name}")
    if not to.is_allowed(mode, None if obj is None else obj.metadata.annotations):
        raise RefusedError(to.refusal)
    if obj is None:
        kind = to.resource.kind.lower()
        raise UnaskableError(f"{kind} {to.namespace}/{to.name} not found")
    return obj


async def fetch_value(service: QueryService, query: AnalysisQuery) -> str:
    """Return the value as text, also NaN and infinities. Raises ProviderError."""
    try:
        if query.provider.type in _SERIES:
            return await _fetch_first_value(service, query)
        return (await service.ask(query.provider, query.question)).value
    except NotFiniteError as error:
        text = str(error)
        return next((infinity for infinity in ("+Inf", "-Inf") if infinity in text), "NaN")


async def _fetch_first_value(service: QueryService, query: AnalysisQuery) -> str:
    """Return the first value within the timeframe, of one for each minute.

    A value at the beginning is the first one, so that no others need to be read.
    """
    question = query.question
    begin, end = question.start or 0.0, question.end or 0.0
    try:
        sample = (await service.ask(query.provider, question)).samples[0]
    except NoValuesError:
        sample = None
    if sample is None or sample.time > begin:
        stepped = replace(question, step=range_step(begin, end))
        sample = (await service.ask(query.provider, stepped)).samples[0]
    return format_shortest(sample.value)
