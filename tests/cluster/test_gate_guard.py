"""The admission policy that leaves our gate and our annotations to us, on the real API server."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from helpers.cluster import (
    STRICTLY,
    create,
    delete,
    eventually,
    path_of,
    role_binding,
    role_of,
    why_refused,
)
from helpers.faults.stored_objects import Stored
from helpers.gated import GATE

pytestmark = [pytest.mark.gate, pytest.mark.cluster, pytest.mark.slow]

GUARD = Path(__file__).parents[2] / "deploy/components/gate-guard"
FOREIGN = "example.com/quota"


@pytest.fixture
def guarded(namespace, kubectl):
    """The guard in force in the place alone; jane may edit there, and joe may release too."""
    objects = [
        obj
        for name in ("admissionpolicy", "releaser")
        for obj in yaml.safe_load_all((GUARD / f"{name}.yaml").read_text())
    ]
    binding = next(obj for obj in objects if obj["kind"].endswith("Binding"))
    by_name = {"kubernetes.io/metadata.name": namespace}
    binding["spec"]["matchResources"] = {"namespaceSelector": {"matchLabels": by_name}}
    rule = {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["*"]}
    objects.append(role_of("ClusterRole", {"name": namespace}, rule))
    create(
        kubectl,
        *objects,
        *(
            role_binding(f"{user.rpartition(':')[2]}-{role[:5]}", namespace, user, role)
            for user, role in (
                ("jane", namespace),
                ("joe", namespace),
                (OUR_CONTROLLER, namespace),
                ("joe", "harbourmaster-gate-releaser"),
            )
        ),
    )
    yield Guarded(namespace, kubectl)
    delete(kubectl, *objects)


class Guarded:
    """Pods in a place with the guard."""

    def __init__(self, namespace, kubectl):
        self._kubectl = kubectl
        self._namespace = namespace

    def create(self, name, user="jane", *, labels=None, gated=True, scheduler=None, **annotations):
        texts = {
            key.replace("__", "/").replace("_", "-"): annotation
            for key, annotation in annotations.items()
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": self._namespace,
                "annotations": texts,
                "labels": labels or {},
            },
            "spec": {
                "containers": [{"name": "main", "image": "registry.example.com/main:1"}],
                "schedulingGates": [{"name": GATE}, {"name": FOREIGN}] if gated else [],
                "schedulerName": scheduler,
            },
        }
        return self._refusal(user, "POST", path_of(pod) + STRICTLY, pod)

    def patch(self, name, value, user="jane", kind="merge", more=""):
        path = f"/api/v1/namespaces/{self._namespace}/pods/{name}{more}"
        return self._refusal(user, "PATCH", path, value, f"{kind}-patch+json")

    def _refusal(self, *request):
        """The guard's message; empty if it refuses nothing."""
        told = why_refused(self._kubectl, *request)
        assert not told or "harbourmaster-gate-guard" in told, told
        return told

    def until_in_force(self):
        given = {REMOVED: "true"}
        eventually(lambda: self.create(f"probe-{time.monotonic_ns()}", **given))


REMOVED = "keptn.sh__scheduling_gate_removed"
UNGATE = {"spec": {"schedulingGates": [{"name": FOREIGN}]}}
OTHERS = {"spec": {"schedulingGates": [{"name": GATE}]}}
OUR_CONTROLLER = "system:serviceaccount:harbourmaster-system:harbourmaster-controller"


def noted(**annotations):
    texts = {
        key.replace("__", "/").replace("_", "-"): annotation
        for key, annotation in annotations.items()
    }
    return {"metadata": {"annotations": texts}}


def labelled(**labels):
    return {"metadata": {"labels": noted(**labels)["metadata"]["annotations"]}}


@pytest.mark.claim("O4")
def test_nobody_else_removes_our_gate_or_writes_our_annotations(guarded):
    guarded.until_in_force()
    given = {"keptn.sh__workload": "waiter", "keptn.sh__version": "2.0"}
    ours = {"gates.harbourmaster.dev__app_type": "single-service"}
    assert not guarded.create("held", labels={"app.kubernetes.io/part-of": "shop"}, **given, **ours)
    assert not guarded.create("free", gated=False, **given)
    for change, text in (
        (UNGATE, "only harbourmaster removes the gate"),
        (noted(**{REMOVED: "true"}), "only harbourmaster changes the annotations"),
        (noted(**{"gates.harbourmaster.dev__released": "x"}), "only harbourmaster changes"),
        (noted(**{"gates.harbourmaster.dev__app_type": None}), "only harbourmaster changes"),
        (noted(**{"keptn.sh__version": "1.0"}), "cannot be changed while it waits"),
        (noted(**{"keptn.sh__workload": None}), "cannot be changed while it waits"),
        (labelled(**{"keptn.sh__version": "1.0"}), "cannot be changed while it waits"),
        (labelled(**{"app.kubernetes.io__part_of": None}), "cannot be changed while it waits"),
    ):
        assert text in guarded.patch("held", change), change
        assert not guarded.patch("held", change, "joe", "merge", "?dryRun=All"), change
        assert not guarded.patch("held", change, OUR_CONTROLLER, "merge", "?dryRun=All")
    # Nor by the way of the status.
    assert "only harbourmaster" in guarded.patch(
        "held", noted(**{REMOVED: "true"}), "jane", "merge", "/status"
    )
    # The guard ignores everything else.
    assert not guarded.patch("held", OTHERS)
    assert not guarded.patch("held", noted(**{"example.com__a": "b"}))
    assert not guarded.patch("free", noted(**{"keptn.sh__version": "1.0"}))
    assert "no pod starts as released" in guarded.create("new", **{REMOVED: "true"})
    assert "no pod starts" in guarded.create("new", **{"gates.harbourmaster.dev__released_by": "x"})
    assert "no pod starts" in guarded.create(
        "new", labels={"keptn.sh/scheduling-gate-removed": "t"}
    )
    assert not guarded.patch(
        "held", {"spec": {"schedulingGates": []}} | noted(**{REMOVED: "true"}), "joe"
    )


def test_what_a_pod_says_stays_as_long_as_it_waits_in_the_scheduler(guarded, namespace, kubectl):
    guarded.until_in_force()
    given = {"keptn.sh__workload": "waiter", "keptn.sh__version": "2.0"}
    for name, scheduler in (("ours", "keptn-scheduler"), ("other", "bin-packer")):
        assert not guarded.create(name, gated=False, scheduler=scheduler, **given)
    changes = (
        noted(**{"keptn.sh__version": "1.0"}),
        noted(**{"keptn.sh__workload": None}),
        labelled(**{"app.kubernetes.io__part_of": "x"}),
    )
    for change in changes:
        assert "in keptn-scheduler" in guarded.patch("ours", change), change
        assert not guarded.patch("ours", change, "joe", "merge", "?dryRun=All"), change
        assert not guarded.patch("ours", change, OUR_CONTROLLER, "merge", "?dryRun=All")
        assert not guarded.patch("other", change, "jane", "merge", "?dryRun=All"), change
    for change in (
        noted(**{"gates.harbourmaster.dev__released": "by-hand"}),
        noted(**{"gates.harbourmaster.dev__checks": "passed"}),
    ):
        assert "only harbourmaster changes" in guarded.patch("ours", change), change
    # The scheduler says on the status why it does not place it, and it ends on a node.
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"status": {"conditions": [condition]}}
    assert not guarded.patch("ours", status, "jane", "strategic-merge", "/status")
    assert not guarded.patch("ours", noted(**{"example.com__a": "b"}))
    bind(kubectl, namespace, "ours")
    assert not guarded.patch("ours", changes[0])


def bind(kubectl, namespace, name):
    """Give a pod a node, as its scheduler does."""
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace},
        "target": {"kind": "Node", "name": "nowhere"},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
    Stored(kubectl.__self__).ask("POST", path, binding)


def test_who_may_release_may_have_nodes_forgotten(guarded, namespace, kubectl):
    def may(user):
        what = ("patch", "keptnworkloadversions.lifecycle.keptn.sh", f"--as={user}")
        answer = kubectl("auth", "can-i", *what, f"--namespace={namespace}", check=False)
        return answer.stdout.strip()

    assert (may("jane"), may("joe")) == ("no", "yes")
