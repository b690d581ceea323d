"""Fields that other clients own, Jobs that finished, and what is applied (krake-spec 7.8)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.placement.inventory import ObjectRef, Observation
from harbourmaster.placement.live_fields import (
    RUN_AGAIN,
    IgnoredFields,
    digest,
    is_done,
    is_scaled,
    leave_fields,
    observe,
    pointers_for,
    relies_on_owners,
    without_ttl,
)
from harbourmaster.placement.manifests import FIELD_MANAGER, Item

REF = ObjectRef(api_version="apps/v1", kind="Deployment", namespace="shop", name="web")
REPLICAS = {"f:spec": {"f:replicas": {}}}
POINTER = "/spec/replicas"


def body(replicas=2, **spec):
    spec = {**({} if replicas is None else {"replicas": replicas}), **spec}
    return {"kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def owned(fields, manager="hpa", operation="Update", subresource=""):
    entry = {"manager": manager, "operation": operation, "fieldsV1": fields}
    return {**entry, "subresource": subresource} if subresource else entry


def ours(fields):
    return owned(fields, FIELD_MANAGER, "Apply")


SCALED = owned(REPLICAS, subresource="scale")
OBSERVED = Observation(
    api_version="apps/v1", kind="Deployment", namespace="shop", name="web", replicas=2, scaled=6
)
CHANGED = msgspec.structs.replace(OBSERVED, replicas=3)


@pytest.mark.parametrize(
    ("fields", "observation", "force", "replicas"),
    [
        pytest.param([], None, True, 2, id="new"),
        pytest.param([ours(REPLICAS)], None, True, 2, id="ours"),
        pytest.param([SCALED], None, True, None, id="scaled before anything was observed"),
        pytest.param([SCALED], OBSERVED, True, None, id="scaled"),
        pytest.param([SCALED], CHANGED, True, 2, id="changed"),
        pytest.param([SCALED], CHANGED, False, None, id="not by force"),
        pytest.param([], OBSERVED, True, 6, id="new after a move"),
        pytest.param([ours(REPLICAS)], OBSERVED, True, 6, id="ours after a move"),
        pytest.param([], CHANGED, True, 2, id="changed and moved"),
    ],
)
def test_replicas_are_left_to_whoever_scales(fields, observation, force, replicas):
    left = leave_fields(body(), [POINTER], fields, observation, force=force)
    assert left == body(replicas)


def test_only_the_subresource_of_somebody_else_scales():
    assert is_scaled([SCALED])
    assert not is_scaled([owned(REPLICAS)])
    assert not is_scaled([owned(REPLICAS, FIELD_MANAGER, subresource="scale")])
    assert not is_scaled([owned({"f:spec": {"f:paused": {}}}, subresource="scale")])


@pytest.mark.parametrize(
    ("replicas", "fields", "relies"),
    [
        pytest.param(2, [], True, id="free"),
        pytest.param(2, [ours(REPLICAS)], True, id="ours"),
        pytest.param(2, [SCALED], False, id="taken from its owner"),
        pytest.param(None, [SCALED], False, id="left to its owner"),
    ],
)
def test_a_body_relies_on_the_owners_of_the_fields_that_others_may_take(replicas, fields, relies):
    assert relies_on_owners(body(replicas), [POINTER], fields) == relies
    assert relies_on_owners(body(replicas, paused=True), [POINTER, "/spec/paused"], fields)


CONTAINER = {"f:resources": {"f:limits": {"f:memory": {}}}}
TEMPLATE = {"f:spec": {"f:containers": {'k:{"name":"web"}': CONTAINER}}}


@pytest.mark.parametrize(
    ("pointer", "fields"),
    [
        ("/spec/template/spec/containers/1/resources/limits/memory", {"f:template": TEMPLATE}),
        ("/spec/template/spec/containers/1/resources", {"f:template": TEMPLATE}),
        ("/spec/a~1b", {"f:a/b": {}}),
        ("/spec/atomic/deep", {"f:atomic": {}}),
    ],
)
def test_an_ignored_field_is_left_out_when_somebody_else_owns_it(pointer, fields):
    containers = [{"name": "sidecar"}, {"name": "web", "resources": {"limits": {"memory": "1Gi"}}}]
    spec = {"template": {"spec": {"containers": containers}}, "a/b": 1, "atomic": {"deep": 1}}
    whole = body(**spec)
    entry = {"f:spec": fields}
    left = leave_fields(whole, [pointer], [owned(entry)])
    assert left != whole
    assert "memory" not in str(left) or pointer.startswith(("/spec/a~", "/spec/atomic"))
    assert leave_fields(whole, [pointer], [owned(entry), ours(entry)]) == whole
    assert leave_fields(whole, [pointer], []) == whole
    assert leave_fields(whole, [pointer], [owned({"f:spec": {"f:paused": {}}})]) == whole


def test_pointers_are_about_a_kind_and_perhaps_a_group_or_name():
    item = Item(REF, body(None))
    pointers = ("/spec/paused",)
    for entry, covers in (
        (IgnoredFields(kind="Deployment", pointers=pointers), True),
        (IgnoredFields(kind="Deployment", group="apps", name="web", pointers=pointers), True),
        (IgnoredFields(kind="Deployment", group="", pointers=pointers), False),
        (IgnoredFields(kind="Deployment", name="db", pointers=pointers), False),
        (IgnoredFields(kind="StatefulSet", pointers=pointers), False),
    ):
        assert pointers_for(item, [entry]) == (pointers if covers else ())
    assert pointers_for(Item(REF, body()), []) == (POINTER,)


paths = st.lists(st.sampled_from(["spec", "replicas", "a", "0", "-1", "99", ""]), max_size=5)
trees = st.recursive(
    st.none() | st.integers() | st.just({}),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["f:spec", "f:replicas", "spec", "a", 'k:{"name":"web"}']), inner
        )
    ),
    max_leaves=8,
)


@given(trees, trees, paths)
def test_malformed_objects_and_fields_do_not_crash(value, fields, path):
    manifest = {"metadata": {"name": "web"}, "spec": value}
    left = leave_fields(manifest, ["/" + "/".join(path)], [owned(fields), {}])
    assert left["metadata"] == {"name": "web"}


JOB = Item(
    ObjectRef(api_version="batch/v1", kind="Job", namespace="shop", name="migrate"),
    {"kind": "Job", "metadata": {"name": "migrate"}, "spec": {"template": {}}},
)


def test_only_a_job_is_applied_without_its_ttl():
    spec = {"template": {}, "ttlSecondsAfterFinished": 0}
    assert without_ttl(Item(JOB.ref, {**JOB.body, "spec": spec})) == JOB.body
    assert without_ttl(JOB) == JOB.body
    assert without_ttl(Item(JOB.ref, {**JOB.body, "spec": None}))["spec"] is None
    web = Item(REF, body(ttlSecondsAfterFinished=0))
    assert without_ttl(web) == web.body


def finished_on(cluster, item=JOB):
    observations = observe({}, cluster, [item], [item.ref.key], {})
    return observations[item.ref.key]


def test_a_job_that_finished_is_done_until_its_manifest_changes():
    observation = finished_on("one")
    assert is_done(JOB, observation, "one")
    assert is_done(JOB, observation, "two")
    assert not is_done(JOB, None, "one")
    changed = Item(JOB.ref, {**JOB.body, "spec": {"template": {"a": "b"}}})
    assert not is_done(changed, observation, "one")


def test_a_job_runs_again_on_another_cluster_if_its_manifest_asks_for_it():
    metadata = {"name": "migrate", "annotations": {RUN_AGAIN: "Move"}}
    again = Item(JOB.ref, {**JOB.body, "metadata": metadata})
    observation = finished_on("one", again)
    assert is_done(again, observation, "one")
    assert not is_done(again, observation, "two")


def test_observations_last_as_long_as_they_are_about_the_manifests():
    web = Item(REF, body())
    seen = observe({}, "one", [web, JOB], [JOB.ref.key], {REF.key: 6})
    assert seen[REF.key] == OBSERVED
    assert seen[JOB.ref.key].finished == digest(JOB.body)
    assert observe(seen, "two", [web, JOB], [], {}) == seen
    assert observe(seen, "two", [Item(REF, body(4))], [], {}) == {}
    assert observe({}, "one", [web, JOB], [], {}) == {}
