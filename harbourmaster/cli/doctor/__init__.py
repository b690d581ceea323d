"""``harbourmaster doctor``: checks whether the installation is healthy, and says what to do."""

from __future__ import annotations
