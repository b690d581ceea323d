"""The servers of a process: TLS, limits, readiness, health and a drain that loses no request."""

from __future__ import annotations
