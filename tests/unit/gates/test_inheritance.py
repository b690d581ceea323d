"""Tests of what a pod takes from its own metadata and its parent's (keptn-spec 2.4, 11.1)."""

from __future__ import annotations

import pytest

from harbourmaster.gates.inheritance import Tracking, tracking_by_parent, tracking_by_pod
from harbourmaster.gates.metadata import APP_TYPE_KEY, SINGLE_SERVICE, Metadata
from harbourmaster.gates.version import Container

NGINX = (Container("nginx", "nginx:1.25"),)
CHECKS = {
    "keptn.sh/pre-deployment-tasks": "t1",
    "keptn.sh/post-deployment-tasks": "t2",
    "keptn.sh/pre-deployment-evaluations": "e1",
    "keptn.sh/post-deployment-evaluations": "e2",
    "keptn.sh/metadata": "a=1",
}


def tracking(pod=None, parent=None, *, labels=None, parent_labels=None, **options):
    """Return the tracking of a pod as admission does: its own first, then its parent's."""
    metadata = Metadata(pod or {}, labels or {})
    own_tracking = tracking_by_pod(metadata, lambda: NGINX, **options)
    if own_tracking is not None or parent is None:
        return own_tracking
    return tracking_by_parent(
        metadata, Metadata(parent, parent_labels or {}), lambda: NGINX, **options
    )


def refuse():
    raise AssertionError("no version was to be computed")


def keys(**values):
    return {f"keptn.sh/{key}": value for key, value in values.items()}


def test_a_pod_with_all_values_gets_nothing():
    given = keys(workload="w", version="1", app="a")
    assert tracking_by_pod(Metadata(given), refuse) == Tracking({})


def test_c06_the_version_is_computed_where_there_is_none():
    own = keys(workload="w", app="a")
    assert tracking(own).annotations == keys(version="930232967")
    assert tracking(own, version_from_tag=True).annotations == keys(version="1.25")


def test_c18_a_pod_without_an_app_gets_its_workload_as_app():
    assert tracking(keys(workload="waiter", version="1")).annotations == {
        "keptn.sh/app": "waiter",
        APP_TYPE_KEY: SINGLE_SERVICE,
    }


def test_labels_are_enough_and_are_not_copied():
    labels = {
        "app.kubernetes.io/name": "w",
        "app.kubernetes.io/version": "1",
        "app.kubernetes.io/part-of": "a",
    }
    assert tracking(labels=labels) == Tracking({})


def test_c14_everything_but_the_container_is_copied_from_the_parent():
    parent = keys(workload="w", version="1", app="a", container="nginx") | CHECKS
    result = tracking({}, parent)
    assert result.annotations == keys(workload="w", version="1", app="a") | CHECKS
    assert result.missing_container == ""


def test_c14_the_parents_labels_become_annotations_of_the_pod():
    labels = {"app.kubernetes.io/name": "w", "app.kubernetes.io/version": "1"}
    result = tracking({}, {}, parent_labels=labels)
    assert result.annotations == {
        **keys(workload="w", version="1", app="w"),
        APP_TYPE_KEY: SINGLE_SERVICE,
    }


def test_c16_a_pod_with_a_workload_inherits_nothing():
    own = keys(workload="w", version="1", app="a")
    assert tracking(own, keys(workload="other") | CHECKS) == Tracking({})


def test_c17_the_parents_values_replace_the_pods():
    result = tracking(keys(version="1", app="mine"), keys(workload="w", version="2"))
    assert result.annotations == keys(workload="w", version="2")


def test_what_only_the_pod_has_stays():
    own = {"keptn.sh/pre-deployment-tasks": "mine", "keptn.sh/post-deployment-tasks": "mine"}
    parent = keys(workload="w", version="1", app="a") | {"keptn.sh/pre-deployment-tasks": "theirs"}
    result = tracking(own, parent)
    assert result.annotations == keys(workload="w", version="1", app="a") | {
        "keptn.sh/pre-deployment-tasks": "theirs"
    }


def test_a_version_is_computed_by_the_parents_container():
    parent = keys(workload="w", app="a", container="nginx")
    assert tracking(keys(version="1"), parent).annotations["keptn.sh/version"] == "1.25"


@pytest.mark.parametrize("parent", [{}, keys(version="1", app="a") | CHECKS])
def test_a_parent_without_a_workload_tracks_nothing(parent):
    assert tracking(keys(version="1"), parent) is None


def test_nothing_is_tracked_without_a_parent():
    assert tracking({}) is None


@pytest.mark.parametrize(
    ("pod", "parent"),
    [
        pytest.param(keys(workload="w", app="a", container="nope"), None, id="c09"),
        pytest.param({}, keys(workload="w", app="a", container="nope"), id="c10"),
    ],
)
def test_c09_c10_a_container_that_is_not_there_makes_a_hash_and_is_told(pod, parent):
    result = tracking(pod, parent)
    assert result.annotations["keptn.sh/version"] == "930232967"
    assert result.missing_container == "nope"


def test_a_second_time_gives_nothing():
    parent = keys(workload="w", container="nginx") | CHECKS
    added = tracking({}, parent).annotations
    assert tracking(added, parent) == Tracking({})
