"""Pods that wait for the objects that an annotation names."""

from __future__ import annotations

import pytest

from harbourmaster.gates.waits import WAIT_FOR_KEY
from harbourmaster.webhook.verdict import GATED
from helpers.admission import (
    CRITICAL,
    GATE,
    OPT_IN,
    THEIRS,
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

WAITS = {WAIT_FOR_KEY: "job/migrate"}
CHECKS = "gates.harbourmaster.dev/checks"
PLAIN = [{"metadata": {"name": "ns1"}}]
FORBIDDING = [{"metadata": {"name": "ns1", "labels": {WAIT_FOR_KEY: "disabled"}}}]
WITH_GATES = [{"metadata": {"name": "ns1", "annotations": OPT_IN}}]


@pytest.mark.parametrize(
    "owners", [[], [owner("Job")], [owner()], [owner("Other")]], ids=["bare", "job", "set", "other"]
)
@pytest.mark.parametrize("namespaces", [PLAIN, WITH_GATES], ids=["plain", "gates"])
def test_a_pod_of_any_owner_waits_in_any_namespace(owners, namespaces):
    answer = admit(pod(WAITS, owners=owners), family(), namespaces=namespaces)
    assert answer.gates == [GATE]
    assert answer.annotations == {**WAITS, CHECKS: "none"}
    assert (answer.verdict.outcome, answer.verdict.codes) == (GATED, ())


def test_gates_of_others_stay():
    answer = admit(pod(WAITS, schedulingGates=[THEIRS]), namespaces=PLAIN)
    assert answer.gates == [THEIRS, GATE]


def test_checks_and_objects_share_one_gate():
    tracked = {**keys(workload="w", version="1", app="a"), **WAITS}
    answer = admit(pod({**tracked, CHECKS: "none"}))
    assert answer.gates == [GATE]
    # No template can say that there are no checks.
    assert answer.annotations == tracked


def test_recommended_labels_name_no_workload_where_there_are_no_gates_for_checks():
    labels = {"app.kubernetes.io/name": "web"}
    answer = admit(pod(WAITS, labels=labels), namespaces=PLAIN)
    assert answer.annotations[CHECKS] == "none"


@pytest.mark.parametrize("text", ["", " , "])
def test_a_blank_list_gates_nobody(text):
    assert admit(pod({WAIT_FOR_KEY: text}), namespaces=PLAIN).is_untouched


def test_a_syntax_error_is_told_and_gates():
    answer = admit(pod({WAIT_FOR_KEY: "migrate"}), namespaces=PLAIN)
    assert answer.gates == [GATE]
    (warning,) = answer.response["warnings"]
    assert '"migrate" is not an object' in warning
    assert "gate-wait-invalid" in answer.response["auditAnnotations"]


def test_a_syntax_error_of_a_template_is_told():
    document = workload("Deployment")
    document["spec"]["template"]["metadata"]["annotations"] = {WAIT_FOR_KEY: "migrate"}
    answer = admit(document, namespaces=PLAIN)
    (warning,) = answer.response["warnings"]
    assert f"spec.template.metadata.annotations[{WAIT_FOR_KEY}]" in warning


@pytest.mark.parametrize(
    "settings",
    [{"namespaces": FORBIDDING}, {"namespaces": PLAIN, "features": ["policies", "gates"]}],
    ids=["label", "setting"],
)
def test_where_it_is_forbidden_the_pod_goes_and_is_told(settings):
    answer = admit(pod(WAITS), **settings)
    assert answer.gates is None
    assert answer.verdict.codes == ("gate-wait-forbidden",)


def test_where_it_is_forbidden_checks_still_count():
    namespaces = [
        {"metadata": {"name": "ns1", "annotations": OPT_IN, "labels": {WAIT_FOR_KEY: "disabled"}}}
    ]
    tracked = {**keys(workload="w", version="1", app="a"), **WAITS}
    answer = admit(pod(tracked), namespaces=namespaces)
    assert answer.gates == [GATE]
    # Nobody makes it wait for objects after its checks.
    assert answer.annotations == {**tracked, "gates.harbourmaster.dev/waited": "met"}


def test_a_template_can_not_say_that_there_are_no_checks_while_its_owner_is_unknown():
    answer = admit(pod({CHECKS: "none"}))
    assert answer.annotations == {"gates.harbourmaster.dev/parent": "unresolved"}


def test_a_released_pod_is_not_gated_again():
    released = {**WAITS, "keptn.sh/scheduling-gate-removed": "true"}
    assert admit(pod(released), namespaces=PLAIN).is_untouched


def test_a_pod_with_a_node_cannot_wait():
    answer = admit(pod(WAITS, nodeName="n1"), namespaces=PLAIN)
    assert answer.gates is None
    assert answer.verdict.codes == ("gate-node-name",)


def test_critical_add_ons_never_wait():
    namespaces = [{"metadata": {"name": "kube-system"}}]
    answer = admit(pod(WAITS, **CRITICAL), namespace="kube-system", namespaces=namespaces)
    assert answer.is_untouched


def test_without_gates_a_pod_waits_in_its_scheduler():
    answer = admit(pod(WAITS), namespaces=PLAIN, gating="schedulerName")
    assert answer.gates is None
    assert answer.after["spec"]["schedulerName"] == "keptn-scheduler"
    assert answer.annotations[CHECKS] == "none"


def test_a_pod_that_can_not_be_decided_on_waits_until_the_controller_has():
    engine = engine_of(namespaces=PLAIN)
    answer = answer_after_failure(pod(WAITS, owners=[]), engine)
    assert answer.gates == [GATE]
    assert answer.annotations["gates.harbourmaster.dev/parent"] == "unresolved"
    assert answer_after_failure(pod(owners=[]), engine).is_untouched
    assert (
        answer_after_failure(pod(WAITS, owners=[]), engine_of(namespaces=FORBIDDING)).gates is None
    )


def test_a_cached_answer_is_not_used_once_the_namespace_says_something_else():
    question, engine = review(pod(WAITS), namespace="ns1"), engine_of(namespaces=PLAIN)
    assert ask(question, engine).gates == [GATE]
    forbidding = engine.with_snapshot(engine_of(namespaces=FORBIDDING).snapshot)
    assert ask(question, forbidding).gates is None
    assert ask(question, engine.with_snapshot(engine.snapshot)).gates == [GATE]
