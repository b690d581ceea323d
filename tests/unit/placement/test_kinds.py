"""The kinds that manifests need, and the clusters that serve them."""

from __future__ import annotations

import pytest

from harbourmaster.placement.constraints import KindConstraint, needed_kinds
from harbourmaster.placement.data_holders import read_manifest
from helpers.placing import ONLINE, application, cluster, decide_on, is_refused, reason

SHIRT = {"apiVersion": "example.com/v1", "kind": "Shirt", "metadata": {"name": "blue"}}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "spec": {"group": "example.com", "names": {"kind": "Shirt"}, "versions": [{"name": "v1"}]},
}


def serving(name, *kinds, spec=None, **more):
    return cluster(name, status={**ONLINE, "servedKinds": kinds}, spec=spec, **more)


def needed_names(*manifests):
    return [kind.name for kind in needed_kinds(map(read_manifest, manifests))]


def test_kinds_are_those_of_the_manifests_that_kubernetes_itself_lacks():
    web = {"apiVersion": "apps/v1", "kind": "Deployment"}
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    kinds = needed_names(SHIRT, web, SHIRT, {"apiVersion": "v1", "kind": "ConfigMap"}, policy)
    assert kinds == ["example.com/v1/Shirt", "networking.k8s.io/v1/NetworkPolicy"]


def test_kinds_that_the_manifests_define_are_not_needed():
    assert needed_names(DEFINITION, SHIRT) == []
    namesake = {**SHIRT, "apiVersion": "example.org/v1"}
    assert needed_names(SHIRT, DEFINITION, namesake) == ["example.org/v1/Shirt"]


@pytest.mark.parametrize("manifest", [{}, {"apiVersion": 5, "kind": 6}, {"kind": "Shirt"}])
def test_manifests_without_a_kind_need_none(manifest):
    assert needed_names(manifest) == []


@pytest.mark.parametrize(
    ("served", "holds"),
    [
        ({"example.com/v1/Shirt"}, True),
        ({"example.com/v2/Shirt", "example.com/v1/Boat"}, False),
        ({"example.com/v1/*"}, True),
        ({"example.org/v1/*"}, False),
        ({"*"}, True),
    ],
)
def test_a_kind_is_served_or_may_be(served, holds):
    wanted = KindConstraint("example.com/v1/Shirt")
    assert wanted.holds(served) is holds
    assert bool(wanted.mismatch(served)) is not holds


def test_an_application_goes_where_its_kinds_are_served():
    clusters = (serving("a", "example.com/v1/Boat"), serving("b", "example.com/v1/Shirt"))
    decision = decide_on(application(manifests=[SHIRT]), *clusters)
    assert decision.chosen == ["b"]
    assert reason(decision, "a") == "the cluster does not serve kind Shirt in example.com/v1"
    assert is_refused(application(manifests=[SHIRT]), clusters[0])
    assert decide_on(application(manifests=[DEFINITION, SHIRT]), clusters[0]).chosen == ["a"]


def test_nothing_is_concluded_about_clusters_whose_kinds_are_not_known():
    assert decide_on(application(manifests=[SHIRT]), cluster("a")).chosen == ["a"]
    hidden = serving("a", "example.com/v1/Boat", spec={"discoverCustomResources": False})
    assert decide_on(application(manifests=[SHIRT]), hidden).chosen == ["a"]


def test_a_cluster_that_loses_a_kind_keeps_what_it_was_told_to_deploy():
    clusters = (serving("a", "example.com/v1/Boat"), serving("b", "example.com/v1/Shirt"))
    assert decide_on(application(on="a", manifests=[SHIRT]), *clusters).stays
    changed = decide_on(application(on="a", manifests=[SHIRT], generation=2), *clusters)
    assert (changed.outcome, changed.chosen) == ("Moved", ["b"])
    assert is_refused(application(on="a", manifests=[SHIRT], generation=2), clusters[0])


def test_a_failure_lasts_until_a_missing_kind_is_served():
    failed = {"name": "a", "uid": "uid-a", "generation": 1, "revision": "1, example.com/v1/Shirt"}
    app = application(manifests=[SHIRT], status={"failedClusters": [failed]})
    assert decide_on(app, serving("a", "example.com/v1/Shirt")).chosen == ["a"]
    same = application(manifests=[SHIRT], status={"failedClusters": [{**failed, "revision": "1"}]})
    assert is_refused(same, serving("a", "example.com/v1/Shirt"))
    # What the application itself brings and takes along does not count.
    assert is_refused(same, serving("a", "example.com/v1/Shirt", "example.com/v1/Boat"))
