"""``harbourmaster doctor``: whether the installation is sound, and what to do where it is not."""

from __future__ import annotations
