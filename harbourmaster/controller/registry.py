"""Starts the controllers that the settings switch on; alone knows their modules.

To add a controller, write a module with ``start(runtime: Runtime) -> Runnables``, add its name to
``names.py``, its switch to ``ControllerSettings.running``, and call it here. Settings, metrics and
caches stand in the folder of their controller. The permissions of each stand in ``deploy/rbac``
(``registration/``, ``controller.yaml`` for namespaces, ``policies.yaml``, ``metrics.yaml``,
``lifecycle.yaml``) or, if it is off by default, in ``rights.yaml`` of the component that switches
it on (``deploy/components/rescheduling``, ``placement``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harbourmaster.controller.enforcement import start as start_policies
from harbourmaster.controller.evaluation.controller import start as start_metrics
from harbourmaster.controller.evaluation.query_service import create_query_service
from harbourmaster.controller.lifecycle.controller import start as start_lifecycle
from harbourmaster.controller.names import (
    LIFECYCLE,
    METRICS,
    NAMESPACES,
    PLACEMENT,
    POLICIES,
    REGISTRATION,
    RESCHEDULING,
)
from harbourmaster.controller.namespaces import start as start_namespaces
from harbourmaster.controller.registration.controller import start as start_registration
from harbourmaster.controller.rescheduling.node_writer import start as start_release
from harbourmaster.controller.runtime import Runnables
from harbourmaster.kube.definitions import DefinitionWatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.controller.evaluation.query_service import QueryService
    from harbourmaster.controller.runtime import Runtime
    from harbourmaster.kube.reflector import Reflector

_READ_DEFINITIONS: Final = {METRICS, LIFECYCLE, PLACEMENT}
"""Controllers whose permissions include CustomResourceDefinitions."""


def start(runtime: Runtime) -> list[Runnables]:
    """Create everything that runs in the controller process beside leader election."""
    groups = _start_controllers(runtime)
    if runtime.settings.dashboard.enabled:
        groups.append(_start_dashboard(runtime, groups))
    if _READ_DEFINITIONS.intersection(runtime.settings.running):
        groups.append(_watch_definitions(runtime, groups))
    return groups


def _start_controllers(runtime: Runtime) -> list[Runnables]:
    settings, running = runtime.settings, runtime.settings.running
    groups = []
    queries: QueryService | None = None
    lifecycle: Runnables | None = None
    if METRICS in running or PLACEMENT in running:
        # The limits of a provider hold for the queries of both.
        queries, keep_open = create_query_service(
            runtime.client, settings.metrics, runtime.metrics.registry
        )
        groups.append(Runnables(background=(keep_open,)))
    if REGISTRATION in running:
        groups.append(start_registration(runtime))
    if NAMESPACES in running:
        groups.append(start_namespaces(runtime))
    if POLICIES in running:
        groups.append(start_policies(runtime))
    if queries is not None and METRICS in running:
        groups.append(start_metrics(runtime, queries))
    if LIFECYCLE in running:
        lifecycle = start_lifecycle(runtime)
        groups.append(lifecycle)
    # What is off by default is imported only where it is on, because it takes memory.
    if RESCHEDULING in running:
        from harbourmaster.controller.rescheduling.controller import (  # noqa: PLC0415
            start as start_rescheduling,
        )

        groups.append(start_rescheduling(runtime))
    elif RESCHEDULING in settings.controllers:
        groups.append(start_release(runtime))
    if queries is not None and PLACEMENT in running:
        from harbourmaster.controller.placement.controller import (  # noqa: PLC0415
            start as start_placement,
        )

        shared = lifecycle.shared_caches if lifecycle is not None else {}
        groups.append(start_placement(runtime, queries, shared))
    return groups


def _start_dashboard(runtime: Runtime, groups: Iterable[Runnables]) -> Runnables:
    from harbourmaster.dashboard.caches import DashboardCaches  # noqa: PLC0415
    from harbourmaster.dashboard.server import CLIENTS, DashboardServer  # noqa: PLC0415

    settings, lifecycle = runtime.settings.dashboard, runtime.settings.lifecycle
    shared = {name: cache for group in groups for name, cache in group.shared_caches.items()}
    caches = DashboardCaches(runtime.client, metrics=runtime.metrics.watches, shared=shared)
    server = DashboardServer(
        runtime.client,
        settings,
        caches,
        certificate=None
        if settings.is_local
        else runtime.serving_certificate("dashboard", CLIENTS),
        rules=lifecycle.wait_rules,
        definition_namespaces=(runtime.namespace, *lifecycle.definition_namespaces),
        note_crash=runtime.note_crash,
    )
    return Runnables(background=(server.run,), more_caches=caches.reflectors)


def _watch_definitions(runtime: Runtime, groups: Iterable[Runnables]) -> Runnables:
    """Read the caches of custom resources again when their definitions are created."""
    caches: dict[Reflector[Any], None] = {}
    for group in groups:
        for controller in group.controllers:
            caches |= dict.fromkeys(controller.reflectors)
        caches |= dict.fromkeys(group.more_caches)
    watch = DefinitionWatch(
        runtime.client,
        [(cache.resource, cache) for cache in caches if not cache.resource.is_built_in],
    )
    return Runnables(background=(watch.run,))
