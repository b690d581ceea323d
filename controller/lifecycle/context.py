"""What every lifecycle reconciler is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from harbourmaster.controller.extender.settings import SchedulerSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from harbourmaster.controller.lifecycle.caches import LifecycleCaches
    from harbourmaster.controller.lifecycle.settings import LifecycleSettings
    from harbourmaster.controller.lifecycle.signals import Signals
    from harbourmaster.kube.client import Client
    from harbourmaster.lifecycle.configuration import Configuration


class HoldsConfiguration(Protocol):
    """Where the configuration in force is found."""

    @property
    def current(self) -> Configuration:
        """That of this moment."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Context:
    """The world of a reconciler: ``namespace`` is our own, ``now`` tells the time in UTC."""

    client: Client
    caches: LifecycleCaches
    settings: LifecycleSettings
    configuration: HoldsConfiguration
    signals: Signals
    now: Callable[[], datetime]
    namespace: str
    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)

    def definition_namespaces(self, namespace: str) -> tuple[str, ...]:
        """Where the definitions for an object of ``namespace`` are looked up, in order."""
        found = (namespace, self.namespace, *self.settings.definition_namespaces)
        return tuple(dict.fromkeys(found))
