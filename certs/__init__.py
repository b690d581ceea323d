"""Certificates: made, checked, renewed in time and swapped under a running server."""

from __future__ import annotations
