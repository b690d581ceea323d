"""The cases of krake-spec 8 about clouds and projects (krake-spec 3.10, 3.11)."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from harbourmaster.placement.backends import (
    decide_cluster,
    decide_magnum_cluster,
    merge_project,
    settled_cluster,
    settled_magnum_cluster,
)
from harbourmaster.placement.decision import record
from harbourmaster.placement.model import TargetReference, condition
from helpers.placing import (
    NOW,
    ago,
    cloud,
    cloud_for,
    cluster,
    make_object,
    matching_targets,
    project,
    project_for,
    reason,
    refs,
    start_pass,
)


def wanted_cluster(labels=None, metrics=None, *, status=None, backoff=None, **metadata):
    """Return a cluster that waits for a cloud."""
    spec = {"constraints": {"cloud": {"labels": labels, "metrics": metrics}}}
    if backoff is not None:
        spec["backoff"] = backoff
    return make_object("Cluster", "wanted", spec=spec, status=status or {}, **metadata)


def magnum(labels=None, weights=None, *, status=None, own=None, **metadata):
    spec = {"constraints": {"project": {"labels": labels}}, "metrics": refs(weights or {})}
    return make_object(
        "MagnumCluster", "m", spec=spec, status=status or {}, labels=own or {}, **metadata
    )


def test_k1_only_a_cluster_without_a_kubeconfig_gets_a_cloud():
    there = cloud("os")
    assert cloud_for(wanted_cluster(), there).chosen == ["os"]
    for target in (
        cluster("made"),
        wanted_cluster(status={"state": "Failed"}),
        wanted_cluster(status={"scheduledTo": {"kind": "Cloud", "name": "before"}}),
        wanted_cluster(deletionTimestamp=ago(1)),
        make_object("Cluster", "named", spec={"cloudRef": {"kind": "Cloud", "name": "other"}}),
    ):
        decision = cloud_for(target, there)
        assert (decision.outcome, decision.target) == ("Waiting", None)


def test_k2_a_cloud_of_the_namespace_comes_before_a_global_one():
    decision = cloud_for(
        wanted_cluster(), cloud("os"), cloud("g", {"m": 1}, kind="GlobalCloud"), m=0.9
    )
    assert decision.chosen == ["os"]
    assert decision.target.kind == "Cloud"


def test_k3_a_global_cloud_is_next():
    clouds = (cloud("os"), cloud("g", kind="GlobalCloud", labels={"a": "b"}))
    decision = cloud_for(wanted_cluster(labels=["a is b"]), *clouds)
    assert decision.chosen == ["g"]
    assert decision.target.kind == "GlobalCloud"
    assert reason(decision, "os").startswith("label constraint")


def test_clouds_of_other_namespaces_do_not_count():
    assert cloud_for(wanted_cluster(), cloud("os", namespace="other")).outcome == "NoSuitableTarget"


def after(unplaced, *clouds, now=NOW, **values):
    view = start_pass(*clouds, now=now, **values)
    decision = decide_cluster(unplaced, view)
    status = settled_cluster(unplaced, decision, lambda made: record(made, view))
    return msgspec.structs.replace(unplaced, status=status)


def test_k4_without_a_cloud_it_is_tried_again():
    waiting = after(wanted_cluster(backoff={"delaySeconds": 10, "factor": 3, "limit": 1}))
    assert (waiting.status.state, waiting.status.next_retry_time) == ("Degraded", ago(-30))
    assert condition(waiting.status.conditions, "Scheduled").reason == "NoSuitableTarget"
    assert after(waiting, cloud("os")).status is waiting.status
    later = NOW + timedelta(seconds=30)
    placed = after(waiting, cloud("os"), now=later)
    assert placed.status.scheduled_to == TargetReference(kind="Cloud", name="os", uid="uid-os")
    assert (placed.status.state, placed.status.retries_left) == ("Pending", None)
    assert placed.status.last_decision.chosen == "os"
    failed = after(waiting, now=later)
    assert failed.status.state == "Failed"
    assert after(failed, cloud("os"), now=later).status is failed.status
    changed = msgspec.structs.replace(
        failed, metadata=msgspec.structs.replace(failed.metadata, generation=2)
    )
    assert after(changed, cloud("os"), now=later).status.scheduled_to.name == "os"


def test_a_cluster_that_is_placed_stays_there():
    placed = after(wanted_cluster(), cloud("os", {"m": 1}), m=0.1)
    better = (cloud("os", {"m": 1}), cloud("new", {"n": 1}))
    assert after(placed, *better, m=0.1, n=0.9).status is placed.status


def test_an_invalid_constraint_of_a_cluster_is_a_condition():
    waiting = after(wanted_cluster(labels=["a IS b"]), cloud("os"))
    told = condition(waiting.status.conditions, "Scheduled")
    assert told.message.startswith("spec.constraints.cloud.labels[0]: ")
    assert (told.reason, waiting.status.state) == ("InvalidConstraint", "Degraded")
    assert after(waiting, cloud("os"), now=NOW + timedelta(hours=1)).status is waiting.status


def test_k5_a_cloud_whose_metrics_fail_is_as_good_as_a_plain_one():
    decision = cloud_for(wanted_cluster(), cloud("f", {"m": 1}), cloud("n"), m="no answer")
    assert decision.scores == {"f": 0, "n": 0}
    assert sorted(decision.chosen) == ["f", "n"]


def test_k6_a_cloud_that_is_measured_comes_first():
    clouds = (cloud("f", {"m": 1}), cloud("n"), cloud("g", {"n": 1}))
    decision = cloud_for(wanted_cluster(), *clouds, m="no answer", n=0.1)
    assert decision.chosen == ["g"]
    assert matching_targets(decision) == ["f", "g", "n"]


def test_k7_a_metric_constraint_needs_a_value():
    decision = cloud_for(wanted_cluster(metrics=["m > 0"]), cloud("f", {"m": 1}), m="no answer")
    assert decision.outcome == "NoSuitableTarget"
    assert cloud_for(wanted_cluster(metrics=["m > 0"]), cloud("f", {"m": 1}), m=0.5).chosen == ["f"]


def test_k9_where_projects_have_metrics_the_others_do_not_count():
    decision = project_for(magnum(), project("f", {"m": 1}), project("n"), m="no answer")
    assert decision.outcome == "NoSuitableTarget"
    assert reason(decision, "ns/n") == "it has no metrics, but other projects do"
    assert reason(decision, "ns/f") == "UnreachableMetricsProvider: no answer"


def test_projects_of_all_namespaces_count_where_references_are_open():
    projects = (project("a", {"m": 1}), project("b", {"n": 1}, namespace="other"))
    decision = project_for(magnum(), *projects, m=0.1, n=0.9, mode="Open")
    assert decision.scores == {"ns/a": 0.1, "other/b": 0.9}
    assert decision.target.namespace == "other"


@pytest.mark.parametrize("text", ["a is b", "a in (b, c)"])
def test_projects_are_chosen_by_labels(text):
    projects = (project("a", labels={"a": "b"}), project("b"), project("c", {"m": 1}))
    assert project_for(magnum(labels=[text]), *projects, m=1).chosen == ["ns/a"]


def test_k10_a_magnum_cluster_inherits_from_its_project():
    own = magnum(weights={"cost": 7}, own={"a": "cluster"})
    there = project("p", {"cost": 1, "green": 2}, labels={"a": "project", "b": "x"})
    labels, metrics = merge_project(own, there)
    assert labels == {"a": "cluster", "b": "x"}
    assert [(metric.name, metric.weight) for metric in metrics] == [("cost", 7), ("green", 2)]


def magnum_after(magnum_cluster, *projects):
    view = start_pass(*projects)
    decision = decide_magnum_cluster(magnum_cluster, view)
    return settled_magnum_cluster(
        magnum_cluster, decision, view.snapshot.projects, lambda made: record(made, view)
    )


def test_a_magnum_cluster_is_placed_with_the_template_of_its_project():
    status = magnum_after(magnum(), project("p", template="big"))
    assert status.project == TargetReference(namespace="ns", name="p", uid="uid-p")
    assert (status.template, status.state) == ("big", "Pending")


@pytest.mark.parametrize(
    "magnum_cluster",
    [
        magnum(deletionTimestamp=ago(1)),
        magnum(status={"project": {"name": "p"}}),
        magnum(status={"state": "Failed"}),
    ],
)
def test_some_magnum_clusters_are_left_alone(magnum_cluster):
    assert magnum_after(magnum_cluster, project("p")) is magnum_cluster.status


def test_k9_a_magnum_cluster_without_a_project_has_failed_until_it_changes():
    status = magnum_after(magnum())
    assert status.state == "Failed"
    failed = msgspec.structs.replace(magnum(generation=2), status=status)
    assert magnum_after(failed, project("p")).project.name == "p"


@pytest.mark.parametrize("kind", ["Cloud", "GlobalCloud"])
def test_a_cloud_that_is_being_deleted_gets_nothing(kind):
    decision = cloud_for(wanted_cluster(), cloud("os", kind=kind, deletionTimestamp=ago(1)))
    assert decision.outcome == "NoSuitableTarget"
    assert reason(decision, "os") == "it is being deleted"


def test_a_project_that_is_being_deleted_gets_nothing():
    decision = project_for(magnum(), project("p", deletionTimestamp=ago(1)))
    assert decision.outcome == "NoSuitableTarget"


def test_a_placed_cluster_names_its_cloud():
    cloud = cloud_for(wanted_cluster(status={"scheduledTo": {"kind": "Cloud", "name": "os"}}))
    assert cloud.stays
    assert list(cloud.chosen) == ["os"]


def test_a_new_generation_of_a_cluster_has_all_tries_again():
    once = after(wanted_cluster(backoff={"limit": 2}))
    assert once.status.retries_left == 1
    changed = msgspec.structs.replace(
        once, metadata=msgspec.structs.replace(once.metadata, generation=2)
    )
    assert after(changed).status.retries_left == 1


ALLOW = "harbourmaster.dev/allow-from"
HINT = (
    "projects of other namespaces need consent: "
    "kubectl annotate project -n NAMESPACE NAME harbourmaster.dev/allow-from=ns and "
    "kubectl annotate magnumcluster -n ns m harbourmaster.dev/allow-from=NAMESPACE"
)


def consenting(made_by, allow, *arguments, **options):
    return made_by(*arguments, **options, annotations={ALLOW: allow} if allow else {})


@pytest.mark.claim("O15")
@pytest.mark.parametrize("mode", ["ProvidersNeedConsent", "AllNeedConsent"])
@pytest.mark.parametrize(
    ("of_project", "of_cluster"), [("", ""), ("*", ""), ("ns", ""), ("", "evil"), ("other", "*")]
)
def test_a_foreign_project_takes_no_magnum_cluster_unless_both_consent(
    of_project, of_cluster, mode
):
    trap = consenting(project, of_project, "trap", namespace="evil")
    decision = project_for(consenting(magnum, of_cluster), trap, mode=mode)
    assert (decision.outcome, decision.verdicts) == ("NoSuitableTarget", [])
    assert decision.reason.startswith(
        "there is no project; projects of other namespaces need consent"
    )
    assert "trap" not in decision.reason


@pytest.mark.claim("O15")
@pytest.mark.parametrize(("of_project", "of_cluster"), [("ns", "far"), ("*", "far"), ("ns", "*")])
def test_a_magnum_cluster_goes_to_a_foreign_project_if_both_consent(of_project, of_cluster):
    there = consenting(project, of_project, "p", namespace="far")
    decision = project_for(consenting(magnum, of_cluster), there)
    assert decision.target.label == "far/p"


def test_projects_of_its_own_namespace_need_no_consent():
    assert project_for(magnum(), project("p"), mode="AllNeedConsent").target.label == "ns/p"


def test_a_magnum_cluster_without_a_project_says_how_namespaces_consent():
    assert project_for(magnum()).reason == f"there is no project; {HINT}"
    named = project_for(consenting(magnum, "far"))
    assert named.reason == (
        "there is no project; projects of other namespaces need consent: "
        "kubectl annotate project -n far NAME harbourmaster.dev/allow-from=ns"
    )


def test_consent_lets_a_failed_magnum_cluster_try_again():
    status = magnum_after(magnum(), project("p", namespace="far"))
    assert status.state == "Failed"
    failed = msgspec.structs.replace(consenting(magnum, "far"), status=status)
    # Nothing is written before the project consents, too.
    assert magnum_after(failed, project("p", namespace="far")) is status
    assert magnum_after(failed, project("own")) is status
    consented_status = magnum_after(failed, consenting(project, "ns", "p", namespace="far"))
    assert (consented_status.project.namespace, consented_status.state) == ("far", "Pending")


def test_a_failed_magnum_cluster_that_is_being_deleted_gets_no_project():
    going = magnum(status={"state": "Failed"}, deletionTimestamp=ago(1), annotations={ALLOW: "far"})
    there = consenting(project, "ns", "p", namespace="far")
    assert magnum_after(going, there) is going.status
