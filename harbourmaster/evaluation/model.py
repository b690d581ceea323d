"""Objects of metrics.keptn.sh in version v1 (keptn-spec 1.6).

They have only the fields that we use, and empty fields are not written. Times are RFC 3339 in UTC.
Keptn has no ``kafka`` and ``static`` in providers.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct, field

from harbourmaster.api.metadata import Metadata

PENDING: Final = "Pending"
PROGRESSING: Final = "Progressing"
COMPLETED: Final = "Completed"


class _Wire(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True):
    """The base of all objects and their parts."""


class ObjectReference(_Wire, frozen=True, kw_only=True):
    """A reference to an object, by default in the namespace of the referring object."""

    name: str = ""
    namespace: str = ""


class MetricRange(_Wire, frozen=True, kw_only=True):
    """The period of a metric's query; durations are in Go's syntax."""

    interval: str = "5m"
    step: str = ""
    aggregation: str = ""
    """The function for the values of all steps: p90, p95, p99, max, min, avg or median."""
    stored_results: int = 0


class ProviderName(_Wire, frozen=True, kw_only=True):
    """A reference to a KeptnMetricsProvider of the same namespace."""

    name: str = ""


class MetricSpec(_Wire, frozen=True, kw_only=True):
    """The query, its provider and its interval."""

    provider: ProviderName = ProviderName()
    query: str = ""
    fetch_interval_seconds: int = 0
    range: MetricRange | None = None

    @property
    def interval(self) -> int:
        """The seconds between two queries, by default as in Keptn."""
        return self.fetch_interval_seconds if self.fetch_interval_seconds > 0 else 10


class IntervalResult(_Wire, frozen=True, kw_only=True):
    """A stored result; all fields except the error are always written."""

    value: str = field()
    range: MetricRange = field()
    last_updated: str = field()
    err_msg: str = ""


class MetricStatus(_Wire, frozen=True, kw_only=True):
    """The newest value; ``raw_value`` is the answer of the provider in base64."""

    value: str = ""
    raw_value: str = ""
    last_updated: str = ""
    err_msg: str = ""
    interval_results: tuple[IntervalResult, ...] = ()
    question: str = ""
    """The hash of the question that the values answer; empty if it is unknown. Not in Keptn."""


class Metric(_Wire, frozen=True, kw_only=True):
    """A KeptnMetric."""

    metadata: Metadata
    spec: MetricSpec = MetricSpec()
    status: MetricStatus = MetricStatus()


class SecretKey(_Wire, frozen=True, kw_only=True):
    """A key of a Secret of the same namespace."""

    name: str = ""
    key: str = ""
    optional: bool | None = None


class KafkaTable(_Wire, frozen=True, kw_only=True):
    """A KSQL table; the value is in the row whose ``comparison_column`` equals the query."""

    table: str = ""
    comparison_column: str = ""
    value_column: str = ""


class StaticMetrics(_Wire, frozen=True, kw_only=True):
    """Constant values by query, as numbers or quantities."""

    metrics: dict[str, str | int | float] = {}


class ProviderSpec(_Wire, frozen=True, kw_only=True):
    """The URL, type and credentials of a provider."""

    type: str = ""
    target_server: str = ""
    secret_key_ref: SecretKey | None = None
    insecure_skip_tls_verify: bool = False
    kafka: KafkaTable | None = None
    static: StaticMetrics | None = None


class Provider(_Wire, frozen=True, kw_only=True):
    """A KeptnMetricsProvider; its status is a string."""

    metadata: Metadata
    spec: ProviderSpec = ProviderSpec()

    @property
    def type(self) -> str:
        """The type of the provider in lower case, by default its name."""
        return (self.spec.type or self.metadata.name).lower()


class Timeframe(_Wire, frozen=True, kw_only=True):
    """A period, by its two ends or by its length until now."""

    from_: str = field(default="", name="from")
    to: str = ""
    recent: str = ""


class AnalysisSpec(_Wire, frozen=True, kw_only=True):
    """The definition of an analysis, its timeframe, and the arguments of the queries."""

    timeframe: Timeframe = Timeframe()
    analysis_definition: ObjectReference = ObjectReference()
    args: dict[str, str] = {}


class StoredValue(_Wire, frozen=True, kw_only=True):
    """The value of an objective's query, or its error."""

    objective_reference: ObjectReference | None = None
    query: str = ""
    value: str = ""
    err_msg: str = ""


class AnalysisStatus(_Wire, frozen=True, kw_only=True):
    """``timeframe`` and ``state`` are always written; ``raw`` is JSON."""

    timeframe: Timeframe = field(default_factory=Timeframe)
    state: str = ""
    raw: str = ""
    passed: bool = field(default=False, name="pass")
    warning: bool = False
    stored_values: dict[str, StoredValue] = {}


class Analysis(_Wire, frozen=True, kw_only=True):
    """An Analysis, which runs once."""

    metadata: Metadata
    spec: AnalysisSpec = AnalysisSpec()
    status: AnalysisStatus = AnalysisStatus()


class AnalysisObjective(_Wire, frozen=True, kw_only=True):
    """A value and its criteria; ``target`` is decoded by ``criteria.decode_target``."""

    analysis_value_template_ref: ObjectReference = ObjectReference()
    target: Any = None
    weight: int = 1
    key_objective: bool = False


class TotalScore(_Wire, frozen=True, kw_only=True):
    """Percentages of the highest possible score."""

    pass_percentage: int = 0
    warning_percentage: int = 0


class AnalysisDefinitionSpec(_Wire, frozen=True, kw_only=True):
    """The objectives of an analysis and its limits."""

    objectives: tuple[AnalysisObjective, ...] = ()
    total_score: TotalScore = TotalScore()


class AnalysisDefinition(_Wire, frozen=True, kw_only=True):
    """An AnalysisDefinition."""

    metadata: Metadata
    spec: AnalysisDefinitionSpec = AnalysisDefinitionSpec()


class AnalysisValueTemplateSpec(_Wire, frozen=True, kw_only=True):
    """A query with placeholders for arguments, and its provider."""

    provider: ObjectReference = ObjectReference()
    query: str = ""


class AnalysisValueTemplate(_Wire, frozen=True, kw_only=True):
    """An AnalysisValueTemplate."""

    metadata: Metadata
    spec: AnalysisValueTemplateSpec = AnalysisValueTemplateSpec()
