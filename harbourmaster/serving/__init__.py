"""What a process serves with: TLS, limits, readiness, health and a drain that loses nothing."""

from __future__ import annotations
