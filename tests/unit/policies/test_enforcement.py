"""Tests of the policies that the API server enforces, and of their status."""

from __future__ import annotations

import json

import msgspec
import pytest

from harbourmaster.policies.enforcement import (
    API_SERVER,
    BOTH,
    REASONS,
    UNKNOWN,
    UNSUPPORTED,
    WEBHOOK,
    Known,
    decode_compiled,
    enforced_policies,
    known_of,
    reason_of,
)
from helpers.delegation import FIRST, SECOND, binding, mutation

ASKED = ("ClusterPodSchedulingPolicy web", "0123456789abcdef")
HASHES = dict([ASKED])
NARROW = {"namespaceSelector": {"matchLabels": {"team": "a"}}}
ENDING = {"deletionTimestamp": "2026-11-28T08:00:00Z"}


def decode(*objects):
    return [decode_compiled(msgspec.json.encode(obj)) for obj in objects]


def enforces(mutations, bindings):
    return ASKED in enforced_policies(decode(*mutations), decode(*bindings))


def both_parts(hashes=HASHES, template_hashes=HASHES, set_name=FIRST):
    parts = "pods,templates"
    return [
        mutation(hashes, set_name, "pods", parts),
        mutation(template_hashes, set_name, "templates", parts),
    ]


BOTH_BOUND = [binding(), binding(part="templates")]
"""Final bindings of both parts of the first set."""


def test_a_bound_set_enforces_its_policies():
    assert enforces([mutation(HASHES)], [binding()])
    assert enforces(both_parts(), BOTH_BOUND)
    # As the API server stores it.
    defaults = {"namespaceSelector": {}, "objectSelector": {}, "matchPolicy": "Equivalent"}
    assert enforces([mutation(HASHES, generation=1)], [binding(matched=defaults)])


@pytest.mark.parametrize(
    ("mutations", "bindings"),
    [
        ([mutation(HASHES)], []),
        ([mutation(HASHES)], [binding(label="probe")]),
        ([mutation(HASHES)], [binding(SECOND)]),
        ([mutation(HASHES)], [binding(**ENDING)]),
        ([mutation(HASHES, **ENDING)], [binding()]),
        ([mutation({ASKED[0]: "another"})], [binding()]),
        ([mutation({})], [binding()]),
        ([mutation(HASHES, labels={})], [binding()]),
        ([mutation(HASHES, annotations={})], [binding()]),
        ([mutation(HASHES, generation=2)], [binding()]),
        ([mutation(HASHES)], [binding(matched=NARROW)]),
        ([mutation(HASHES)], [binding(matched={"excludeResourceRules": [{}]})]),
        (both_parts(), BOTH_BOUND[:1]),
        (both_parts()[:1], BOTH_BOUND),
        (both_parts(template_hashes={}), BOTH_BOUND),
        (
            [both_parts()[0], both_parts(set_name=SECOND)[1]],
            [binding(), binding(SECOND, "templates")],
        ),
    ],
    ids=[
        "without a binding",
        "bound for the trial only",
        "bound to another set",
        "with a binding that is being deleted",
        "being deleted",
        "with another hash",
        "without the policy",
        "without the label",
        "without annotations",
        "changed by hand",
        "with a binding for other namespaces than compiled",
        "with a binding that leaves kinds out",
        "with one part of two bound",
        "with one part of two",
        "with the policy in one part of two",
        "with parts of two sets",
    ],
)
def test_a_set_enforces_nothing(mutations, bindings):
    assert not enforces(mutations, bindings)


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"a": 1}'])
def test_a_broken_annotation_harms_no_other_set(broken):
    spoilt = mutation({}, SECOND)
    spoilt["metadata"]["annotations"]["harbourmaster.dev/policy-hashes"] = broken
    bound = [binding(), binding(SECOND, name="harbourmaster-compiled-other")]
    assert enforces([mutation(HASHES), spoilt], bound)


def compiled_state(mutations=(), bindings=(), *, is_settled=False):
    state = "quiet" if is_settled else "changing"
    return known_of(state, [decode(*mutations), decode(*bindings)])


BOUND = ([mutation(HASHES)], [binding()])


@pytest.mark.parametrize(
    ("enforcement", "compiled", "reason"),
    [
        (WEBHOOK, compiled_state(*BOUND), "ModeIsWebhook"),
        (BOTH, compiled_state(*BOUND, is_settled=True), "ModeIsBoth"),
        (BOTH, compiled_state(), "NotCompiled"),
        (API_SERVER, compiled_state(*BOUND), "WaitingForWebhooks"),
        (API_SERVER, compiled_state(*BOUND, is_settled=True), "Enforced"),
        (API_SERVER, compiled_state([mutation(HASHES)]), "NotBound"),
        (API_SERVER, compiled_state([mutation({ASKED[0]: "old"})], [binding()]), "OutdatedHash"),
        (API_SERVER, compiled_state(), "NotCompiled"),
        (API_SERVER, Known(UNSUPPORTED), "Unsupported"),
        (API_SERVER, Known(UNKNOWN), "Unknown"),
    ],
)
def test_the_reason_says_who_enforces_it(enforcement, compiled, reason):
    assert reason_of(ASKED, enforcement, compiled, is_audited=False) == reason
    assert reason in REASONS


def test_an_audited_policy_is_enforced_by_nothing():
    compiled = compiled_state(*BOUND, is_settled=True)
    assert reason_of(ASKED, API_SERVER, compiled, is_audited=True) == "ModeIsAudit"


def test_the_names_of_compiled_objects_are_those_that_are_read():
    compiled = decode(mutation(HASHES))[0]
    assert compiled.metadata.name == f"harbourmaster-compiled-{FIRST}-pods"
    assert compiled.hashes == json.loads(json.dumps(HASHES))
