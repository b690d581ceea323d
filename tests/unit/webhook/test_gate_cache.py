"""Tests of the cache of decisions on pods, which never returns an outdated decision."""

from __future__ import annotations

import json

import msgspec
import pytest

from harbourmaster.webhook import engine as engine_module
from harbourmaster.webhook import gate_cache
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.parents import ParentObject, Parents
from harbourmaster.webhook.reviewed_object import read_object
from helpers.admission import (
    CONTAINER,
    GATE,
    PARENT,
    admit,
    ask,
    engine_of,
    family,
    keys,
    owner,
    pod,
    policy_engine,
)
from helpers.objects import body, cluster_policy, required, review, workload

TRACKED = keys(workload="waiter", version="0.4", app="shop")
POLICY = cluster_policy(nodeSelector={"disk": "ssd"})


@pytest.fixture
def decisions(monkeypatch):
    """A list of the pods of all decisions that are made, not cached."""
    made = []
    gate = gate_cache.gate

    def counting(decided_pod, *arguments):
        made.append(decided_pod)
        return gate(decided_pod, *arguments)

    monkeypatch.setattr(gate_cache, "gate", counting)
    return made


def with_pod_name(document, name):
    """Return another pod of the same owner, whose volumes have names of their own."""
    volume = {"name": name, "mountPath": "/var/run/secrets"}
    containers = [{**CONTAINER, "volumeMounts": [volume]}]
    metadata = {**document["metadata"], "name": name}
    return {
        **document,
        "metadata": metadata,
        "spec": {**document["spec"], "containers": containers},
    }


@pytest.mark.parametrize("annotations", [TRACKED, keys(workload="w"), None])
def test_pods_of_one_owner_are_decided_on_once_and_answered_alike(decisions, annotations):
    engine = engine_of(family(keys(workload="w")), POLICY)
    first, second = (
        ask(review(with_pod_name(pod(annotations), name)), engine) for name in ("web-a", "web-b")
    )
    assert len(decisions) == 1
    assert first.response == second.response
    assert first.gates == [GATE]


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(pod(TRACKED | keys(app="other")), id="annotations"),
        pytest.param(pod(TRACKED, labels={"keptn.sh/scheduling-gate-removed": "1"}), id="labels"),
        pytest.param(pod(TRACKED, owners=[owner("Job")]), id="owners"),
        pytest.param(pod(TRACKED, nodeName="n1"), id="node"),
        pytest.param(pod(TRACKED, schedulingGates=[GATE]), id="gates"),
        pytest.param(pod(TRACKED, schedulerName="keptn-scheduler"), id="scheduler"),
    ],
)
def test_a_difference_in_anything_that_counts_is_decided_anew(decisions, changed):
    engine = engine_of()
    ask(review(pod(TRACKED)), engine)
    remembered = ask(review(changed), engine)
    assert len(decisions) == 2
    assert remembered.response == admit(changed).response


@pytest.mark.parametrize(
    "container",
    [
        {"name": "nginx", "image": "nginx:1.26"},
        {"name": "other", "image": "nginx:1.25"},
        {**CONTAINER, "env": [{"name": "A", "value": "b"}]},
    ],
)
def test_other_containers_make_another_version(container):
    engine = engine_of()
    annotations = keys(workload="w", app="a")
    first = ask(review(pod(annotations)), engine)
    second = ask(review(pod(annotations, containers=[container])), engine)
    assert first.annotations["keptn.sh/version"] != second.annotations["keptn.sh/version"]


def test_containers_too_large_to_hash_are_not_taken_for_others():
    engine = engine_of()
    env = [{"name": "A", "value": "x" * 200_000}]
    annotations = keys(workload="w", app="a")
    large = ask(review(pod(annotations, containers=[{**CONTAINER, "env": env}])), engine)
    small = ask(review(pod(annotations)), engine)
    assert large.annotations[PARENT] == "unresolved"
    assert small.annotations["keptn.sh/version"] == "930232967"


def test_another_namespace_is_another_question():
    namespaces = [
        {"metadata": {"name": name, "annotations": {"keptn.sh/lifecycle-toolkit": "enabled"}}}
        for name in ("ns1", "ns2")
    ]
    engine = engine_of(family(TRACKED), namespaces=namespaces)
    assert ask(review(pod()), engine).annotations == TRACKED
    assert ask(review(pod(), namespace="ns2"), engine).annotations == {PARENT: "unresolved"}


def test_pods_of_system_namespaces_are_not_remembered(decisions):
    engine = engine_of(namespace="kube-system")
    for _ in range(2):
        ask(review(pod(TRACKED), namespace="kube-system"), engine)
    assert len(decisions) == 2


class Watched:
    """Owners that change while they are asked."""

    def __init__(self):
        self.kinds = {"ReplicaSet": {}, "Deployment": {}}
        self.parents = Parents(self.kinds)

    def put(self, document):
        parent = msgspec.convert(document, ParentObject)
        self.kinds[parent.kind][parent.key] = parent.to_parent()


def test_a_change_of_an_owner_is_seen_at_once():
    engine, watched = engine_of(), Watched()
    cache = engine.gates
    question = read_object(json.dumps(pod()).encode())

    def decided():
        return cache.decide(question, {}, "ns1", watched.parents).gating

    assert decided().warnings[0].code == "gate-owner-unknown"
    replica_set, deployment = family()
    watched.put(replica_set)
    assert decided().warnings[0].code == "gate-owner-unknown"
    watched.put(deployment)
    assert not decided().is_gated
    watched.put(family(TRACKED)[1])
    assert b'"keptn.sh/version":"0.4"' in decided().patch
    watched.put(family(TRACKED | keys(version="0.5"))[1])
    assert b'"keptn.sh/version":"0.5"' in decided().patch
    del watched.kinds["Deployment"]["ns1/web"]
    assert decided().warnings[0].code == "gate-owner-unknown"


def test_other_policies_of_the_same_pod_make_another_answer(decisions):
    engine = engine_of((), POLICY)
    before = ask(review(pod(TRACKED)), engine)
    new_snapshot = engine_of((), cluster_policy(nodeSelector={"disk": "hdd"})).snapshot
    after = ask(review(pod(TRACKED)), engine.with_snapshot(new_snapshot))
    none = ask(review(pod(TRACKED)), engine.with_snapshot(engine_of().snapshot))
    assert before.after["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert after.after["spec"]["nodeSelector"] == {"disk": "hdd"}
    assert "nodeSelector" not in none.after["spec"]
    assert [answer.gates for answer in (before, after, none)] == [[GATE]] * 3
    assert len(decisions) == 1


def test_other_policies_make_another_answer():
    engine = engine_of((), cluster_policy("a", pods={"app": "x"}, nodeSelector={"a": "b"}))
    bare = ask(review(pod(TRACKED)), engine)
    labelled = ask(review(pod(TRACKED, labels={"app": "x"})), engine)
    again = ask(review(pod(TRACKED)), engine)
    assert again.response == bare.response
    assert "nodeSelector" in labelled.after["spec"]


def test_a_new_snapshot_goes_on_remembering(decisions):
    engine = engine_of((), POLICY)
    first = ask(review(pod(TRACKED)), engine)
    second = ask(review(pod(TRACKED)), engine.with_snapshot(engine.snapshot))
    assert first.response == second.response
    assert len(decisions) == 1


def test_what_is_remembered_is_bounded(monkeypatch, decisions):
    monkeypatch.setattr(gate_cache, "MAX_BYTES", 20_000)
    engine = engine_of()
    for index in range(200):
        ask(review(pod(TRACKED | {"n": str(index)})), engine)
    assert len(decisions) == 200
    assert len(engine.gates._kept) < 20


def test_what_is_remembered_is_forgotten_after_a_while_however_little_it_is(monkeypatch):
    engine = engine_of()
    ask(review(pod(TRACKED)), engine)
    later = gate_cache.monotonic() + gate_cache.MAX_SECONDS
    monkeypatch.setattr(gate_cache, "monotonic", lambda: later)
    for number in range(3):
        ask(review(pod(TRACKED | {"n": str(number)})), engine)
    assert len(engine.gates._kept) == 3


def test_what_is_larger_than_all_room_is_not_kept(monkeypatch):
    monkeypatch.setattr(gate_cache, "MAX_BYTES", 500)
    engine = engine_of()
    assert ask(review(pod(TRACKED)), engine).gates == [GATE]
    assert engine.gates._kept == {}
    assert engine.gates._kept.size == 0


def test_large_answers_are_not_kept(monkeypatch):
    monkeypatch.setattr(gate_cache, "MAX_ANSWER_BYTES", 10)
    engine = engine_of((), POLICY)
    first, second = (ask(review(pod(TRACKED)), engine) for _ in range(2))
    assert first.response == second.response
    (entry,) = engine.gates._kept.values()
    assert entry.verdict is None


@pytest.fixture
def merges(monkeypatch):
    """A list of the merges that are computed, not cached."""
    made = []
    merge = engine_module.merge

    def counting(pod, *arguments):
        made.append(pod)
        return merge(pod, *arguments)

    monkeypatch.setattr(engine_module, "merge", counting)
    return made


def response(document, engine, **options):
    result, _ = answer(body(document, **options), engine)
    return json.loads(result)["response"]


def test_equal_questions_are_merged_once_and_answered_alike(merges):
    engine = policy_engine(cluster_policy(nodeSelector={"a": "b"}))
    first = response(workload(name="one"), engine, uid="1")
    second = response(workload(name="two", labels={"other": "labels"}), engine, uid="2")
    assert len(merges) == 1
    assert {**second, "uid": "1"} == first
    assert second["uid"] == "2"


@pytest.mark.parametrize(
    "different",
    [
        {"affinity": required({"zone": "a"})},
        {"affinity": {}},
        {"nodeName": "n1"},
        {"nodeSelector": {"x": "y"}},
        {"schedulerName": "mine"},
        {"tolerations": [{"operator": "Exists"}]},
        {"schedulingGates": [{"name": "example.com/gate"}]},
    ],
)
def test_a_difference_in_any_owned_field_is_merged_anew(merges, different):
    policy = cluster_policy(nodeName="n", nodeSelector={"a": "b"}, schedulerName="s")
    engine = policy_engine(policy)
    response(workload(), engine)
    remembered = response(workload(**different), engine)
    assert len(merges) == 2
    assert remembered == response(workload(**different), policy_engine(policy))


def test_another_shape_of_object_is_merged_anew(merges):
    engine = policy_engine(cluster_policy(nodeSelector={"a": "b"}))
    for kind in ("Pod", "Deployment", "StatefulSet", "CronJob"):
        response(workload(kind), engine)
    assert len(merges) == 3


def test_other_matching_policies_are_merged_anew(merges):
    engine = policy_engine(
        cluster_policy("a", pods={"app": "x"}, nodeSelector={"a": "b"}),
        cluster_policy("b", pods={"app": "y"}, nodeSelector={"c": "d"}),
    )
    response(workload(labels={"app": "x"}), engine)
    response(workload(labels={"app": "y"}), engine)
    assert len(merges) == 2


def test_the_remembered_merges_are_bounded(monkeypatch, merges):
    monkeypatch.setattr(gate_cache, "MAX_BYTES", 20_000)
    engine = policy_engine(cluster_policy(nodeSelector={"a": "b"}))
    for index in range(200):
        response(workload(nodeSelector={"n": str(index)}), engine)
    assert len(merges) == 200
    assert len(engine._merges) < 20
    assert engine._merges.size <= 20_000


def test_an_answer_larger_than_all_room_is_not_kept(monkeypatch):
    monkeypatch.setattr(gate_cache, "MAX_BYTES", 500)
    engine = policy_engine(cluster_policy(nodeSelector={"a": "b"}))
    assert "patch" in response(workload(), engine)
    assert engine._merges == {}
