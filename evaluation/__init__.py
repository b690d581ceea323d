"""Judging values: targets, objectives and the course of an evaluation. Pure: no I/O, no clock."""

from __future__ import annotations
