"""The query of an objective, its provider, and the one value that results (keptn-spec 4.3, 4.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.references import Reference
from harbourmaster.api.resources import ANALYSIS_VALUE_TEMPLATES, METRICS_PROVIDERS
from harbourmaster.evaluation.analysis_progress import range_step, timeframe_bounds
from harbourmaster.evaluation.model import (
    AnalysisDefinition,
    AnalysisValueTemplate,
    Provider,
)
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
"""The argument that says which of Elasticsearch's numbers is meant."""
_BY_PATH: Final = "elastic"
_SERIES: Final = frozenset(("prometheus", "thanos", "cortex"))
"""Types that give values over time, of which the first one counts."""


class AnalysisQuery(Struct, frozen=True):
    """One objective's question. ``provider`` is that object."""

    provider: Provider
    question: Question

    def is_like(self, other: AnalysisQuery) -> bool:
        """Whether the answer would be the same, as far as our objects say."""
        return (
            self.question == other.question
            and self.provider.metadata.uid == other.provider.metadata.uid
            and self.provider.spec == other.provider.spec
        )

    @property
    def text(self) -> str:
        """The query in the provider's language."""
        return self.question.query


class UnaskableError(Exception):
    """One line: what must be changed before anybody can be asked."""


class RefusedError(UnaskableError):
    """A reference into another namespace that does not consent; the text says how it can."""


def query_for(
    reference: ObjectReference,
    namespace: str,
    arguments: Mapping[str, str],
    timeframe: Timeframe,
    caches: MetricCaches,
    *,
    mode: ReferenceMode,
) -> AnalysisQuery:
    """The question of the template ``reference``; names are looked up in ``namespace``.

    That is the definition's, for templates and for their providers (keptn-spec 4.5). Raises
    UnaskableError, and RefusedError.
    """
    place = reference.namespace or namespace
    to_template = Reference(ANALYSIS_VALUE_TEMPLATES, place, reference.name, namespace)
    template = followed(caches.templates, to_template, mode)
    wanted = template.spec.provider
    # A name without a namespace is looked up where the definition is.
    origin = template.metadata.namespace if wanted.namespace else namespace
    place = wanted.namespace or namespace
    to_provider = Reference(METRICS_PROVIDERS, place, wanted.name, origin)
    provider = followed(caches.providers, to_provider, mode)
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


def followed(cache: Reflector[T], to: Reference, mode: ReferenceMode) -> T:
    """The object pointed to. Raises RefusedError without its consent, else UnaskableError."""
    found = cache.store.get(f"{to.namespace}/{to.name}")
    if not to.is_allowed(mode, None if found is None else found.metadata.annotations):
        raise RefusedError(to.refusal)
    if found is None:
        kind = to.resource.kind.lower()
        raise UnaskableError(f"{kind} {to.namespace}/{to.name} not found")
    return found


async def measured(questions: QueryService, query: AnalysisQuery) -> str:
    """The value as text: one that is not finite is a value as well. Raises ProviderError."""
    try:
        if query.provider.type in _SERIES:
            return await _first(questions, query)
        return (await questions.ask(query.provider, query.question)).value
    except NotFiniteError as error:
        text = str(error)
        return next((each for each in ("+Inf", "-Inf") if each in text), "NaN")


async def _first(questions: QueryService, query: AnalysisQuery) -> str:
    """The first value within the time, minute by minute.

    Where it is at the very beginning, nothing that comes later needs to be read.
    """
    question = query.question
    begin, end = question.start or 0.0, question.end or 0.0
    try:
        found = (await questions.ask(query.provider, question)).samples[0]
    except NoValuesError:
        found = None
    if found is None or found.time > begin:
        stepped = replace(question, step=range_step(begin, end))
        found = (await questions.ask(query.provider, stepped)).samples[0]
    return format_shortest(found.value)
