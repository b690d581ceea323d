from __future__ import annotations

import jsonpatch
import msgspec
import pytest
from msgspec.structs import replace

from harbourmaster.api.metadata import Metadata, OwnerReference
from harbourmaster.gates.names import app_version_name, workload_name
from harbourmaster.lifecycle.apps import (
    awaits_context,
    change_operations,
    compose_spec,
    deprecate_all_phases,
    is_managed,
    lacks_workload,
    new_app,
    new_version,
    plan_app,
    short_name,
    version_of,
    version_of_workloads,
)
from harbourmaster.lifecycle.model import (
    App,
    AppContext,
    AppContextSpec,
    AppSpec,
    AppVersion,
    AppVersionSpec,
    AppVersionStatus,
    CurrentVersion,
    ResourceReference,
    Workload,
    WorkloadEntry,
    WorkloadSpec,
)
from harbourmaster.lifecycle.workloads import names_of

API = "lifecycle.keptn.sh/v1"
PODTATO = ("entry", "hat", "left-arm", "left-leg", "right-arm", "right-leg")


def plain(obj):
    """Return an object as it is sent."""
    return msgspec.json.decode(msgspec.json.encode(obj))


def app(version="1.0", generation=1, *, current="", **spec):
    return App(
        metadata=Metadata(name="shop", namespace="prod", uid="a-1", generation=generation),
        spec=AppSpec(version=version, **spec),
        status=CurrentVersion(current_version=current),
    )


def version(text="1.0", generation=1, status="Progressing", uid="a-1"):
    owners = (
        OwnerReference(api_version=API, kind="KeptnApp", name="shop", uid=uid, controller=True),
    )
    return AppVersion(
        metadata=Metadata(
            name=app_version_name("shop", text, generation),
            namespace="prod",
            owner_references=owners if uid else (),
        ),
        spec=AppVersionSpec(app_name="shop", version=text),
        status=AppVersionStatus(status=status, current_phase="AppDeploy"),
    )


def workload(name, text, app="shop"):
    return Workload(
        metadata=Metadata(name=name),
        spec=WorkloadSpec(
            app=app, version=text, resource_reference=ResourceReference(uid="", kind="", name="")
        ),
    )


def deprecates(now, *versions):
    return [plan.metadata.name for plan in plan_app(now, versions).deprecate]


@pytest.mark.parametrize(
    ("generation", "name"),
    [(1, "shop-1.0-6b86b273"), (2, "shop-1.0-d4735e3a"), (3, "shop-1.0-4e074085")],
)
def test_each_generation_has_its_version(generation, name):
    assert version_of(app(generation=generation)) == name
    todo = plan_app(app(generation=generation), [])
    assert (todo.name, todo.create, todo.is_blocked, todo.deprecate) == (name, True, False, ())
    todo = plan_app(app(generation=generation), [version(generation=generation)])
    assert (todo.create, todo.is_blocked) == (False, False)


def test_a_version_of_a_former_app_is_in_the_way():
    todo = plan_app(app(), [version(uid="a-0")])
    assert (todo.create, todo.is_blocked) == (False, True)
    # So is one that a person made, or that lost its owner.
    assert plan_app(app(), [version(uid="")]).is_blocked


@pytest.mark.parametrize("status", ["Pending", "Progressing", "Succeeded", "Failed", "Warning"])
def test_a_restart_ends_all_before_it_of_that_version(status):
    now = app("2.0", 3)
    assert deprecates(now, version("2.0", 2, status), version("2.0", 3)) == ["shop-2.0-d4735e3a"]


@pytest.mark.parametrize(
    ("status", "ends"),
    [("Pending", 1), ("Progressing", 1), ("Succeeded", 0), ("Failed", 0), ("Deprecated", 0)],
)
def test_unfinished_versions_are_superseded_by_another_one(status, ends):
    assert len(deprecates(app("2.0", 2), version("1.0", 1, status))) == ends


def test_what_is_deprecated_or_of_others_is_left_alone():
    now = app("2.0", 2)
    assert deprecates(now, version("1.0", 1, uid="a-0")) == []
    assert deprecates(now, version("2.0", 1, "Deprecated")) == []


def test_a_version_that_was_created_by_hand_is_left_alone():
    by_hand = version("2.0", 7)
    by_hand = replace(by_hand, metadata=replace(by_hand.metadata, name="shop-by-hand"))
    assert deprecates(app("2.0", 8), by_hand) == []


def test_all_states_end_and_the_phase_stays():
    current = plain(deprecate_all_phases(version().status))
    assert current.pop("currentPhase") == "AppDeploy"
    assert set(current.values()) == {"Deprecated"}
    assert len(current) == 7


@pytest.mark.parametrize(("current", "previous"), [("", ""), ("0.9", "0.9"), ("1.0", "")])
def test_a_version_has_the_context_of_its_moment(current, previous):
    entries = (WorkloadEntry(name="a", version="1"),)
    context = AppContext(
        metadata=Metadata(name="shop"),
        spec=AppContextSpec(
            pre_deployment_tasks=("warm",), promotion_tasks=("tell",), metadata={"a": "1"}
        ),
    )
    now = app(current=current, revision=3, workloads=entries)
    created = new_version(now, context)
    assert plain(created) == {
        "metadata": {
            "name": "shop-1.0-6b86b273",
            "namespace": "prod",
            "ownerReferences": [
                {
                    "apiVersion": API,
                    "kind": "KeptnApp",
                    "name": "shop",
                    "uid": "a-1",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "appName": "shop",
            "version": "1.0",
            "revision": 3,
            "workloads": [{"name": "a", "version": "1"}],
            "preDeploymentTasks": ["warm"],
            "promotionTasks": ["tell"],
            "metadata": {"a": "1"},
            **({"previousVersion": previous} if previous else {}),
        },
    }
    bare = new_version(now, None)
    assert (bare.spec.pre_deployment_tasks, bare.spec.metadata) == ((), {})


@pytest.mark.parametrize(
    ("workloads", "expected"),
    [
        (
            [workload(f"podtato-head-podtato-head-{name}", "0.1.0") for name in PODTATO],
            "95a0b0ddca",
        ),
        (
            [workload("my-app-my-workload", "2.0.0"), workload("my-app-my-workload-2", "1.0.0")],
            "2f1832c487",
        ),
        ([workload("shop-b", "2"), workload("shop-a", "1")], "0d12cea1c0"),
        ([workload("shop-a", "7")], "7"),
        ([], "e3b0c44298"),
    ],
)
def test_the_version_of_an_app_of_workloads(workloads, expected):
    assert version_of_workloads(workloads) == expected
    assert version_of_workloads(workloads[::-1]) == expected


def entries(spec):
    return [(workload.name, workload.version) for workload in spec.workloads]


def test_what_was_listed_keeps_its_place():
    before = AppSpec(
        version="x",
        revision=4,
        workloads=tuple(WorkloadEntry(name=name, version="0") for name in ("c", "gone", "a", "c")),
    )
    now = [workload(f"shop-{name}", "1") for name in "abc"]
    spec = compose_spec(now, before)
    assert entries(spec) == [("c", "1"), ("a", "1"), ("b", "1")]
    assert spec.revision == 4
    assert entries(compose_spec(now)) == [("a", "1"), ("b", "1"), ("c", "1")]


def test_an_app_is_changed_only_where_it_differs():
    now = [workload("shop-a", "1"), workload("shop-b", "2")]
    made = new_app("shop", "prod", {"keptn.sh/app-type": "single-service"}, now)
    assert is_managed(made)
    assert made.metadata.annotations == {"keptn.sh/app-type": "single-service"}
    assert change_operations(made, now) == []
    operations = change_operations(made, now[:1])
    after = jsonpatch.apply_patch(plain(made), plain(operations))
    assert after["spec"] == {"version": "1", "workloads": [{"name": "a", "version": "1"}]}


def test_which_app_lacks_a_workload():
    listed = workload("shop-a", "1")
    managed = new_app("shop", "prod", {}, [listed])
    assert lacks_workload(None, listed)
    assert not lacks_workload(managed, listed)
    assert lacks_workload(managed, workload("shop-a", "2"))
    assert lacks_workload(managed, workload("shop-b", "1"))
    assert not lacks_workload(
        replace(managed, metadata=Metadata(name="shop")), workload("shop-b", "1")
    )


@pytest.mark.parametrize("name", ["w", "w-x", "a-w", "w" * 63, "a" * 63])
@pytest.mark.parametrize("length", [1, 63, 240, 250, 253, 300])
def test_a_name_within_an_app_gives_the_workload_again(name, length):
    names = names_of("a" * length, name, "1")
    short = short_name(names.app, names.workload)
    assert workload_name(names.app, short) == names.workload
    if len(names.app) + len(name) < 250:
        assert short == name


@pytest.mark.parametrize(
    ("parent", "is_taken"),
    [
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", True),
        ("00-00000000000000000000000000000000-b7ad6b7169203331-01", False),
        ("not a header", False),
        ("", False),
    ],
)
def test_the_spans_of_an_app_are_below_that_of_its_annotation(parent, is_taken):
    traced = app()
    metadata = replace(traced.metadata, annotations={"traceparent": parent})
    created = new_version(replace(traced, metadata=metadata), None)
    assert created.spec.trace_id == ({"traceparent": parent} if is_taken else {})


def context(*tasks):
    return AppContext(
        metadata=Metadata(name="shop"), spec=AppContextSpec(pre_deployment_tasks=tasks)
    )


def checked_by(*tasks, **fields):
    """An earlier version with a context."""
    earlier = version(**fields)
    return replace(earlier, spec=replace(earlier.spec, pre_deployment_tasks=tasks))


@pytest.mark.parametrize(
    ("given", "earlier", "waits"),
    [
        (None, [], True),
        (context("scan"), [], False),
        (None, [checked_by("scan")], False),
        (None, [checked_by()], False),
        (context("scan"), [checked_by("scan")], True),
        (context("scan"), [checked_by("scan"), checked_by("other")], True),
        (context("scan"), [checked_by("other")], False),
        (context("scan"), [checked_by()], False),
        (context(), [checked_by()], True),
        # Of a former app.
        (None, [checked_by("scan", uid="a-0")], True),
        (context("scan"), [checked_by("scan", uid="a-0")], False),
    ],
)
def test_which_version_waits_for_its_context(given, earlier, waits):
    assert awaits_context(app(generation=2), given, earlier) is waits
