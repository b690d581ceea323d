"""The name by which the program was called: its own, or kubectl's plugin."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

OWN: Final = "harbourmaster"
PLUGIN: Final = f"kubectl {OWN}"

name: Final[ContextVar[str]] = ContextVar("name", default=OWN)
"""For messages and help."""
