"""Signals that are kept instead of told."""

from __future__ import annotations

from typing import NamedTuple

from harbourmaster.controller.lifecycle.signals import Reference
from harbourmaster.lifecycle.events import REASONS


class Recorded(NamedTuple):
    """One signal; ``about`` is the kind and the name of its object."""

    about: str
    reason: str
    text: str = ""
    warning: bool | None = None
    obj: object = None


class RecordedSignals:
    """Has the methods of Signals; ``kept`` holds what was emitted, in order.

    ``reason`` is phase and state as one word; for the other methods it is their name. ``on_told``
    is called after each: signals come after the write that a watch may have brought before.
    """

    def __init__(self, *, tracing=False, on_told=lambda: None):
        self.is_tracing = tracing
        self.kept: list[Recorded] = []
        self.on_told = on_told

    @property
    def reasons(self):
        return [report.reason for report in self.kept]

    def of(self, name):
        """The reasons of the object with that name."""
        return [report.reason for report in self.kept if report.obj.metadata.name == name]

    def emit(self, obj, phase, state, text="", *, warning=None, is_minor=False):
        assert f"{phase}{state}" in REASONS
        self._keep(obj, f"{phase}{state}", text, warning)

    def report_wait(self, about, wait):
        self.kept.append(
            Recorded(f"{about.kind} {about.name}", wait.reason, wait.text, wait.is_warning, about)
        )
        self.on_told()

    def report_created(self, obj):
        self._keep(obj, "created")

    def report_deprecated(self, obj):
        self._keep(obj, "deprecated")

    def report_late_checks(self, version, text):
        self._keep(version, "PreCheckDeadlineExceeded", text)

    def report_completed(self, obj):
        self._keep(obj, "completed")

    def _keep(self, obj, reason, text="", warning=None):
        kind = obj.resource.kind if isinstance(obj, Reference) else type(obj).__name__
        self.kept.append(Recorded(f"{kind} {obj.metadata.name}", reason, text, warning, obj))
        self.on_told()
