"""``harbourmaster grant``: gives the controller permissions in one namespace, by the user's own."""

from __future__ import annotations
