"""The admission policy that leaves our gate and our annotations to us, on the real API server."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import yaml

from helpers.cluster import (
    STRICTLY,
    bare_pod,
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

pytestmark = pytest.mark.gate

GUARD = Path(__file__).parents[2] / "deploy/components/gate-guard"
FOREIGN = "example.com/quota"


@pytest.fixture
def pods(namespace, kubectl):
    """The guard in force in the place alone; jane may edit there, and joe may release too."""
    objects = [
        obj
        for name in ("admissionpolicy", "releaser", "rerun-guard")
        for obj in yaml.safe_load_all((GUARD / f"{name}.yaml").read_text())
    ]
    by_name = {"kubernetes.io/metadata.name": namespace}
    for binding in (obj for obj in objects if obj["kind"].endswith("Binding")):
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
        metadata = {
            "namespace": self._namespace,
            "labels": labels or {},
            **annotate(**annotations)["metadata"],
        }
        gates = [{"name": GATE}, {"name": FOREIGN}] if gated else []
        pod = bare_pod(name, metadata, schedulingGates=gates, schedulerName=scheduler)
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


def annotate(**annotations):
    texts = {
        key.replace("__", "/").replace("_", "-"): annotation
        for key, annotation in annotations.items()
    }
    return {"metadata": {"annotations": texts}}


def label(**labels):
    return {"metadata": {"labels": annotate(**labels)["metadata"]["annotations"]}}


@pytest.mark.claim("O4")
def test_nobody_else_removes_our_gate_or_writes_our_annotations(pods):
    pods.until_in_force()
    given = {"keptn.sh__workload": "waiter", "keptn.sh__version": "2.0"}
    ours = {"gates.harbourmaster.dev__app_type": "single-service"}
    labels = {"app.kubernetes.io/part-of": "shop", "gates.harbourmaster.dev/staged": "true"}
    assert not pods.create("held", labels=labels, **given, **ours)
    assert not pods.create("free", gated=False, **given)
    for change, text in (
        (label(**{"gates.harbourmaster.dev__staged": None}), "only harbourmaster changes"),
        (label(**{"gates.harbourmaster.dev__staged": "no"}), "only harbourmaster changes"),
        (UNGATE, "only harbourmaster removes the gate"),
        (annotate(**{REMOVED: "true"}), "only harbourmaster changes the annotations"),
        (annotate(**{"gates.harbourmaster.dev__released": "x"}), "only harbourmaster changes"),
        (annotate(**{"gates.harbourmaster.dev__app_type": None}), "only harbourmaster changes"),
        (annotate(**{"keptn.sh__version": "1.0"}), "cannot be changed while it waits"),
        (annotate(**{"keptn.sh__workload": None}), "cannot be changed while it waits"),
        (label(**{"keptn.sh__version": "1.0"}), "cannot be changed while it waits"),
        (label(**{"app.kubernetes.io__part_of": None}), "cannot be changed while it waits"),
    ):
        assert text in pods.patch("held", change), change
        assert not pods.patch("held", change, "joe", "merge", "?dryRun=All"), change
        assert not pods.patch("held", change, OUR_CONTROLLER, "merge", "?dryRun=All")
    # Nor by the way of the status.
    assert "only harbourmaster" in pods.patch(
        "held", annotate(**{REMOVED: "true"}), "jane", "merge", "/status"
    )
    # The guard ignores everything else.
    assert not pods.patch("held", OTHERS)
    assert not pods.patch("held", annotate(**{"example.com__a": "b"}))
    assert not pods.patch("held", label(**{"example.com__a": "b"}))
    assert not pods.patch("free", label(**{"example.com__a": "b"}))
    staged = label(**{"gates.harbourmaster.dev__staged": "true"})
    assert "and its label" in pods.patch("free", staged)
    assert not pods.patch("free", annotate(**{"keptn.sh__version": "1.0"}))
    assert "no pod starts as released" in pods.create("new", **{REMOVED: "true"})
    assert "no pod starts" in pods.create("new", **{"gates.harbourmaster.dev__released_by": "x"})
    assert "no pod starts" in pods.create("new", labels={"keptn.sh/scheduling-gate-removed": "t"})
    assert not pods.patch(
        "held", {"spec": {"schedulingGates": []}} | annotate(**{REMOVED: "true"}), "joe"
    )


def create_version(kubectl, namespace):
    """A version that exists, and that jane may patch."""
    version = {
        "apiVersion": "lifecycle.keptn.sh/v1",
        "kind": "KeptnWorkloadVersion",
        "metadata": {"name": "shop-cart-1.0", "namespace": namespace},
        "spec": {
            "app": "shop",
            "version": "1.0",
            "workloadName": "shop-cart",
            "resourceReference": {"uid": "rs-1", "kind": "ReplicaSet", "name": "cart"},
        },
    }
    editor = {"name": "editor", "namespace": namespace}
    rule = {"apiGroups": ["lifecycle.keptn.sh"], "resources": ["*"], "verbs": ["patch"]}
    role = role_of("Role", editor, rule)
    create(kubectl, version, role, role_binding("editor", namespace, "jane", "editor", "Role"))
    return version


@pytest.mark.claim("O4")
def test_nobody_else_asks_for_repeated_checks_or_does_it_in_another_name(pods, namespace, kubectl):
    pods.until_in_force()
    version = create_version(kubectl, namespace)

    def ask(user, by, label="1"):
        """Dry-run a request of a user; ``by`` is who it says asks."""
        request = annotate(gates__rerun_by=by) if by else {"metadata": {}}
        request["metadata"]["labels"] = {"gates.harbourmaster.dev/rerun": label}
        path = path_of(version, "shop-cart-1.0?dryRun=All")
        text = json.dumps(request).replace("gates/", "gates.harbourmaster.dev/")
        return why_refused(kubectl, user, "PATCH", path, json.loads(text), "merge-patch+json")

    eventually(lambda: ask("jane", "jane"))
    for by in ("jane", "root", None):
        assert "only users that are allowed to release gates" in ask("jane", by), by
    # Without the webhook users may write their own name, and no other.
    assert not ask("joe", "joe")
    for by in ("root", None):
        assert "rerun-by must be the user that asks" in ask("joe", by), by
    assert not ask("joe", None, label=None)


def test_users_who_can_release_end_a_stage_in_their_own_name(pods, namespace, kubectl):
    pods.until_in_force()
    version = create_version(kubectl, namespace)

    def ask(user, by):
        """Dry-run a promotion by a user; ``by`` is who it says asks."""
        notes = {"promote": "2/a1", "promote-reason": "x", **({"promote-by": by} if by else {})}
        annotations = {f"gates.harbourmaster.dev/{key}": text for key, text in notes.items()}
        request = {"metadata": {"annotations": annotations}}
        path = path_of(version, "shop-cart-1.0?dryRun=All")
        return why_refused(kubectl, user, "PATCH", path, request, "merge-patch+json")

    eventually(lambda: ask("jane", "jane"))
    assert "only users that are allowed to release gates" in ask("jane", "jane")
    assert not ask("joe", "joe")
    for by in ("root", None):
        assert "promote-by must be the user that asks" in ask("joe", by), by


def test_what_a_pod_says_stays_as_long_as_it_waits_in_the_scheduler(pods, namespace, kubectl):
    pods.until_in_force()
    given = {"keptn.sh__workload": "waiter", "keptn.sh__version": "2.0"}
    for name, scheduler in (("ours", "keptn-scheduler"), ("other", "bin-packer")):
        assert not pods.create(name, gated=False, scheduler=scheduler, **given)
    changes = (
        annotate(**{"keptn.sh__version": "1.0"}),
        annotate(**{"keptn.sh__workload": None}),
        label(**{"app.kubernetes.io__part_of": "x"}),
    )
    for change in changes:
        assert "in keptn-scheduler" in pods.patch("ours", change), change
        assert not pods.patch("ours", change, "joe", "merge", "?dryRun=All"), change
        assert not pods.patch("ours", change, OUR_CONTROLLER, "merge", "?dryRun=All")
        assert not pods.patch("other", change, "jane", "merge", "?dryRun=All"), change
    for change in (
        annotate(**{"gates.harbourmaster.dev__released": "by-hand"}),
        annotate(**{"gates.harbourmaster.dev__checks": "passed"}),
    ):
        assert "only harbourmaster changes" in pods.patch("ours", change), change
    # The scheduler says on the status why it does not place it, and it ends on a node.
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"status": {"conditions": [condition]}}
    assert not pods.patch("ours", status, "jane", "strategic-merge", "/status")
    assert not pods.patch("ours", annotate(**{"example.com__a": "b"}))
    bind(kubectl, namespace, "ours")
    assert not pods.patch("ours", changes[0])


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


def test_who_may_release_may_have_nodes_forgotten(pods, namespace, kubectl):
    def may(user):
        what = ("patch", "keptnworkloadversions.lifecycle.keptn.sh", f"--as={user}")
        answer = kubectl("auth", "can-i", *what, f"--namespace={namespace}", check=False)
        return answer.stdout.strip()

    assert (may("jane"), may("joe")) == ("no", "yes")
