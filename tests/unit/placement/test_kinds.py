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


TEMPLATE = {
    "apiVersion": "templates.gatekeeper.sh/v1",
    "kind": "ConstraintTemplate",
    "metadata": {"name": "k8srequiredlabels"},
}
CONSTRAINT = {
    "apiVersion": "constraints.gatekeeper.sh/v1beta1",
    "kind": "K8sRequiredLabels",
    "metadata": {"name": "ns-must-have-owner"},
}


def brought_by(version, kind, metadata=None, **body):
    return {"apiVersion": version, "kind": kind, "metadata": metadata or {}, **body}


def role(*rules):
    return brought_by("rbac.authorization.k8s.io/v1", "ClusterRole", rules=list(rules))


def rule(groups, resources, *verbs):
    return {"apiGroups": groups, "resources": resources, "verbs": list(verbs)}


INSTALLS = rule(["apiextensions.k8s.io"], ["customresourcedefinitions"], "get", "create")
HANDLES = rule(["example.com", ""], ["*"], "*")


def test_a_kind_that_another_manifest_brings_is_not_needed():
    # These tests prove krake-spec 7.9.
    served = serving("a", "templates.gatekeeper.sh/v1/ConstraintTemplate")
    assert decide_on(application(manifests=[TEMPLATE, CONSTRAINT]), served).chosen == ["a"]
    decision = decide_on(application(manifests=[CONSTRAINT]), served)
    assert decision.outcome == "NoSuitableTarget"
    # What brings it must be served.
    assert needed_names(TEMPLATE, CONSTRAINT) == ["templates.gatekeeper.sh/v1/ConstraintTemplate"]


@pytest.mark.parametrize(
    ("bringer", "is_needed"),
    [
        (brought_by("apiextensions.crossplane.io/v1", "CompositeResourceDefinition",
                    spec={"group": "example.com"}), False),
        (brought_by("apiextensions.crossplane.io/v1", "Composition", spec={}), True),
        (brought_by("operators.coreos.com/v1alpha1", "Subscription"), False),
        (brought_by("helm.toolkit.fluxcd.io/v2", "HelmRelease"), False),
        (brought_by("helm.cattle.io/v1", "HelmChart"), False),
        (role(INSTALLS, HANDLES), False),
        (role(INSTALLS), False),
        (role(INSTALLS, rule(["", "policy"], ["jobs"], "create")), False),
        (role(rule(["*"], ["*"], "*")), False),
        (role(INSTALLS, rule(["example.org"], ["*"], "*")), True),
        (role(HANDLES), True),
        (role(rule(["apiextensions.k8s.io"], ["customresourcedefinitions"], "get"), HANDLES), True),
        (role(None, 5, {"apiGroups": 5, "resources": "x", "verbs": None}), True),
        (brought_by("apps/v1", "Deployment"), True),
        (brought_by("apiextensions.k8s.io/v1", "CustomResourceDefinition", spec=None), True),
    ],
)  # fmt: skip
def test_what_brings_a_kind(bringer, is_needed):
    assert ("example.com/v1/Shirt" in needed_names(bringer, SHIRT)) is is_needed


@pytest.mark.parametrize(
    ("annotations", "is_needed"),
    [
        ({"placement.harbourmaster.dev/await-kind": "true"}, False),
        ({"placement.harbourmaster.dev/await-kind": "false"}, True),
        ({"argocd.argoproj.io/sync-options": "Prune=false, SkipDryRunOnMissingResource=true"}, 0),
        ({"argocd.argoproj.io/sync-options": "SkipDryRunOnMissingResource=false"}, True),
        ({"argocd.argoproj.io/sync-options": None}, True),
        ("text", True),
    ],
)
def test_a_manifest_may_say_that_its_kind_comes_later(annotations, is_needed):
    metadata = {"name": "blue", "annotations": annotations}
    assert bool(needed_names({**SHIRT, "metadata": metadata})) is bool(is_needed)


def test_what_installs_operators_is_needed_itself():
    release = brought_by("helm.toolkit.fluxcd.io/v2", "HelmRelease")
    assert needed_names(release, SHIRT) == ["helm.toolkit.fluxcd.io/v2/HelmRelease"]


def test_a_failure_lasts_until_a_missing_kind_is_served():
    failed = {"name": "a", "uid": "uid-a", "generation": 1, "revision": "1, example.com/v1/Shirt"}
    app = application(manifests=[SHIRT], status={"failedClusters": [failed]})
    assert decide_on(app, serving("a", "example.com/v1/Shirt")).chosen == ["a"]
    same = application(manifests=[SHIRT], status={"failedClusters": [{**failed, "revision": "1"}]})
    assert is_refused(same, serving("a", "example.com/v1/Shirt"))
    # What the application itself brings and takes along does not count.
    assert is_refused(same, serving("a", "example.com/v1/Shirt", "example.com/v1/Boat"))
