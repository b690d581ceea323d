from __future__ import annotations

import json

import msgspec
import pytest

from harbourmaster.api.decoding import MalformedError
from harbourmaster.api.selectors import EVERYTHING, Matcher
from harbourmaster.rescheduling.decoding import (
    decode_budget,
    decode_namespace,
    decode_node,
    decode_pending,
    decode_pod,
    decode_present,
)
from harbourmaster.rescheduling.model import (
    Budget,
    Criteria,
    HostPort,
    Node,
    NodeRequirement,
    NodeTerm,
    PendingPod,
    Pod,
    Shared,
    SpreadConstraint,
    Taint,
    Toleration,
    shared_labels,
)

ON_NODE = {"nodeName": "n1"}


def pod(*, status=None, spec=None, **metadata):
    named = {"uid": "u", "namespace": "shop", "name": "p", **metadata}
    return json.dumps({"metadata": named, "spec": spec or {}, "status": status or {}}).encode()


def decode_bound(*, spec=None, **given):
    return decode_pod(pod(spec={**ON_NODE, **(spec or {})}, **given))


def decode_unbound(**spec):
    return decode_pod(pod(spec=spec))


def test_a_pod_with_a_node():
    decoded = decode_bound(
        labels={"app": "a"},
        creationTimestamp="1970-01-01T00:00:10Z",
        deletionTimestamp="1970-01-01T00:01:00+00:00",
        ownerReferences=[
            {"kind": "Node", "uid": "other"},
            {"kind": "ReplicaSet", "uid": "o", "controller": True},
        ],
        spec={
            "priority": 7,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "resources": {"requests": {"cpu": "1", "memory": "1Ki"}},
                    "ports": [{"hostPort": 80, "hostIP": "0.0.0.0", "protocol": "UDP"}],  # noqa: S104
                }
            ],
        },
        status={
            "phase": "Running",
            "startTime": "1970-01-01T00:00:20Z",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    )
    assert decoded == Pod(
        uid="u",
        namespace="shop",
        name="p",
        node="n1",
        labels={"app": "a"},
        requests=(("cpu", 1000), ("memory", 1024)),
        ports=(HostPort("UDP", "", 80),),
        priority=7,
        grace=0,
        created=10.0,
        started=20.0,
        deletion=60.0,
        controller_kind="ReplicaSet",
        owner="o",
    )
    assert decoded.key == "shop/p"


def test_a_pod_that_says_little():
    decoded = decode_pod(b'{"metadata": null, "spec": null, "status": null}')
    assert isinstance(decoded, PendingPod)
    assert (decoded.pod.grace, decoded.pod.phase, decoded.pod.is_ready) == (30, "Pending", False)
    assert (decoded.scheduler, decoded.k8s_app) == ("default-scheduler", "unknown")
    assert decoded.node_terms is None


def test_equal_parts_of_pods_are_one_object():
    spec = {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}
    first = decode_bound(labels={"a": "1", "b": "2"}, spec=spec)
    second = decode_bound(labels={"b": "2", "a": "1"}, spec=spec, uid="v")
    assert first.labels is second.labels
    assert first.requests is second.requests
    assert first.namespace is second.namespace
    assert first.node is second.node


def test_a_finished_pod_waits_for_nothing():
    assert isinstance(decode_pod(pod(status={"phase": "Failed"})), Pod)


def test_constraints_of_bound_pods_are_not_read():
    spec = {"tolerations": "nonsense", "nodeSelector": 7, "topologySpreadConstraints": {}}
    assert decode_bound(spec=spec).node == "n1"
    for name, value in spec.items():
        with pytest.raises(MalformedError, match=f"spec.{name}: expected "):
            decode_unbound(**{name: value})


def test_a_waiting_pod():
    required = {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
            {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n"]}]},
            {},
            {"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["x"]}]},
        ]
    }
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    decoded = decode_pod(
        pod(
            labels={"k8s-app": "dns"},
            spec={
                "affinity": affinity,
                "nodeSelector": {"a": "b"},
                "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
                "schedulerName": "own",
                "schedulingGates": [{"name": "g"}],
            },
            status={
                "nominatedNodeName": "n9",
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                ],
            },
        )
    )
    assert decoded.node_terms == (
        NodeTerm((NodeRequirement("disk", "In", ("ssd",)),)),
        NodeTerm((), (NodeRequirement("metadata.name", "NotIn", ("n",)),)),
    )
    assert decoded.node_selector == (("a", "b"),)
    assert decoded.tolerations == (Toleration("CriticalAddonsOnly", "Exists"),)
    assert (decoded.scheduler, decoded.nominated, decoded.k8s_app) == ("own", "n9", "dns")
    assert decoded.is_unschedulable
    assert decoded.is_gated
    assert decoded.tolerates_reservation
    assert decoded.unsupported == ()


@pytest.mark.parametrize(
    "condition",
    [
        {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"},
        {"type": "PodScheduled", "status": "False", "reason": "SchedulerError"},
        {"type": "PodScheduled", "status": "True", "reason": "Unschedulable"},
        {"type": "Ready", "status": "False", "reason": "Unschedulable"},
    ],
)
def test_only_the_word_of_the_scheduler_makes_it_unschedulable(condition):
    assert not decode_pod(pod(status={"conditions": [condition]})).is_unschedulable


SPREAD = {"maxSkew": 1, "topologyKey": "zone"}
COMPANY = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "DoNotSchedule"}]}, 0),
        ({"affinity": {"podAffinity": COMPANY}}, 0),
        ({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}}, 0),
        ({"affinity": {"podAntiAffinity": COMPANY}}, 0),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, 1),
        ({"volumes": [{"name": "v", "ephemeral": {}}]}, 1),
        ({"volumes": [{"name": "v", "csi": {"driver": "d"}}]}, 0),
        ({"volumes": [{"name": "v", "rbd": {}}, {"name": "w", "rbd": {}}]}, 1),
        ({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {}}]}, 0),
        ({"volumes": [{"name": "v", "projected": {}}, {"name": "w", "secret": {}}]}, 0),
        ({"volumes": [{"name": "v", "hostPath": {}, "csi": None}]}, 0),
        ({"resourceClaims": [{"name": "r"}]}, 1),
        ({"resourceClaims": []}, 0),
        ({"schedulingGroup": {"podGroupName": "g"}}, 1),
        ({"schedulingGroup": None}, 0),
        ({"resourceClaims": [{"name": "r"}], "schedulingGroup": {"podGroupName": "g"}}, 2),
    ],
)
def test_unsupported_constraints_are_listed(spec, words):
    assert len(decode_unbound(**spec).unsupported) == words


def test_what_is_not_judged_is_named():
    volumes = [
        {"name": "disk", "awsElasticBlockStore": {"volumeID": "x"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "of-data"}},
        {"name": "own", "ephemeral": {"volumeClaimTemplate": {}}},
    ]
    decoded = decode_unbound(volumes=volumes)
    assert decoded.claims == {"of-data": False, "p-own": True}
    assert decoded.unsupported == (
        "volume awsElasticBlockStore",
        "PersistentVolumeClaim of-data",
        "PersistentVolumeClaim p-own",
    )


def test_a_claim_is_noticed_on_a_pod_with_a_node():
    for source, expected in (
        ({"persistentVolumeClaim": {"claimName": "c"}}, True),
        ({"ephemeral": {}}, True),
        ({"emptyDir": {}}, False),
    ):
        for notes in ({}, {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}):
            decoded = decode_bound(spec={"volumes": [{"name": "v", **source}]}, annotations=notes)
            assert decoded.has_claim is expected


def test_hard_spread_constraints_are_read_with_their_defaults():
    wish = {**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}
    hard = {**SPREAD, "whenUnsatisfiable": "DoNotSchedule"}
    given = {
        "maxSkew": 2,
        "minDomains": 3,
        "nodeAffinityPolicy": "Ignore",
        "nodeTaintsPolicy": "Honor",
        "labelSelector": {"matchLabels": {"app": "a"}},
        "matchLabelKeys": ["hash", "missing"],
    }
    spec = {"topologySpreadConstraints": [wish, hard, {**hard, **given}]}
    plain, detailed = decode_pod(pod(spec=spec, labels={"app": "a", "hash": "1"})).spread
    assert plain == SpreadConstraint(topology_key="zone", selector=None)
    assert (detailed.max_skew, detailed.min_domains) == (2, 3)
    assert not detailed.honors_affinity
    assert detailed.honors_taints
    assert detailed.selector.matches({"app": "a", "hash": "1"})
    assert not detailed.selector.matches({"app": "a", "hash": "2"})


def test_required_pod_affinity_is_read_with_its_namespaces():
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}}
    wish = [{"weight": 1, "podAffinityTerm": term}]
    terms = {
        "requiredDuringSchedulingIgnoredDuringExecution": [term, {**term, "namespaces": ["other"]}],
        "preferredDuringSchedulingIgnoredDuringExecution": wish,
    }
    own, listed = decode_unbound(affinity={"podAffinity": terms}).affinity
    assert (own.topology_key, own.namespaces) == ("zone", frozenset(("shop",)))
    assert listed.namespaces == frozenset(("other",))


@pytest.mark.parametrize(
    ("metadata", "spec", "is_critical"),
    [
        ({}, {}, False),
        ({"annotations": {"scheduler.alpha.kubernetes.io/critical-pod": ""}}, {}, True),
        ({"annotations": {"scheduler.alpha.kubernetes.io/critical-pod": "true"}}, {}, False),
        ({}, {"priority": 2_000_000_000}, True),
        ({}, {"priority": 1_999_999_999}, False),
        ({}, {"priorityClassName": "system-node-critical"}, True),
        ({}, {"priorityClassName": "never"}, False),
        ({"namespace": "shop"}, {"priority": 2_000_000_000}, False),
    ],
)
def test_critical_pods(metadata, spec, is_critical):
    given = pod(spec={**ON_NODE, **spec}, **{"namespace": "kube-system", **metadata})
    assert decode_pod(given).is_critical is is_critical


def test_the_criteria_of_critical_pods_are_settings():
    criteria = Criteria(
        namespaces=frozenset(("shop",)),
        classes=frozenset(("never",)),
        selector=Matcher(present=("vital",)),
        least_priority=5,
    )
    for given in (
        {"spec": {"priority": 5}},
        {"spec": {"priorityClassName": "never"}},
        {"labels": {"vital": ""}},
    ):
        assert decode_pod(pod(**given), criteria).pod.is_critical
    assert not decode_pod(pod(spec={"priority": 4}), criteria).pod.is_critical


SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
KEEPING = [{"name": "v", "emptyDir": {}}]


@pytest.mark.parametrize(
    ("annotations", "labels", "spec", "is_non_drainable"),
    [
        ({}, {}, {}, False),
        ({}, {}, {"volumes": KEEPING}, True),
        ({}, {}, {"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]}, False),
        ({}, {}, {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, True),
        ({}, {}, {"volumes": [{"name": "v", "configMap": {}}]}, False),
        ({SAFE: "true"}, {}, {"volumes": KEEPING}, False),
        ({SAFE: "false"}, {}, {}, True),
        ({f"{SAFE}-local-volumes": "w, v"}, {}, {"volumes": KEEPING}, False),
        ({f"{SAFE}-local-volumes": "w"}, {}, {"volumes": KEEPING}, True),
        ({"karpenter.sh/do-not-disrupt": "true"}, {}, {}, True),
        ({"karpenter.sh/do-not-disrupt": "false"}, {}, {}, False),
        ({"karpenter.sh/do-not-disrupt": "true", SAFE: "true"}, {}, {}, False),
        ({"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""}, {}, {}, True),
        ({"descheduler.alpha.kubernetes.io/request-evict-only": ""}, {}, {}, True),
        ({}, {"kueue.x-k8s.io/pod-group-name": "g"}, {}, True),
        ({}, {}, {"schedulingGroup": {"podGroupName": "g"}}, True),
    ],
)
def test_pods_that_no_drain_would_move(annotations, labels, spec, is_non_drainable):
    decoded = decode_bound(annotations=annotations, labels=labels, spec=spec)
    assert decoded.is_non_drainable is is_non_drainable


NEVER = "rescheduler.harbourmaster.dev/never-evict"


def test_marks_of_pods():
    request_only = "descheduler.alpha.kubernetes.io/request-evict-only"
    assert decode_bound(annotations={"kubernetes.io/config.mirror": "x"}).is_mirror
    assert decode_bound(annotations={request_only: ""}).evicts_in_background
    assert decode_bound(annotations={NEVER: ""}).is_never_evicted
    assert decode_bound(labels={NEVER: "true"}).is_never_evicted
    assert not decode_bound(labels={NEVER: "false"}).is_never_evicted
    assert decode_bound(labels={"app.kubernetes.io/name": "harbourmaster"}).is_never_evicted
    plain = decode_bound()
    assert not any((plain.is_mirror, plain.evicts_in_background, plain.is_never_evicted))


def test_a_pod_may_be_looked_at_as_waiting_or_not():
    status = {
        "containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}],
    }
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    assert decode_present(pod(spec=spec, status=status)).requests == (("cpu", 3000),)
    again = decode_pending(pod(spec={**spec, **ON_NODE}, status=status))
    assert (again.node_name, again.pod.requests) == ("n1", (("cpu", 1000),))


def test_a_node():
    given = {
        "metadata": {
            "name": "n1",
            "uid": "u",
            "labels": {"a": "b"},
            "annotations": {"rescheduler.harbourmaster.dev/reservations": "[]", "other": "x"},
            "resourceVersion": "9",
            "deletionTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "unschedulable": True,
            "taints": [
                {"key": "DeletionCandidateOfClusterAutoscaler", "effect": "PreferNoSchedule"}
            ],
        },
        "status": {
            "allocatable": {"cpu": "1500m", "memory": "0.5", "pods": "3", "example.com/gpu": 2},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    assert decode_node(json.dumps(given).encode()) == Node(
        name="n1",
        uid="u",
        labels={"a": "b"},
        taints=(Taint("DeletionCandidateOfClusterAutoscaler", "", "PreferNoSchedule"),),
        allocatable={"cpu": 1500, "memory": 1, "pods": 3, "example.com/gpu": 2},
        is_cordoned=True,
        is_deleting=True,
        is_deletion_candidate=True,
        reservations="[]",
        resource_version="9",
    )


@pytest.mark.parametrize(
    "conditions",
    [None, [], [{"type": "Ready", "status": "Unknown"}], [{"type": "Memory", "status": "True"}]],
)
def test_a_node_that_does_not_say_that_it_is_ready(conditions):
    given = json.dumps({"status": {"conditions": conditions}}).encode()
    assert not decode_node(given).is_ready


def budget(*, spec=None, status=None, **metadata):
    named = {"namespace": "shop", "name": "b", "generation": 2, **metadata}
    return decode_budget(
        json.dumps({"metadata": named, "spec": spec or {}, "status": status or {}}).encode()
    )


def test_a_budget():
    decoded = budget(
        spec={"selector": {}, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
        status={
            "disruptionsAllowed": 1,
            "currentHealthy": 3,
            "desiredHealthy": 2,
            "observedGeneration": 2,
            "disruptedPods": {"p": "2026-01-01T00:00:00Z"},
        },
    )
    assert decoded == Budget(
        namespace="shop",
        name="b",
        selector=EVERYTHING,
        allowed=1,
        current_healthy=3,
        desired_healthy=2,
        disrupted=1,
        always_allow_unhealthy=True,
    )
    assert decoded.key == "shop/b"


def test_a_budget_that_says_little():
    decoded = budget(status={"observedGeneration": 1})
    assert (decoded.selector, decoded.is_observed, decoded.always_allow_unhealthy) == (
        None,
        False,
        False,
    )


def test_a_namespace_has_its_name_among_its_labels():
    given = b'{"metadata": {"name": "shop", "labels": {"team": "a"}}}'
    assert decode_namespace(given) == (
        "shop",
        {"team": "a", "kubernetes.io/metadata.name": "shop"},
    )


@pytest.mark.parametrize(
    ("read", "given", "fault"),
    [
        (decode_pod, b"x", "JSON is malformed: invalid character (byte 0)"),
        (decode_pod, b"[" * 100_000, "expected object, got array"),
        (decode_pod, pod(labels={"a": 1}), "metadata.labels: expected string, got integer"),
        (decode_pod, pod(deletionTimestamp="soon"), "metadata.deletionTimestamp: invalid RFC3339"),
        (
            decode_pod,
            pod(spec={"containers": [{}, {"resources": {"requests": {"cpu": "much"}}}]}),
            "spec.containers[1].resources.requests.cpu: 'much' is not a quantity",
        ),
        (
            decode_node,
            b'{"status": {"allocatable": {"memory": ""}}}',
            "status.allocatable.memory: '' is not a quantity",
        ),
        (
            decode_budget,
            b'{"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}}',
            "spec.selector.matchExpressions[0].operator: must be In,",
        ),
    ],
)
def test_an_invalid_object_is_one_line(read, given, fault):
    with pytest.raises(MalformedError) as error:
        read(given)
    assert str(error.value).startswith(fault)
    assert "\n" not in str(error.value)


def test_an_invalid_selector_is_reported_with_its_path():
    term = {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "a"}]}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    given = pod(spec={**ON_NODE, "affinity": {"podAntiAffinity": required}})
    with pytest.raises(
        MalformedError, match=r"^spec.affinity.podAntiAffinity.required.*\[0\]\.lab"
    ):
        decode_pod(given)
    # Keys may be written with escapes.
    escaped = given.replace(b"podAntiAffinity", b"podAnti\\u0041ffinity")
    with pytest.raises(MalformedError):
        decode_pod(escaped)


def test_a_raw_part_of_a_larger_text_is_read_as_well():
    whole = msgspec.json.decode(
        b'{"object":' + pod(spec=ON_NODE) + b"}", type=dict[str, msgspec.Raw]
    )
    assert decode_pod(whole["object"]).key == "shop/p"


def test_equal_values_are_one_object():
    shared = Shared[list[int]]()
    first = shared("a", [1])
    assert shared("a", [1]) is first
    assert shared("b", [1]) is not first


def test_sharing_restarts_at_the_limit():
    shared = Shared[list[int]](most=2)
    first = [shared(name, []) for name in "ab"]
    assert shared("a", []) is first[0]
    shared("c", [])
    assert shared("a", []) is not first[0]


def test_no_labels_are_one_object():
    assert shared_labels(None) is shared_labels({})
