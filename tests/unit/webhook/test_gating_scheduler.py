"""Pods that wait with a scheduler instead of at a gate, never both (decision D9, keptn-spec 6)."""

from __future__ import annotations

import json

import msgspec
import pytest

from harbourmaster.api.decoding import MalformedError, decode
from harbourmaster.webhook.settings import AdmissionSettings
from harbourmaster.webhook.verdict import DENIED, GATED, MUTATED, SKIPPED, UNMATCHED
from helpers import admission
from helpers.admission import (
    CRITICAL,
    GATE,
    PARENT,
    THEIRS,
    admit,
    ask,
    engine_of,
    family,
    keys,
    owner,
    parent,
    pod,
)
from helpers.objects import cluster_policy, review, workload

OURS = "keptn-scheduler"
THERE = {"gating": "schedulerName"}
TRACKED = keys(workload="waiter", version="0.4", app="shop")
SET = {"op": "add", "path": "/spec/schedulerName", "value": OURS}


def scheduler(answer):
    return answer.after["spec"].get("schedulerName")


@pytest.mark.parametrize("fields", [{}, *({"schedulerName": x} for x in ("", "default-scheduler"))])
def test_a_pod_of_no_scheduler_of_its_own_gets_ours_and_no_gate(fields):
    answer = admit(pod(TRACKED, **fields), **THERE)
    assert answer.operations == [SET]
    assert answer.gates is None
    assert answer.verdict.outcome == GATED
    assert "warnings" not in answer.response


def test_a_null_is_no_scheduler():
    assert scheduler(admit(pod(TRACKED, schedulerName=None), **THERE)) == OURS


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "DaemonSet"])
def test_what_a_pod_inherits_is_the_same_as_at_a_gate(kind):
    owners = None if kind == "ReplicaSet" else [owner(kind, "web")]
    parents = family(TRACKED) if owners is None else [parent(kind, "web", TRACKED)]
    gated, waiting = (
        admit(pod(owners=owners), parents, gating=gating)
        for gating in ("schedulingGates", "schedulerName")
    )
    assert waiting.annotations == gated.annotations == TRACKED
    assert (waiting.gates, scheduler(waiting)) == (None, OURS)
    assert (gated.gates, scheduler(gated)) == ([GATE], None)


def test_auto_without_an_api_server_is_gates():
    assert admit(pod(TRACKED)).gates == [GATE]
    assert admit(pod(TRACKED), gating="auto").gates == [GATE]


def test_another_name_for_the_scheduler_is_taken():
    answer = admit(pod(TRACKED), **THERE, gateSchedulerName="gatekeeper")
    assert scheduler(answer) == "gatekeeper"


def test_the_gates_of_others_stay():
    answer = admit(pod(TRACKED, schedulingGates=[THEIRS]), **THERE)
    assert (answer.gates, scheduler(answer)) == ([THEIRS], OURS)


@pytest.mark.parametrize("named", ["default-scheduler", "bin-packer", OURS])
@pytest.mark.parametrize("gating", ["schedulerName", "schedulingGates"])
def test_a_pod_that_has_our_gate_keeps_it_and_its_scheduler(gating, named):
    document = pod(keys(workload="w"), schedulingGates=[GATE], schedulerName=named)
    answer = admit(document, gating=gating)
    assert (answer.gates, scheduler(answer)) == ([GATE], named)
    assert answer.annotations["keptn.sh/app"] == "w"
    assert answer.verdict.codes == ()


@pytest.mark.parametrize("gating", ["schedulerName", "schedulingGates"])
def test_a_pod_that_names_our_scheduler_itself_waits_there(gating):
    answer = admit(pod(schedulerName=OURS), family(TRACKED), gating=gating)
    assert (answer.gates, scheduler(answer)) == (None, OURS)
    # Without them the extender would take it for a pod that does not have to wait.
    assert answer.annotations == TRACKED
    told = () if gating == "schedulerName" else ("gate-scheduler-named",)
    assert answer.verdict.codes == told
    assert len(answer.response.get("warnings", ())) == len(told)


@pytest.mark.parametrize("gating", ["schedulerName", "schedulingGates"])
@pytest.mark.parametrize("parents", [(), family()])
def test_nobody_is_told_of_a_pod_that_need_not_wait(gating, parents):
    document = pod(owners=None if parents else [], schedulerName=OURS)
    answer = admit(document, parents, gating=gating)
    assert answer.is_untouched
    assert "warnings" not in answer.response


@pytest.mark.parametrize("parents", [(), family(TRACKED)])
def test_a_pod_of_a_scheduler_of_its_own_goes_with_a_warning(parents):
    document = pod(None if parents else TRACKED, schedulerName="bin-packer")
    answer = admit(document, parents, **THERE)
    assert answer.is_untouched
    assert answer.verdict.outcome == SKIPPED
    assert answer.verdict.codes == ("gate-foreign-scheduler",)
    (warning,) = answer.response["warnings"]
    assert '"bin-packer"' in warning
    assert OURS in answer.response["auditAnnotations"]["gate-foreign-scheduler"]


def test_or_it_is_denied_where_the_settings_say_so():
    document = pod(TRACKED, schedulerName="bin-packer")
    answer = admit(document, (), POLICY, **THERE, onForeignScheduler="deny")
    assert not answer.response["allowed"]
    assert "patch" not in answer.response
    assert answer.response["status"]["code"] == 403
    reason = answer.response["status"]["reason"]
    assert '"bin-packer"' in reason
    assert "leave out spec.schedulerName, or set onForeignScheduler: ignore" in reason
    assert "\n" not in reason
    assert answer.verdict.outcome == DENIED
    assert answer.verdict.codes == ("gate-foreign-scheduler",)


def test_a_scheduler_is_foreign_even_while_the_owner_is_not_known():
    document = pod(schedulerName="bin-packer")
    assert admit(document, **THERE).verdict.codes == ("gate-foreign-scheduler",)
    assert admit(document, **THERE, onForeignScheduler="deny").verdict.outcome == DENIED


@pytest.mark.parametrize(
    ("document", "parents"),
    [
        pytest.param(pod(TRACKED, owners=[], schedulerName="x"), (), id="nobody's"),
        pytest.param(pod(schedulerName="x"), family(), id="untracked"),
        pytest.param(
            pod(TRACKED | keys(scheduling_gate_removed="true"), schedulerName="x"),
            (),
            id="released",
        ),
        pytest.param(pod(TRACKED, nodeName="n1", schedulerName="x"), (), id="with a node"),
    ],
)
def test_no_pod_that_need_not_or_could_not_wait_is_denied(document, parents):
    answer = admit(document, parents, **THERE, onForeignScheduler="deny")
    assert answer.is_untouched
    assert "gate-foreign-scheduler" not in answer.verdict.codes


@pytest.mark.parametrize("deny", ["ignore", "deny"])
def test_gates_go_with_any_scheduler(deny):
    answer = admit(pod(TRACKED, schedulerName="bin-packer"), onForeignScheduler=deny)
    assert (answer.gates, scheduler(answer)) == ([GATE], "bin-packer")
    assert answer.verdict.codes == ()


def test_a_long_name_is_cut():
    answer = admit(pod(TRACKED, schedulerName="x" * 5000), **THERE)
    assert len(answer.response["warnings"][0]) < 256
    assert OURS in answer.response["warnings"][0]


def test_what_is_never_gated_does_not_wait_here_either():
    bound = admit(pod(TRACKED, nodeName="n1"), **THERE)
    assert bound.is_untouched
    assert bound.verdict.codes == ("gate-node-name",)
    critical = admit(pod(TRACKED, **CRITICAL), namespace="kube-system", **THERE)
    assert critical.is_untouched
    assert admit(pod(TRACKED), features=["policies"], **THERE).verdict.outcome == UNMATCHED


def test_d7_an_owner_that_is_not_known_makes_the_pod_wait_as_well():
    answer = admit(pod(), **THERE)
    assert (answer.gates, scheduler(answer)) == (None, OURS)
    assert answer.annotations == {PARENT: "unresolved"}
    assert answer.verdict.codes == ("gate-owner-unknown",)


def test_templates_never_get_our_scheduler():
    for kind in ("Job", "CronJob", "Deployment"):
        assert admit(workload(kind), **THERE).is_untouched


# Policies

POLICY = cluster_policy(nodeSelector={"disk": "ssd"})
NAMING = cluster_policy("packed", schedulerName="bin-packer", nodeSelector={"disk": "ssd"})


@pytest.mark.parametrize("named", [None, "default-scheduler"])
def test_our_scheduler_wins_over_a_policys_and_that_is_told(named):
    fields = {} if named is None else {"schedulerName": named}
    answer = admit(pod(TRACKED, **fields), (), NAMING, **THERE)
    assert scheduler(answer) == OURS
    assert answer.after["spec"]["nodeSelector"] == {"disk": "ssd"}
    paths = [operation["path"] for operation in answer.operations]
    assert paths.count("/spec/schedulerName") == 1
    assert answer.verdict.codes == ("policy-scheduler-name",)
    text = answer.response["auditAnnotations"]["policy-scheduler-name"]
    assert "bin-packer of ClusterPodSchedulingPolicy packed is left out" in text
    again = admit(answer.after, (), NAMING, **THERE)
    assert again.is_untouched


def test_a_policy_that_names_our_scheduler_asks_for_nothing_else():
    answer = admit(pod(TRACKED), (), cluster_policy(schedulerName=OURS), **THERE)
    assert answer.operations == [SET]
    assert answer.verdict.codes == ()


def test_no_policy_puts_a_pod_at_a_gate_in_two_places():
    answer = admit(pod(TRACKED), (), cluster_policy(schedulerName=OURS))
    assert (answer.gates, scheduler(answer)) == ([GATE], None)
    assert answer.verdict.codes == ("policy-scheduler-name",)
    assert admit(answer.after, (), cluster_policy(schedulerName=OURS)).is_untouched


@pytest.mark.parametrize("name", ["bin-packer", OURS])
def test_policies_name_the_scheduler_of_pods_that_need_not_wait(name):
    for document, parents in ((pod(owners=[]), ()), (pod(), family())):
        answer = admit(document, parents, cluster_policy(schedulerName=name), **THERE)
        assert scheduler(answer) == name
        assert answer.verdict.outcome == MUTATED
        assert answer.verdict.codes == ()


def test_the_merge_of_a_pod_that_waits_is_not_that_of_one_that_need_not():
    engine = engine_of((), NAMING, **THERE)
    waiting, free = (
        ask(review(pod(TRACKED, owners=owners, schedulingGates=[THEIRS])), engine)
        for owners in (None, [])
    )
    assert (scheduler(waiting), scheduler(free)) == (OURS, "bin-packer")


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"])
def test_templates_do_not_name_a_scheduler_that_would_then_look_like_the_pods_own(kind):
    answer = admit(workload(kind), (), NAMING, **THERE)
    spec = answer.after["spec"]["template"]["spec"]
    assert "schedulerName" not in spec
    assert spec["nodeSelector"] == {"disk": "ssd"}
    assert answer.verdict.codes == ("policy-scheduler-name",)
    gated = admit(workload(kind), (), NAMING)
    assert gated.after["spec"]["template"]["spec"]["schedulerName"] == "bin-packer"


def test_templates_whose_pods_never_wait_do():
    answer = admit(workload("Job"), (), NAMING, **THERE)
    assert answer.after["spec"]["template"]["spec"]["schedulerName"] == "bin-packer"
    elsewhere = admit(workload(), (), NAMING, namespaces=[{"metadata": {"name": "ns1"}}], **THERE)
    assert elsewhere.after["spec"]["template"]["spec"]["schedulerName"] == "bin-packer"


@pytest.mark.parametrize("named", [None, OURS])
def test_d4_a_policys_node_becomes_affinity_for_it_bypasses_the_scheduler(named):
    fields = {} if named is None else {"schedulerName": named}
    answer = admit(pod(TRACKED, **fields), (), cluster_policy(nodeName="n1"), **THERE)
    assert "nodeName" not in answer.after["spec"]
    assert "nodeAffinity" in answer.after["spec"]["affinity"]
    assert scheduler(answer) == OURS


def test_d4_and_in_templates():
    answer = admit(workload(), (), cluster_policy(nodeName="n1"), **THERE)
    assert [operation["path"].rpartition("/")[2] for operation in answer.operations] == ["affinity"]


# Once and again


def test_the_scheduler_is_part_of_what_is_remembered():
    engine = engine_of(family(TRACKED), **THERE)
    plain, foreign, ours, again = (
        ask(review(document), engine)
        for document in (
            pod(),
            pod(schedulerName="bin-packer"),
            pod(schedulerName=OURS),
            pod(),
        )
    )
    assert scheduler(plain) == scheduler(again) == OURS
    assert plain.response == again.response
    assert foreign.verdict.codes == ("gate-foreign-scheduler",)
    assert [operation["path"] for operation in ours.operations] == ["/metadata/annotations"]


def test_an_engine_of_another_gating_forgets_what_was_decided():
    engine = engine_of(family(TRACKED))
    assert ask(review(pod()), engine).gates == [GATE]
    changed = engine.with_gating("schedulerName")
    assert scheduler(ask(review(pod()), changed)) == OURS
    assert scheduler(ask(review(pod()), changed.with_snapshot(engine.snapshot))) == OURS
    assert ask(review(pod()), changed.with_gating("schedulingGates")).gates == [GATE]


# Where nothing could be decided


def failed(document, **settings):
    return admission.answer_after_failure(document, engine_of(**THERE, **settings))


@pytest.mark.parametrize("named", [None, "", "default-scheduler", 3, ["x"]])
def test_the_fixed_patch_sets_our_scheduler_and_the_mark(named):
    document = pod() if named is None else pod(schedulerName=named)
    answer = failed(document)
    assert (answer.gates, scheduler(answer)) == (None, OURS)
    assert answer.annotations == {PARENT: "unresolved"}
    assert answer.verdict.codes == ("internal-error",)
    assert "until the controller has decided" in answer.response["warnings"][0]
    assert failed(answer.after).is_untouched


def test_the_fixed_patch_leaves_a_pod_at_its_gate():
    answer = failed(pod(schedulingGates=[GATE]))
    assert (answer.gates, scheduler(answer)) == ([GATE], None)


def test_after_a_failure_too_a_foreign_scheduler_is_told_or_denied():
    document = pod(schedulerName="bin-packer")
    ignored = failed(document)
    assert ignored.is_untouched
    assert ignored.verdict.outcome == SKIPPED
    assert ignored.verdict.codes == ("internal-error", "gate-foreign-scheduler")
    assert "controller" not in json.dumps(ignored.response["warnings"])
    denied = failed(document, onForeignScheduler="deny")
    assert not denied.response["allowed"]
    assert denied.verdict.outcome == DENIED


# Settings


def settings(**values):
    return decode(msgspec.json.Decoder(AdmissionSettings), json.dumps(values).encode(), "")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"gating": "gates"}, "gating: Invalid enum value 'gates'"),
        ({"onForeignScheduler": "warn"}, "onForeignScheduler: Invalid enum value 'warn'"),
        ({"gateSchedulerName": ""}, "gateSchedulerName: Invalid value"),
        ({"gateSchedulerName": "default-scheduler"}, 'Invalid value: "default-scheduler"'),
        ({"gateSchedulerName": "Ours_1"}, 'gateSchedulerName: Invalid value: "Ours_1"'),
    ],
)
def test_settings_that_mean_nothing_are_errors(values, says):
    with pytest.raises(MalformedError) as raised:
        settings(**values)
    assert says.lower() in str(raised.value).lower()
