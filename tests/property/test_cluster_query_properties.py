"""Whatever a cluster and a query are, what is put into the query stays within its place."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.names import dns_subdomain, label_value
from harbourmaster.placement.cluster_queries import cluster_query
from harbourmaster.placement.model import MetricSource
from harbourmaster.placement.snapshot import MetricFault
from helpers.placing import made
from helpers.properties import cases

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


def asked(text, kind, name, namespace, zone):
    spec = {"type": kind}
    provider = made("GlobalMetricsProvider", "p", spec=spec)
    cluster = Metadata(name=name, namespace=namespace, labels={"zone": zone})
    return cluster_query("load", MetricSource(name="p", metric=text), provider, cluster)


@settings(max_examples=cases(2000))
@given(PARTS, PLACEHOLDERS, PARTS, CLUSTERS, st.sampled_from(["prometheus", "kafka"]))
def test_only_what_kubernetes_allows_in_names_is_put_into_a_query(
    before, placeholder, after, cluster, kind
):
    query = asked(before + placeholder + after, kind, *cluster)
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
    query = asked(f"load{{a={quote}x{placeholder}y{quote}}}", "prometheus", value, value, value)
    if isinstance(query, MetricFault):
        assert not value or (dns_subdomain(value) and label_value(value))
        return
    assert STRING.sub("S", query) == "load{a=S}"
    assert query == f"load{{a={quote}x{value}y{quote}}}"


@settings(max_examples=cases(2000))
@given(PLACEHOLDERS, VALUES)
def test_a_value_outside_of_quotes_is_no_operator(placeholder, value):
    query = asked(f"load_{placeholder}", "prometheus", value, value, value)
    text = query.message if isinstance(query, MetricFault) else query
    assert re.fullmatch(r"load_[\w.:]+|'load' cannot be asked for: [^\n]+", text)
