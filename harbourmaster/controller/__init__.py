"""The controller process, which alone writes to the API server."""

from __future__ import annotations
