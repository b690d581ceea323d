"""Objects as an API server keeps them: versions, histories, patches, and the errors they end in."""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import uuid4

import jsonpatch
import msgspec

from helpers.api_rules import RuleError, copy_json, created_object, selectable, updated_object

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
# Groups whose objects can be replaced only by who names the version that is there.
VERSIONED = {"coordination.k8s.io", "admissionregistration.k8s.io", "kupid.gardener.cloud"}
PARTIAL = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata"}


class StatusError(Exception):
    """An answer that is a Status."""

    def __init__(self, code, message, reason=None, details=None):
        super().__init__(message)
        self.code = code
        self.body = status(code, message, reason, details)


def status(code, message, reason=None, details=None):
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": REASONS.get(code, "Unknown") if reason is None else reason,
        "code": code,
        **({"details": details} if details else {}),
    }


class Change(NamedTuple):
    """One change. ``before`` is None for a creation, ``after`` for a deletion."""

    version: int
    resource: Any
    before: dict | None
    after: dict | None

    def event(self, query, namespace):
        """The event that a watch of this query receives, or None."""
        was = self.before is not None and is_selected(self.before, query, namespace)
        is_now = self.after is not None and is_selected(self.after, query, namespace)
        if not was and not is_now:
            return None
        if is_now:
            return ("MODIFIED" if was else "ADDED"), self.after
        # What left the selection is told as it was, at the version of its leaving.
        gone = copy_json(self.before)
        gone["metadata"]["resourceVersion"] = str(self.version)
        return "DELETED", gone


def _utc_now():
    return datetime.now(UTC)


class Objects:
    """All objects. ``listen`` is called with each Change; ``now`` and ``uid`` make their marks.

    ``rules`` are those of an API server for each kind (``api_rules``); without them a status is
    what anybody writes.
    """

    def __init__(self, listen, *, now=_utc_now, uid=lambda: str(uuid4()), rules=False):
        self._now, self._uid, self._rules = now, uid, rules
        self.version = 100
        self.compacted = 100
        self.history: list[Change] = []
        self._listen = listen
        self._kept: dict[Any, dict[tuple[str, str], dict]] = {}
        self._snapshots: dict[tuple[Any, int], list[dict]] = {}

    def all(self, resource):
        """The objects by namespace and name."""
        return self._kept.setdefault(resource, {})

    def items_of(self, resource, _namespace):
        """Keys and objects of a kind: at least those of the namespace, which an index may tell."""
        return self.all(resource).items()

    def compact(self):
        """Forget all history and every list that is not read to its end."""
        self.history.clear()
        self._snapshots.clear()
        self.compacted = self.version

    def get(self, resource, namespace, name):
        try:
            return self.all(resource)[namespace, name]
        except KeyError:
            group = f".{resource.group}" if resource.group else ""
            raise StatusError(404, f'{resource.plural}{group} "{name}" not found') from None

    def list(self, resource, namespace, query):
        """A page of a list, the further pages as of the first one."""
        limit = int(query.get("limit") or 0)
        if token := query.get("continue"):
            version, start = json.loads(base64.urlsafe_b64decode(token))
            if (resource, version) not in self._snapshots:
                raise StatusError(410, "The provided continue parameter is too old", "Expired")
            selected_items = self._snapshots[resource, version]
        else:
            version, start = self.version, 0
            ordered = sorted(self.items_of(resource, namespace))
            selected_items = [obj for _, obj in ordered if is_selected(obj, query, namespace)]
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        page = selected_items[start : start + limit] if limit else selected_items[start:]
        if start + len(page) < len(selected_items):
            self._snapshots[resource, version] = selected_items
            end = json.dumps([version, start + len(page)]).encode()
            metadata["continue"] = base64.urlsafe_b64encode(end).decode()
            metadata["remainingItemCount"] = len(selected_items) - start - len(page)
        return {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": metadata,
            "items": page,
        }

    def create(self, resource, namespace, obj, *, dry_run=False):
        obj = self._check_object(resource, namespace, obj)
        metadata = obj["metadata"]
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                raise StatusError(422, f"{resource.kind} is invalid: metadata.name: Required value")
            metadata["name"] = metadata["generateName"] + self._uid().replace("-", "")[:5]
        key = (metadata.get("namespace", ""), metadata["name"])
        if key in self.all(resource):
            raise StatusError(409, f'{resource.plural} "{key[1]}" already exists', "AlreadyExists")
        if metadata.get("resourceVersion"):
            text = "resourceVersion should not be set on objects to be created"
            raise StatusError(500, text, reason="")
        metadata |= {"uid": self._uid(), "creationTimestamp": self._stamp(), "generation": 1}
        if self._rules:
            obj = _apply_rule(created_object, resource, obj)
        return self._keep(resource, key, None, obj, dry_run=dry_run)

    def replace(self, resource, namespace, name, obj, *, subresource=None, dry_run=False):
        before = self.get(resource, namespace, name)
        obj = self._check_object(resource, namespace, obj)
        if obj["metadata"].get("name") != name:
            raise StatusError(400, "the name of the object does not match the name on the URL")
        if not obj["metadata"].get("resourceVersion") and resource.group in VERSIONED:
            raise StatusError(
                422, f'{resource.plural} "{name}" is invalid: metadata.resourceVersion: '
                "Invalid value: 0: must be specified for an update"
            )  # fmt: skip
        return self._update(
            resource, (namespace, name), before, obj, subresource=subresource, dry_run=dry_run
        )

    def patch(self, resource, namespace, name, body, content_type, query, *, subresource=None):  # noqa: PLR0913 - what HTTP gives
        dry_run = query.get("dryRun") == "All"
        value = json.loads(body)
        if content_type == "application/apply-patch+yaml":
            if not query.get("fieldManager"):
                raise StatusError(400, "fieldManager: Required value: is required for apply patch")
            if (namespace, name) not in self.all(resource):
                return self.create(resource, namespace, value, dry_run=dry_run)
        before = self.get(resource, namespace, name)
        if content_type == "application/json-patch+json":
            try:
                patched = jsonpatch.apply_patch(
                    copy_json(before), _without_nulls(before, value), in_place=True
                )
            except jsonpatch.JsonPatchException as error:
                raise StatusError(422, f"the server rejected our request: {error}") from None
        elif content_type in {"application/merge-patch+json", "application/apply-patch+yaml"}:
            patched = merge_patch(before, value)
        else:
            raise StatusError(415, f"the body of the request was in an unknown format: {body[:9]}")
        if patched["metadata"].get("uid") not in {None, before["metadata"]["uid"]}:
            raise StatusError(422, "metadata.uid: Invalid value: field is immutable")
        return self._update(
            resource, (namespace, name), before, patched, subresource=subresource, dry_run=dry_run
        )

    def delete(self, resource, namespace, name, options=None):
        before = self.get(resource, namespace, name)
        preconditions = (options or {}).get("preconditions") or {}
        for field, what in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            wanted, stored = preconditions.get(field), before["metadata"][field]
            if wanted not in {None, stored}:
                raise StatusError(
                    409, f'Operation cannot be fulfilled on {resource.kind} "{name}": the {what} '
                    f"in the precondition ({wanted}) does not match the {what} in record ({stored})"
                )  # fmt: skip
        if before["metadata"].get("finalizers"):
            return self.mark(resource, namespace, name)
        self._keep(resource, (namespace, name), before, None)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def mark(self, resource, namespace, name):
        """Let an object be one that is being deleted."""
        before = self.get(resource, namespace, name)
        if "deletionTimestamp" in before["metadata"]:
            return before
        metadata = {**before["metadata"], "deletionTimestamp": self._stamp()}
        return self._keep(resource, (namespace, name), before, {**before, "metadata": metadata})

    def _stamp(self):
        return self._now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def _check_object(self, resource, namespace, obj):
        """A copy in its namespace."""
        if not isinstance(obj, dict) or not isinstance(obj.get("metadata", {}), dict):
            raise StatusError(400, "the body is not an object")
        actual = (obj.get("apiVersion"), obj.get("kind"))
        if actual != (resource.api_version, resource.kind):
            raise StatusError(400, f"{actual} does not match the expected {resource.kind}")
        obj = copy_json(obj)
        metadata = obj.setdefault("metadata", {})
        if resource.namespaced:
            if metadata.setdefault("namespace", namespace) != namespace or not namespace:
                raise StatusError(400, "the namespace of the object does not match the URL's")
        else:
            metadata.pop("namespace", None)
        return obj

    def _update(self, resource, key, before, obj, *, subresource=None, dry_run=False):
        if subresource is not None:
            obj = {**before, subresource: obj.get(subresource), "metadata": obj["metadata"]}
        metadata = obj["metadata"]
        wanted = metadata.get("resourceVersion")
        now = before["metadata"]["resourceVersion"]
        if wanted not in {None, "", now} or metadata.get("uid") not in {
            None,
            before["metadata"]["uid"],
        }:
            raise StatusError(
                409, f'Operation cannot be fulfilled on {resource.plural} "{key[1]}": '
                "the object has been modified; please apply your changes to the latest version"
            )  # fmt: skip
        kept = ("uid", "creationTimestamp", "deletionTimestamp", "generation", "resourceVersion")
        metadata |= {name: before["metadata"][name] for name in kept if name in before["metadata"]}
        if self._rules:
            obj = _apply_rule(updated_object, resource, before, obj, subresource)
            metadata = obj["metadata"]
        if obj == before:
            return before
        if obj.get("spec") != before.get("spec"):
            metadata["generation"] += 1
        gone = "deletionTimestamp" in metadata and not metadata.get("finalizers")
        result = self._keep(resource, key, before, None if gone else obj, dry_run=dry_run)
        return obj if gone else result

    def _keep(self, resource, key, before, after, *, dry_run=False):
        if dry_run:
            return {**after, "metadata": {**after["metadata"], "resourceVersion": ""}}
        self.version += 1
        if after is None:
            del self.all(resource)[key]
        else:
            # What was given out before, in events and pages, must stay as it was.
            metadata = {**after["metadata"], "resourceVersion": str(self.version)}
            after = copy_json({**after, "metadata": metadata})
            self.all(resource)[key] = after
        change = Change(self.version, resource, before, after)
        self.history.append(change)
        self._listen(change)
        return after


def _without_nulls(obj, operations):
    """The patch without the tests that the real server passes: to it, what is absent is null."""
    return [
        operation
        for operation in operations
        if operation["op"] != "test"
        or operation.get("value") is not None
        or jsonpatch.JsonPointer(operation["path"]).resolve(obj, None) is not None
    ]


def _apply_rule(rule, resource, *arguments):
    try:
        return rule(resource, *arguments)
    except RuleError as error:
        raise StatusError(422, f"{resource.kind} is invalid: {error}") from None


def is_selected(obj, query, namespace):
    """Whether an object is in the namespace and matches both selectors."""
    metadata = obj["metadata"]
    if namespace and metadata.get("namespace") != namespace:
        return False
    labels = metadata.get("labels") or {}
    if not _matches(query.get("labelSelector"), labels):
        return False
    return not query.get("fieldSelector") or _matches(query["fieldSelector"], selectable(obj))


def _matches(selector, values):
    for term in filter(None, (selector or "").split(",")):
        name, operator, value = re.fullmatch(r"([^=!]+)?(==|=|!=|!)?(.*)", term).groups()
        if operator == "!":
            fits = value not in values
        elif operator is None:
            fits = name in values
        else:
            fits = (values.get(name) == value) == (operator != "!=")
        if not fits:
            return False
    return True


def merge_patch(target, patch):
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy_json(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result


def partial(obj):
    """An object as who asks for metadata gets it."""
    return {**PARTIAL, "metadata": obj["metadata"]}


encode = msgspec.json.encode
