"""Apps in any order of events: the same versions, and never more than one that goes on."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from harbourmaster.api.metadata import Metadata
from harbourmaster.gates.names import app_version_name
from harbourmaster.lifecycle.apps import (
    compose_spec,
    deprecate_all_phases,
    new_version,
    plan_app,
    short_name,
    version_of_workloads,
)
from harbourmaster.lifecycle.model import (
    App,
    AppSpec,
    AppVersionStatus,
    CurrentVersion,
    ResourceReference,
    Workload,
    WorkloadEntry,
    WorkloadSpec,
)
from helpers.properties import cases

NAMES = st.from_regex(r"[a-z][a-z0-9]{0,4}(-[a-z0-9]{1,3}){0,2}", fullmatch=True)
VERSIONS = st.sampled_from(["1", "2", "3.0"])
STATES = st.sampled_from(["Pending", "Progressing", "Succeeded", "Failed", "Warning"])


def workload(name, version):
    return Workload(
        metadata=Metadata(name=f"shop-{name}"),
        spec=WorkloadSpec(
            app="shop",
            version=version,
            resource_reference=ResourceReference(uid="", kind="", name=""),
        ),
    )


def app(version, generation, current):
    return App(
        metadata=Metadata(name="shop", namespace="prod", uid="a", generation=generation),
        spec=AppSpec(version=version),
        status=CurrentVersion(current_version=current),
    )


WORKLOADS = st.dictionaries(NAMES, VERSIONS, max_size=5)


@settings(max_examples=cases(500))
@given(WORKLOADS, st.data())
def test_an_app_does_not_depend_on_the_order_in_which_workloads_are_listed(versions_by_name, data):
    listed = [workload(name, version) for name, version in versions_by_name.items()]
    shuffled = data.draw(st.permutations(listed))
    assert compose_spec(listed) == compose_spec(shuffled)
    assert version_of_workloads(listed) == version_of_workloads(shuffled)
    assert {(part.name, part.version) for part in compose_spec(shuffled).workloads} == set(
        versions_by_name.items()
    )


@settings(max_examples=cases(500))
@given(WORKLOADS, st.lists(st.tuples(NAMES, VERSIONS), max_size=5))
def test_bringing_an_app_up_to_date_twice_changes_nothing(versions_by_name, before):
    listed = [workload(name, version) for name, version in versions_by_name.items()]
    entries = tuple(WorkloadEntry(name=name, version=version) for name, version in before)
    once = compose_spec(listed, AppSpec(version="x", workloads=entries))
    assert compose_spec(listed, once) == once
    assert {(part.name, part.version) for part in once.workloads} == set(versions_by_name.items())
    kept = [name for name, _ in before if name in versions_by_name]
    assert [part.name for part in once.workloads][: len(set(kept))] == list(dict.fromkeys(kept))


@settings(max_examples=cases(300))
@given(NAMES, NAMES)
def test_a_workload_has_its_short_name(app_name, name):
    assert short_name(app_name, f"{app_name}-{name}") == name


@settings(max_examples=cases(500))
@given(
    st.lists(VERSIONS, min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), STATES), max_size=8),
    st.data(),
)
def test_at_the_end_only_the_last_generation_goes_on(history, ends, data):
    """Generations come one after the other; some of them are never seen, and versions end."""
    versions, current = {}, ""
    last = len(history)
    seen = data.draw(st.lists(st.integers(1, last), unique=True))
    for generation in [*sorted({*seen} - {last}), last]:
        now = app(history[generation - 1], generation, current)
        for at, state in ends:
            name = sorted(versions)[at] if at < len(versions) else None
            if name and not versions[name].status.is_finished:
                status = replace(versions[name].status, status=state)
                versions[name] = replace(versions[name], status=status)
        todo = plan_app(now, data.draw(st.permutations(list(versions.values()))))
        assert not todo.is_blocked
        assert todo.create
        versions[todo.name] = new_version(now, None)
        before = dict(versions)
        for outdated in todo.deprecate:
            name = outdated.metadata.name
            versions[name] = replace(
                versions[name], status=deprecate_all_phases(versions[name].status)
            )
        # Nothing is left to do, and what was finished of other versions stayed.
        again = plan_app(now, versions.values())
        assert not again.create
        assert again.deprecate == ()
        for name, outdated in before.items():
            if outdated.status.is_finished and outdated.spec.version != now.spec.version:
                assert versions[name] == outdated
        current = now.spec.version
    going = [name for name, version in versions.items() if not version.status.is_finished]
    assert going == [app_version_name("shop", history[-1], last)]
    assert versions[going[0]].status == AppVersionStatus()
    # A look by an older generation, as a new leader may have it, ends nothing that is later.
    if last > 1:
        older = app(history[-2], last - 1, current)
        names = [version.metadata.name for version in plan_app(older, versions.values()).deprecate]
        assert app_version_name("shop", history[-1], last) not in names
