"""Reports whether each KeptnConfig is in force, and what is wrong with it (keptn-spec 3.11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.api.resources import KEPTN_CONFIGS
from harbourmaster.controller.lifecycle.writes import write_status
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.lifecycle.keptn_config import (
    IN_FORCE,
    choose_config,
    is_in_force,
    status_text,
    waits_for_adoption,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.lifecycle.keptn_config import ChosenConfig


class ConfigReconciler:
    """Writes to each KeptnConfig whether it is in force, and what is wrong with it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._store = context.caches.configs.store
        self._namespaces = context.definition_namespaces(context.namespace)

    def map_changes(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Return the keys of all KeptnConfigs with an outdated status, whatever has changed."""
        del keys
        choice = self._choose()
        for config in list(self._store.values()):
            if status_text(config, choice, self._namespaces) != config.status:
                yield config.metadata.key

    async def reconcile(self, key: str) -> None:
        """Write the status if it differs. Raises ApiError."""
        config = self._store.get(key)
        if config is None:
            return
        choice = self._choose()
        status = status_text(config, choice, self._namespaces)
        if status == config.status:
            return
        try:
            await write_status(self._context.client, KEPTN_CONFIGS, config.metadata, status)
        except NotFoundError:
            return
        # Only after a new status: once for each reason, however often the object is read.
        is_concerned = config is choice.first or config is choice.counts
        is_concerned |= waits_for_adoption(config, choice, self._namespaces)
        if is_concerned and not is_in_force(status):
            text = status.removeprefix(f"{IN_FORCE}, but ")
            self._context.signals.emit(config, "ReconcileConfig", "Failed", text, warning=True)

    def _choose(self) -> ChosenConfig:
        return choose_config(self._store.values(), self._namespaces)
