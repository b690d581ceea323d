"""The warning of a review, which becomes an admission warning and an audit annotation."""

from __future__ import annotations

from msgspec import Struct


class AdmissionWarning(Struct, frozen=True, gc=False):
    """One line for the user, and a code that tools can count.

    Of the merge: ``policy-invalid``, ``policy-scheduler-name``, ``affinity-too-large`` and
    ``affinity-conflict``.
    """

    code: str
    text: str
