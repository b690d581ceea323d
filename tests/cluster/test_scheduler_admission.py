"""Places where pods wait: real webhook processes on a real API server, which watch owners."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harbourmaster.certs.store import ensure
from harbourmaster.gates.metadata import PARENT_KEY, UNRESOLVED
from helpers.admission import GATE, OPT_IN, keys
from helpers.cluster import (
    bare_pod,
    create,
    delete,
    eventually,
    fresh_namespace,
    keep_registered,
    tried_pod,
    webhook_configuration,
)
from helpers.faults.stored_objects import Stored
from helpers.objects import policy
from helpers.patience import PATIENCE

pytestmark = pytest.mark.gate

OURS = "keptn-scheduler"
TRACKED = keys(workload="ledger", version="3", app="books")
CONTAINER = {"name": "ledger", "image": "registry.example.com/ledger:3"}


@pytest.fixture(autouse=True, scope="module")
def _no_cluster_policies(control_plane):
    """Those that other tests have left on the shared control plane would change our pods."""
    control_plane.kubectl("delete", "clusterpodschedulingpolicies", "--all", "--ignore-not-found")


@contextlib.contextmanager
def webhook(plane, directory, *flags):
    """A webhook process, registered for the namespaces with the label that is yielded."""
    ensure(directory, ("127.0.0.1",), datetime.now(UTC))
    command = [Path(sys.executable).with_name("harbourmaster"), "webhook"]
    command += [f"--kubeconfig={plane.kubeconfig}", f"--cert-dir={directory}", "--port=0"]
    command += ["--health-port=0", "--drain-seconds=0", "--log-format=json", *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    timer = threading.Timer(PATIENCE, process.kill)
    # A pipe without a reader would stop it.
    drain = threading.Thread(target=process.stderr.read)
    timer.start()
    try:
        lines = (line for line in process.stderr if line.startswith("{"))
        serving = next(line for line in map(json.loads, lines) if line["event"] == "serving")
        timer.cancel()
        drain.start()
        label = {"example.com/webhook": uuid.uuid4().hex[:8]}
        configuration = webhook_configuration(
            "Mutating",
            serving["reviews"],
            (directory / "ca.crt").read_bytes(),
            name=f"scheduler-{label['example.com/webhook']}",
            namespaceSelector={"matchLabels": label},
        )
        with keep_registered(plane.kubectl, configuration):
            yield label
    finally:
        timer.cancel()
        process.terminate()
        process.wait(PATIENCE)
        if drain.ident is not None:
            drain.join()
        process.stderr.close()


def annotations(pod):
    return pod["metadata"].get("annotations", {})


class GatedNamespace:
    """A namespace with gates, and one policy by which it shows that reviews come to the webhook."""

    def __init__(self, kubectl, labels):
        self._kubectl = kubectl
        self.name = fresh_namespace(kubectl, "waiting", labels, OPT_IN)
        self.create(policy("here", self.name, nodeSelector={"example.com/here": ""}))
        eventually(lambda: tried_pod(kubectl, self.name).get("nodeSelector"))

    def create(self, manifest):
        create(self._kubectl, manifest)

    def pods(self, count):
        """The specs and annotations of so many pods, once they are there.

        A pod that came before the webhook knew its ReplicaSet is recreated: it waits for the
        controller, which is not here.
        """

        def list_pods():
            path = f"/api/v1/namespaces/{self.name}/pods"
            items = Stored(self._kubectl.__self__).ask("GET", path)["items"]
            early = [item for item in items if annotations(item).get(PARENT_KEY) == UNRESOLVED]
            delete(self._kubectl, *({"apiVersion": "v1", "kind": "Pod", **pod} for pod in early))
            return [] if early else items

        items = eventually(list_pods, is_right=lambda items: len(items) == count)
        return [(item["spec"], annotations(item)) for item in items]

    def try_pod(self, *, check=True, **spec):
        """Create a pod of a ReplicaSet by a dry run: its spec or None, and what was said."""
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "ledger-1", "uid": "1"}
        metadata = {"namespace": self.name, "annotations": TRACKED, "ownerReferences": [owner]}
        manifest = bare_pod("tried", metadata, **spec)
        options = ("--dry-run=server", "-o=json", "-f=-")
        answer = self._kubectl("create", *options, stdin=json.dumps(manifest), check=check)
        stored = json.loads(answer.stdout)["spec"] if answer.stdout.strip() else None
        return stored, answer.stderr


def deployment(namespace, **spec):
    """Two replicas whose Deployment alone says of which workload they are."""
    labels = {"example.com/app": "ledger"}
    metadata = {"name": "ledger", "namespace": namespace, "annotations": TRACKED}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [CONTAINER], **spec}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
    }


@pytest.fixture(scope="module")
def by_name(control_plane, tmp_path_factory):
    """A namespace whose pods wait with a scheduler."""
    directory = tmp_path_factory.mktemp("by-name")
    with webhook(control_plane, directory, "--gating=schedulerName") as label:
        yield lambda: GatedNamespace(control_plane.kubectl, label)


def test_pods_of_a_deployment_get_our_scheduler_and_no_gate(by_name):
    place = by_name()
    place.create(deployment(place.name))
    pods = place.pods(2)
    assert len(pods) == 2
    for spec, told in pods:
        assert spec["schedulerName"] == OURS
        assert "schedulingGates" not in spec
        assert "nodeName" not in spec
        assert TRACKED.items() <= told.items()


def test_auto_asks_this_api_server_and_takes_gates(control_plane, tmp_path):
    with webhook(control_plane, tmp_path) as label:
        place = GatedNamespace(control_plane.kubectl, label)
        place.create(deployment(place.name))
        for spec, told in place.pods(2):
            assert spec["schedulingGates"] == [GATE]
            assert spec["schedulerName"] == "default-scheduler"
            assert TRACKED.items() <= told.items()
        spec, said = place.try_pod(schedulerName=OURS)
        assert "schedulingGates" not in spec
        assert f"the pod names {OURS}" in said


def test_pods_that_name_a_scheduler_of_their_own_go_with_a_warning(by_name):
    place = by_name()
    place.create(deployment(place.name, schedulerName="bin-packer"))
    for spec, told in place.pods(2):
        assert spec["schedulerName"] == "bin-packer"
        assert "schedulingGates" not in spec
        assert TRACKED.keys().isdisjoint(told)
    spec, said = place.try_pod(schedulerName="bin-packer")
    assert spec["schedulerName"] == "bin-packer"
    assert 'Warning: harbourmaster: the pod names the scheduler "bin-packer"' in said


def test_or_are_denied_where_the_settings_say_so(control_plane, tmp_path):
    flags = ("--gating=schedulerName", "--on-foreign-scheduler=deny")
    with webhook(control_plane, tmp_path, *flags) as label:
        place = GatedNamespace(control_plane.kubectl, label)
        spec, said = place.try_pod(schedulerName="bin-packer", check=False)
        assert spec is None
        assert 'the pod names the scheduler "bin-packer"' in said
        assert "leave out spec.schedulerName" in said
        assert place.try_pod()[0]["schedulerName"] == OURS


def test_a_policys_scheduler_gives_way_and_that_is_told(by_name, control_plane):
    place = by_name()
    packed = {"schedulerName": "bin-packer", "nodeSelector": {"example.com/packed": ""}}
    place.create(policy("packed", place.name, **packed))
    key = "example.com/packed"
    bare = eventually(
        lambda: tried_pod(control_plane.kubectl, place.name),
        is_right=lambda spec: key in spec["nodeSelector"],
    )
    assert bare["schedulerName"] == "bin-packer"
    spec, said = place.try_pod()
    assert spec["schedulerName"] == OURS
    assert key in spec["nodeSelector"]
    assert (
        f"schedulerName bin-packer of PodSchedulingPolicy {place.name}/packed is left out" in said
    )
    place.create(deployment(place.name))
    for spec, _ in place.pods(2):
        assert spec["schedulerName"] == OURS
        assert key in spec["nodeSelector"]
