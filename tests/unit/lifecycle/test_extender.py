"""A scheduler's questions and our answers, byte by byte where that matters."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.lifecycle.extender import (
    ArgumentsError,
    filter_error,
    read_filter,
    read_preemption,
)
from harbourmaster.lifecycle.scheduling import Permission

POD = {
    "metadata": {
        "name": "waiter-1",
        "namespace": "prod",
        "annotations": {"keptn.sh/workload": "waiter"},
        "labels": None,
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "u"}
        ],
    },
    "spec": {"containers": [{"name": "main"}]},
}
NAMES = ["n1", "n2", "n3"]
FREE = Permission()
REFUSED = Permission("waits for pre-deployment checks")
AVOIDING = Permission(avoided={"n2": "failed before", "n9": "failed before"})


def question(**changes):
    return json.dumps({"Pod": POD, "Nodes": None, "NodeNames": NAMES, **changes}).encode()


def whole(names=NAMES):
    items = [{"metadata": {"name": name}, "status": {"x": [1]}} for name in names]
    return question(NodeNames=None, Nodes={"metadata": {}, "items": items})


def filter_nodes(body, given):
    return json.loads(read_filter(body).answer(given))


def test_the_pod_is_read():
    pod = read_filter(question()).pod
    assert (pod.namespace, pod.annotations) == ("prod", {"keptn.sh/workload": "waiter"})
    assert [reference.uid for reference in pod.owner_references] == ["u"]
    assert pod.labels == {}


def test_the_pod_says_of_which_scheduler_it_is():
    assert read_filter(question()).pod.scheduler == ""
    named = {**POD, "spec": {"schedulerName": "keptn-scheduler", "containers": []}}
    assert read_filter(question(Pod=named)).pod.scheduler == "keptn-scheduler"
    assert read_preemption(preemption(Pod=named)).pod.scheduler == "keptn-scheduler"


@pytest.mark.parametrize("given", [REFUSED, AVOIDING])
@pytest.mark.parametrize("ask", [lambda names: question(NodeNames=names), whole])
def test_no_answer_is_longer_than_clusters_are_large(monkeypatch, ask, given):
    monkeypatch.setattr("harbourmaster.lifecycle.extender.MOST_NODES", 3)
    assert filter_nodes(ask(NAMES), given)["FailedAndUnresolvableNodes"]
    with pytest.raises(ArgumentsError, match=r"^4 nodes, more than 3$"):
        filter_nodes(ask([*NAMES, "n4"]), given)


def test_who_is_free_gets_all_nodes_as_they_came():
    assert filter_nodes(question(), FREE) == {"NodeNames": NAMES}


def test_who_waits_gets_no_node_and_each_says_why():
    assert filter_nodes(question(), REFUSED) == {
        "NodeNames": [],
        "FailedAndUnresolvableNodes": dict.fromkeys(NAMES, REFUSED.refusal),
    }


def test_failed_nodes_are_left_out_and_only_they_are_named():
    assert filter_nodes(question(), AVOIDING) == {
        "NodeNames": ["n1", "n3"],
        "FailedAndUnresolvableNodes": {"n2": "failed before"},
    }


def test_where_all_nodes_are_avoided_there_is_an_empty_list_and_not_none():
    answer = filter_nodes(question(NodeNames=["n2"]), AVOIDING)
    assert answer["NodeNames"] == []


def test_a_scheduler_that_sends_nodes_gets_nodes():
    assert [
        item["metadata"]["name"] for item in filter_nodes(whole(), FREE)["Nodes"]["items"]
    ] == NAMES
    assert filter_nodes(whole(), REFUSED)["Nodes"] == {"items": []}
    assert "NodeNames" not in filter_nodes(whole(), REFUSED)
    answer = filter_nodes(whole(), AVOIDING)
    assert [node["metadata"]["name"] for node in answer["Nodes"]["items"]] == ["n1", "n3"]
    assert answer["FailedAndUnresolvableNodes"] == {"n2": "failed before"}


def test_an_error_is_shown_by_the_scheduler():
    assert json.loads(filter_error("no cache yet")) == {"Error": "no cache yet"}


MALFORMED = [
    b"",
    b"null",
    b"[]",
    b"{",
    b'{"Pod":1}',
    b"\xff",
    b'{"a":' * 50_000,
    question(Pod=None),
    question(Pod={"metadata": {"annotations": {"a": 1}}}),
]


@pytest.mark.parametrize("body", [*MALFORMED, question(NodeNames=None)])
def test_malformed_arguments_are_one_line(body):
    with pytest.raises(ArgumentsError) as error:
        read_filter(body)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("names", [1, {}, [1], "n1", [None]])
def test_names_that_are_none_are_refused_where_they_are_read(names):
    with pytest.raises(ArgumentsError, match=r"^NodeNames: "):
        read_filter(question(NodeNames=names)).answer(REFUSED)


@pytest.mark.parametrize("item", [1, {"metadata": 1}, {"metadata": {"name": 1}}])
def test_nodes_that_are_none_are_refused_where_they_are_read(item):
    with pytest.raises(ArgumentsError, match=r"^Nodes: "):
        read_filter(question(NodeNames=None, Nodes={"items": [item]})).answer(REFUSED)


def preemption(**changes):
    victims = {name: {"Pods": [{"UID": f"v-{name}"}], "NumPDBViolations": 1} for name in NAMES}
    arguments = {"Pod": POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims, **changes}
    return json.dumps(arguments).encode()


def preempt(body, given):
    return json.loads(read_preemption(body).answer(given))["NodeNameToMetaVictims"]


def test_nobody_is_evicted_for_a_pod_that_may_not_run_yet():
    assert preempt(preemption(), REFUSED) == {}


def test_a_free_pod_may_evict_whom_the_scheduler_chose():
    answer = preempt(preemption(), FREE)
    assert list(answer) == NAMES
    assert answer["n1"] == {"Pods": [{"UID": "v-n1"}], "NumPDBViolations": 1}


def test_nobody_is_evicted_from_a_node_that_is_avoided():
    assert list(preempt(preemption(), AVOIDING)) == ["n1", "n3"]


def test_whole_victims_are_answered_by_their_uids():
    victims = {"n1": {"Pods": [{"metadata": {"uid": "v"}}], "NumPDBViolations": 2}}
    body = preemption(NodeNameToVictims=victims, NodeNameToMetaVictims=None)
    assert preempt(body, FREE) == {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 2}}
    assert preempt(body, REFUSED) == {}


def test_without_victims_there_are_none():
    assert preempt(preemption(NodeNameToMetaVictims=None), FREE) == {}
    assert preempt(preemption(NodeNameToMetaVictims=None), AVOIDING) == {}


@pytest.mark.parametrize(
    "body",
    [
        *MALFORMED[:-2],
        preemption(Pod=None),
        preemption(NodeNameToMetaVictims=[1]),
        preemption(NodeNameToVictims={"n1": 1}),
    ],
)
def test_a_malformed_preemption_is_one_line(body):
    with pytest.raises(ArgumentsError) as error:
        read_preemption(body)
    assert "\n" not in str(error.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)
PARTS = st.fixed_dictionaries(
    {},
    optional={
        "Pod": JSON | st.just(POD),
        "Nodes": JSON,
        "NodeNames": JSON | st.just(NAMES),
        "NodeNameToVictims": JSON,
        "NodeNameToMetaVictims": JSON,
    },
)


@given(PARTS, st.sampled_from([FREE, REFUSED, AVOIDING]))
def test_whatever_comes_is_answered_or_refused(parts, given):
    body = json.dumps(parts).encode()
    for read in (read_filter, read_preemption):
        try:
            answer = json.loads(read(body).answer(given))
        except ArgumentsError:
            continue
        assert isinstance(answer, dict)
        if given is REFUSED:
            assert not answer.get("NodeNames")
            assert not answer.get("Nodes", {}).get("items")
            assert not answer.get("NodeNameToMetaVictims")
