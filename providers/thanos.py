"""Thanos: its querier speaks the API of Prometheus."""

from __future__ import annotations

from harbourmaster.providers.prometheus import Prometheus


class Thanos(Prometheus):
    """A querier or query frontend, with the partial responses that it is configured for."""
