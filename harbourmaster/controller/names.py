"""The names of the controllers, in the order in which they start."""

from __future__ import annotations

from typing import Final

REGISTRATION: Final = "registration"
NAMESPACES: Final = "namespaces"
POLICIES: Final = "policies"
METRICS: Final = "metrics"
LIFECYCLE: Final = "lifecycle"
RESCHEDULING: Final = "rescheduling"
PLACEMENT: Final = "placement"

CONTROLLERS: Final = {
    REGISTRATION: "create and repair webhook configurations and their certificates",
    NAMESPACES: "label namespaces that opt in to gates",
    POLICIES: "show in the status of policies who enforces them",
    METRICS: "query metric providers and run analyses",
    LIFECYCLE: "run tasks and evaluations, and release pods whose checks passed",
    RESCHEDULING: "make room for critical add-ons; off unless rescheduling.enabled",
    PLACEMENT: (
        "select a cluster for each application and apply it there; off unless placement.enabled"
    ),
}
"""Descriptions of the controllers for the help text, by name."""
