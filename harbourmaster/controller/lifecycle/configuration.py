"""The configuration in force, from the KeptnConfig that counts (keptn-spec 3.11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.lifecycle.keptn_config import (
    LifecycleConfiguration,
    choose_config,
    read_configuration,
)
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harbourmaster.controller.lifecycle.caches import LifecycleCaches


class ConfigurationHolder:
    """Holds the configuration in force, as soon as the watch brings it.

    ``namespaces`` are those whose KeptnConfig may count, ours first. Create it before any
    controller subscribes, so that every listener finds the new configuration.
    """

    def __init__(self, caches: LifecycleCaches, namespaces: Sequence[str]) -> None:
        self._store = caches.configs.store
        self._namespaces = tuple(namespaces)
        self._current = LifecycleConfiguration()
        self._listeners: list[Callable[[LifecycleConfiguration], None]] = []
        self._log = get_logger("keptn-config")
        caches.configs.subscribe(self._refresh)

    @property
    def current(self) -> LifecycleConfiguration:
        """The current configuration; the defaults if no KeptnConfig counts."""
        return self._current

    def on_change(self, listener: Callable[[LifecycleConfiguration], None]) -> None:
        """Call ``listener`` with each new configuration. It must not raise."""
        self._listeners.append(listener)

    def _refresh(self, _keys: frozenset[str]) -> None:
        config = choose_config(self._store.values(), self._namespaces).counts
        configuration, problems = read_configuration(config)
        if configuration == self._current:
            return
        self._current = configuration
        source = config.metadata.key if config is not None else "the defaults"
        self._log.info("configuration changed", source=source, problems=problems)
        for listener in self._listeners:
            listener(configuration)
