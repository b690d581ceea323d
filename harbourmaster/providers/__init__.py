"""Metric providers, a file for each behind one Protocol, for evaluations and placement."""

from __future__ import annotations
