"""Which types of providers there are, and who speaks to them."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from harbourmaster.providers.cortex import Cortex
from harbourmaster.providers.datadog import Datadog
from harbourmaster.providers.dql import Dql
from harbourmaster.providers.dynatrace import Dynatrace
from harbourmaster.providers.elastic import Elastic
from harbourmaster.providers.kafka import Kafka
from harbourmaster.providers.prometheus import Prometheus
from harbourmaster.providers.static import Static
from harbourmaster.providers.thanos import Thanos

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harbourmaster.providers.model import Provider

PROVIDERS: Final[Mapping[str, Provider]] = MappingProxyType(
    {
        "cortex": Cortex(),
        "datadog": Datadog(),
        "dql": Dql(),
        "dynatrace": Dynatrace(),
        "elastic": Elastic(),
        "kafka": Kafka(),
        "prometheus": Prometheus(),
        "static": Static(),
        "thanos": Thanos(),
    }
)
"""By type, in lower case."""
