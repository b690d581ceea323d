from __future__ import annotations

import json

import pytest

from harbourmaster.webhook import engine as engine_module
from harbourmaster.webhook import gate_cache
from harbourmaster.webhook.handlers import answer
from helpers.admission import policy_engine
from helpers.objects import body, cluster_policy, required, workload


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


def test_what_is_remembered_is_bounded(monkeypatch, merges):
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
