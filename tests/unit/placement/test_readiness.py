from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.placement.inventory import ObjectRef
from harbourmaster.placement.readiness import READY, ReadinessTest, has_state, readiness, summary


def obj(kind, version="v1", generation=2, spec=None, **status):
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "x", "generation": generation},
        "spec": spec or {},
        "status": status,
    }


def condition(kind, status="True", **fields):
    return {"conditions": [{"type": kind, "status": status, **fields}]}


def deployment(replicas=3, updated=3, available=3, total=3, observed=2, **status):
    return obj(
        "Deployment",
        "apps/v1",
        spec={"replicas": replicas},
        observedGeneration=observed,
        updatedReplicas=updated,
        availableReplicas=available,
        replicas=total,
        **status,
    )


def stateful(strategy=None, **status):
    return obj(
        "StatefulSet",
        "apps/v1",
        spec={"replicas": 3, "updateStrategy": strategy or {"type": "RollingUpdate"}},
        observedGeneration=2,
        **status,
    )


def daemon(strategy="RollingUpdate", **status):
    spec = {"updateStrategy": {"type": strategy}}
    return obj("DaemonSet", "apps/v1", spec=spec, observedGeneration=2, **status)


def job(spec=None, **status):
    return obj("Job", "batch/v1", spec=spec, **status)


REVISED = {"currentRevision": "a", "updateRevision": "b"}
SAME = {"currentRevision": "a", "updateRevision": "a"}


@pytest.mark.parametrize(
    "workload",
    [
        deployment(),
        deployment(replicas=0, updated=0, available=0, total=0),
        stateful(readyReplicas=3, **SAME),
        stateful(readyReplicas=3, updatedReplicas=3, **REVISED),
        stateful(
            {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}},
            readyReplicas=3,
            updatedReplicas=1,
            **REVISED,
        ),
        stateful({"type": "OnDelete"}, readyReplicas=3, updatedReplicas=0, **REVISED),
        daemon(desiredNumberScheduled=2, updatedNumberScheduled=2, numberAvailable=2),
        daemon(desiredNumberScheduled=0),
        daemon("OnDelete", desiredNumberScheduled=2, numberAvailable=2),
        obj("ReplicaSet", "apps/v1", spec={"replicas": 2}, availableReplicas=2),
        job(**condition("Complete")),
        job(**condition("SuccessCriteriaMet")),
        job({"suspend": True}),
        job({"parallelism": 2, "completions": 5}, ready=2),
        job({"parallelism": 3, "completions": 3}, ready=1, succeeded=2),
        obj("Pod", **condition("Ready")),
        obj("Pod", phase="Succeeded"),
        obj("PersistentVolumeClaim", phase="Bound"),
        obj("CustomResourceDefinition", "apiextensions.k8s.io/v1", **condition("Established")),
        obj("APIService", "apiregistration.k8s.io/v1", **condition("Available")),
        obj("Service", spec={"type": "ClusterIP"}),
        obj("Service", spec={"type": "LoadBalancer"}, loadBalancer={"ingress": [{"ip": "x"}]}),
        obj("Namespace", phase="Active"),
        obj("ConfigMap"),
        obj("CronJob", "batch/v1"),
        obj("Boat", "example.com/v1"),
        obj("Boat", "example.com/v1", observedGeneration=2, **condition("Ready")),
        obj("Elasticsearch", "elasticsearch.k8s.elastic.co/v1", health="yellow", phase="Ready"),
        obj("Kafka", "kafka.strimzi.io/v1beta2", **condition("NotReady", "False")),
        obj("VirtualMachine", "kubevirt.io/v1", spec={"running": False}),
        obj(
            "VirtualMachine",
            "kubevirt.io/v1",
            spec={"runStrategy": "Halted"},
            **condition("Ready", "False"),
        ),
        {**deployment(updated=0), "spec": {"replicas": 3, "paused": True}},
        obj("Service", spec={"type": "LoadBalancer", "externalIPs": ["192.0.2.1"]}),
        obj("PersistentVolumeClaim", spec={"storageClassName": "local"}, phase="Pending"),
    ],
)
def test_ready(workload):
    assert readiness(workload).is_ready


UNREADY = [
    deployment(observed=1),
    obj("Deployment", "apps/v1"),
    deployment(updated=1),
    deployment(available=2),
    deployment(total=4),
    deployment(**condition("Progressing", "False", reason="ProgressDeadlineExceeded", message="m")),
    stateful(readyReplicas=3, updatedReplicas=2, **REVISED),
    stateful(readyReplicas=2, **SAME),
    daemon(desiredNumberScheduled=2, updatedNumberScheduled=1, numberAvailable=2),
    daemon(desiredNumberScheduled=2, updatedNumberScheduled=2),
    job(),
    job({"parallelism": 2, "completions": 5}, ready=1),
    job(**condition("Failed", message="too often")),
    obj("Pod"),
    obj("Pod", phase="Pending"),
    obj("Pod", **condition("Ready", "False", message="no probe")),
    obj("Pod", phase="Failed", message="evicted"),
    obj("PersistentVolumeClaim"),
    obj("PersistentVolumeClaim", phase="Lost"),
    obj("CustomResourceDefinition", "apiextensions.k8s.io/v1"),
    obj(
        "CustomResourceDefinition",
        "apiextensions.k8s.io/v1",
        **condition("NamesAccepted", "False", message="taken"),
    ),
    obj("Service", spec={"type": "LoadBalancer"}),
    obj("Namespace", phase="Terminating"),
    {**deployment(available=2), "spec": {"replicas": 3, "paused": True}},
    {
        **obj("PersistentVolumeClaim", spec={"storageClassName": "local"}, phase="Pending"),
        "metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": "example.com"}},
    },
    obj("Kafka", "kafka.strimzi.io/v1beta2", **condition("NotReady", message="no brokers")),
    obj("Elasticsearch", "elasticsearch.k8s.elastic.co/v1", health="red", phase="ApplyingChanges"),
    obj("SparkApplication", "sparkoperator.k8s.io/v1beta2", applicationState={"state": "FAILED"}),
    obj("FlinkDeployment", "flink.apache.org/v1beta1", jobManagerDeploymentStatus="ERROR"),
    obj("Application", "argoproj.io/v1alpha1", health={"status": "Degraded"}),
    obj("VirtualMachine", "kubevirt.io/v1", spec={"running": True}, **condition("Ready", "False")),
    obj("Boat", "example.com/v1", **condition("Ready", "False")),
    obj("Boat", "example.com/v1", **condition("Stalled")),
    obj("Boat", "example.com/v1", **condition("Reconciling")),
    obj("Boat", "example.com/v1", observedGeneration=1, **condition("Ready")),
    {**obj("ConfigMap"), "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
]


def test_not_ready(assert_golden):
    states = [(workload, readiness(workload)) for workload in UNREADY]
    assert not any(state.is_ready for _, state in states)
    assert_golden([[workload, state.text, state.failed] for workload, state in states])


def test_what_metadata_is_enough_for():
    assert not has_state("", "Secret")
    assert has_state("apps", "Deployment")
    assert has_state("example.com", "ConfigMap")


def test_a_summary_is_short():
    states = [(f"Pod {number}", readiness(obj("Pod"))) for number in range(7)]
    text = summary([("ConfigMap a", READY), *states], limit=2)
    assert text == (
        "Pod 0: is not seen by a node yet; Pod 1: is not seen by a node yet; and 5 more"
    )
    assert summary([("ConfigMap a", READY)]) == ""


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["conditions", "type", "status", "replicas", "phase", "rollingUpdate"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(
    st.sampled_from(
        ["Deployment", "StatefulSet", "DaemonSet", "Job", "Pod", "Service", "APIService", "Boat"]
    ),
    st.sampled_from(["v1", "apps/v1", "batch/v1", "apiregistration.k8s.io/v1"]),
    values,
    values,
)
def test_malformed_objects_do_not_crash(kind, version, spec, status):
    obj = {"apiVersion": version, "kind": kind, "metadata": {}, "spec": spec, "status": status}
    assert readiness(obj).is_ready in {True, False}


BOAT = obj("Boat", "example.com/v1", **condition("Ready", reason="Afloat"))


@pytest.mark.parametrize(
    ("test", "text"),
    [
        ({"condition": "Ready"}, ""),
        ({"condition": "Ready", "values": ["true", "Unknown"]}, ""),
        ({"condition": "Ready", "values": ["False"]}, "condition Ready is True (Afloat)"),
        ({"condition": "Docked"}, "condition Docked is missing"),
        ({"field": "status.health", "values": ["green"]}, "status.health is not green"),
        ({"field": ".status.conditions.0.status", "values": ["True"]}, ""),
        ({"field": "kind", "values": ["Boat", "Ship"]}, ""),
        ({"field": "metadata.generation", "values": ["2"]}, ""),
        ({"field": "status.conditions.7.x", "values": ["1"]}, "status.conditions.7.x is not 1"),
    ],
)
def test_users_say_when_a_kind_is_ready(test, text):
    """krake-spec 7.6."""
    state = readiness(BOAT, [msgspec.convert({"kind": "Boat", **test}, ReadinessTest)])
    assert (state.is_ready, state.text) == (not text, text)
    # A kind without a status is not assumed to be ready if its users say when it is.
    assert not state.is_assumed


def test_all_tests_of_an_object_hold_in_place_of_the_rule_of_its_kind():
    ready, docked = (ReadinessTest(kind="Boat", condition=name) for name in ("Ready", "Docked"))
    assert readiness(BOAT, [ready, docked]).text == "condition Docked is missing"
    failed = obj("Boat", "example.com/v1", **condition("Stalled"), phase="failed")
    assert readiness(failed, [ReadinessTest(kind="Boat", condition="Stalled")]) == READY
    stale = obj("Boat", "example.com/v1", observedGeneration=1, **condition("Ready"))
    assert not readiness(stale, [ready]).is_ready
    done = job(**condition("Complete"))
    finished = readiness(done, [ReadinessTest(kind="Job", condition="Suspended")])
    assert (finished.is_ready, finished.is_finished) == (False, True)


CEPH = ("CephCluster", "ceph.rook.io/v1")
RABBIT = ("RabbitmqCluster", "rabbitmq.com/v1beta1")
HEALTHY = {"field": "status.ceph.health", "values": ["HEALTH_OK", "HEALTH_WARN"]}
IN_ORDER = {"field": "status.phase", "values": ["Cluster in healthy state"]}


@pytest.mark.parametrize(
    ("workload", "test", "is_ready"),
    [
        (obj(*CEPH, ceph={"health": "HEALTH_WARN"}, **condition("Ready")), HEALTHY, True),
        # Its condition stays True.
        (obj(*CEPH, ceph={"health": "HEALTH_ERR"}, **condition("Ready")), HEALTHY, False),
        (obj(*RABBIT, **condition("ReconcileSuccess")), {"condition": "AllReplicasReady"}, False),
        (obj(*RABBIT, **condition("AllReplicasReady")), {"condition": "AllReplicasReady"}, True),
        (obj("Cluster", "postgresql.cnpg.io/v1", phase="Cluster in healthy state"), IN_ORDER, True),
        (obj("Cluster", "postgresql.cnpg.io/v1"), IN_ORDER, False),
    ],
)
def test_readiness_of_known_operators(workload, test, is_ready):
    given = msgspec.convert({"kind": workload["kind"], **test}, ReadinessTest)
    assert readiness(workload, [given]).is_ready is is_ready


@pytest.mark.parametrize("status", [None, [], "x", {"conditions": "x"}, {"conditions": [1, {}]}])
def test_a_status_of_another_type_is_not_ready(status):
    tests = [
        ReadinessTest(kind="Boat", condition="Ready"),
        ReadinessTest(kind="Boat", field="status.conditions.0.health", values=("green",)),
    ]
    for test in tests:
        assert not readiness({**BOAT, "status": status}, [test]).is_ready


def test_objects_are_selected_by_kind_group_and_name():
    ref = ObjectRef(api_version="example.com/v1", kind="Boat", name="main")
    assert ReadinessTest(kind="Boat").covers(ref)
    assert ReadinessTest(kind="Boat", group="example.com", name="main").covers(ref)
    assert not ReadinessTest(kind="Boat", group="").covers(ref)
    assert not ReadinessTest(kind="Boat", name="other").covers(ref)
