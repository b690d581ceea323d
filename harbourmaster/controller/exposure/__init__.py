"""Metric values for others: as Prometheus text, as JSON, and as the custom metrics API."""

from __future__ import annotations
