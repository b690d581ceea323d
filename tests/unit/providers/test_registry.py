"""Who speaks to which type."""

from __future__ import annotations

import inspect

from harbourmaster.providers.registry import PROVIDERS


def test_every_type_of_the_definition_has_one_who_speaks_to_it():
    assert sorted(PROVIDERS) == [
        *("cortex", "datadog", "dql", "dynatrace", "elastic"),
        *("kafka", "prometheus", "static", "thanos"),
    ]
    for kind, provider in PROVIDERS.items():
        assert type(provider).__name__.lower() == kind
        assert inspect.iscoroutinefunction(provider.ask)
