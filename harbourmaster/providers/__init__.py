"""Metric providers: one file for each, behind one Protocol; evaluations and placement ask them."""

from __future__ import annotations
