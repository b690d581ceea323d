"""Access to the objects of a control plane by path, with the administrator's rights."""

from __future__ import annotations

import json

from harbourmaster.playground import api
from harbourmaster.playground.errors import PlaygroundError

POLICIES = "/apis/kupid.gardener.cloud/v1alpha1"
HOOKS = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{HOOKS}/mutatingwebhookconfigurations/harbourmaster"
VALIDATING = f"{HOOKS}/validatingwebhookconfigurations/harbourmaster"
HOME = "/api/v1/namespaces/harbourmaster-system"
SECRET = f"{HOME}/secrets/harbourmaster-webhook-cert"
LEASE = (
    "/apis/coordination.k8s.io/v1/namespaces/harbourmaster-system/leases/harbourmaster-controller"
)


class Stored:
    """The objects of a control plane."""

    def __init__(self, plane):
        self._plane = plane

    def ask(self, method, path, body=None):
        """The answer to a request. Raises PlaygroundError."""
        return json.loads(api.request(self._plane.port, self._plane.admin, method, path, body))

    def find(self, path):
        """An object; None where there is none."""
        return self._ask_unless_missing("GET", path)

    def _ask_unless_missing(self, method, path):
        try:
            return self.ask(method, path)
        except PlaygroundError as error:
            if f"{path}: 404 " in str(error):
                return None
            raise

    def put(self, path, document):
        """Make an object what is given, whether it is there or not."""
        if self.find(path) is None:
            return self.ask("POST", path.rpartition("/")[0], document)

        def change(stored):
            version = stored["metadata"]["resourceVersion"]
            stored.clear()
            stored.update(document, metadata={**document["metadata"], "resourceVersion": version})

        return self.edit(path, change)

    def edit(self, path, change):
        """Change an object by ``change(document)``, again after a conflict with another client."""
        while True:
            document = self.ask("GET", path)
            change(document)
            try:
                return self.ask("PUT", path, document)
            except PlaygroundError as error:
                if f"{path}: 409 " not in str(error):
                    raise

    def mark(self, path, name, value):
        """Annotate an object; None takes the annotation away."""

        def change(document):
            annotations = document["metadata"].setdefault("annotations", {})
            annotations.pop(name, None)
            if value is not None:
                annotations[name] = value

        return self.edit(path, change)

    def remove(self, path):
        """Delete an object if it is there."""
        self._ask_unless_missing("DELETE", path)

    def remove_namespace(self, name):
        """Delete a namespace; without its controller, we take the last hold of it away."""
        path = f"/api/v1/namespaces/{name}"
        if self.find(path) is not None:
            left = self.ask("DELETE", path)
            left["spec"]["finalizers"] = []
            self.ask("PUT", f"{path}/finalize", left)

    def tried_pod(self, namespace, pod):
        """The node selector that a pod would get, by a dry run."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        return self.ask("POST", f"{path}?dryRun=All", pod)["spec"].get("nodeSelector", {})


def namespace(name, *, labels=None, annotations=None):
    """A Namespace."""
    metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
