"""Decides where, when and in which cluster Kubernetes pods run."""

from __future__ import annotations

__version__ = "0.2.0"
