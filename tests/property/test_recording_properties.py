"""Whatever a review holds, nothing secret of it is recorded, and its answer is given again."""

from __future__ import annotations

import copy

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harbourmaster.gates.metadata import METADATA_KEY, READ_KEYS, REMOVED_KEY
from harbourmaster.telemetry.metrics import WRITTEN
from helpers.admission import (
    CANARY,
    asked_by,
    engine_of,
    family,
    owner,
    pod,
    record_of,
    replayed_response,
    secret_annotations,
    secretive,
)
from helpers.objects import review, workload
from helpers.properties import TIMEOUT, cases, labels, pod_specs, policies, with_unknown_fields

many = settings(max_examples=cases(1000))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT)]

SPOTS = ("env", "annotations", "args", "request")
marks = st.dictionaries(
    st.sampled_from(sorted((READ_KEYS - {METADATA_KEY}) | {REMOVED_KEY})),
    st.sampled_from(["", "a", "B_1", "1.0"]),
    max_size=3,
)
values = st.one_of(
    st.just(CANARY),
    st.text(max_size=8).map(lambda text: f"{text}{CANARY}{text}"),
    st.just([CANARY]),
    st.just({CANARY: CANARY}),
    st.just({"deep": [{"deeper": CANARY}]}),
)
"""A secret, also in a place that should have been a text."""


@st.composite
def questions(draw):
    """A review with the secret in at least one spot."""
    kind = draw(st.sampled_from(["Pod", "Pod", "Deployment", "CronJob", "Job"]))
    spec = draw(pod_specs)
    if kind == "Pod":
        manifest = pod(draw(marks), owners=[owner(draw(st.sampled_from(["ReplicaSet", "Job"])))])
        manifest["spec"].update(spec)
        inner = manifest
    else:
        manifest = workload(kind, draw(labels), **spec)
        outer = manifest["spec"]["jobTemplate"] if kind == "CronJob" else manifest
        inner = outer["spec"]["template"]
    spots = draw(st.sets(st.sampled_from(SPOTS), min_size=1))
    if "env" in spots:
        inner["spec"]["containers"] = secretive({}, CANARY)["containers"]
        inner["spec"]["containers"][0]["env"][0]["value"] = draw(values)
    if "args" in spots:
        inner["spec"] = {**secretive(inner["spec"]), "hostname": draw(values)}
    if "annotations" in spots:
        held = inner["metadata"].setdefault("annotations", {})
        held.update({**secret_annotations(), "example.com/other": draw(values)})
    manifest = with_unknown_fields(manifest, draw)
    more = asked_by(draw(values)) if "request" in spots else {}
    return review(manifest, operation=draw(st.sampled_from(["CREATE", "UPDATE"])), **more)


@many
@given(question=questions(), inherited=marks, policy_manifests=policies(), may_patch=st.booleans())
def test_no_secret_is_recorded_and_every_answer_is_given_again(
    question, inherited, policy_manifests, may_patch
):
    engine = engine_of(family(inherited), *policy_manifests)
    line, response, outcome = record_of(copy.deepcopy(question), engine, may_patch=may_patch)
    assert outcome == WRITTEN
    assert CANARY.encode() not in line
    assert replayed_response(line) == response


@many
@given(
    document=st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.just(CANARY)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from(["metadata", "spec", "containers", "env", "x"]), inner),
        ),
        max_leaves=12,
    ),
    kind=st.sampled_from(["Pod", "Deployment", "Secret"]),
)
def test_of_what_is_no_object_of_its_kind_nothing_is_recorded_that_decides_nothing(document, kind):
    question = review({"apiVersion": "v1", "kind": kind}) if kind == "Secret" else None
    question = question or review(workload(kind))
    question["request"]["object"] = document
    line, response, _ = record_of(question, engine_of(family()))
    assume(line is not None)
    assert CANARY.encode() not in line
    assert replayed_response(line) == response
