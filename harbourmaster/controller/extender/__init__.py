"""Answers a scheduler about pods that wait in it: not yet, and not on these nodes (D9)."""

from __future__ import annotations
