"""The companion process: it writes to the API server everything that is written."""

from __future__ import annotations
