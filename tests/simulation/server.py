"""The simulated API server, and functions about its objects."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict

from harbourmaster.api import resources as kinds
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from helpers.api_rules import copy_json
from helpers.api_server import ApiServer
from helpers.fake_store import StatusError

REVISION = "deployment.kubernetes.io/revision"
KINDS = {(variable.api_version, variable.kind): variable for variable in vars(kinds).values()
          if isinstance(variable, kinds.Resource)}  # fmt: skip


class SimulatedServer(ApiServer):
    """The API server; ``actor`` is the replica whose request it answers, or None."""

    def __init__(self, **options):
        self.listeners = []
        self.actor = None
        # Names by kind and namespace, and (kind, namespace, name) by the uid of an owner.
        self._names = defaultdict(dict)
        self._owned = defaultdict(dict)
        super().__init__(rules=True, **options)
        self.objects.items_of = self._items_of

    def _notify_watches(self, change):
        self._index(change.resource, change.before, change.after)
        super()._notify_watches(change)
        for listen in self.listeners:
            listen(change)

    def _do(self, seen, resource, namespace, name, subresource):
        if seen.verb == "create" and resource.namespaced:
            self.check_namespace(namespace)
        if seen.verb == "delete" and resource == kinds.PODS:
            raise StatusError(403, "no process of ours may delete pods")
        return super()._do(seen, resource, namespace, name, subresource)

    def check_namespace(self, namespace):
        """Raise StatusError if the namespace is missing or being deleted."""
        obj = self.objects.get(kinds.NAMESPACES, "", namespace)
        if "deletionTimestamp" in obj["metadata"]:
            details = {"causes": [{"reason": "NamespaceTerminating", "message": "is terminating"}]}
            text = f"unable to create new content in namespace {namespace}: being terminated"
            raise StatusError(403, text, details=details)

    def find_object(self, resource, key):
        """Return an object by (namespace, name), or None."""
        return self.objects.all(resource).get(key)

    def every(self, resource, namespace=None):
        """Return the objects of a kind, by default of all namespaces."""
        return [obj for _, obj in self._items_of(resource, namespace)]

    def _items_of(self, resource, namespace):
        objects = self.objects.all(resource)
        if not namespace:
            return objects.items()
        names = self._names.get((resource, namespace), ())
        return [((namespace, name), objects[namespace, name]) for name in names]

    def owned(self, uid):
        """Return the resource and the object of each that names the owner ``uid``."""
        return [
            (resource, self.objects.all(resource)[namespace, name])
            for resource, namespace, name in self._owned.get(uid, ())
        ]

    def _index(self, resource, before, after):
        metadata = (after or before)["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        if before is None:
            self._names[resource, namespace][name] = None
        elif after is None:
            _drop(self._names, (resource, namespace), name)
        old, new = (_owner_uids(obj) for obj in (before, after))
        for uid in old - new:
            _drop(self._owned, uid, (resource, namespace, name))
        for uid in new - old:
            self._owned[uid][resource, namespace, name] = None

    def change(self, resource, obj, change, subresource=None):
        """Call ``change`` with a copy of the current object, and store it."""
        metadata = obj["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        current = self.find_object(resource, key)
        if current is None or current["metadata"]["uid"] != metadata["uid"]:
            return None
        copied = copy_json(current)
        change(copied)
        return self.objects.replace(resource, *key, copied, subresource=subresource)

    def make(self, resource, obj):
        """Create an object, and return it as it is stored."""
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        return self.objects.create(resource, obj["metadata"].get("namespace", ""), body)

    def set_status(self, resource, obj, **status):
        """Write a status for the current generation, if it differs."""
        status["observedGeneration"] = obj["metadata"]["generation"]
        if obj.get("status") != status:

            def write(current):
                current["status"] = status

            self.change(resource, obj, write, "status")


def _drop(index, key, entry):
    del index[key][entry]
    if not index[key]:
        del index[key]


def _owner_uids(obj):
    references = obj["metadata"].get("ownerReferences") if obj is not None else None
    return {reference["uid"] for reference in references or ()}


def opted_in(namespace):
    """Return whether a namespace opts in to gates."""
    annotations = (namespace or {}).get("metadata", {}).get("annotations") or {}
    return annotations.get(OPT_IN_KEY) == OPT_IN


def digest(value):
    """Return a short hash of a value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def reference(obj):
    """Return the owner reference to an object."""
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        "controller": True,
    }


def resource_of(obj):
    return KINDS[obj["apiVersion"], obj["kind"]]


def is_of(obj, uid, *, any_owner=False):
    return any(
        reference["uid"] == uid and (any_owner or reference.get("controller"))
        for reference in obj["metadata"].get("ownerReferences") or ()
    )


def is_ready(pod):
    return pod["status"]["phase"] == "Running"


def revision_of(obj):
    return int((obj["metadata"].get("annotations") or {}).get(REVISION, 0))


def labels_of(obj):
    return obj["metadata"].get("labels") or {}


def name_of(obj):
    return obj["metadata"]["name"]


def namespace_of(obj):
    return obj["metadata"]["namespace"]
