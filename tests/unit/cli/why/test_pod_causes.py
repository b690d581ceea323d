"""Why a workload has no pods: what its spec, its status and its events say, and the next step."""

from __future__ import annotations

import pytest

from harbourmaster.cli.why.pod_causes import latest_message, refusal_step, why_no_pods

FAILURE = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "no"}
SEEN = {"observedGeneration": 1}
EARLIER, LATER = "2026-03-01T10:00:00Z", "2026-03-01T11:00:00Z"


def workload(spec=None, status=None, **metadata):
    return {"metadata": metadata, "spec": spec or {}, "status": SEEN if status is None else status}


def code_of(kind, obj, created="", refusal=("", "")):
    reason = why_no_pods(obj, kind, created, refusal)
    return reason and reason[0]


@pytest.mark.parametrize(
    ("kind", "obj", "code"),
    [
        ("Deployment", workload({"replicas": 0}), "scaled-to-zero"),
        # A Deployment keeps its former ReplicaSets, without pods.
        ("ReplicaSet", workload({"replicas": 0}, ownerReferences=[{"name": "a"}]), "no-pods"),
        ("Deployment", workload(deletionTimestamp=EARLIER), "being-deleted"),
        ("Deployment", workload({"paused": True}), "paused"),
        ("Deployment", workload({"paused": True}, {**SEEN, "updatedReplicas": 1}), "no-pods"),
        ("Rollout", workload({"paused": True}), "no-pods"),
        ("Job", workload({"suspend": True}), "suspended"),
        ("CronJob", workload({"suspend": True}), "suspended"),
        ("Job", workload(status={"active": 0}), "no-pods"),
        ("Job", workload(status={"completionTime": EARLIER}), None),
        ("DaemonSet", workload(status={**SEEN, "desiredNumberScheduled": 0}), "no-node-matches"),
        ("DaemonSet", workload(status={**SEEN, "desiredNumberScheduled": 2}), "no-pods"),
        ("Rollout", workload(status={}), "no-pods"),
        ("Deployment", workload(status={**SEEN, "conditions": [FAILURE]}), "pods-refused"),
        (
            "Deployment",
            workload(
                status={
                    "conditions": [
                        {
                            "type": "Progressing",
                            "status": "False",
                            "reason": "ReplicaSetCreateError",
                        }
                    ]
                }
            ),
            "pods-refused",
        ),
    ],
)
def test_a_workload_without_pods_has_a_cause(kind, obj, code):
    assert code_of(kind, obj) == code


def test_a_controller_that_does_not_run_is_told():
    _, state, text = why_no_pods(workload(status={}), "Rollout", "", ("", ""))
    assert (state, text) == (
        "waits",
        "no controller has acted on it: does the one for Rollouts run?",
    )


def test_a_job_that_kueue_has_not_admitted_names_its_queue():
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    _, _, text = why_no_pods(workload({"suspend": True}, labels=labels), "Job", "", ("", ""))
    assert text.endswith("spec.suspend is true, and Kueue admits it from the queue main")


@pytest.mark.parametrize(
    ("created", "code"),
    [("", "pods-refused"), (EARLIER, "pods-refused"), (LATER, None), (None, None)],
    ids=["no pods", "some older", "one newer", "unknown"],
)
def test_an_event_counts_if_no_pod_came_since(created, code):
    time = "2026-03-01T10:30:00Z"
    assert code_of("StatefulSet", workload(), created, (time, "exceeded quota: full")) == code


def test_the_latest_event_counts_without_the_words_of_its_controller():
    events = [
        {"lastTimestamp": LATER, "message": "(combined from similar events): Error creating: b"},
        {"lastTimestamp": EARLIER, "message": "Error creating: a"},
    ]
    assert latest_message(events) == (LATER, "b")
    assert latest_message([]) == ("", "")


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (
            '"a" is forbidden: exceeded quota: full, requested: pods=1',
            "edit resourcequota/full",
        ),
        # The workload lacks requests, and the step for its code edits it.
        ("failed quota: cpu: must specify requests.cpu for: a", ""),
        (
            'error looking up service account shop/ci: serviceaccount "ci" not found',
            "create serviceaccount ci",
        ),
        ("no PriorityClass with name high was found", "kubectl get priorityclasses"),
        ('pod rejected: RuntimeClass "gvisor" not found', "kubectl get runtimeclasses"),
        ('violates PodSecurity "restricted:latest": …', "kubectl get namespace shop --show-labels"),
        ("maximum cpu usage per Container is 100m, but limit is 1", "describe limits"),
        ("minimum memory usage per Pod is 1Gi", "describe limits"),
        ('admission webhook "validate.kyverno.svc-fail" denied the request: no', "webhookconfigur"),
        ('failed calling webhook "vault.hashicorp.com": no endpoints', "webhookconfigurations"),
        (
            "ValidatingAdmissionPolicy 'team-label' with binding 'b' denied request: no",
            "kubectl describe validatingadmissionpolicy team-label",
        ),
        ("unable to create new content in namespace shop because it is being terminated", "yaml"),
        ("something else", ""),
    ],
)
def test_a_refusal_has_the_command_that_shows_or_changes_its_cause(text, command):
    step = refusal_step(text, "shop")
    assert command in step
    assert bool(step) == bool(command)
