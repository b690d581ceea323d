"""Cortex and Mimir: they speak the API of Prometheus below a prefix, which the server's URL has."""

from __future__ import annotations

from harbourmaster.providers.prometheus import Prometheus


class Cortex(Prometheus):
    """Its query frontend, with the prefix that it is configured for, such as ``/prometheus``."""
