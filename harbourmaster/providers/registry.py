"""The client of each type of metric providers."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from harbourmaster.providers.datadog import Datadog
from harbourmaster.providers.dql import Dql
from harbourmaster.providers.dynatrace import Dynatrace
from harbourmaster.providers.elastic import Elastic
from harbourmaster.providers.kafka import Kafka
from harbourmaster.providers.prometheus import Prometheus
from harbourmaster.providers.static import Static

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harbourmaster.providers.model import Provider

PROVIDERS: Final[Mapping[str, Provider]] = MappingProxyType(
    {
        # Cortex and Mimir have the API of Prometheus below a prefix, which is in the server's URL.
        "cortex": Prometheus(),
        "datadog": Datadog(),
        "dql": Dql(),
        "dynatrace": Dynatrace(),
        "elastic": Elastic(),
        "kafka": Kafka(),
        "prometheus": Prometheus(),
        "static": Static(),
        "thanos": Prometheus(),
    }
)
"""The clients by type, in lower case."""
