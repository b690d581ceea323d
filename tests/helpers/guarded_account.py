"""The controller's real account on a real API server, and what its guard allows and refuses."""

from __future__ import annotations

import contextlib
import json

import msgspec
import yaml

from harbourmaster.kube.errors import ApiError
from helpers.manifests import DEPLOY, NAMESPACE, objects, of_kind
from helpers.processes import client_of
from helpers.rights import kubeconfig

GATE = "keptn-prechecks-gate"
FOREIGN_GATE = "example.com/quota"
RIGHTS = ("Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
GUARD = DEPLOY / "components/account-guard"
MERGE, STRATEGIC, JSON = (
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json",
)
ACCOUNT = "harbourmaster-controller"


def guard():
    """The policies and bindings of the guard."""
    files = sorted(GUARD.glob("*.yaml"))
    documents = [document for file in files for document in yaml.safe_load_all(file.read_text())]
    return [document for document in documents if document["kind"] != "Component"]


def a_list(items):
    """Manifests as one document."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})


def rights_in(home):
    """The account with all the permissions that components give it, in a namespace of its own.

    Roles are named after the namespace, so that they are unique.
    """
    manifests = objects("default", "rescheduling", "placement", "scheduler", "dashboard")
    text = json.dumps(of_kind(manifests, *RIGHTS)).replace(NAMESPACE, home)
    items = json.loads(text)
    for obj in items:
        obj["metadata"].pop("labels", None)
        if obj["kind"] not in {"Namespace", "ServiceAccount"}:
            obj["metadata"]["name"] = f"{home}-{obj['metadata']['name']}"
        reference = obj.get("roleRef", {"name": ""})
        if reference["name"].startswith("harbourmaster"):
            reference["name"] = f"{home}-{reference['name']}"
    return [item for item in items if item["kind"] != "Namespace"]


class GuardedAccount:
    """Requests with the token of the account; each is a dry run, so the next finds all the same."""

    def __init__(self, client, home, tenant):
        self.client = client
        self.home = home
        self.tenant = tenant

    async def refusal(self, method, path, body, kind=JSON):
        """Why the API server refuses it; empty if it does not."""
        path = path.format(home=self.home, tenant=self.tenant)
        text = json.dumps(body).replace("{home}", self.home).replace("{tenant}", self.tenant)
        try:
            await self.client.request(
                method,
                path,
                query={"dryRun": "All"},
                body=text.encode(),
                content_type=kind,
                retries=0,
            )
        except ApiError as error:
            return f"{error.status} {error.message}"
        return ""


@contextlib.asynccontextmanager
async def account_client(plane, home, directory):
    """A client with a token of the account."""
    token = plane.kubectl("create", "token", ACCOUNT, f"--namespace={home}").stdout.strip()
    path = directory / "account.kubeconfig"
    path.write_text(kubeconfig(plane.kubeconfig, token=token))
    async with client_of(path) as client:
        yield client


def owner(kind, name, uid, **more):
    """An owner reference to an object of Keptn's, as its controller."""
    reference = {"apiVersion": "lifecycle.keptn.sh/v1", "kind": kind, "name": name, "uid": uid}
    return {**reference, "controller": True, **more}


def job(uid, name="stolen", pod=None, annotations=None, **container):
    """A Job as the controller makes it, for the task with this uid."""
    main = {"name": "main", "image": "registry.example.com/main:1", **container}
    spec = {"containers": [main], "restartPolicy": "OnFailure", **(pod or {})}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "ownerReferences": [owner("KeptnTask", "checked", uid)]},
        "spec": {
            "backoffLimit": 1,
            "template": {"metadata": {"annotations": annotations or {}}, "spec": spec},
        },
    }


def stored_object(kubectl, kind, name, namespace=None):
    """An object as it is stored."""
    where = [f"--namespace={namespace}"] if namespace else []
    return msgspec.json.decode(kubectl("get", kind, name, "-o=json", *where).stdout)
