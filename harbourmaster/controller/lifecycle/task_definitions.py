"""Keeps the ConfigMap of each KeptnTaskDefinition's inline code (keptn-spec 3.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import CONFIG_MAPS, TASK_DEFINITIONS
from harbourmaster.controller.lifecycle.function_maps import DEFINITION, ClashError, FunctionMaps
from harbourmaster.controller.lifecycle.signals import Reference
from harbourmaster.controller.lifecycle.writes import is_end_of_namespace, is_lasting, write_status
from harbourmaster.controller.objects import OwnWrites
from harbourmaster.kube.errors import ApiError, one_line
from harbourmaster.lifecycle.functions import config_map_of, inline_code, spec_of
from harbourmaster.lifecycle.model import FunctionStatus, TaskDefinitionStatus
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.lifecycle.model import TaskDefinition


class TaskDefinitionReconciler:
    """Keeps each function's ConfigMap equal to the definition, and names it in the status."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._store = context.caches.task_definitions.store
        self._maps = FunctionMaps(context.client, context.caches.config_maps.store)
        self._signals = context.signals
        self._log = get_logger("task-definitions")
        self._written = OwnWrites()
        # The last report on a definition, so that it is not repeated at each attempt.
        self._reported: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def map_changes(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Return the keys of definitions with a ConfigMap, or with a status that names one."""
        for key in list(self._store.keys()) if keys is None else keys:
            definition = self._store.get(key)
            if definition is None:
                self._forget(key)
            elif config_map_of(definition) or definition.status.function.config_map:
                yield key

    async def reconcile(self, key: str) -> None:
        """Update the ConfigMap and the status. Raises ApiError."""
        definition = self._store.get(key)
        if definition is None or definition.metadata.deletion_timestamp:
            self._forget(key)
            return
        if self._written.hide(definition.metadata):
            return
        name = config_map_of(definition)
        if inline_code(spec_of(definition)):
            if not await self._ensure_config_map(key, definition, name):
                return
        elif not self._maps.exists(definition.metadata.namespace, name):
            # Its arrival wakes us.
            name = ""
        self._reported.pop(key, None)
        if name != definition.status.function.config_map:
            status = TaskDefinitionStatus(function=FunctionStatus(config_map=name))
            await write_status(self._client, TASK_DEFINITIONS, definition.metadata, status)
            self._written.note(definition.metadata)

    async def _ensure_config_map(self, key: str, definition: TaskDefinition, name: str) -> bool:
        metadata = definition.metadata
        self._names[key] = name
        adopt = definition.status.function.config_map == name
        code = inline_code(spec_of(definition))
        try:
            await self._maps.check(metadata, DEFINITION, name, code, adopt=adopt)
        except ClashError as error:
            # The deletion of the other ConfigMap wakes us.
            self._report(key, metadata, name, str(error))
            return False
        except ApiError as error:
            if is_end_of_namespace(error):
                return False
            if is_lasting(error):
                self._report(key, metadata, name, one_line(error.message))
            raise
        return True

    def _report(self, key: str, metadata: Metadata, name: str, text: str) -> None:
        if self._reported.get(key) == text:
            return
        self._reported[key] = text
        about = Reference(CONFIG_MAPS, Metadata(name=name, namespace=metadata.namespace))
        self._signals.emit(about, "ReconcileTask", "Failed", text)
        self._log.warning("function cannot be stored", definition=key, error=text)

    def _forget(self, key: str) -> None:
        self._reported.pop(key, None)
        self._written.forget(key)
        name = self._names.pop(key, None)
        if name is not None:
            self._maps.forget(key.partition("/")[0], name)
