"""Spans of what a controller does: one for each look at a key."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from harbourmaster.telemetry.text import clean

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from harbourmaster.telemetry.spans import Tracer

    Reconcile = Callable[[str], Awaitable[float | None]]


def traced(controller: str, reconcile: Reconcile, tracer: Tracer | None) -> Reconcile:
    """The same with a span for each key, of those that are sampled; as it is without a tracer."""
    if tracer is None:
        return reconcile

    async def with_span(key: str) -> float | None:
        context = tracer.sampled()
        if context is None:
            return await reconcile(key)
        begun, outcome, error = time.time(), "cancelled", ""
        try:
            wait = await reconcile(key)
            outcome = "done"
        except Exception as failure:
            outcome, error = "failed", type(failure).__name__
            raise
        finally:
            attributes = {
                "harbourmaster.controller": controller,
                "harbourmaster.key": clean(key),
                "harbourmaster.outcome": outcome,
            }
            if error:
                attributes["error.type"] = error
            tracer.record(context, "reconcile", (begun, time.time()), attributes, error=error)
        return wait

    return with_span
