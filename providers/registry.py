"""Which types of providers there are, and who speaks to them."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from providers.cortex import Cortex
from providers.datadog import Datadog
from providers.dql import Dql
from providers.dynatrace import Dynatrace
from providers.elastic import Elastic
from providers.kafka import Kafka
from providers.prometheus import Prometheus
from providers.static import Static
from providers.thanos import Thanos

if TYPE_CHECKING:
    from collections.abc import Mapping

    from providers.model import Provider

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
