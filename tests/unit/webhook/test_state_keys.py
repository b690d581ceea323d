"""Annotations that record how a pod waits: no user sets them on a new pod."""

from __future__ import annotations

import json

import pytest

from harbourmaster.gates.known_keys import KNOWN_KEYS, STATE_KEYS
from harbourmaster.gates.metadata import APP_TYPE_KEY, PARENT_KEY, REMOVED_KEY
from harbourmaster.gates.stages import STAGE_KEYS, STAGED_LABEL
from harbourmaster.gates.waits import INHERITED_KEY, WAIT_FOR_KEY
from harbourmaster.webhook.verdict import GATED, MUTATED
from helpers.admission import (
    CRITICAL,
    GATE,
    OPT_IN,
    admit,
    answer_after_failure,
    ask,
    engine_of,
    family,
    keys,
    owner,
    pod,
)
from helpers.objects import review, workload

OURS = "gates.harbourmaster.dev/"
pytestmark = pytest.mark.claim("O33")
VALUES = ("met", "none", "passed", "by-hand", "")
TRACKED = keys(workload="web", version="1", app="shop")
WAITS = {WAIT_FOR_KEY: "job/migrate"}
PLAIN = {"namespaces": [{"metadata": {"name": "ns1"}}]}
FORBIDDING = {
    "namespaces": [
        {"metadata": {"name": "ns1", "annotations": OPT_IN, "labels": {WAIT_FOR_KEY: "disabled"}}}
    ]
}
IN_SCHEDULER = {"gating": "schedulerName"}
SYSTEM = {"namespace": "kube-system", "namespaces": [{"metadata": {"name": "kube-system"}}]}
PODS = {
    "waits for its checks": (TRACKED, {}, {}),
    "waits for objects": (WAITS, {}, PLAIN),
    "waits for both": ({**TRACKED, **WAITS}, {}, {}),
    "may not wait for objects": ({**TRACKED, **WAITS}, {}, FORBIDDING),
    "waits in its scheduler": ({**TRACKED, **WAITS}, {}, IN_SCHEDULER),
    "waits for objects in its scheduler": (WAITS, {}, {**PLAIN, **IN_SCHEDULER}),
    "names the scheduler": (TRACKED, {"schedulerName": "keptn-scheduler"}, PLAIN),
    "brings the gate": (TRACKED, {"schedulingGates": [GATE]}, {}),
    "brings the gate where nothing waits": (TRACKED, {"schedulingGates": [GATE]}, PLAIN),
    "has an unknown owner": ({}, {}, {}),
    "has a node": (TRACKED, {"nodeName": "n1"}, {}),
    "has no workload": ({}, {"owners": []}, {}),
    "belongs to a Job": (WAITS, {"owners": [owner("Job")]}, {}),
    "is critical": (TRACKED, CRITICAL, SYSTEM),
    "does not wait": ({}, {}, PLAIN),
    "says that its gate was removed": ({**TRACKED, REMOVED_KEY: "true"}, {}, {}),
}


def marks(value="met"):
    return dict.fromkeys(sorted(STATE_KEYS), value)


def stored(answer):
    """The pod that is stored; no annotations are the same as an empty map of them."""
    after = answer.after
    metadata = {"annotations": {}, **after["metadata"]}
    return {**after, "metadata": metadata}


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("name", PODS)
def test_a_new_pod_is_stored_as_if_it_had_none_of_them(name, value):
    annotations, fields, options = PODS[name]
    clean = admit(pod(dict(annotations), **fields), **options)
    marked = admit(pod({**annotations, **marks(value)}, **fields), **options)
    assert stored(marked) == stored(clean)
    # The API server asks again after another webhook changed the pod.
    again = admit(marked.after, **options)
    assert again.after == marked.after
    changed = {GATED} if clean.verdict.outcome == GATED else {GATED, MUTATED}
    assert marked.verdict.outcome in changed


@pytest.mark.parametrize("key", sorted(STATE_KEYS))
@pytest.mark.parametrize("annotations", [TRACKED, WAITS], ids=["checks", "objects"])
def test_each_is_removed_alone(key, annotations):
    clean, marked = admit(pod(annotations)), admit(pod({**annotations, key: "met"}))
    assert stored(marked) == stored(clean)
    (warning,) = [text for text in marked.response["warnings"] if key in text]
    assert "only Harbourmaster sets" in warning


@pytest.mark.parametrize("name", PODS)
def test_what_admission_set_itself_is_no_warning_when_it_is_asked_again(name):
    annotations, fields, options = PODS[name]
    first = admit(pod(dict(annotations), **fields), **options)
    again = admit(first.after, **options)
    assert "only Harbourmaster sets" not in json.dumps(again.response)


@pytest.mark.parametrize("annotations", [TRACKED, WAITS, {}], ids=["checks", "objects", "none"])
def test_a_review_that_fails_leaves_none_on_a_pod_that_waits(annotations):
    engine = engine_of()
    clean = answer_after_failure(pod(annotations), engine)
    marked = answer_after_failure(pod({**annotations, **marks()}), engine)
    assert stored(marked) == stored(clean)
    assert marked.gates == [GATE]


def test_pods_of_an_owner_get_the_same_from_the_cache():
    options = {"parents": family(TRACKED)}
    engine = engine_of(**options)
    question = review(pod(marks()), namespace="ns1")
    first, second = (stored(ask(question, engine)) for _ in range(2))
    assert first == second == stored(admit(pod({}), **options))


def test_where_gates_are_off_nothing_is_removed():
    assert admit(pod(marks()), features=["policies"]).is_untouched


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "Job"])
def test_a_template_stays_and_its_author_is_told(kind):
    document = workload(kind)
    document["spec"]["template"]["metadata"]["annotations"] = marks()
    answer = admit(document)
    assert answer.is_untouched
    assert "spec.template.metadata.annotations: remove it" in json.dumps(answer.response)


def test_the_table_has_all_that_the_controller_writes_on_pods():
    """The others of ours are written by users, by admission, or on other objects."""
    by_users = {WAIT_FOR_KEY, f"{OURS}wait-timeout", f"{OURS}wait-on-timeout"}
    by_users |= {f"{OURS}deployment-timeout", *STAGE_KEYS}
    by_admission = {PARENT_KEY, APP_TYPE_KEY, INHERITED_KEY, STAGED_LABEL}
    elsewhere = "adopts clear-failed-nodes code-digest enabled job no-override other-owners owners"
    elsewhere += " promote promote-by promote-reason"
    elsewhere += " rerun rerun-by rerun-checks rerun-reason since termination-message-policy"
    elsewhere += " written-version"
    others = {f"{OURS}{name}" for name in elsewhere.split()}
    ours = {key for key in KNOWN_KEYS if key.startswith(OURS)}
    assert ours - by_users - by_admission - others == STATE_KEYS
