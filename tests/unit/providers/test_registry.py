"""The client of each type of provider."""

from __future__ import annotations

import inspect

from harbourmaster.providers.registry import PROVIDERS


def test_every_type_of_the_definition_has_its_client():
    assert sorted(PROVIDERS) == [
        *("cortex", "datadog", "dql", "dynatrace", "elastic"),
        *("kafka", "prometheus", "static", "thanos"),
    ]
    for kind, provider in PROVIDERS.items():
        api = "prometheus" if kind in {"cortex", "thanos"} else kind
        assert type(provider).__name__.lower() == api
        assert inspect.iscoroutinefunction(provider.ask)
