"""Judging values: targets, objectives, progress of evaluations. Pure: no I/O, no clock."""

from __future__ import annotations
