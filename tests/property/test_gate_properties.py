"""Properties of every pod in a namespace with gates, whatever owners and policies it has."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.gates.metadata import METADATA_KEY, READ_KEYS, REMOVED_KEY
from harbourmaster.webhook.verdict import GATED
from helpers.admission import APP_TYPE, GATE, PARENT, ask, engine_of, family, owner, parent, pod
from helpers.objects import review
from helpers.properties import TIMEOUT, cases, pod_specs, policies, with_unknown_fields

OWNED = ("affinity", "nodeName", "nodeSelector", "schedulerName", "tolerations")
OURS = {*READ_KEYS, APP_TYPE, PARENT}
SUPPORTED = {"ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Rollout"}

many = settings(max_examples=cases(2000))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT)]

marks = st.dictionaries(
    st.sampled_from(sorted((READ_KEYS - {METADATA_KEY}) | {"example.com/other"})),
    st.sampled_from(["", "a", "B_1", "nginx"]),
    max_size=4,
)
owners = st.lists(
    st.sampled_from(
        [
            owner("ReplicaSet"),
            owner("StatefulSet", "web"),
            owner("DaemonSet", "web"),
            owner("Deployment", "web"),
            owner("Job"),
        ]
    ),
    max_size=2,
)
containers = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["nginx", "side"])},
        optional={
            "image": st.sampled_from(["nginx:1.25", "nginx", "registry.example.com:5000/img"]),
            "env": st.sampled_from([[], [{"name": "A", "value": "b"}], [{"name": "A"}]]),
        },
    ),
    max_size=2,
)


@st.composite
def pods(draw):
    annotations = draw(st.one_of(st.none(), marks))
    if annotations is not None and draw(st.integers(0, 9)) == 0:
        annotations[REMOVED_KEY] = draw(st.sampled_from(["", "true"]))
    manifest = pod(annotations, owners=draw(owners), labels=draw(marks), **draw(pod_specs))
    manifest["spec"]["containers"] = draw(containers)
    if draw(st.booleans()):
        # Most pods have no node yet.
        manifest["spec"].pop("nodeName", None)
    return with_unknown_fields(manifest, draw)


@st.composite
def known_parents(draw):
    annotations = draw(marks)
    return draw(
        st.sampled_from(
            [
                [],
                family(annotations)[:1],
                family(annotations),
                [*family(annotations), parent("StatefulSet", "web", annotations)],
                [parent("ReplicaSet", "web-5d9c", annotations)],
            ]
        )
    )


def admit_pod(document, parents, policy_manifests, **options):
    return ask(review(copy.deepcopy(document)), engine_of(parents, *policy_manifests, **options))


def assert_nothing_foreign_changed(before, after):
    held, holds = (obj["metadata"].get("annotations") or {} for obj in (before, after))
    assert {key for key in holds if holds[key] != held.get(key)} <= OURS
    assert held.keys() <= holds.keys()
    stripped = [copy.deepcopy(pod) for pod in (before, after)]
    for obj in stripped:
        obj["metadata"].pop("annotations", None)
        for field in (*OWNED, "schedulingGates"):
            obj["spec"].pop(field, None)
    assert stripped[0] == stripped[1]


def has(key, annotations, labels):
    fallback = {"keptn.sh/workload": "app.kubernetes.io/name"}.get(key, key)
    return any(
        place.get(candidate_key)
        for candidate_key in (key, fallback)
        for place in (annotations, labels)
    )


def must_wait(document, parents):
    """Whether the pod must wait, decided independently of the product."""
    metadata = document["metadata"]
    annotations, labels = metadata.get("annotations") or {}, metadata["labels"]
    owners = [
        reference
        for reference in metadata.get("ownerReferences", ())
        if reference["kind"] in SUPPORTED
    ]
    if not owners or document["spec"].get("nodeName") or has(REMOVED_KEY, annotations, labels):
        return False
    if has("keptn.sh/workload", annotations, labels):
        return True
    kinds = {parent["kind"]: parent["metadata"] for parent in parents}
    kind = owners[-1]["kind"]
    if kind == "Deployment":
        return False
    if kind == "ReplicaSet" and kind in kinds:
        if not kinds[kind].get("ownerReferences"):
            return False
        kind = "Deployment"
    above = kinds.get(kind)
    return above is None or has("keptn.sh/workload", above.get("annotations", {}), {})


@many
@given(document=pods(), parents=known_parents(), policy_manifests=policies())
def test_a_pod_waits_when_it_must_once_and_nothing_foreign_changes(
    document, parents, policy_manifests
):
    answer = admit_pod(document, parents, policy_manifests)
    assert answer.response["allowed"]
    after, before = answer.after, document
    gates = before["spec"].get("schedulingGates") or []
    waits = must_wait(before, parents)
    assert (after["spec"].get("schedulingGates") or []) == [*gates, *([GATE] if waits else [])]
    assert (answer.verdict.outcome == GATED) is waits
    if waits:
        assert after["spec"].get("nodeName", "") == before["spec"].get("nodeName", "")

    assert_nothing_foreign_changed(before, after)
    if waits:
        holds = after["metadata"].get("annotations") or {}
        has_workload = has("keptn.sh/workload", holds, after["metadata"]["labels"])
        assert has_workload is not (PARENT in holds)

    again = admit_pod(after, parents, policy_manifests)
    assert "patch" not in again.response, again.operations


@many
@given(document=pods(), parents=known_parents(), policy_manifests=policies())
def test_gates_and_policies_in_any_order_come_to_the_same(document, parents, policy_manifests):
    for policy in policy_manifests:
        # A node set first can't wait any more: why both are one pass (decision D4).
        policy["spec"].pop("nodeName", None)
    both = admit_pod(document, parents, policy_manifests).after
    for first, second in (("gates", "policies"), ("policies", "gates")):
        once = admit_pod(document, parents, policy_manifests, features=[first]).after
        assert admit_pod(once, parents, policy_manifests, features=[second]).after == both


SCHEDULER = "keptn-scheduler"
gatings = st.sampled_from(["schedulingGates", "schedulerName"])
schedulers = st.sampled_from([None, "", "default-scheduler", "s2", SCHEDULER])


@st.composite
def waiting_pods(draw):
    pod = draw(pods())
    named = draw(schedulers)
    pod["spec"].pop("schedulerName", None)
    if named is not None:
        pod["spec"]["schedulerName"] = named
    if draw(st.integers(0, 4)) == 0:
        pod["spec"]["schedulingGates"] = [*(pod["spec"].get("schedulingGates") or []), GATE]
    return pod


@st.composite
def naming_policies(draw):
    policy_manifests = draw(policies())
    for policy in policy_manifests:
        if draw(st.booleans()):
            policy["spec"]["schedulerName"] = draw(st.sampled_from(["s1", SCHEDULER]))
    return policy_manifests


def places(document):
    """Whether a pod waits at our gate, and the scheduler that it names."""
    spec = document["spec"]
    named = spec.get("schedulerName") or "default-scheduler"
    return GATE in (spec.get("schedulingGates") or []), named


@many
@given(
    document=waiting_pods(),
    parents=known_parents(),
    policy_manifests=naming_policies(),
    gating=gatings,
    deny=st.sampled_from(["ignore", "deny"]),
)
def test_a_pod_waits_in_one_place_and_nothing_foreign_changes(
    document, parents, policy_manifests, gating, deny
):
    options = {"gating": gating, "onForeignScheduler": deny}
    answer = admit_pod(document, parents, policy_manifests, **options)
    before, waits = document, must_wait(document, parents)
    was_gated, named = places(before)
    by_name = gating == "schedulerName"
    is_foreign = by_name and not was_gated and named not in {"default-scheduler", SCHEDULER}
    if waits and is_foreign:
        assert "gate-foreign-scheduler" in answer.verdict.codes
        assert answer.response["allowed"] is (deny == "ignore")
        if deny == "deny":
            assert "patch" not in answer.response
            return
    assert answer.response["allowed"]
    after = answer.after
    is_gated, names = places(after)
    if waits and not is_foreign:
        assert is_gated is (was_gated or (not by_name and named != SCHEDULER))
        if not (was_gated and named == SCHEDULER):
            assert is_gated is not (names == SCHEDULER)
    else:
        assert is_gated is was_gated
    if named != "default-scheduler":
        assert names == named

    assert_nothing_foreign_changed(before, after)

    for other_gating in ("schedulingGates", "schedulerName") if waits else (gating,):
        again = admit_pod(after, parents, policy_manifests, **{**options, "gating": other_gating})
        if other_gating == gating or not is_foreign:
            assert "patch" not in again.response, again.operations
