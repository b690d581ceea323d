"""Tests of the workload that a gated pod names (keptn-spec 2.6, 2.7)."""

from __future__ import annotations

from harbourmaster.gates.metadata import APP_TYPE_KEY, SINGLE_SERVICE
from harbourmaster.gates.names import version_name, workload_name
from harbourmaster.gates.workload import WorkloadMetadata, workload_of


def test_a_pod_without_a_workload_belongs_to_none():
    assert workload_of({"keptn.sh/app": "a", "keptn.sh/version": "1"}, {}) is None


def test_c19_names_are_fit_for_objects_and_versions_in_lower_case():
    workload = workload_of(
        {"keptn.sh/app": "My_App", "keptn.sh/workload": "Front_End", "keptn.sh/version": "V1_RC"},
        {},
    )
    assert (workload.app, workload.version) == ("my-app", "v1_rc")
    name = workload_name(workload.app, workload.workload)
    assert name == "my-app-front-end"
    assert version_name(name, workload.version) == "my-app-front-end-v1-rc"


def test_c18_without_an_app_the_workload_is_one():
    workload = workload_of({}, {"app.kubernetes.io/name": "waiter"})
    assert (workload.app, workload.is_single_service) == ("waiter", True)
    assert workload_name(workload.app, workload.workload) == "waiter-waiter"


def test_c18_so_it_is_where_admission_wrote_the_app():
    written = {
        "keptn.sh/workload": "waiter",
        "keptn.sh/app": "waiter",
        APP_TYPE_KEY: SINGLE_SERVICE,
    }
    assert workload_of(written, {}).is_single_service


def test_an_app_may_have_the_name_of_one_of_its_workloads():
    workload = workload_of({"keptn.sh/workload": "shop", "keptn.sh/app": "shop"}, {})
    assert not workload.is_single_service


def test_all_of_it_comes_from_labels_as_well():
    labels = {
        "app.kubernetes.io/name": "w",
        "app.kubernetes.io/part-of": "a",
        "app.kubernetes.io/version": "1.0",
        "keptn.sh/pre-deployment-tasks": "t",
    }
    assert workload_of({}, labels) == WorkloadMetadata(
        "a", "w", "1.0", "1.0", pre_deployment_tasks=("t",)
    )


def test_lists_and_metadata_are_read():
    workload = workload_of(
        {
            "keptn.sh/workload": "w",
            "keptn.sh/app": "a",
            "keptn.sh/pre-deployment-tasks": "t1, t2",
            "keptn.sh/post-deployment-tasks": "t3",
            "keptn.sh/pre-deployment-evaluations": "e1",
            "keptn.sh/post-deployment-evaluations": "e2,e3",
            "keptn.sh/metadata": "stage=dev",
        },
        {},
    )
    assert workload == WorkloadMetadata(
        "a", "w", "", "", ("t1", "t2"), ("t3",), ("e1",), ("e2", "e3"), {"stage": "dev"}
    )


def test_stages_are_kept_as_written_and_their_checks_are_lists():
    ours = {
        "stages": "1, 25%",
        "stage-pause": "10m",
        "stages-on-first": "true",
        "stage-tasks": "smoke",
        "stage-evaluations": "e1, e2",
        "stage-analysis": "error-rate",
    }
    keys = {f"gates.harbourmaster.dev/{key}": value for key, value in ours.items()}
    workload = workload_of({"keptn.sh/workload": "w", **keys}, {})
    assert workload.stages == {
        "stages": "1, 25%",
        "stage_pause": "10m",
        "stages_on_first": True,
        "stage_tasks": ("smoke",),
        "stage_evaluations": ("e1", "e2"),
        "stage_analyses": ("error-rate",),
    }


def test_stages_are_annotations_of_bounded_length():
    stages = "gates.harbourmaster.dev/stages"
    on_first = {"gates.harbourmaster.dev/stages-on-first": "True"}
    workload = workload_of({"keptn.sh/workload": "w", **on_first}, {stages: "1"})
    assert workload.stages == {}
    workload = workload_of({"keptn.sh/workload": "w", **on_first, stages: "1," * 5000}, {})
    assert workload.stages["stages"] == "more than 4096 characters"
    assert not workload.stages["stages_on_first"]
