"""The simulated API server, which also tells whose request it answers, and what objects say."""

from __future__ import annotations

import hashlib
import json

from harbourmaster.api import resources as kinds
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from helpers.api_server import ApiServer
from helpers.fake_store import StatusError

REVISION = "deployment.kubernetes.io/revision"
KINDS = {(variable.api_version, variable.kind): variable for variable in vars(kinds).values()
          if isinstance(variable, kinds.Resource)}  # fmt: skip


class SimulatedServer(ApiServer):
    """The API server; ``actor`` is the replica whose request is being answered, if it is one's."""

    def __init__(self, **options):
        self.listeners = []
        self.actor = None
        super().__init__(rules=True, **options)

    def _changed(self, change):
        super()._changed(change)
        for listen in self.listeners:
            listen(change)

    def _do(self, seen, resource, namespace, name, subresource):
        if seen.verb == "create" and resource.namespaced:
            self.check_namespace(namespace)
        if seen.verb == "delete" and resource == kinds.PODS:
            raise StatusError(403, "no process of ours may delete pods")
        return super()._do(seen, resource, namespace, name, subresource)

    def check_namespace(self, namespace):
        """Raise StatusError where nothing can be created in it."""
        obj = self.objects.get(kinds.NAMESPACES, "", namespace)
        if "deletionTimestamp" in obj["metadata"]:
            details = {"causes": [{"reason": "NamespaceTerminating", "message": "is terminating"}]}
            text = f"unable to create new content in namespace {namespace}: being terminated"
            raise StatusError(403, text, details=details)

    def find_object(self, resource, key):
        """An object by (namespace, name), or None."""
        return self.objects.all(resource).get(key)

    def every(self, resource, namespace=None):
        """The objects of a kind."""
        return [
            each
            for (place, _), each in list(self.objects.all(resource).items())
            if namespace is None or place == namespace
        ]

    def change(self, resource, obj, change, subresource=None):
        """Have ``change`` called with a copy of an object as it is now, and store what it made."""
        metadata = obj["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        found = self.find_object(resource, key)
        if found is None or found["metadata"]["uid"] != metadata["uid"]:
            return None
        copied = json.loads(json.dumps(found))
        change(copied)
        return self.objects.replace(resource, *key, copied, subresource=subresource)

    def make(self, resource, obj):
        """Create an object; returns what is stored."""
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        return self.objects.create(resource, obj["metadata"].get("namespace", ""), body)

    def set_status(self, resource, found, **status):
        """Write a status for the present generation, unless it is there."""
        status["observedGeneration"] = found["metadata"]["generation"]
        if found.get("status") != status:

            def write(one):
                one["status"] = status

            self.change(resource, found, write, "status")


def opted_in(namespace):
    """Whether a namespace asks for gates."""
    annotations = (namespace or {}).get("metadata", {}).get("annotations") or {}
    return annotations.get(OPT_IN_KEY) == OPT_IN


def digest(value):
    """A few digits that follow from a value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def reference(obj):
    """The owner reference to an object."""
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
