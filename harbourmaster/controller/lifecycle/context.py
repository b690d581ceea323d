"""The context that every lifecycle reconciler is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harbourmaster.api.references import DEFAULT_MODE
from harbourmaster.controller.extender.settings import SchedulerSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from harbourmaster.api.references import ReferenceMode
    from harbourmaster.controller.lifecycle.caches import LifecycleCaches
    from harbourmaster.controller.lifecycle.configuration import ConfigurationHolder
    from harbourmaster.controller.lifecycle.settings import LifecycleSettings
    from harbourmaster.controller.lifecycle.signals import Signals
    from harbourmaster.kube.client import Client


@dataclass(frozen=True, kw_only=True, eq=False)
class Context:
    """The dependencies of a reconciler: ``namespace`` is ours, ``now`` returns the time in UTC."""

    client: Client
    caches: LifecycleCaches
    settings: LifecycleSettings
    configuration: ConfigurationHolder
    signals: Signals
    now: Callable[[], datetime]
    namespace: str
    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)
    references: ReferenceMode = DEFAULT_MODE
    has_gates: Callable[[str], bool] = bool
    """Tells whether a namespace asks for gates and may have them, by its name."""

    def definition_namespaces(self, namespace: str) -> tuple[str, ...]:
        """Return the namespaces to search for definitions of an object, in order."""
        namespaces = (namespace, self.namespace, *self.settings.definition_namespaces)
        return tuple(dict.fromkeys(namespaces))
