"""The controllers that a controller process can run, by the names in its settings.

To add one, write a module here with ``start(process: Process) -> Part`` and add its line to
CONTROLLERS. Settings, metrics and caches stand in the folder of their controller. The rights of
each stand in ``deploy/rbac`` (``registration/``, ``controller.yaml`` for namespaces,
``metrics.yaml``, ``lifecycle.yaml``) or, if it is off by default, in ``rights.yaml`` of the
component that switches it on (``deploy/components/rescheduling``, ``placement``).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.controller.parts import Part, Process

REGISTRATION: Final = "registration"
NAMESPACES: Final = "namespaces"
METRICS: Final = "metrics"
LIFECYCLE: Final = "lifecycle"
RESCHEDULING: Final = "rescheduling"
PLACEMENT: Final = "placement"

CONTROLLERS: Final = {
    REGISTRATION: "registration.controller",
    NAMESPACES: "namespaces",
    METRICS: "evaluation.controller",
    LIFECYCLE: "lifecycle.controller",
    RESCHEDULING: "rescheduling.controller",
    PLACEMENT: "placement.controller",
}
"""The module of each controller; it is imported when the controller starts."""


def start(name: str, process: Process) -> Part:
    """Make the controller of that name, as far as the settings switch it on."""
    module = import_module(f"harbourmaster.controller.{CONTROLLERS[name]}")
    make: Callable[[Process], Part] = module.start
    return make(process)
