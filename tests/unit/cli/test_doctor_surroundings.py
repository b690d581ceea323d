"""``harbourmaster doctor``: faults of kinds, rights, and of what is around us."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from harbourmaster.api.resources import DEFINITIONS, DISRUPTION_BUDGETS, NODES, PODS
from harbourmaster.policies.model import ON_TOO_LARGE
from helpers.broken_installations import (
    X509,
    addon,
    api_service,
    flags,
    never_ends,
    policy,
    refuses,
    silent,
    steals,
)
from helpers.examined import CONTROLLER, ExaminedCluster, finds


@pytest.fixture
def cluster():
    return ExaminedCluster()


ADMITTED = "pod in default: admitted"
TASKS, KEPTN_APPS = "keptntasks.lifecycle.keptn.sh", "keptnapps.lifecycle.keptn.sh"
UNAVAILABLE = {"type": "Available", "status": "False", "reason": "Failed", "message": "no"}
RESERVED = [{"uid": "u", "pod": "kube-system/dns", "since": "2026-01-01T00:00:00Z"}]
RESERVATIONS = {"rescheduler.harbourmaster.dev/reservations": json.dumps(RESERVED)}
BUDGET = {
    "metadata": {"name": "dns", "namespace": "kube-system"},
    "spec": {"selector": {"matchLabels": {"k8s-app": "dns"}}},
}


def reschedules(w, *objects):
    flags(w, "--rescheduling-enabled=true")
    for resource, result in objects:
        w.put(resource, result)


FAULTS = {
    "definitions fault": [
        (
            f"definition {TASKS}: not found, so such objects can't be ",
            lambda w: w.remove(DEFINITIONS, TASKS),
        ),
        (
            f"definition {TASKS}: does not serve v1, which we ask for, but ",
            lambda w: w.at(DEFINITIONS, TASKS)["spec"].update(
                versions=[{"name": "v1alpha3", "served": True, "storage": True}]
            ),
        ),
        (
            f"definition {TASKS}: is not served: taken",
            lambda w: w.at(DEFINITIONS, TASKS)["status"].update(
                conditions=[{"type": "NamesAccepted", "status": "False", "message": "taken"}]
            ),
        ),
        (
            f"definition {TASKS}: is not served yet",
            lambda w: w.at(DEFINITIONS, TASKS)["status"].update(conditions=[]),
        ),
        (
            f"definition {KEPTN_APPS}: does not convert",
            lambda w: w.at(DEFINITIONS, KEPTN_APPS)["spec"].update(conversion={"strategy": "None"}),
        ),
        (
            "definition applications.placement.harbourmaster.dev, ",
            lambda w: flags(w, "--placement-enabled=true"),
        ),
    ],
    "definitions note": [
        (
            f"definition {TASKS}: some objects may still be stored as ",
            lambda w: w.at(DEFINITIONS, TASKS)["status"].update(storedVersions=["v1alpha3", "v1"]),
        ),
    ],
    "definitions warning": [
        (
            f"definition {KEPTN_APPS}: is converted by Service ",
            lambda w: w.at(DEFINITIONS, KEPTN_APPS)["spec"]["conversion"]["webhook"][
                "clientConfig"
            ].update(service={"namespace": "keptn-system", "name": "lifecycle-webhook-service"}),
        ),
        (
            "APIService v1beta1.custom.metrics.k8s.io: the API server can't reach it: Failed: no",
            lambda w: api_service(w, conditions=[UNAVAILABLE]),
        ),
    ],
    "rights fault": [
        (
            f"ServiceAccount {CONTROLLER}: lacks permission to list jobs.batch, patch pods",
            lambda w: w.refused.update({("patch", "pods"), ("list", "jobs")}),
        ),
    ],
    "rights unknown": [
        (
            "ServiceAccounts: missing permission to review others' permissions",
            lambda w: w.forbidden.add("subjectaccessreviews"),
        ),
    ],
    "rights note": [
        (
            "ada: missing permission to get secrets: some of this could not be read",
            lambda w: w.lacking.add("secrets"),
        ),
    ],
    "canary fault": [
        (
            f"{ADMITTED} without a review: the webhook can't be called: tls: failed to ",
            silent(X509),
        ),
        (
            f"{ADMITTED} without our answer, though the webhook refuses an invalid policy",
            silent(),
        ),
        (
            f"{ADMITTED} without a review: no webhook answered, and its webhooks ",
            silent(denies=False),
        ),
        (
            "pod in default: refused: gated-pods.harbourmaster.dev can't be called: EOF",
            refuses('failed calling webhook "gated-pods.harbourmaster.dev": EOF', 500),
        ),
    ],
    "canary unknown": [
        (
            "pod in default: refused: another party's webhook sidecars.example.com",
            refuses('failed calling webhook "sidecars.example.com": EOF', 500),
        ),
        (
            "pod in default: refused before our answer could be seen: admission webhook ",
            refuses('admission webhook "quota.example.com" denied the request: no'),
        ),
        (
            "pod in default: missing permission to create pods there: pods is forbidden: User ada ",
            refuses("pods is forbidden: User ada cannot create them"),
        ),
    ],
    "other webhooks fault": [
        ("pod: the pod lacks part of our changes: one of thief removes them", steals),
        (
            "pod: spec.nodeSelector of a pod change each time that it is reviewed: another ",
            never_ends,
        ),
    ],
    "policies warning": [
        (
            "PodSchedulingPolicy shop/bad: is skipped",
            lambda w: policy(
                w, "bad", {"podSelector": {"matchLabels": {"no label!": ""}}}, space="shop"
            ),
        ),
        (
            "ClusterPodSchedulingPolicy odd: is skipped",
            lambda w: policy(w, "odd", {"podSelector": []}),
        ),
        (
            'ClusterPodSchedulingPolicy odd: unsupported value "deny" of harbourmaster.dev/',
            lambda w: policy(w, "odd", {"podSelector": {}}, {ON_TOO_LARGE: "deny"}),
        ),
    ],
    "policies note": [
        (
            "ClusterPodSchedulingPolicy none: selects nothing: it has no namespace",
            lambda w: policy(w, "none", {"podSelector": {}}),
        ),
        (
            "ClusterPodSchedulingPolicy none: selects nothing: it has no podSelec",
            lambda w: policy(w, "none", {"namespaceSelector": {}}),
        ),
        (
            "ClusterPodSchedulingPolicy none: selects nothing: its namespaceSelec",
            lambda w: policy(
                w, "none", {"podSelector": {}, "namespaceSelector": {"matchLabels": {"no": "one"}}}
            ),
        ),
        (
            "PodSchedulingPolicy kube-system/none: selects nothing: pods of the",
            lambda w: policy(w, "none", {"podSelector": {}}, space="kube-system"),
        ),
    ],
    "rescheduling warning": [
        (
            "pod kube-system/dns: does not tolerate CriticalAddonsOnly:NoSchedule: no room is made",
            lambda w: reschedules(w, (PODS, addon(tolerates=False))),
        ),
        (
            "pod kube-system/dns: has cluster-autoscaler.kubernetes.io/safe-to-evict",
            lambda w: reschedules(w, (PODS, addon(safe=True))),
        ),
        (
            "1 node: still reserved for critical add-ons though",
            lambda w: w.put(NODES, {"metadata": {"name": "n1", "annotations": RESERVATIONS}}),
        ),
    ],
    "rescheduling note": [
        (
            "PodDisruptionBudget kube-system/dns: covers the critical add-on dns",
            lambda w: reschedules(w, (PODS, addon()), (DISRUPTION_BUDGETS, BUDGET)),
        ),
    ],
    "versions fault": [
        (
            "API server: is Kubernetes 1.24, and 1.25 is the oldest that is supported",
            lambda w: w.version.update(minor="24"),
        ),
    ],
    "versions note": [
        (
            "API server: is Kubernetes 1.26: without scheduling gates",
            lambda w: w.version.update(minor="26+"),
        ),
        (
            "your clock: differs from the API server's by",
            lambda w: (setattr(w, "now", w.now + timedelta(minutes=3)), w.age(0)),
        ),
    ],
}
"""The findings by check and severity, each with the function that causes it."""
ROWS = [(check, *row) for check, rows in FAULTS.items() for row in rows]


@pytest.mark.parametrize(
    ("given", "text", "break_it"), ROWS, ids=[f"{row[0]}: {row[1][:60]}" for row in ROWS]
)
async def test_each_fault_is_named_with_what_to_do(cluster, given, text, break_it):
    report = await finds(cluster, given, text, break_it)
    assert report.healthy is given.endswith("note")
