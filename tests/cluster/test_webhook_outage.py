"""Behaviour of a real API server while no webhook answers."""

from __future__ import annotations

import contextlib
import json
import uuid
from types import SimpleNamespace

import pytest

from harbourmaster.playground.installation import Installation
from helpers.cluster import bare_pod, create, eventually, fresh_namespace, plane_for
from helpers.flow.installation import FLAGS
from helpers.flow.manifests import GATE, deployment, keptn
from helpers.manifests import overlay
from helpers.objects import cluster_policy

FAILURE = "validation.policy.admission.k8s.io/validation_failure"
LABELS = {"example.com/app": "recorded"}
TOLERATION = {"key": "example.com/pool", "operator": "Exists"}
POLICY = "ClusterPodSchedulingPolicy recorded"
PARENT = "gates.harbourmaster.dev/parent"


@pytest.fixture(scope="module")
def cluster(request, tmp_path_factory):
    """An installation with the final-state check and the API server's gate."""
    with contextlib.ExitStack() as stack:
        if request.config.option.gate:
            guarded = request.getfixturevalue("guarded")
            # What the controller tells of an outage is no fault of a flow.
            stack.callback(guarded.new_faults)
            plane, installation = guarded.plane, guarded.installation
        else:
            folder = overlay(
                tmp_path_factory.mktemp("outage") / "overlay",
                "api-server-gate",
                "final-state-check",
            )
            plane = stack.enter_context(plane_for(request, tmp_path_factory, "outage", audit=True))
            plane.add_nodes(1)
            installation = stack.enter_context(
                Installation(plane, folder=folder, arguments={"controller": FLAGS})
            )
        policy = cluster_policy("recorded", pods=LABELS, tolerations=[TOLERATION])
        plane.kubectl("create", "-f=-", stdin=json.dumps(policy))
        yield SimpleNamespace(
            plane=plane,
            kubectl=plane.kubectl,
            installation=installation,
            audit_log=plane.layout.logs / "audit.log",
        )


@contextlib.contextmanager
def outage(installed, *names):
    """End these processes meanwhile."""
    for name in names:
        installed.installation.end(name)
    yield
    for name in names:
        installed.installation.launch(name)
    installed.installation.await_ready(*names)


def create_pods(installed, count, scheduler="nobody"):
    """Create so many pods that the policy selects, more than fit a node; return their names."""
    metadata = {"namespace": "default", "labels": LABELS}
    names = [f"recorded-{uuid.uuid4().hex[:8]}" for _ in range(count)]
    pods = [bare_pod(name, metadata, schedulerName=scheduler) for name in names]
    create(installed.kubectl, *pods)
    return names


def creations(installed):
    """The audit log's record of each creation of a pod: its name, and the failure or nothing."""
    for line in installed.audit_log.read_text().splitlines():
        # Most are of other kinds, and there are many of them.
        if '"resource":"pods"' not in line:
            continue
        event = json.loads(line)
        about = event.get("objectRef", {})
        is_pod = about.get("resource") == "pods" and "subresource" not in about
        if event["verb"] == "create" and is_pod:
            yield about, event["annotations"].get(FAILURE, "")


def records(installed, names):
    """The audit log's record of the creation of each pod; empty for nothing."""
    wanted = set(names)

    def answers():
        return {
            about["name"]: text
            for about, text in creations(installed)
            if about.get("name") in wanted
        }

    return eventually(answers, is_right=lambda value: value.keys() == wanted)


@pytest.mark.parametrize(
    "count",
    [pytest.param(30, marks=pytest.mark.gate), pytest.param(500, marks=pytest.mark.full)],
)
@pytest.mark.claim("O28")
def test_each_pod_that_an_outage_leaves_unchanged_is_recorded_and_no_other(cluster, count):
    with outage(cluster, "webhook"):
        # The API server's caches follow with a delay.
        eventually(lambda: records(cluster, create_pods(cluster, 1)).popitem()[1])
        missed = create_pods(cluster, count)
    changed = create_pods(cluster, count)
    texts = records(cluster, missed)
    assert len(texts) == count
    assert all(f"lacks what {POLICY} adds" in text for text in texts.values())
    assert set(records(cluster, changed).values()) == {""}


def try_pod(installed, manifest, namespace):
    """The gates with which a pod would be created, or what the API server says if it refuses it."""
    result = installed.kubectl(
        "create",
        "-f=-",
        "-o=json",
        "--dry-run=server",
        f"--namespace={namespace}",
        stdin=json.dumps(manifest),
        check=False,
    )
    return result.stderr if result.returncode else gates(json.loads(result.stdout))


def pods_of(installed, namespace, part):
    """The pods of an owner, without those that end."""
    text = installed.kubectl(
        "get", "pods", "-o=json", f"--namespace={namespace}", f"--selector=example.com/part={part}"
    ).stdout
    return json.loads(text)["items"]


def gates(pod):
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]


def owned_pod(name="bare", *, annotations=None, **spec):
    """A pod of a StatefulSet that names its workload, as its controller creates it."""
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "of", "uid": "of"}
    metadata = {
        "annotations": {**keptn("bare"), **(annotations or {})},
        "ownerReferences": [{**owner, "controller": True}],
    }
    return bare_pod(name, metadata, **spec)


@pytest.fixture
def space(cluster):
    """A namespace that requests gates, and has its label."""
    annotations = {"keptn.sh/lifecycle-toolkit": "enabled"}
    name = fresh_namespace(cluster.kubectl, "gated", annotations=annotations)
    label = "-o=jsonpath={.metadata.labels.gates\\.harbourmaster\\.dev/enabled}"
    eventually(lambda: cluster.kubectl("get", "namespace", name, label).stdout)
    return name


def test_a_gate_holds_with_nothing_of_ours_running_and_is_released_afterwards(cluster, space):
    wanted = deployment("early", keptn("early", version=None), labels=LABELS, replicas=3)
    late = deployment("late", keptn("late", version=None), labels=LABELS, replicas=3)
    for obj in (wanted, late):
        obj["metadata"]["labels"] = LABELS
    cluster.kubectl("create", "-f=-", f"--namespace={space}", stdin=json.dumps(wanted))

    def find_free(part):
        pods = pods_of(cluster, space, part)
        bound = [pod for pod in pods if pod["spec"].get("nodeName") and not gates(pod)]
        return pods if len(bound) == 3 else None

    before = eventually(lambda: find_free("early"))
    with outage(cluster, "webhook", "controller"):
        cluster.kubectl("create", "-f=-", f"--namespace={space}", stdin=json.dumps(late))
        held = eventually(
            lambda: pods_of(cluster, space, "late"), is_right=lambda pods: len(pods) == 3
        )
        for obj in held:
            assert gates(obj) == [GATE]
            assert obj["metadata"]["annotations"][PARENT] == "unresolved"
        # The scheduler has looked at them: a pod without a gate is bound meanwhile.
        (free,) = create_pods(cluster, 1, "default-scheduler")
        node = ("get", "pod", free, "--namespace=default", "-o=jsonpath={.spec.nodeName}")
        eventually(lambda: cluster.kubectl(*node).stdout)
        held = pods_of(cluster, space, "late")
        assert [pod["spec"].get("nodeName") for pod in held] == [None] * 3
    after = eventually(lambda: find_free("late"))
    assert {pod["metadata"]["uid"] for pod in after} == {pod["metadata"]["uid"] for pod in held}
    # What the webhook would have written is there, except policies, which are recorded.
    for pods, name in ((before, "early"), (after, "late")):
        for pod in pods:
            annotations = pod["metadata"]["annotations"]
            assert annotations["keptn.sh/workload"] == annotations["keptn.sh/app"] == name
            assert PARENT not in annotations
    versions = {pod["metadata"]["annotations"]["keptn.sh/version"] for pod in (*before, *after)}
    assert len(versions) == 1
    texts = [text for about, text in creations(cluster) if about["namespace"] == space]
    assert [f"lacks what {POLICY} adds" in text for text in texts] == [False] * 3 + [True] * 3


UNGATED = {
    "nodeName": owned_pod(nodeName="node-0"),
    "waiting scheduler": owned_pod(schedulerName="keptn-scheduler"),
    "released": owned_pod(annotations={"keptn.sh/scheduling-gate-removed": "true"}),
    "annotation of ours": owned_pod(annotations={"gates.harbourmaster.dev/checks": "none"}),
    "gate of its own, no checks": owned_pod(
        annotations={"gates.harbourmaster.dev/checks": "none", PARENT: "unresolved"},
        schedulingGates=[{"name": GATE}],
    ),
    "gate of its own, not marked": owned_pod(schedulingGates=[{"name": GATE}]),
    "no owner": {**owned_pod(), "metadata": {"name": "bare", "annotations": keptn("bare")}},
    "no workload": owned_pod(annotations={"keptn.sh/workload": ""}),
}


@pytest.mark.claim("O30")
def test_a_pod_that_the_api_server_does_not_gate_is_refused_during_an_outage(cluster, space):
    critical = owned_pod(
        priorityClassName="system-cluster-critical",
        tolerations=[{"key": "CriticalAddonsOnly", "operator": "Exists"}],
    )
    mirrored = owned_pod(annotations={"kubernetes.io/config.mirror": "x"}, nodeName="node-0")
    with outage(cluster, "webhook"):
        for name, pod in UNGATED.items():
            told = try_pod(cluster, pod, space)
            assert "gated-pods.harbourmaster.dev" in told, (name, told)
        assert "gated-pods.harbourmaster.dev" in try_pod(cluster, mirrored, space)
        assert try_pod(cluster, critical, "kube-system") == []
        assert try_pod(cluster, owned_pod(), space) == [GATE]
    assert try_pod(cluster, owned_pod(nodeName="node-0"), space) == []
