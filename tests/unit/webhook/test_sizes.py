"""Limits on sizes at admission: of new objects and of growth, and nothing else is refused."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from harbourmaster.api.resources import APPS, POLICIES, TASK_DEFINITIONS
from harbourmaster.api.sizes import LIMITS, size_errors
from harbourmaster.webhook.verdict import INVALID
from helpers.admission import ask, policy_engine
from helpers.objects import review

KINDS = pytest.mark.parametrize(
    "resource", LIMITS, ids=lambda resource: f"{resource.group}-{resource.kind}"
)


def manifest_of(resource, spec, **metadata):
    where = {"namespace": "market"} if resource.namespaced else {}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": "seed", **where, **metadata},
        "spec": spec,
    }


def answer_to(resource, new, former=None, **request):
    """Return the answer to the creation of an object, or to an update of a former one."""
    if former is not None:
        request |= {"oldObject": former, "operation": "UPDATE"}
    question = review(new, namespace="market", name="seed", **request)
    return ask(question, policy_engine())


def refusal_of(resource, new, former=None):
    """Return why an object is refused for its size, or an empty text if it is not."""
    answer = answer_to(resource, new, former)
    status = answer.response.get("status", {})
    text = status.get("message") or status.get("reason") or ""
    is_refused = not answer.response["allowed"] and ("Too many" in text or "Too long" in text)
    assert not is_refused or answer.verdict.outcome == INVALID
    return text if is_refused else ""


def padded_object(resource, size):
    """An object with a spec of that many bytes, which is otherwise of no kind."""
    room = size - len(json.dumps({"note": ""}))
    return manifest_of(resource, {"note": "x" * room})


@KINDS
@pytest.mark.claim("O10")
def test_a_new_spec_may_have_as_many_bytes_as_the_limit(resource):
    most = LIMITS[resource].spec
    assert refusal_of(resource, padded_object(resource, most)) == ""
    text = refusal_of(resource, padded_object(resource, most + 1))
    assert f"spec: Too long: {most + 1}: must have at most {most} bytes" in text
    assert "\n" not in text


@KINDS
def test_a_stored_spec_over_the_limit_may_change_but_not_grow(resource):
    most = LIMITS[resource].spec
    stored = padded_object(resource, 2 * most)
    labelled = {**stored, "metadata": {**stored["metadata"], "labels": {"a": "b"}}}
    assert refusal_of(resource, labelled, stored) == ""
    assert refusal_of(resource, {**stored, "status": {"a": "b"}}, stored) == ""
    assert refusal_of(resource, padded_object(resource, 2 * most - 1), stored) == ""
    assert refusal_of(resource, padded_object(resource, 2 * most + 1), stored) != ""


@KINDS
def test_a_list_may_have_as_many_items_as_the_limit(resource):
    most = LIMITS[resource].items
    if not most:
        assert refusal_of(resource, manifest_of(resource, {"a": [1] * 1000})) == ""
        return
    assert refusal_of(resource, manifest_of(resource, {"a": [1] * most})) == ""
    text = refusal_of(resource, manifest_of(resource, {"a": [1] * (most + 1)}))
    assert f"spec.a: Too many: {most + 1}: must have at most {most} items" in text
    keys = {f"k{n}": "" for n in range(most + 1)}
    assert "spec.a: Too many" in refusal_of(resource, manifest_of(resource, {"a": keys}))


TERMS = "requiredDuringSchedulingIgnoredDuringExecution"


def terms(*counts, values=1):
    """A policy whose node affinity has a term for each count, with so many expressions."""
    expression = {"key": "zone", "operator": "In", "values": [f"v{n}" for n in range(values)]}
    node_terms = [{"matchExpressions": [expression] * count} for count in counts]
    affinity = {"nodeAffinity": {TERMS: {"nodeSelectorTerms": node_terms}}}
    return manifest_of(POLICIES, {"podSelector": {}, "affinity": affinity})


PATH = f"spec.affinity.nodeAffinity.{TERMS}.nodeSelectorTerms"


@pytest.mark.claim("O10")
def test_terms_requirements_and_values_are_limited():
    assert refusal_of(POLICIES, terms(*[1] * 256)) == ""
    assert f"{PATH}: Too many: 257" in refusal_of(POLICIES, terms(*[1] * 257))
    assert refusal_of(POLICIES, terms(256)) == ""
    text = refusal_of(POLICIES, terms(1, 257))
    assert f"{PATH}[1].matchExpressions: Too many: 257" in text
    assert refusal_of(POLICIES, terms(1, values=512)) == ""
    text = refusal_of(POLICIES, terms(1, values=513))
    assert f"{PATH}[0].matchExpressions[0].values: Too many: 513" in text


@pytest.mark.claim("O10")
def test_terms_that_are_empty_cannot_be_many():
    empty = manifest_of(POLICIES, {"podSelector": {}, "affinity": {"nodeAffinity": {}}})
    required = {TERMS: {"nodeSelectorTerms": [{}] * 43_400}}
    empty["spec"]["affinity"]["nodeAffinity"] = required
    assert "must have at most" in refusal_of(POLICIES, empty)


def test_removing_one_of_the_lists_that_are_too_long_passes():
    stored = terms(300, 1, 400)
    assert refusal_of(POLICIES, terms(1, 400), stored) == ""
    assert refusal_of(POLICIES, terms(300, 1), stored) == ""
    assert refusal_of(POLICIES, terms(300, 1, 401), stored) != ""
    assert refusal_of(POLICIES, terms(300, 300, 1, 400), stored) != ""


def test_what_shrinks_below_one_limit_may_stay_over_another():
    stored = terms(*[4] * 1000, values=20)
    assert len(json.dumps(stored["spec"])) > 64 * 1024
    assert refusal_of(POLICIES, terms(*[1] * 999), stored) == ""
    assert "Too many" in refusal_of(POLICIES, terms(*[1] * 1001), stored)


def test_within_the_same_bytes_no_list_over_its_limit_may_grow():
    stored = padded_object(POLICIES, 100_000)
    assert "Too many" in refusal_of(POLICIES, manifest_of(POLICIES, {"a": [1] * 1000}), stored)


def code(size):
    return manifest_of(TASK_DEFINITIONS, {"deno": {"inline": {"code": "x" * size}}})


@pytest.mark.claim("O10")
def test_code_is_limited_in_bytes():
    assert refusal_of(TASK_DEFINITIONS, code(128 * 1024)) == ""
    text = refusal_of(TASK_DEFINITIONS, code(128 * 1024 + 1))
    assert "spec.deno.inline.code: Too long: 131073: must have at most 131072 bytes" in text
    assert refusal_of(TASK_DEFINITIONS, code(1024 * 1024)) != ""
    assert refusal_of(TASK_DEFINITIONS, code(1024 * 1024), code(1024 * 1024)) == ""


@pytest.mark.claim("O10")
def test_an_app_with_thousands_of_workloads_is_refused_with_its_cause():
    def app(count):
        listed = [{"name": f"w{n}", "version": "1"} for n in range(count)]
        return manifest_of(APPS, {"version": "1", "workloads": listed})

    assert refusal_of(APPS, app(512)) == ""
    status = answer_to(APPS, app(1500)).response["status"]
    assert (status["code"], status["reason"]) == (422, "Invalid")
    (cause,) = status["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldValueTooMany", "spec.workloads")
    assert refusal_of(APPS, app(1500), app(1500)) == ""
    assert refusal_of(APPS, app(1499), app(1500)) == ""
    assert refusal_of(APPS, app(1501), app(1500)) != ""


@KINDS
def test_deletion_and_subresources_pass(resource):
    large = padded_object(resource, 2 * LIMITS[resource].spec)
    if resource.kind.endswith("SchedulingPolicy"):
        return
    for request in ({"operation": "DELETE"}, {"subResource": "status"}):
        assert answer_to(resource, large, **request).response["allowed"]


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b'{"spec": ' + b"[" * 5000, b'{"spec": 1}'])
def test_what_cannot_be_read_has_no_size(raw):
    assert size_errors(APPS.group, APPS.kind, raw, raw) == []


@pytest.mark.parametrize("part", [{}, [], "x", {"a": "b"}])
def test_a_long_key_above_thousands_of_parts_takes_no_more_memory_than_its_bytes(part):
    large = manifest_of(APPS, {"k" * 30_000: [part] * 2_500})
    raw = json.dumps(large).encode()
    tracemalloc.start()
    (error,) = size_errors(APPS.group, APPS.kind, raw)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert error.reason == "FieldValueTooMany"
    assert peak < 8 * 1024 * 1024


def test_another_kind_has_no_limits():
    assert (
        size_errors("apps", "Deployment", json.dumps(manifest_of(APPS, {"a": [1] * 9999})).encode())
        == []
    )
