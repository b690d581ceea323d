"""What a scheduler is told of pods that wait inside it: not yet, and not there (D9)."""

from __future__ import annotations
