from __future__ import annotations

import msgspec
import pytest

from harbourmaster.api.metadata import Metadata
from harbourmaster.placement.deployed import (
    ALLOW_COPY,
    NAMED,
    DeployedApplication,
    DeployedStatus,
    Secret,
    SecretCopy,
    copy_of,
    describe_abandoned,
    describe_cleanup,
    describe_move,
    fields_of,
    record_of,
    refusal,
)
from harbourmaster.placement.inventory import ADOPTED, MADE, ObjectRef
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


def recorded_ref(kind, name, origin=MADE):
    version = "apps/v1" if kind == "Deployment" else "v1"
    return ObjectRef(api_version=version, kind=kind, name=name, namespace="shop", origin=origin)


CONFIG = recorded_ref("ConfigMap", "a")
CLAIM = recorded_ref("PersistentVolumeClaim", "data")
WEB = recorded_ref("Deployment", "web")
THEIRS = recorded_ref("ConfigMap", "theirs", ADOPTED)


def test_volumes_come_first_and_what_existed_before_is_kept():
    assert describe_cleanup((CONFIG, CLAIM, THEIRS, WEB)) == (
        "deletes PersistentVolumeClaim shop/data, Deployment shop/web, ConfigMap shop/a; "
        "keeps ConfigMap shop/theirs, which existed before"
    )


def test_what_has_no_origin_is_not_promised():
    text = "deletes ConfigMap shop/old, unless others created them"
    assert describe_cleanup((recorded_ref("ConfigMap", "old", ""),)) == text
    assert describe_cleanup(()) == "deletes nothing"


def test_many_objects_are_counted():
    text = describe_cleanup(
        tuple(recorded_ref("ConfigMap", f"n{number:03}") for number in range(NAMED + 5))
    )
    assert text.count("ConfigMap") == NAMED
    assert text.endswith(" and 5 more")


def test_a_move_names_what_goes_from_each_other_cluster():
    before = Record(
        scheduled_to="two",
        running_on="one",
        inventory={"one": (CLAIM, THEIRS), "two": (CONFIG,), "zero": (WEB,)},
    )
    assert describe_move(before, "two") == (
        "from cluster one to two; on one: deletes PersistentVolumeClaim shop/data; keeps "
        "ConfigMap shop/theirs, which existed before; on zero: deletes Deployment shop/web"
    )


def test_a_cluster_that_is_given_up_is_told_with_what_is_there():
    before = Record(inventory={"one": (WEB,)}, pending={"lost": (CLAIM, CONFIG)})
    later = Record(pending={"one": (WEB,), "lost": (CLAIM, CONFIG)})
    assert list(describe_abandoned(before, later)) == [
        "once cluster one is reachable: deletes Deployment shop/web"
    ]
    text = "these stay there: PersistentVolumeClaim shop/data, ConfigMap shop/a"
    assert list(describe_abandoned(later, Record(pending={"one": (WEB,)}))) == [
        f"Cluster lost does not exist, so {text}"
    ]


APP = Metadata(name="shop", namespace="team")


def secret(allowed=None, name="db"):
    annotations = {} if allowed is None else {ALLOW_COPY: allowed}
    labels = {"a": "b"}
    metadata = Metadata(name=name, namespace="team", annotations=annotations, labels=labels)
    return Secret(metadata, "example.com/login", {"password": "c2VjcmV0"})


@pytest.mark.parametrize("allowed", ["shop", "*", "other, shop", "shop,other", " shop "])
def test_a_secret_that_names_the_application_is_copied(allowed):
    assert refusal(APP, secret(allowed), []) == ""


@pytest.mark.claim("P7")
@pytest.mark.parametrize(
    ("allowed", "names"),
    [(None, "shop"), ("", "shop"), ("other", "other,shop"), ("shop2,sh*", "shop2,sh*,shop")],
)
def test_any_other_is_refused_with_the_command_that_allows_it(allowed, names):
    assert refusal(APP, secret(allowed), []) == (
        "Secret team/db does not allow this application to copy it: run kubectl annotate "
        "--overwrite secret db -n team "
        f"placement.harbourmaster.dev/allow-copy={names}"
    )


@pytest.mark.claim("P7")
def test_a_kubeconfig_is_never_copied():
    assert refusal(APP, secret("*"), ["one"]) == (
        "Secret team/db has the kubeconfig of Cluster one, which is never copied: use another "
        "Secret"
    )


def test_a_copy_has_the_values_and_the_type_and_no_labels_or_annotations():
    assert copy_of(SecretCopy(name="db"), secret("*")) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "db"},
        "type": "example.com/login",
        "data": {"password": "c2VjcmV0"},
    }
    there = SecretCopy(name="db", target_name="login", target_namespace="shop")
    assert copy_of(there, secret("*"))["metadata"] == {"name": "login", "namespace": "shop"}
