"""The phases of applications and workloads: one reconciler for each kind."""

from __future__ import annotations
