"""Which cluster runs an application: constraints, filters, scores. Pure: no I/O, no clock."""

from __future__ import annotations
