"""Evaluations: one reconciler for each kind."""

from __future__ import annotations
