"""The controllers that a controller process can run, by the names in its settings.

To add one, write a module here with ``start(runtime: Runtime) -> Runnables`` and add its line to
CONTROLLERS, which alone says whether it is switched on. Settings, metrics and caches stand in the
folder of their controller. The permissions of each stand in ``deploy/rbac`` (``registration/``,
``controller.yaml`` for namespaces, ``policies.yaml``, ``metrics.yaml``, ``lifecycle.yaml``) or, if
it is off by default, in ``rights.yaml`` of the component that switches it on
(``deploy/components/rescheduling``, ``placement``).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.controller.runtime import Runnables, Runtime
    from harbourmaster.controller.settings import ControllerSettings

REGISTRATION: Final = "registration"
NAMESPACES: Final = "namespaces"
POLICIES: Final = "policies"
METRICS: Final = "metrics"
LIFECYCLE: Final = "lifecycle"
RESCHEDULING: Final = "rescheduling"
PLACEMENT: Final = "placement"
PLACEMENT_SINCE: Final = "placement.harbourmaster.dev/since"
"""The annotation of our Lease: when placement was switched on."""


class Registered(NamedTuple):
    """A controller: what it does, its module, and whether the settings switch it on."""

    text: str
    module: str
    """Imported when the controller starts."""
    is_on: Callable[[ControllerSettings], bool] = lambda _settings: True
    module_if_off: str = ""
    """What runs in its place where it is switched off."""


CONTROLLERS: Final = {
    REGISTRATION: Registered(
        "create and repair webhook configurations and their certificates",
        "registration.controller",
        lambda found: found.register_webhooks,
    ),
    NAMESPACES: Registered("label namespaces that opt in to gates", "namespaces"),
    POLICIES: Registered("show in the status of policies who enforces them", "enforcement"),
    METRICS: Registered("query metric providers and run analyses", "evaluation.controller"),
    LIFECYCLE: Registered(
        "run tasks and evaluations, and release pods whose checks passed", "lifecycle.controller"
    ),
    RESCHEDULING: Registered(
        "make room for critical add-ons; off unless rescheduling.enabled",
        "rescheduling.controller",
        lambda found: found.rescheduling.enabled,
        "rescheduling.switched_off",
    ),
    PLACEMENT: Registered(
        "select a cluster for each application and apply it there; off unless placement.enabled",
        "placement.controller",
        lambda found: found.placement.enabled,
    ),
}


def running(settings: ControllerSettings) -> tuple[str, ...]:
    """The names of the controllers that are switched on, in the order in which they start."""
    return tuple(
        name
        for name, each in CONTROLLERS.items()
        if name in settings.controllers and each.is_on(settings)
    )


def start(runtime: Runtime) -> list[Runnables]:
    """Make the controllers that the settings choose."""
    chosen, on = runtime.settings.controllers, runtime.settings.running
    modules = [
        each.module if name in on else each.module_if_off
        for name, each in CONTROLLERS.items()
        if name in chosen
    ]
    return [
        import_module(f"harbourmaster.controller.{module}").start(runtime)
        for module in modules
        if module
    ]
