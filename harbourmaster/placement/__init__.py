"""Decides which cluster runs an application. Pure: no I/O, no clock."""

from __future__ import annotations
