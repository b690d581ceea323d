from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.placement.inventory import ObjectRef, merge, with_objects, without
from helpers.member_clusters import ref

refs = st.builds(ref, st.sampled_from("abc"), st.sampled_from(["x", "y"]))
inventories = st.lists(refs, unique_by=lambda reference: reference.key).map(tuple)


def keys(inventory):
    return {reference.key for reference in inventory}


def test_an_object_is_the_same_in_each_version_of_its_group():
    old = ref("web", kind="Deployment", version="apps/v1beta1")
    new = ref("web", kind="Deployment", version="apps/v1")
    assert without([old], [new]) == ()
    assert merge([old], [new]) == (new,)
    assert without([ref("web", kind="Deployment", version="example.com/v1")], [new])


def test_a_uid_is_kept_until_another_is_known():
    known = ref("web").__class__(api_version="v1", kind="ConfigMap", name="a", uid="1")
    unknown = known.__class__(api_version="v1", kind="ConfigMap", name="a")
    recreated = known.__class__(api_version="v1", kind="ConfigMap", name="a", uid="2")
    assert merge([known], [unknown])[0].uid == "1"
    assert merge([known], [recreated])[0].uid == "2"


def test_an_origin_belongs_to_its_uid():
    base = {"api_version": "v1", "kind": "ConfigMap", "name": "a"}
    known = ObjectRef(**base, uid="1", origin="Adopted")
    assert merge([known], [ObjectRef(**base)])[0].origin == "Adopted"
    ref = ObjectRef(**base, uid="2", origin="Made")
    assert merge([known], [ref]) == (ref,)


def test_texts():
    assert ref("web", "shop", "Deployment", "apps/v1").text == "Deployment shop/web"
    assert ref("shop", "", "Namespace").text == "Namespace shop"


def test_a_cluster_without_objects_has_no_entry():
    first, two = (ref("one"),), (ref("two"),)
    assert with_objects({"a": first}, "b", two) == {"a": first, "b": two}
    assert with_objects({"a": first, "b": two}, "a", ()) == {"b": two}
    assert with_objects({}, "a", ()) == {}


@given(inventories, inventories)
def test_stale_and_wanted_objects_are_all_objects(recorded, desired):
    rest = without(recorded, desired)
    assert keys(rest) == keys(recorded) - keys(desired)
    assert keys(merge(recorded, desired)) == keys(recorded) | keys(desired)
    assert keys(without(merge(recorded, desired), rest)) == keys(desired)
