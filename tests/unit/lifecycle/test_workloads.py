from __future__ import annotations

import jsonpatch
import msgspec
import pytest

from harbourmaster.api.metadata import Metadata, OwnerReference
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.model import Workload, WorkloadStatus, WorkloadVersionStatus
from harbourmaster.lifecycle.workload_owners import (
    OTHERS_KEY,
    beside,
    current_versions,
    follow_operations,
    is_to_follow,
)
from harbourmaster.lifecycle.workloads import (
    MOST_OWNERS,
    OWNERS_KEY,
    SINCE_KEY,
    WRITTEN_KEY,
    Rollout,
    approval,
    deployment_timeout,
    desired_workload,
    has_observed,
    is_deployed,
    is_of_former,
    is_version_of,
    names_of,
    new_version,
    new_workload,
    owner_operations,
    recorded_owners,
    sync_operations,
)

API = "lifecycle.keptn.sh/v1"
EARLY, LATE = "2026-03-01T10:00:00Z", "2026-03-01T10:00:01Z"


def plain(obj):
    """Return an object as it is sent."""
    return msgspec.json.decode(msgspec.json.encode(obj))


def owner(uid="rs-1", name="waiter-1", kind="ReplicaSet"):
    return OwnerReference(api_version="apps/v1", kind=kind, name=name, uid=uid, controller=True)


def wish(version="1.0", uid="rs-1", since=EARLY, **more):
    given = {"workload": "waiter", "app": "shop", "version": version, **more}
    annotations = {f"keptn.sh/{key}": value for key, value in given.items()}
    return desired_workload(workload_of(annotations, {}), owner(uid), since)


def as_stored(obj, **metadata):
    """Return an object as the API server keeps it."""
    return msgspec.structs.replace(
        obj, metadata=msgspec.structs.replace(obj.metadata, uid="w-1", **metadata)
    )


def recorded(obj):
    """A workload after the controller recorded its owners in the status."""
    owners = tuple(reference.uid for reference in obj.metadata.owner_references)
    return msgspec.structs.replace(obj, status=WorkloadStatus(owners=owners))


def workload(*arguments, **options):
    return recorded(as_stored(new_workload(wish(*arguments, **options), "prod")))


def version(of_workload, **metadata):
    return as_stored(new_version(of_workload), **metadata)


def patch(obj, operations):
    """The object by its operations."""
    document = jsonpatch.apply_patch(plain(obj), plain(operations))
    patched = msgspec.convert(document, type(obj))
    return recorded(patched) if isinstance(obj, Workload) else patched


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("shop", "waiter", "1.0"), ("shop", "shop-waiter", "shop-waiter-1.0")),
        (
            ("my-app", "front-end", "v1_rc"),
            ("my-app", "my-app-front-end", "my-app-front-end-v1-rc"),
        ),
    ],
)
def test_names(given, expected):
    names = names_of(*given)
    assert (names.app, names.workload, names.version) == expected


def test_names_that_are_too_long_still_are_names():
    names = names_of("a" * 300, "w", "1.0")
    assert [len(name) for name in (names.app, names.workload, names.version)] == [253] * 3
    assert names.app != names_of("a" * 301, "w", "1.0").app


def test_a_workload_is_what_its_pod_says():
    created = new_workload(wish(**{"metadata": "a=1", "pre-deployment-tasks": "t1, t2"}), "prod")
    assert plain(created) == {
        "metadata": {
            "name": "shop-waiter",
            "namespace": "prod",
            "annotations": {SINCE_KEY: EARLY, WRITTEN_KEY: "1.0"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "waiter-1", "uid": "rs-1"}
            ],
        },
        "spec": {
            "app": "shop",
            "version": "1.0",
            "resourceReference": {"uid": "rs-1", "kind": "ReplicaSet", "name": "waiter-1"},
            "preDeploymentTasks": ["t1", "t2"],
            "metadata": {"a": "1"},
        },
    }


@pytest.mark.parametrize(
    ("now", "has_version", "is_followed"),
    [
        # What it says already.
        (wish(), True, False),
        (wish(since=LATE), True, False),
        (wish(), False, False),
        # Another version is made by following it, however old the pod is.
        (wish("2.0"), False, True),
        (wish("2.0", since="2020-01-01T00:00:00Z"), False, True),
        # One that is there counts where the pod is newer: a rollback.
        (wish("2.0", since=LATE), True, True),
        (wish("2.0", since=EARLY), True, False),
        # Of another owner, its revision decides and not its age.
        (wish(uid="rs-2", since=LATE), True, True),
        (wish(uid="rs-2"), True, True),
        (wish(uid="rs-2"), False, True),
        # Other checks of the same version.
        (wish(since=LATE, metadata="a=1"), True, True),
        (wish(metadata="a=1"), True, False),
    ],
)
def test_a_workload_follows_the_newest_pod(now, has_version, is_followed):
    followed = workload()
    there = version(followed) if has_version else None
    assert is_to_follow(followed, there, now) is is_followed


def owner_names(obj):
    return [reference.uid for reference in obj.metadata.owner_references]


@pytest.mark.parametrize("has_pods", [True, False])
def test_following_replaces_the_spec_and_keeps_owners_that_have_pods(has_pods):
    followed = workload()
    followed = msgspec.structs.replace(
        followed,
        metadata=msgspec.structs.replace(
            followed.metadata, annotations={"example.com/a": "b", SINCE_KEY: LATE}
        ),
    )
    newer = wish("2.0", "rs-2", EARLY)
    after = patch(followed, follow_operations(followed, newer, {"rs-1": has_pods}))
    assert after.metadata.annotations == {
        "example.com/a": "b",
        SINCE_KEY: LATE,
        WRITTEN_KEY: "2.0",
    }
    assert owner_names(after) == (["rs-1", "rs-2"] if has_pods else ["rs-2"])
    assert (after.spec.version, current_versions(after)) == ("2.0", ["2.0"])
    assert not is_to_follow(after, version(after), newer)


def test_owners_that_do_not_replace_each_other_keep_their_versions():
    followed = workload()
    second = wish("2.0", "rs-2", LATE)
    after = patch(followed, follow_operations(followed, second, {"rs-2": True}))
    assert after.spec == followed.spec
    assert owner_names(after) == ["rs-1", "rs-2"]
    assert current_versions(after) == ["1.0", "2.0"]
    for settled in (wish(), wish(since=LATE), second, wish("2.0", "rs-2", "2027-01-01T00:00:00Z")):
        assert not is_to_follow(after, version(after), settled)
    created = new_version(beside(after, second))
    assert (created.metadata.name, created.spec.previous_version) == ("shop-waiter-2.0", "")
    assert recorded_owners(created) == ("rs-2",)
    # The version that the workload follows is not created beside it.
    assert beside(after, wish()) is None
    # The second one's next ReplicaSet takes its place, in the version of the first.
    third = wish("1.0", "rs-3", LATE)
    after = patch(after, follow_operations(after, third, {"rs-2": False, "rs-3": True}))
    assert owner_names(after) == ["rs-1", "rs-3"]
    assert current_versions(after) == ["1.0"]
    assert beside(after, third) is None
    # Without the first one, the third is the only owner, and the annotation goes.
    after = patch(
        after, follow_operations(after, wish("4", "rs-4"), {"rs-1": False, "rs-3": False})
    )
    assert (owner_names(after), OTHERS_KEY in after.metadata.annotations) == (["rs-4"], False)


def test_what_nobody_can_read_in_the_annotation_counts_as_nothing():
    spoilt = as_stored(new_workload(wish(), "prod"), annotations={OTHERS_KEY: "rs-2"})
    assert current_versions(spoilt) == ["1.0"]
    # Nor do owners that the API server does not know.
    listed = '{"rs-9":["9.0",""]}'
    forged = as_stored(new_workload(wish(), "prod"), annotations={OTHERS_KEY: listed})
    assert current_versions(forged) == ["1.0"]


def test_after_the_end_of_its_owner_a_workload_follows_another_one():
    second = wish("2.0", "rs-2", LATE, metadata="a=1")
    both = patch(workload(), follow_operations(workload(), second, {"rs-2": True}))
    left = as_stored(both, owner_references=both.metadata.owner_references[1:])
    assert current_versions(left) == ["2.0"]
    # The next pod, replaced or scaled, makes it so; the versions stay as they are.
    assert is_to_follow(left, version(left), second)
    after = patch(left, follow_operations(left, second, {"rs-2": True}))
    assert (after.spec, current_versions(after)) == (second.spec, ["2.0"])
    assert OTHERS_KEY not in after.metadata.annotations
    assert not is_to_follow(after, version(after), second)
    # Without others, the one that is gone counts, until the workload goes.
    last = as_stored(workload(), owner_references=())
    assert current_versions(last) == ["1.0"]


def test_a_workload_of_keptn_has_no_annotation():
    bare = as_stored(workload(), annotations={})
    assert is_to_follow(bare, version(bare), wish(uid="rs-2"))
    after = patch(bare, follow_operations(bare, wish(uid="rs-2"), {"rs-1": False}))
    assert after.metadata.annotations == {SINCE_KEY: EARLY, WRITTEN_KEY: "1.0"}
    after = patch(bare, follow_operations(bare, wish(uid="rs-2"), {}))
    assert list(after.metadata.annotations) == [OTHERS_KEY]


def test_a_version_has_its_workloads_spec():
    created = new_version(workload("V1_RC"))
    assert plain(created) == {
        "metadata": {
            "name": "shop-waiter-v1-rc",
            "namespace": "prod",
            "annotations": {OWNERS_KEY: "rs-1", WRITTEN_KEY: "V1_RC"},
            "ownerReferences": [
                {
                    "apiVersion": API,
                    "kind": "KeptnWorkload",
                    "name": "shop-waiter",
                    "uid": "w-1",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "app": "shop",
            "version": "v1_rc",
            "workloadName": "shop-waiter",
            "resourceReference": {"uid": "rs-1", "kind": "ReplicaSet", "name": "waiter-1"},
        },
    }


@pytest.mark.parametrize(("current", "previous"), [("", ""), ("0.9", "0.9"), ("1.0", "")])
def test_the_previous_version(current, previous):
    upgraded = msgspec.structs.replace(
        workload(), status=msgspec.convert({"currentVersion": current}, type(workload().status))
    )
    assert new_version(upgraded).spec.previous_version == previous


def test_a_version_follows_the_spec_and_keeps_what_is_its_own():
    before = version(workload())
    before = msgspec.structs.replace(
        before,
        spec=msgspec.structs.replace(before.spec, previous_version="0.9", trace_id={"a": "b"}),
    )
    now = workload(uid="rs-2", metadata="a=1")
    after = patch(before, sync_operations(before, now))
    assert after.spec.metadata == {"a": "1"}
    assert (after.spec.previous_version, after.spec.trace_id) == ("0.9", {"a": "b"})
    assert after.spec.resource_reference.uid == "rs-2"
    assert recorded_owners(after) == ("rs-1", "rs-2")
    assert sync_operations(after, now) == []


def test_sixteen_owners_are_recorded_and_the_present_one_always():
    current = version(workload())
    for number in range(2, 40):
        operations = owner_operations(current, (*recorded_owners(current), f"rs-{number}"))
        assert len(operations) == 1
        current = patch(current, operations)
    owners = recorded_owners(current)
    assert len(owners) == MOST_OWNERS
    assert owners[-1] == "rs-39"
    assert "rs-1" in owners
    current = patch(current, owner_operations(current, (*owners, "rs-30")))
    assert current.metadata.annotations[OWNERS_KEY].split(",")[-1] == "rs-30"
    assert current.metadata.annotations[OWNERS_KEY].split(",").count("rs-30") == 1


def test_owners_of_a_version_of_keptn():
    current = version(workload(), annotations={})
    assert recorded_owners(current) == ("rs-1",)
    after = patch(current, owner_operations(current, ("rs-1", "rs-2")))
    assert recorded_owners(after) == ("rs-1", "rs-2")


def test_whose_version_it_is():
    current = version(workload())
    assert is_version_of(current, "shop", "shop-waiter", "1.0")
    assert not is_version_of(current, "shop-waiter", "shop-waiter", "1.0")
    assert not is_version_of(current, "shop", "shop-waiter", "1_0")
    assert not is_of_former(current, workload())
    assert is_of_former(current, as_stored(workload(), resource_version="7")) is False
    recreated = msgspec.structs.replace(
        workload(), metadata=Metadata(name="shop-waiter", uid="w-2")
    )
    assert is_of_former(current, recreated)
    orphan = as_stored(current, owner_references=())
    assert not is_of_former(orphan, recreated)


def test_what_a_version_says_of_its_pods():
    checked = msgspec.structs.replace(
        version(workload()),
        status=WorkloadVersionStatus(
            pre_deployment_status="Warning",
            pre_deployment_evaluation_status="Succeeded",
            deployment_status="Progressing",
        ),
    )
    said = approval(checked)
    assert (said.pre_tasks, said.pre_evaluations, said.deployment, said.owners) == (
        "Warning",
        "Succeeded",
        "Progressing",
        {"rs-1"},
    )


def rollout(**fields):
    ready = {"generation": 2, "observed_generation": 2, "wanted": 3, "ready": 3, "updated": 3}
    return Rollout(**{**ready, **fields})


@pytest.mark.parametrize(
    ("fields", "result"),
    [
        ({}, True),
        ({"ready": 2}, False),
        ({"ready": 4}, False),
        ({"updated": 2}, False),
        ({"updated": 4}, True),
        ({"observed_generation": 1}, False),
        ({"observed_generation": 3}, True),
        ({"observed_generation": None}, False),
        ({"is_healthy": False}, False),
        ({"is_superseded": True}, False),
        ({"wanted": 0, "ready": 0, "updated": 0}, True),
        ({"wanted": 0, "ready": 0, "updated": 0, "is_superseded": True}, False),
    ],
)
def test_all_pods_must_be_ready_and_of_the_newest_template(fields, result):
    assert is_deployed(rollout(**fields)) is result


@pytest.mark.parametrize(
    ("observed", "result"),
    [("2", True), ("1", False), ("10", True), ("6c9d8f", True), ("", False), (None, False)],
)
def test_argo_writes_its_generation_as_text(observed, result):
    assert has_observed(2, observed) is result


def test_a_time_out_of_the_deployment_goes_from_the_pod_to_the_version_and_away_again():
    key = "gates.harbourmaster.dev/deployment-timeout"

    def timed(timeout, uid):
        annotations = {"keptn.sh/workload": "waiter", "keptn.sh/app": "shop"}
        annotations |= {"keptn.sh/version": "1.0", key: timeout}
        return desired_workload(workload_of(annotations, {}), owner(uid), EARLY)

    followed = recorded(as_stored(new_workload(timed("10m", "rs-1"), "prod")))
    current = version(followed)
    assert deployment_timeout(current) == 600
    for uid, timeout, seconds in (("rs-2", "1h", 3600), ("rs-3", "", None)):
        former = {followed.spec.resource_reference.uid: False}
        followed = patch(followed, follow_operations(followed, timed(timeout, uid), former))
        current = patch(current, sync_operations(current, followed))
        assert deployment_timeout(current) == seconds
