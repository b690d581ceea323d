"""The reported unmet requirements are those that the fit check fails on every single node."""

from __future__ import annotations

from unittest import mock

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.rescheduling import unmet as module
from harbourmaster.rescheduling.fit import static_reasons
from harbourmaster.rescheduling.model import (
    Node,
    NodeRequirement,
    NodeTerm,
    PendingPod,
    Pod,
    Taint,
    Toleration,
)
from harbourmaster.rescheduling.unmet import HOST, Pool, decode_known, known_nodes, unmet
from helpers.properties import cases

KEYS = st.sampled_from(["a", "b"])
VALUES = st.sampled_from(["", "1", "2"])
NAMES = st.sampled_from(["n1", "n2", "n3"])
EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])


def read(name, labels, taints):
    """A node as it is decoded."""
    manifest = {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}
    return decode_known(msgspec.json.encode(manifest))


HOSTS = st.dictionaries(st.just(HOST), NAMES, max_size=1)
NODES = st.lists(
    st.builds(
        read,
        NAMES,
        st.builds(dict.__or__, st.dictionaries(KEYS, VALUES, max_size=2), HOSTS),
        st.lists(st.builds(Taint, KEYS, VALUES, EFFECTS), max_size=1),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda value: value.name,
)
EXPRESSIONS = st.one_of(
    st.builds(
        NodeRequirement,
        KEYS | st.just(HOST),
        st.sampled_from(["In", "NotIn"]),
        st.lists(VALUES | NAMES, min_size=1, max_size=2).map(tuple),
    ),
    st.builds(NodeRequirement, KEYS | st.just(HOST), st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(NodeRequirement, KEYS, st.sampled_from(["Gt", "Lt"]), st.just(("1",))),
)
FIELDS = st.builds(
    NodeRequirement, st.just("metadata.name"), st.sampled_from(["In", "NotIn"]), st.tuples(NAMES)
)
TERMS = st.builds(
    NodeTerm,
    st.lists(EXPRESSIONS, max_size=2).map(tuple),
    st.lists(FIELDS, max_size=1).map(tuple),
).filter(lambda value: value.expressions or value.fields)
PENDING = st.builds(
    PendingPod,
    pod=st.just(Pod(uid="", namespace="", name="")),
    node_selector=st.dictionaries(KEYS | st.just(HOST), VALUES | NAMES, max_size=1).map(
        lambda value: tuple(value.items())
    ),
    node_terms=st.none() | st.lists(TERMS, max_size=2).map(tuple),
    tolerations=st.lists(
        st.builds(
            Toleration,
            st.just("") | KEYS,
            st.sampled_from(["", "Equal", "Exists"]),
            VALUES,
            st.just("") | EFFECTS,
        ),
        max_size=1,
    ).map(tuple),
)


def fits_one(pending, nodes):
    return any(not static_reasons(pending, node, reserving=False) for node in nodes)


@settings(max_examples=cases(500))
@given(PENDING, NODES)
def test_a_pod_is_reported_if_it_fits_none_of_the_nodes(pending, nodes):
    reason = unmet(pending, known_nodes(nodes, ()))
    assert (reason is None) is fits_one(pending, nodes)


@settings(max_examples=cases(500))
@given(PENDING, NODES)
def test_what_is_named_is_what_keeps_it_from_every_node(pending, nodes):
    reason = unmet(pending, known_nodes(nodes, ()))
    if reason is None:
        return
    _, requirements = reason
    tolerant = msgspec.structs.replace(pending, tolerations=(Toleration(operator="Exists"),))
    if requirements:
        assert not fits_one(tolerant, nodes)
    asked = {NodeRequirement(key, "In", (value,)) for key, value in pending.node_selector}
    for term in pending.node_terms or ():
        asked |= {*term.expressions, *term.fields}
    assert asked.issuperset(requirements)


@settings(max_examples=cases(500))
@given(PENDING, NODES, st.dictionaries(KEYS, VALUES, max_size=2))
def test_a_pool_never_adds_a_report(pending, nodes, labels):
    pool = Pool(labels)
    without, beside = (unmet(pending, known_nodes(nodes, pools)) for pools in ((), (pool,)))
    assert beside is None or without is not None
    if fits_one(pending, [Node(name="", labels={HOST: "", **labels})]):
        assert beside is None


@settings(max_examples=cases(500))
@given(PENDING, NODES, st.integers(0, 40))
def test_no_more_nodes_are_looked_at_than_the_limit_allows(pending, nodes, limit):
    seen = []

    def counted(asking, node, **options):
        seen.append(node)
        return static_reasons(asking, node, **options)

    pools = (Pool({"a": "1"}),)
    with mock.patch.multiple(module, static_reasons=counted, _MAX_COMPARISONS=limit):
        unmet(pending, known_nodes(nodes, pools))
    assert len(seen) <= limit
