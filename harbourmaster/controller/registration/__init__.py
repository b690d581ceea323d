"""The registration: webhook configurations and certificates, made, kept and repaired."""

from __future__ import annotations
