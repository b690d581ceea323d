"""A real Kubernetes control plane without nodes: built, cached, started and stopped."""

from __future__ import annotations
