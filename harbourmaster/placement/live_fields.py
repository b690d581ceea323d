"""Leaves out of manifests what others set or did on a cluster (krake-spec 7.8).

``managedFields`` say who owns a field. A field is applied as long as no other client owns it.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from harbourmaster.placement.inventory import ObjectSelector, Observation
from harbourmaster.placement.manifests import DOMAIN, FIELD_MANAGER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harbourmaster.placement.inventory import Key
    from harbourmaster.placement.manifests import Item

RUN_AGAIN: Final = f"{DOMAIN}/run-again"
"""The annotation of a Job's manifest with the value ``Move``: it runs on each new cluster."""
_REPLICAS: Final = "/spec/replicas"
_TTL: Final = "/spec/ttlSecondsAfterFinished"


class IgnoredFields(ObjectSelector, frozen=True, gc=False, kw_only=True):
    """JSON Pointers to fields of a kind that placement leaves to their owners."""

    pointers: tuple[str, ...] = ()


def digest(body: Mapping[str, Any]) -> str:
    """Return a digest of a manifest as it is applied."""
    return sha256(msgspec.json.encode(body, order="deterministic")).hexdigest()[:32]


def wanted_replicas(body: Mapping[str, Any]) -> int | None:
    """Return the replicas of a manifest; None if it leaves them to others."""
    spec = body.get("spec")
    value = spec.get("replicas") if isinstance(spec, dict) else None
    return value if isinstance(value, int) else None


def is_done(item: Item, observation: Observation | None, cluster: str) -> bool:
    """Whether an object is a Job that finished with this manifest, and is not to run again."""
    if observation is None or observation.finished != digest(item.body):
        return False
    annotations = item.body["metadata"].get("annotations")
    runs_again = isinstance(annotations, dict) and annotations.get(RUN_AGAIN) == "Move"
    return not runs_again or observation.cluster == cluster


def without_ttl(item: Item) -> dict[str, Any]:
    """Return the body without the TTL of a Job, which must not go before its end is recorded."""
    is_job = (item.ref.group, item.ref.kind) == ("batch", "Job")
    return _without(item.body, _path(_TTL)) if is_job else item.body


def pointers_for(item: Item, ignored: Iterable[IgnoredFields]) -> tuple[str, ...]:
    """Return the pointers to fields of an object that others may own."""
    covering = (entry.pointers for entry in ignored if entry.covers(item.ref))
    scaled = () if wanted_replicas(item.body) is None else (_REPLICAS,)
    return (*chain.from_iterable(covering), *scaled)


def leave_fields(
    body: dict[str, Any],
    pointers: Iterable[str],
    managed_fields: Sequence[Mapping[str, Any]],
    observation: Observation | None = None,
    *,
    force: bool = True,
) -> dict[str, Any]:
    """Return the body without the fields of others.

    Replicas are left to the client that scales the object. If the manifest's replicas have changed
    since then, they are applied once, unless ``force`` is false. A new object starts with the
    replicas that were observed.
    """
    for pointer in pointers:
        path = _path(pointer)
        if pointer == _REPLICAS:
            wanted = wanted_replicas(body)
            is_changed = observation is not None and observation.replicas not in {None, wanted}
            if is_scaled(managed_fields) and not (is_changed and force):
                body = _without(body, path)
            elif observation is not None and observation.scaled is not None and not is_changed:
                body = {**body, "spec": {**body["spec"], "replicas": observation.scaled}}
            continue
        owners = [entry for entry in managed_fields if _owns(entry.get("fieldsV1"), body, path)]
        if owners and not any(map(is_applied_by_us, owners)):
            body = _without(body, path)
    return body


def relies_on_owners(
    body: dict[str, Any], pointers: Iterable[str], managed_fields: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether a body has fields of these pointers because no other client owned them."""
    kept = [
        pointer for pointer in pointers if pointer != _REPLICAS or not is_scaled(managed_fields)
    ]
    return any(_without(body, _path(pointer)) != body for pointer in kept)


def is_applied_by_us(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of ``managedFields`` is that of our own manifests."""
    return (
        entry.get("manager") == FIELD_MANAGER
        and entry.get("operation") == "Apply"
        and not entry.get("subresource")
    )


def is_scaled(managed_fields: Iterable[Mapping[str, Any]]) -> bool:
    """Whether another client set the replicas, as an autoscaler and ``kubectl scale`` do."""
    return any(
        entry.get("subresource") == "scale"
        and entry.get("manager") != FIELD_MANAGER
        and _owns(entry.get("fieldsV1"), {}, ["spec", "replicas"])
        for entry in managed_fields
    )


def observe(
    known: Mapping[Key, Observation],
    cluster: str,
    items: Iterable[Item],
    finished: Iterable[Key],
    scaled: Mapping[Key, int],
) -> dict[Key, Observation]:
    """Return the observations of the items after what was seen of them on a cluster."""
    observations = {}
    done = set(finished)
    for item in items:
        key, wanted = item.ref.key, wanted_replicas(item.body)
        observation = known.get(key) or Observation(
            api_version=item.ref.api_version,
            kind=item.ref.kind,
            name=item.ref.name,
            namespace=item.ref.namespace,
        )
        if key in done:
            observation = replace(observation, finished=digest(item.body), cluster=cluster)
        if key in scaled:
            observation = replace(observation, replicas=wanted, scaled=scaled[key])
        elif observation.replicas != wanted:
            observation = replace(observation, replicas=None, scaled=None)
        if observation.finished or observation.scaled is not None:
            observations[key] = observation
    return observations


def _path(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _owns(fields: object, value: object, path: list[str]) -> bool:
    """Whether a tree of ``fieldsV1`` has the field at a path, or all that is around it."""
    for part in path:
        if not isinstance(fields, dict):
            return False
        if fields == {}:
            # A field that is owned as a whole.
            return True
        if isinstance(value, list):
            value = value[int(part)] if part.isdecimal() and int(part) < len(value) else None
            fields = next((below for key, below in fields.items() if _names(key, value)), None)
        else:
            value = value.get(part) if isinstance(value, dict) else None
            fields = fields.get(f"f:{part}")
    return isinstance(fields, dict)


def _names(key: str, element: object) -> bool:
    """Whether a key of ``fieldsV1`` names an element of a list, such as ``k:{"name":"web"}``."""
    if not key.startswith("k:") or not isinstance(element, dict):
        return False
    return all(element.get(field) == value for field, value in msgspec.json.decode(key[2:]).items())


def _without(body: dict[str, Any], path: list[str]) -> dict[str, Any]:
    """Return a body without the field at a path; elements of lists stay."""
    body = msgspec.json.decode(msgspec.json.encode(body))
    *parents, last = path
    value: Any = body
    for part in parents:
        if isinstance(value, list):
            value = value[int(part)] if part.isdecimal() and int(part) < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, dict):
        value.pop(last, None)
    return body
