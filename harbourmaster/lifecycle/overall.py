"""The overall state of many states (keptn-spec 3.0)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.lifecycle.model import (
    DEPRECATED,
    FAILED,
    PENDING,
    PROGRESSING,
    SUCCEEDED,
    UNKNOWN,
    WARNING,
)

if TYPE_CHECKING:
    from collections.abc import Collection


def overall(states: Collection[str], expected: int) -> str:
    """The worst of the states; Pending where some of the ``expected`` ones are not there yet.

    An empty state is Pending. Unlike Keptn, which never gets past one, a Warning lets pass.
    """
    if FAILED in states or DEPRECATED in states:
        return FAILED
    if PROGRESSING in states:
        return PROGRESSING
    if PENDING in states or "" in states:
        return PENDING
    if UNKNOWN in states:
        return UNKNOWN
    passed = sum(state in {SUCCEEDED, WARNING} for state in states)
    if passed != expected:
        return PENDING
    return WARNING if WARNING in states else SUCCEEDED
