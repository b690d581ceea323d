"""What the user is told besides the answer: admission warnings and audit annotations."""

from __future__ import annotations

from msgspec import Struct


class AdmissionWarning(Struct, frozen=True, gc=False):
    """One line for the user, and a code that tools can count.

    Of the merge: ``policy-invalid``, ``policy-scheduler-name``, ``affinity-too-large`` and
    ``affinity-conflict``.
    """

    code: str
    text: str
