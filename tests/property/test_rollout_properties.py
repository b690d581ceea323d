"""Properties of rollouts to clusters, and of metric queries with the names of clusters."""

from __future__ import annotations

import contextlib
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.names import dns_subdomain, label_value
from harbourmaster.placement.cluster_queries import cluster_query
from harbourmaster.placement.model import MetricSource
from harbourmaster.placement.rollout import Reach
from harbourmaster.placement.snapshot import MetricFault
from helpers.member_clusters import DiedError, MemberClusters, ref
from helpers.placing import make_object
from helpers.properties import TIMEOUT, cases

ANY = st.text(st.sampled_from("ab1-._/\"'`\\{}()=~,|#$ \n\0\u2028é"), max_size=12)
PLAIN = st.text(st.sampled_from("abZ09-._"), min_size=1, max_size=12)
VALUES = ANY | PLAIN
CLUSTERS = st.tuples(VALUES, VALUES, VALUES)
PARTS = st.lists(
    st.sampled_from(
        ["load", "{", "}", "a=", "b=~", ",", " ", "\\", "(", ")", " + ", "# c\n", '"', "'", "`"]
    ),
    max_size=8,
).map("".join)
PLACEHOLDERS = st.sampled_from(
    ["$(cluster.name)", "$(cluster.namespace)", "$(cluster.labels.zone)"]
)
STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`', re.DOTALL)


def ask_query(text, kind, name, namespace, zone):
    spec = {"type": kind}
    provider = make_object("GlobalMetricsProvider", "p", spec=spec)
    cluster = Metadata(name=name, namespace=namespace, labels={"zone": zone})
    return cluster_query("load", MetricSource(name="p", metric=text), provider, cluster)


@settings(max_examples=cases(2000))
@given(PARTS, PLACEHOLDERS, PARTS, CLUSTERS, st.sampled_from(["prometheus", "kafka"]))
def test_only_what_kubernetes_allows_in_names_is_put_into_a_query(
    before, placeholder, after, cluster, kind
):
    query = ask_query(before + placeholder + after, kind, *cluster)
    if isinstance(query, MetricFault):
        return
    assert query.startswith(before)
    assert query.endswith(after)
    value = query.removeprefix(before).removesuffix(after)
    assert value in set(cluster) - {""}
    assert not (dns_subdomain(value) and label_value(value))
    assert not set(value) & set("\"'`\\{}()=~,|#$ \n/")


@settings(max_examples=cases(2000))
@given(st.sampled_from("\"'`"), PLACEHOLDERS, VALUES)
def test_a_value_does_not_leave_its_quotes(quote, placeholder, value):
    query = ask_query(f"load{{a={quote}x{placeholder}y{quote}}}", "prometheus", value, value, value)
    if isinstance(query, MetricFault):
        assert not value or (dns_subdomain(value) and label_value(value))
        return
    assert STRING.sub("S", query) == "load{a=S}"
    assert query == f"load{{a={quote}x{value}y{quote}}}"


@settings(max_examples=cases(2000))
@given(PLACEHOLDERS, VALUES)
def test_a_value_outside_of_quotes_is_no_operator(placeholder, value):
    query = ask_query(f"load_{placeholder}", "prometheus", value, value, value)
    text = query.message if isinstance(query, MetricFault) else query
    assert re.fullmatch(r"load_[\w.:]+|'load' cannot be asked for: [^\n]+", text)


NAMES = ("a", "b", "c")
REFS = tuple(ref(name) for name in ("one", "two", "three"))

many = settings(max_examples=cases(1000))
seeds = st.integers(0, 2**32).map(random.Random)
orders = st.sampled_from(["DeleteFirst", "CreateFirst"])
pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT)]


def run_pass(members):
    with contextlib.suppress(DiedError):
        members.run()


def disturb(members, chance):
    """Something that people, networks and clusters do."""
    match chance.randrange(8):
        case 0 | 1:
            members.schedule(chance.choice(NAMES))
        case 2:
            members.update(*chance.sample(REFS, chance.randint(1, 3)))
        case 3:
            members.reach[chance.choice(NAMES)] = chance.choice(list(Reach))
        case 4:
            name = chance.choice(NAMES)
            members.ready[name] = not members.ready[name]
        case 5:
            members.now += chance.choice([1, 30, 100])
        case 6:
            members.order = chance.choice(["DeleteFirst", "CreateFirst"])
        case 7:
            members.fault = "wrong" if not members.fault else ""


def calm(members):
    """From here on all is well."""
    members._chance = None
    members.fault = ""
    members.released = True
    members.reach = dict.fromkeys(NAMES, Reach.YES)
    members.ready = dict.fromkeys(NAMES, True)


def stormy(chance, order):
    members = MemberClusters(NAMES, order=order, chance=chance.random)
    members.schedule(chance.choice(NAMES))
    for _ in range(chance.randint(1, 25)):
        disturb(members, chance)
        run_pass(members)
        members.check()
    return members


@many
@given(chance=seeds, order=orders)
def test_at_rest_exactly_one_cluster_has_exactly_what_is_desired(chance, order):
    members = stormy(chance, order)
    calm(members)
    members.settle()
    assert members.holders == {members.record.scheduled_to}
    held = members.objects[members.record.scheduled_to]
    assert held.keys() == {manifest.key for manifest in members.desired}
    assert members.record.running_on == members.record.scheduled_to
    assert set(members.record.inventory) == members.holders
    assert members.record.pending == {}
    assert members.record.migration.to == ""


@many
@given(chance=seeds, order=orders)
def test_a_rest_is_one_and_costs_nothing(chance, order):
    members = stormy(chance, order)
    calm(members)
    members.settle()
    before = members.record
    members.log.clear()
    assert members.run().reason == ""
    assert len(members.log) == 1
    assert members.record is before


@many
@given(chance=seeds, order=orders)
def test_what_is_deleted_is_gone_everywhere_before_the_finalizer(chance, order):
    members = stormy(chance, order)
    members.ending = True
    for _ in range(10):
        members.reach[chance.choice(NAMES)] = chance.choice(list(Reach))
        run_pass(members)
        assert members.finalizer or not members.holders
    calm(members)
    members.settle()
    assert members.holders == set()
    assert not members.finalizer


@many
@given(chance=seeds)
def test_with_create_first_a_ready_application_never_goes_before_its_successor(chance):
    members = MemberClusters(NAMES, order="CreateFirst")
    members.schedule("a")
    members.settle()
    assert members.record.running_on in NAMES
    members._chance = chance.random
    for _ in range(chance.randint(1, 15)):
        match chance.randrange(3):
            case 0:
                members.schedule(chance.choice(NAMES))
            case 1:
                members.ready[chance.choice(NAMES)] = chance.random() < 0.5
            case 2:
                members.now += chance.choice([1, 30, 100])
        run_pass(members)
        whole = {manifest.key for manifest in members.desired}
        running = members.record.running_on
        assert members.objects[running].keys() == whole
