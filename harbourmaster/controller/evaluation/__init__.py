"""The reconcilers of metrics, analyses and evaluations."""

from __future__ import annotations
