"""The announcement of a cleanup names the objects that it deletes and keeps."""

from __future__ import annotations

from harbourmaster.placement.cleanup_texts import (
    NAMED,
    describe_abandoned,
    describe_cleanup,
    describe_move,
)
from harbourmaster.placement.inventory import ADOPTED, MADE, ObjectRef
from harbourmaster.placement.rollout import Record


def ref(kind, name, origin=MADE):
    version = "apps/v1" if kind == "Deployment" else "v1"
    return ObjectRef(api_version=version, kind=kind, name=name, namespace="shop", origin=origin)


CONFIG = ref("ConfigMap", "a")
CLAIM = ref("PersistentVolumeClaim", "data")
WEB = ref("Deployment", "web")
THEIRS = ref("ConfigMap", "theirs", ADOPTED)


def test_volumes_come_first_and_what_existed_before_is_kept():
    assert describe_cleanup((CONFIG, CLAIM, THEIRS, WEB)) == (
        "deletes PersistentVolumeClaim shop/data, Deployment shop/web, ConfigMap shop/a; "
        "keeps ConfigMap shop/theirs, which existed before"
    )


def test_what_has_no_origin_is_not_promised():
    text = "deletes ConfigMap shop/old, unless others created them"
    assert describe_cleanup((ref("ConfigMap", "old", ""),)) == text
    assert describe_cleanup(()) == "deletes nothing"


def test_many_objects_are_counted():
    text = describe_cleanup(tuple(ref("ConfigMap", f"n{number:03}") for number in range(NAMED + 5)))
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
