"""Objects of older versions are converted without a loss (keptn-spec 1.3, 1.4)."""

from __future__ import annotations

import json

import pytest

from harbourmaster.lifecycle.conversion import (
    MAX_ANNOTATIONS,
    UNCONVERTED,
    ConversionError,
    convert,
)

GROUP = "lifecycle.keptn.sh"
METADATA = {"name": "shop", "namespace": "market", "uid": "8c1f", "labels": {"a": "b"}}
CHECKS = {
    "preDeploymentTasks": ["seed", "warm"],
    "postDeploymentTasks": ["mail"],
    "preDeploymentEvaluations": ["budget"],
    "postDeploymentEvaluations": ["latency"],
}


def to(obj, version):
    return convert(obj, f"{GROUP}/{version}")


def app(at="v1", /, *, annotations=None, status=None, **spec):
    return obj("KeptnApp", at, annotations, status, {"version": "1.0", **spec})


def app_version(at="v1", /, *, annotations=None, status=None, **spec):
    spec = {"appName": "shop", "version": "1.0", **spec}
    return obj("KeptnAppVersion", at, annotations, status, spec)


def obj(kind, version, annotations, status, spec):
    metadata = {**METADATA, **({"annotations": annotations} if annotations else {})}
    whole = {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": metadata, "spec": spec}
    return whole if status is None else {**whole, "status": status}


def kept_fields(stored):
    return json.loads(stored["metadata"]["annotations"][UNCONVERTED])


def test_c87_task_lists_of_an_old_app_are_kept_out_of_sight_and_come_back():
    old = app("v1alpha3", revision=2, workloads=[{"name": "cart", "version": "3"}], **CHECKS)
    converted = to(old, "v1")
    assert converted["spec"] == {
        "version": "1.0",
        "revision": 2,
        "workloads": [{"name": "cart", "version": "3"}],
    }
    assert kept_fields(converted) == {"spec": CHECKS}
    assert to(converted, "v1alpha3") == old


def test_they_survive_a_change_in_v1():
    converted = to(app("v1alpha3", revision=2, **CHECKS), "v1")
    converted["spec"] |= {"version": "2.0", "revision": 1}
    back = to(converted, "v1alpha2")
    assert back["spec"] == {"version": "2.0", "revision": 1, **CHECKS}
    assert "annotations" not in back["metadata"]


def test_c88_the_oldest_version_has_no_revision_and_gets_the_first():
    assert to(app("v1alpha1"), "v1")["spec"]["revision"] == 1
    assert to(app_version("v1alpha1"), "v1alpha2")["spec"]["revision"] == 1


def test_a_revision_that_is_the_first_leaves_no_trace():
    assert to(app(revision=1), "v1alpha1") == app("v1alpha1")


def test_a_revision_comes_back_with_its_version_only():
    old = to(app(revision=3), "v1alpha1")
    assert kept_fields(old) == {"spec": {"revision": 3}, "of": {"version": "1.0"}}
    assert to(old, "v1")["spec"]["revision"] == 3
    old["spec"]["version"] = "2.0"
    assert to(old, "v1") == app(version="2.0", revision=1)


@pytest.mark.parametrize(
    ("field", "prefix"),
    [
        ("preDeploymentTaskStatus", "task"),
        ("postDeploymentTaskStatus", "task"),
        ("preDeploymentEvaluationTaskStatus", "evaluation"),
        ("postDeploymentEvaluationTaskStatus", "evaluation"),
    ],
)
def test_c89_items_of_the_oldest_version_are_worded_otherwise(field, prefix):
    rest = {"status": "Succeeded", "startTime": "2026-11-21T18:00:00Z"}
    old = {f"{prefix}DefinitionName": "seed", f"{prefix}Name": "pre-seed-12345", **rest}
    new = {"definitionName": "seed", "name": "pre-seed-12345", **rest}
    status = {"promotionStatus": "Pending", field: [new]}
    version = app_version(status=status, revision=1)
    oldest = app_version("v1alpha1", status={field: [old]})
    assert to(version, "v1alpha1") == oldest
    assert to(oldest, "v1") == version


def test_what_only_late_versions_have_is_kept_and_comes_back():
    spec = {"metadata": {"team": "a"}, "spanLinks": ["00-1-2-01"], "promotionTasks": ["tag"]}
    status = {
        "currentPhase": "Completed",
        "promotionStatus": "Succeeded",
        "promotionTaskStatus": [{"definitionName": "tag", "status": "Succeeded"}],
    }
    version = app_version(status=status, revision=1, **spec)
    old = to(version, "v1alpha3")
    assert old["spec"] == {"appName": "shop", "version": "1.0", "revision": 1}
    assert old["status"] == {"currentPhase": "Completed"}
    assert to(old, "v1") == to(to(old, "v1alpha1"), "v1") == version
    assert to(version, "v1beta1") == {**version, "apiVersion": f"{GROUP}/v1beta1"}


def test_a_promotion_s_status_comes_back_to_the_same_object_only():
    old = to(app_version(status={"promotionStatus": "Succeeded"}, spanLinks=["x"]), "v1alpha3")
    old["metadata"]["uid"] = "made from a backup"
    converted = to(old, "v1")
    assert converted["status"] == {"promotionStatus": "Pending"}
    assert converted["spec"]["spanLinks"] == ["x"]


def test_without_a_status_none_comes_back():
    old = to(app_version(status={"promotionStatus": "Succeeded"}), "v1alpha3")
    del old["status"]
    assert "status" not in to(old, "v1")


def test_the_fields_that_a_version_has_are_the_truth():
    stale = json.dumps({"spec": {"revision": 9, **CHECKS}, "of": {"version": "1.0"}})
    old = app("v1alpha2", annotations={UNCONVERTED: stale}, revision=2)
    assert to(old, "v1") == app(revision=2)


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        "[]",
        "1e999",
        '{"spec": []}',
        '{"spec": {"metadata": 5, "spanLinks": "x", "promotionTasks": [1], "other": 1}}',
        '{"spec": {"metadata": {"a": 1}}, "status": {"promotionTaskStatus": [{"name": {}}]}}',
        '{"spec": {"revision": 99999999999999999999999}, "of": {"version": "1.0"}}',
        '{"spec": {"revision": true}, "of": {"version": "1.0"}}',
        '{"status": {"promotionStatus": "Succeeded"}}',
        '{"omitted": "spec.metadata", "of": 3}',
        "[" * 10000,
    ],
)
def test_what_anybody_wrote_into_the_annotation_gets_nowhere(text):
    annotations = {UNCONVERTED: text, "team": "a"}
    old = app_version("v1alpha1", annotations=annotations, status={"status": "Pending"})
    assert to(old, "v1") == app_version(
        annotations={"team": "a"},
        status={"status": "Pending", "promotionStatus": "Pending"},
        revision=1,
    )


def test_an_annotation_of_another_type_is_no_fault():
    old = app("v1alpha3", revision=1)
    old["metadata"]["annotations"] = {UNCONVERTED: 5}
    assert to(old, "v1") == app(revision=1)


def test_the_same_version_changes_nothing():
    version = app_version(annotations={UNCONVERTED: "{}"}, metadata={"a": "b"})
    assert to(version, "v1") == version


def test_what_does_not_fit_is_missing_in_an_old_version_which_cannot_be_written_then():
    large = app_version(metadata={"text": "x" * MAX_ANNOTATIONS}, spanLinks=["y"], revision=1)
    old = to(large, "v1alpha3")
    assert kept_fields(old) == {"omitted": ["spec.metadata", "spec.spanLinks"]}
    assert kept_fields(to(old, "v1alpha2")) == kept_fields(old)
    with pytest.raises(ConversionError) as caught:
        to(old, "v1")
    assert str(caught.value) == (
        "KeptnAppVersion market/shop: spec.metadata, spec.spanLinks did not fit into the "
        "annotations of v1alpha3: write the object in v1"
    )


def test_the_bound_counts_all_annotations():
    full = {"note": "x" * (MAX_ANNOTATIONS - 100)}
    assert "spanLinks" in str(
        kept_fields(to(app_version(spanLinks=["y" * 200], annotations=full), "v1alpha3"))
    )
    assert kept_fields(to(app_version(spanLinks=["y"], annotations=full), "v1alpha3"))["spec"]
    large = to(app_version(spanLinks=["ä" * 99], annotations=full), "v1alpha3")
    assert kept_fields(large) == {"omitted": ["spec.spanLinks"]}


def test_what_would_be_lost_for_good_is_refused():
    large = app("v1alpha3", revision=1, preDeploymentTasks=["x" * MAX_ANNOTATIONS])
    with pytest.raises(ConversionError, match=r"KeptnApp market/shop: spec\.preDeploymentTasks"):
        to(large, "v1")


def test_a_forged_mark_of_something_missing_keeps_nobody_from_reading():
    forged = json.dumps({"omitted": ["spec.preDeploymentTasks", "spec.metadata"]})
    assert to(app(annotations={UNCONVERTED: forged}, revision=1), "v1alpha3")["spec"]
    assert to(app_version(annotations={UNCONVERTED: forged}), "v1alpha3")["spec"]


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (5, "the object: expected an object, got 5"),
        ({"kind": "KeptnApp"}, "null is not converted here"),
        ({**app(), "kind": "KeptnWorkload"}, 'objects of kind "KeptnWorkload" cannot be converted'),
        ({**app(), "kind": ["KeptnApp"]}, "objects of kind"),
        ({**app(), "apiVersion": "lifecycle.keptn.sh/v2"}, "lifecycle.keptn.sh/v2"),
        ({**app(), "apiVersion": "apps/v1"}, "is not converted here: lifecycle.keptn.sh has v1,"),
        ({**app(), "metadata": None}, "KeptnApp: metadata: expected an object, got null"),
        ({**app(), "spec": []}, "KeptnApp market/shop: spec: expected an object, got []"),
        (
            app_version(status={"preDeploymentTaskStatus": {}}),
            "KeptnAppVersion market/shop: status.preDeploymentTaskStatus: expected a list, got {}",
        ),
        (
            app_version(status={"preDeploymentTaskStatus": [{}, "x"]}),
            'status.preDeploymentTaskStatus[1]: expected an object, got "x"',
        ),
    ],
)
def test_what_is_no_such_object_is_refused_in_one_line(broken, text):
    with pytest.raises(ConversionError) as caught:
        to(broken, "v1alpha1")
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wanted", ["lifecycle.keptn.sh/v3", "v1", "", "metrics.keptn.sh/v1"])
def test_a_version_that_there_is_not_is_refused(wanted):
    with pytest.raises(ConversionError, match="is not converted here"):
        convert(app(), wanted)
