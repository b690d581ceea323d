"""Objects whose fields have owners, by server-side apply and the subresource ``scale``."""

from __future__ import annotations

import json

from helpers.api_rules import copy_json
from helpers.fake_store import Objects, StatusError

PLACE = "default"
REPLICAS = ("spec", "replicas")
_NAMES = ("name", "namespace", "uid", "resourceVersion")
_IDENTITY = {("apiVersion",), ("kind",), *(("metadata", field) for field in _NAMES)}
_SCALE = {"manager": "kube-controller-manager", "operation": "Update", "subresource": "scale"}


class AppliedObjects(Objects):
    """Objects with owners of fields. Lists and empty maps are values; each field is one path."""

    def patch(self, resource, namespace, name, body, content_type, query, *, subresource=None):  # noqa: PLR0913 - what HTTP gives
        if content_type != "application/apply-patch+yaml":
            return super().patch(
                resource, namespace, name, body, content_type, query, subresource=subresource
            )
        value, manager = json.loads(body), query["fieldManager"]
        current = self.all(resource).get((namespace, name))
        entries = current["metadata"].get("managedFields", ()) if current else ()
        is_ours = {"manager": manager, "operation": "Apply"}
        former = next((_owned(entry) for entry in entries if _is(entry, is_ours)), set())
        others = [entry for entry in entries if not _is(entry, is_ours)]
        wanted = dict(_leaves(value))
        fields = set(wanted) - _IDENTITY
        taken = {path for path in fields if current and at(current, path) != wanted[path]}
        if query.get("force") != "true" and any(_owned(entry) & taken for entry in others):
            causes = [{"reason": "FieldManagerConflict", "message": "conflict with another"}]
            raise StatusError(409, "Apply failed with 1 conflict", details={"causes": causes})
        _check_uid(current, value["metadata"].get("uid"))
        others = [_entry(entry, _owned(entry) - taken) for entry in others]
        kept = set().union(*map(_owned, others))
        new = copy_json(current or {"metadata": {}})
        for path in former - fields - kept:
            _set(new, path, None)
        for path, field in wanted.items():
            _set(new, path, field)
        new["metadata"]["managedFields"] = [*filter(_owned, others), _entry(is_ours, fields)]
        if current is None:
            return self.create(resource, namespace, new)
        return self._update(resource, (namespace, name), current, new)

    def scale(self, resource, name, replicas):
        """Set the replicas through the subresource ``scale``, as an autoscaler does."""
        current = self.get(resource, PLACE, name)
        new = copy_json(current)
        if at(new, REPLICAS) == replicas:
            return
        _set(new, REPLICAS, replicas)
        entries = [entry for entry in new["metadata"]["managedFields"] if not _is(entry, _SCALE)]
        others = [_entry(entry, _owned(entry) - {REPLICAS}) for entry in entries]
        new["metadata"]["managedFields"] = [*others, _entry(_SCALE, {REPLICAS})]
        self._update(resource, (PLACE, name), current, new)


def _check_uid(current, uid):
    """Raise StatusError, as an API server does, if it is another object that is there, or none."""
    if uid is None or (current and current["metadata"]["uid"] == uid):
        return
    if current is None:
        text = f"uid mismatch: the provided object specified uid {uid}, and no existing object"
        raise StatusError(409, f"{text} was found")
    text = f'Invalid value: "{uid}": field is immutable'
    cause = {"reason": "FieldValueInvalid", "message": text, "field": "metadata.uid"}
    raise StatusError(422, f"metadata.uid: {text}", details={"causes": [cause]})


def _is(entry, wanted):
    return all(entry.get(field) == wanted.get(field) for field in _SCALE)


def _leaves(value, path=()):
    if isinstance(value, dict) and value:
        for field, part in value.items():
            yield from _leaves(part, (*path, field))
    else:
        yield path, value


def _owned(entry):
    return {
        tuple(part.removeprefix("f:") for part in path)
        for path, _ in _leaves(entry["fieldsV1"])
        if path
    }


def _entry(entry, paths):
    """An entry of ``managedFields`` with these fields."""
    fields = {}
    for path in sorted(paths):
        below = fields
        for part in path:
            below = below.setdefault(f"f:{part}", {})
    return {**{field: entry[field] for field in _SCALE if field in entry}, "fieldsV1": fields}


def at(obj, path):
    """Return the value at a path; None without one."""
    for part in path:
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def _set(obj, path, value):
    *parents, last = path
    for part in parents:
        obj = obj.setdefault(part, {})
    if value is None:
        obj.pop(last, None)
    else:
        obj[last] = value
