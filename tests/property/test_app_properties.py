"""Apps and tasks: whatever the order of events, the same versions and the same Jobs."""

from __future__ import annotations

import json
import re

import pytest
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
from harbourmaster.lifecycle.functions import Function, Missing, Unusable, resolve
from harbourmaster.lifecycle.jobs import job_name, literal
from harbourmaster.lifecycle.model import (
    App,
    AppSpec,
    AppVersionStatus,
    CurrentVersion,
    ResourceReference,
    Workload,
    WorkloadEntry,
    WorkloadSpec,
    WorkloadVersionStatus,
)
from harbourmaster.lifecycle.tasks import check_name, go_json, task_for
from helpers.phased import app_version, workload_version
from helpers.properties import TIMEOUT, cases
from helpers.tasks import (
    definition,
    environment,
    expand_variables,
    find_in,
    job,
    read,
    task,
)

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


many = settings(max_examples=cases(5000))
some = settings(max_examples=cases(1000))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT)]

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
texts = st.text(st.one_of(st.sampled_from("$()`{}\n<>&\u2028'\""), st.characters(codec="utf-8")))
parts = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,80}[a-z0-9])?", fullmatch=True)
names = (
    st.lists(parts, min_size=1, max_size=6).map(".".join).map(lambda name: name[:253].strip("-."))
)
dictionaries = st.dictionaries(texts, texts, max_size=4)
VARIABLES = {"DATA": "leaked", "KEPTN_CONTEXT": "leaked", "": "leaked", "HOME": "leaked"}


@many
@given(text=texts)
def test_the_kubelet_gives_every_text_back_as_it_was(text):
    assert expand_variables(literal(text), VARIABLES) == text


@many
@given(value=dictionaries)
def test_json_is_go_s_and_says_the_same(value):
    text = go_json(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028\u2029\n") & set(text)


@some
@given(name=names, previous=st.one_of(st.just(""), names))
def test_a_jobs_name_is_always_valid(name, previous):
    made_name = job_name(read(task(name)), previous)
    assert len(made_name) <= 63
    assert SUBDOMAIN.fullmatch(made_name)


@some
@given(name=names, check=st.sampled_from(["pre", "post", "promotion"]), previous=names)
def test_a_tasks_name_is_always_valid(name, check, previous):
    made_name = check_name("uid", check, name, previous)
    assert len(made_name) <= 253
    assert SUBDOMAIN.fullmatch(made_name)
    assert made_name.startswith(f"{check}-")


@some
@given(
    own=dictionaries,
    inherited=dictionaries,
    carrier=dictionaries,
    timeout=texts,
    labels=dictionaries,
)
def test_a_task_is_made_of_anything(own, inherited, carrier, timeout, labels):
    by = read(definition(timeout=timeout, labels=labels))
    app = app_version(metadata=own)
    status = WorkloadVersionStatus(app_context_metadata=inherited)
    workload = workload_version(metadata=own, status=status)
    for parent, merged in ((app, own), (workload, {**inherited, **own})):
        made = task_for(parent, by, "pre", carrier=carrier)
        metadata = made["spec"]["context"].get("metadata", {})
        assert metadata == {**merged, **carrier}
        assert list(metadata) == sorted(metadata)


@some
@given(
    parameters=dictionaries,
    metadata=dictionaries,
    command=texts,
    url=texts.filter(bool),
    name=texts,
)
def test_s28_a_job_differs_by_values_only(parameters, metadata, command, url, name):
    spec = {"httpRef": {"url": url}, "parameters": {"map": parameters}, "cmdParameters": command}
    context = {"workloadName": name, "appName": name, "metadata": metadata}
    created = job(definition(deno=spec), context=context)
    values = {
        variable["name"]: expand_variables(variable["value"], VARIABLES)
        for variable in environment(created)
    }
    assert json.loads(values.pop("DATA", "{}")) == parameters
    assert json.loads(values.pop("KEPTN_CONTEXT"))["appName"] == name
    assert values == {"CMD_ARGS": command, "SCRIPT": url}
    plain = job(definition(deno={"httpRef": {"url": "u"}}))
    for obj in (created, plain):
        obj["spec"]["template"]["spec"]["containers"][0].pop("env")
        obj["metadata"].pop("annotations")
    assert created == plain


links = st.lists(
    st.tuples(st.integers(0, 7), st.booleans(), st.dictionaries(st.sampled_from("xyz"), texts)),
    min_size=1,
    max_size=6,
)


@many
@given(graph=links)
def test_references_end_in_code_in_nothing_or_in_a_circle(graph):
    definitions = []
    for number, (target, has_code, parameters) in enumerate(graph):
        spec = {"functionRef": {"name": f"d{target}"}, "parameters": {"map": parameters}}
        if has_code and number:
            spec["inline"] = {"code": str(number)}
        definitions.append(definition(f"d{number}", deno=spec))
    resolved = resolve(read(task()), read(definitions[0]), find_in(*definitions))
    match by_hand(graph):
        case ("missing", name):
            assert isinstance(resolved, Missing)
            assert resolved.name == name
        case ("circle",):
            assert isinstance(resolved, Unusable)
            assert resolved.reason == "CyclicFunctionRef"
        case ("code", code, parameters):
            assert isinstance(resolved, Function)
            assert (resolved.code, resolved.parameters) == (code, parameters)


def by_hand(graph):
    """The end of the references from the first definition."""
    at, seen, merged = 0, [], {}
    while at < len(graph):
        if at in seen:
            return ("circle",)
        target, has_code, parameters = graph[at]
        merged = {**parameters, **merged}
        if has_code and at:
            return "code", str(at), merged
        seen.append(at)
        at = target
    return "missing", f"d{at}"
