"""Requests for repeated checks, and which results no longer count (keptn-spec 3.14)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harbourmaster.api.patches import apply
from harbourmaster.lifecycle.reruns import checks_to_repeat, is_rerun_wanted, stamp_operations
from helpers.phased import CHECKS, Walk, app_version, workload_version

RERUN = "gates.harbourmaster.dev/rerun"
BY, CHECKS_KEY, REASON = (f"{RERUN}-{field}" for field in ("by", "checks", "reason"))


def failed_at(definition, version=None):
    """Return a walk whose version has failed by one check."""
    walk = Walk(version or workload_version(**CHECKS))
    walk.is_deployed = True
    walk.go()
    for (name,) in CHECKS.values():
        walk.end(name, "Failed" if name == definition else "Succeeded")
        walk.go()
        if name == definition:
            return walk
    raise AssertionError(definition)


def labelled(version, label="1", **notes):
    annotations = {f"{RERUN}-{key}": text for key, text in notes.items()}
    metadata = replace(version.metadata, labels={RERUN: label}, annotations=annotations)
    return replace(version, metadata=metadata)


def stamp(version, former, user="jane"):
    """Return the version as it is stored after admission."""
    stored = {"metadata": {"annotations": version.metadata.annotations}}
    apply(stored, stamp_operations(version, former, user))
    metadata = replace(version.metadata, annotations=stored["metadata"]["annotations"])
    return replace(version, metadata=metadata)


def ask(walk, label="1"):
    walk.version = stamp(labelled(walk.version, label, reason="fixed"), walk.version)


@pytest.mark.parametrize("version", [workload_version(**CHECKS), app_version(**CHECKS)])
@pytest.mark.parametrize("definition", [name for (name,) in CHECKS.values()])
def test_a_failed_check_runs_again_under_a_new_name_and_what_passed_does_not(version, definition):
    walk = failed_at(definition, version)
    ask(walk)
    walk.told.clear()
    walk.go()
    assert walk.names(definition)[1:] == [f"{walk.names(definition)[0]}x"]
    assert walk.status.status == "Progressing"
    assert walk.reasons[0] == "RepeatChecksStarted"
    for (name,) in CHECKS.values():
        if walk.names(name):
            walk.end(name)
        walk.go()
    assert (walk.status.status, walk.status.current_phase) == ("Succeeded", "Completed")
    assert {name: len(walk.names(name)) for (name,) in CHECKS.values()} == {
        name: 1 + (name == definition) for (name,) in CHECKS.values()
    }


def test_a_request_is_spent_when_its_checks_ran():
    walk = failed_at("migrate")
    for attempt in range(3):
        ask(walk, str(attempt))
        walk.go()
        walk.end("migrate", "Failed")
        walk.go()
        written = len(walk.statuses)
        assert walk.status.status == "Failed"
        walk.go()
        assert (len(walk.names("migrate")), len(walk.statuses)) == (2 + attempt, written)
    assert walk.reasons.count("RepeatChecksStarted") == 3


def test_the_old_result_never_counts_while_the_new_check_cannot_be_created():
    walk = failed_at("migrate")
    ask(walk)
    walk.refused = {("WorkloadPreDeployTasks", "migrate")}
    for _ in range(2):
        walk.go()
        assert walk.status.status == "Progressing"
    walk.refused, walk.undefined = set(), {"migrate"}
    walk.go()
    assert walk.status.status == "Progressing"
    walk.undefined = set()
    walk.go()
    assert len(walk.names("migrate")) == 2


def test_a_definition_that_is_gone_is_reported_and_waited_for():
    walk = failed_at("migrate")
    ask(walk)
    walk.undefined = {"migrate"}
    walk.told.clear()
    for _ in range(2):
        walk.go()
    assert walk.reasons == [
        "RepeatChecksStarted",
        "ReconcileTaskStatusChanged",
        "CreateTaskNotFound",
    ]


def test_of_several_checks_only_the_failed_ones_run_again():
    walk = Walk(workload_version(pre_deployment_tasks=("one", "two", "three")))
    walk.go()
    for name, state in (("one", "Failed"), ("two", "Succeeded"), ("three", "Failed")):
        walk.end(name, state)
    walk.go()
    ask(walk)
    walk.go()
    assert [len(walk.names(name)) for name in ("one", "two", "three")] == [2, 1, 2]


def test_admission_writes_the_user_and_the_failed_checks_whatever_the_request_says():
    version = failed_at("migrate").version
    stored = stamp(labelled(version, by="root", checks="other", reason="fixed"), version)
    notes = {BY: "jane", CHECKS_KEY: "pre-migrate", REASON: "fixed"}
    assert stored.metadata.annotations == notes
    assert is_rerun_wanted(stored)
    # Without a new value of the label, nothing of it changes.
    for change in ({"by": "root"}, {"by": "jane", "checks": "x", "reason": "y"}, {}):
        assert stamp(labelled(stored, **change), stored, "root").metadata.annotations == notes
    again = stamp(labelled(stored, "2", by="jane", checks="x", reason="more"), stored, "joe")
    assert again.metadata.annotations == {**notes, BY: "joe", REASON: "more"}
    assert stamp_operations(stored, stored, "root") == []


@pytest.mark.parametrize(
    "change",
    [
        lambda version: replace(version, metadata=replace(version.metadata, labels={})),
        lambda version: labelled(version, checks="pre-migrate"),
        lambda version: labelled(version, by="jane"),
        lambda version: labelled(version, by="jane", checks="pre-other"),
        lambda version: replace(version, status=replace(version.status, status="Succeeded")),
        lambda version: replace(version, status=replace(version.status, status="Deprecated")),
    ],
)
def test_nothing_is_repeated_without_a_complete_request_for_what_failed(change):
    walk = failed_at("migrate")
    ask(walk)
    walk.version = change(walk.version)
    before = walk.status
    walk.go()
    assert walk.status == before


def test_a_version_that_did_not_fail_names_no_check():
    version = workload_version(**CHECKS)
    stored = stamp(labelled(version), version)
    assert (stored.metadata.annotations[CHECKS_KEY], is_rerun_wanted(stored)) == ("", False)
    assert not checks_to_repeat(version)
