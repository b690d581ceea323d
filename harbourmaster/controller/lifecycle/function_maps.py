"""Creates ConfigMaps with functions' code: of definitions, and copies for tasks elsewhere.

Only their metadata is cached. A ConfigMap of another owner is never overwritten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct, field

from harbourmaster.api.metadata import Metadata, OwnerReference
from harbourmaster.api.resources import CONFIG_MAPS, TASK_DEFINITIONS
from harbourmaster.controller.lifecycle.writes import fetch, patch_object
from harbourmaster.kube.errors import AlreadyExistsError, NotFoundError
from harbourmaster.lifecycle.functions import (
    CODE,
    DIGEST,
    config_map_for,
    digest,
    inline_code,
    is_name,
    spec_of,
)
from harbourmaster.lifecycle.model import TaskDefinition

if TYPE_CHECKING:
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.store import Store

BY_REFERENCE: Final = "reference"
"""Index of task definitions by the name of the definition that they refer to."""
BY_CONFIG_MAP: Final = "config-map"
"""Index of task definitions by the key of the ConfigMap with their code."""
DEFINITION: Final = "KeptnTaskDefinition"
TASK: Final = "KeptnTask"


class ClashError(Exception):
    """A ConfigMap of that name is not ours. The text says what to do."""


class _Annotations(Struct, frozen=True, gc=False):
    digest: str = field(default="", name=DIGEST)


class _Metadata(Struct, frozen=True, gc=False, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    owner_references: tuple[OwnerReference, ...] = ()
    annotations: _Annotations = _Annotations()


class FunctionMap(Struct, frozen=True, gc=False):
    """The metadata of a ConfigMap that show its owner, and which code we wrote to it."""

    metadata: _Metadata


class _Full(Struct, frozen=True):
    metadata: Metadata
    data: dict[str, str] = {}


decode_function_map: Final = msgspec.json.Decoder(FunctionMap).decode
_decode_full: Final = msgspec.json.Decoder(_Full).decode
_decode_definition: Final = msgspec.json.Decoder(TaskDefinition).decode


class FunctionMaps:
    """Creates and repairs ConfigMaps. Every method raises ApiError."""

    def __init__(self, client: Client, store: Store[FunctionMap]) -> None:
        self._client = client
        self._store = store
        # Resource versions whose content was checked.
        self._checked: dict[str, str] = {}

    def exists(self, namespace: str, name: str) -> bool:
        """Whether there is a ConfigMap of that name."""
        return f"{namespace}/{name}" in self._store

    async def code(self, namespace: str, name: str) -> str | None:
        """Return the code in a ConfigMap, or None if it has none or does not exist."""
        if not is_name(name):
            return None
        full = await fetch(self._client, CONFIG_MAPS, _Full, name, namespace)
        return full.data.get(CODE) if full is not None else None

    async def ensure(
        self,
        owner: Metadata,
        kind: str,
        name: str,
        code: str,
        *,
        adopt: bool = False,
        source: Metadata | None = None,
    ) -> None:
        """Create or repair the ConfigMap of ``owner`` with this code. Raises ClashError.

        ``adopt`` takes over a ConfigMap without an owner, as Keptn leaves them. ``source`` is the
        definition whose inline code has the digest ``code``; only the digest is cached.
        """
        cached = self._store.get(f"{owner.namespace}/{name}")
        if cached is None or not _is_right(cached, owner, kind, code if source else digest(code)):
            code = await self._inline(source) if source else code
            await self._make(owner, kind, name, code, adopt=adopt)

    async def check(
        self, definition: Metadata, kind: str, name: str, code: str, *, adopt: bool
    ) -> None:
        """Create or repair the ConfigMap of a definition whose inline code has the digest ``code``.

        The content of each version is checked once, because people may edit it.
        """
        key = f"{definition.namespace}/{name}"
        cached = self._store.get(key)
        if (
            cached is None
            or self._checked.get(key) != cached.metadata.resource_version
            or not _is_right(cached, definition, kind, code)
        ):
            code = await self._inline(definition)
            self._checked[key] = await self._make(definition, kind, name, code, adopt=adopt)

    async def _inline(self, definition: Metadata) -> str:
        """Read the inline code of a definition from the API server."""
        name, namespace = definition.name, definition.namespace
        stored = _decode_definition(await self._client.get(TASK_DEFINITIONS, name, namespace))
        code = inline_code(spec_of(stored))
        if not code:
            raise NotFoundError(f"KeptnTaskDefinition {name} has no inline code any more")
        return code

    def forget(self, namespace: str, name: str) -> None:
        """Forget a ConfigMap whose definition is gone."""
        self._checked.pop(f"{namespace}/{name}", None)

    async def _make(self, owner: Metadata, kind: str, name: str, code: str, *, adopt: bool) -> str:
        """Create or repair a ConfigMap; return its resource version."""
        wanted = config_map_for(owner, kind, name, code)
        if not self.exists(owner.namespace, name):
            try:
                answer = await self._client.create(CONFIG_MAPS, wanted, owner.namespace)
            except AlreadyExistsError:
                # The watch is behind.
                pass
            else:
                return decode_function_map(answer).metadata.resource_version
        full = _decode_full(await self._client.get(CONFIG_MAPS, name, owner.namespace))
        controller = full.metadata.controller
        # Keptn leaves its ConfigMaps without an owner, and they outlive their definitions.
        is_left = controller is None and (adopt or full.data == wanted["data"])
        if not (is_left or _belongs(controller, owner, kind)):
            raise ClashError(
                f"ConfigMap {name} is not that of {kind} {owner.name}: delete it, or rename one"
            )
        operations = _differences(full, wanted, owner)
        if not operations:
            return full.metadata.resource_version
        answer = await patch_object(self._client, CONFIG_MAPS, full.metadata, operations)
        return decode_function_map(answer).metadata.resource_version


def _differences(
    config_map: _Full, wanted: dict[str, Any], owner: Metadata
) -> list[dict[str, Any]]:
    metadata, controller = config_map.metadata, config_map.metadata.controller
    marks: dict[str, str] = wanted["metadata"]["annotations"]
    parts: dict[str, Any] = {}
    if config_map.data != wanted["data"]:
        parts["/data"] = wanted["data"]
    if not marks.items() <= metadata.annotations.items():
        parts["/metadata/annotations"] = {**metadata.annotations, **marks}
    if controller is None or controller.uid != owner.uid:
        parts["/metadata/ownerReferences"] = wanted["metadata"]["ownerReferences"]
    return [{"op": "add", "path": path, "value": part} for path, part in parts.items()]


def _is_right(config_map: FunctionMap, owner: Metadata, kind: str, code_digest: str) -> bool:
    references = config_map.metadata.owner_references
    controller = next((reference for reference in references if reference.controller), None)
    return (
        controller is not None
        and _belongs(controller, owner, kind)
        and controller.uid == owner.uid
        and config_map.metadata.annotations.digest == code_digest
    )


def _belongs(controller: OwnerReference | None, owner: Metadata, kind: str) -> bool:
    """Whether an object belongs to the owner, or to a deleted owner of the same name."""
    return controller is not None and controller.kind == kind and controller.name == owner.name
