"""Placement: the reconcilers, and what reaches member clusters."""

from __future__ import annotations
