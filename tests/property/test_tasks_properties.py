"""Properties of tasks and their Jobs, whatever users write into them."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.lifecycle.functions import Function, Missing, Unusable, resolve
from harbourmaster.lifecycle.jobs import job_name, literal
from harbourmaster.lifecycle.tasks import go_json, task_for, task_name
from helpers.properties import TIMEOUT, cases
from helpers.tasks import (
    app_version,
    definition,
    environment,
    expanded,
    find_in,
    job,
    read,
    task,
    workload_version,
)

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
    assert expanded(literal(text), VARIABLES) == text


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
    made_name = task_name("uid", check, name, previous)
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
    workload = workload_version(metadata=own, status={"appContextMetadata": inherited})
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
        variable["name"]: expanded(variable["value"], VARIABLES)
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
