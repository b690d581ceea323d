"""Makes room for critical add-ons: the executor of the rescheduler's plans (rescheduler-spec 6)."""

from __future__ import annotations
