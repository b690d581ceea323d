from __future__ import annotations

import msgspec

from harbourmaster.placement.deployed import (
    DeployedApplication,
    DeployedStatus,
    fields_of,
    record_of,
)
from harbourmaster.placement.model import TargetReference
from harbourmaster.placement.rollout import Migration, Record
from helpers.member_clusters import ref

RECORD = Record(
    scheduled_to="a",
    running_on="b",
    inventory={"a": (ref("one"),), "b": (ref("two", "", "Namespace"),)},
    pending={"c": (ref("three"),)},
    migration=Migration(to="a", since=1_800_000_000.0, failures=2, suspended_until=1_800_000_060.0),
)


def stored_status(record, status, **references):
    """Return the status after a merge patch, as the API server stores it."""
    fields = msgspec.json.decode(msgspec.json.encode(fields_of(record, status, references)))
    given = msgspec.to_builtins(status)
    merged = {**given, **fields}
    return msgspec.convert({k: v for k, v in merged.items() if v is not None}, DeployedStatus)


def test_a_record_comes_back_as_it_was_written():
    deployed = stored_status(RECORD, DeployedStatus())
    assert record_of(deployed) == RECORD
    assert record_of(stored_status(Record(), deployed)) == Record()


def test_an_origin_is_written_where_there_is_one():
    plain, made = ref("one"), msgspec.structs.replace(ref("two"), uid="1", origin="Made")
    record = Record(inventory={"a": (plain, made)})
    (entry,) = fields_of(record, DeployedStatus(), {})["inventory"]
    assert [obj.get("origin") for obj in msgspec.to_builtins(entry)["objects"]] == [None, "Made"]
    assert record_of(stored_status(record, DeployedStatus())) == record


def test_where_it_is_scheduled_is_written_only_where_that_changes():
    status = DeployedStatus(scheduled_to=TargetReference(name="a", uid="1"))
    assert "scheduledTo" not in fields_of(RECORD, status, {})
    back = msgspec.structs.replace(RECORD, scheduled_to="b")
    fields = fields_of(back, status, {"b": TargetReference(name="b", uid="2")})
    assert fields["scheduledTo"] == TargetReference(name="b", uid="2")


def test_an_application_as_people_write_it():
    raw = {
        "metadata": {"name": "x", "namespace": "y", "finalizers": ["a"], "generation": 3},
        "spec": {"manifests": [{"kind": "A"}, 1], "constraints": {"cluster": None}},
    }
    deployed = msgspec.convert(raw, DeployedApplication)
    assert deployed.metadata.key == "y/x"
    assert deployed.metadata.finalizers == ("a",)
    assert (deployed.spec.migration_order, deployed.spec.conflict_policy) == (
        "DeleteFirst",
        "Force",
    )
    assert record_of(deployed.status) == Record()


def test_invalid_times_are_ignored():
    status = DeployedStatus(migration_to="a", migration_start_time="soon")
    assert record_of(status).migration == Migration(to="a")
