"""``harbourmaster doctor``: faults of kinds, rights, and of what is around us."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from harbourmaster.api.resources import (
    DEFINITIONS,
    DISRUPTION_BUDGETS,
    NODES,
    PODS,
)
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
from helpers.examined import (
    CONTROLLER,
    ExaminedCluster,
    finds,
)


@pytest.fixture
def cluster():
    return ExaminedCluster()


FAULTS = [
    # definitions
    (
        "definitions fault",
        "definition keptntasks.lifecycle.keptn.sh: not found, so such objects can't be ",
        lambda w: w.remove(DEFINITIONS, "keptntasks.lifecycle.keptn.sh"),
    ),
    (
        "definitions fault",
        "definition keptntasks.lifecycle.keptn.sh: does not serve v1, which we ask for, but ",
        lambda w: w.at(DEFINITIONS, "keptntasks.lifecycle.keptn.sh")["spec"].update(
            versions=[{"name": "v1alpha3", "served": True, "storage": True}]
        ),
    ),
    (
        "definitions fault",
        "definition keptntasks.lifecycle.keptn.sh: is not served: taken",
        lambda w: w.at(DEFINITIONS, "keptntasks.lifecycle.keptn.sh")["status"].update(
            conditions=[{"type": "NamesAccepted", "status": "False", "message": "taken"}]
        ),
    ),
    (
        "definitions fault",
        "definition keptntasks.lifecycle.keptn.sh: is not served yet",
        lambda w: w.at(DEFINITIONS, "keptntasks.lifecycle.keptn.sh")["status"].update(
            conditions=[]
        ),
    ),
    (
        "definitions note",
        "definition keptntasks.lifecycle.keptn.sh: some objects may still be stored as ",
        lambda w: w.at(DEFINITIONS, "keptntasks.lifecycle.keptn.sh")["status"].update(
            storedVersions=["v1alpha3", "v1"]
        ),
    ),
    (
        "definitions fault",
        "definition keptnapps.lifecycle.keptn.sh: does not convert",
        lambda w: w.at(DEFINITIONS, "keptnapps.lifecycle.keptn.sh")["spec"].update(
            conversion={"strategy": "None"}
        ),
    ),
    (
        "definitions warning",
        "definition keptnapps.lifecycle.keptn.sh: is converted by Service ",
        lambda w: w.at(DEFINITIONS, "keptnapps.lifecycle.keptn.sh")["spec"]["conversion"][
            "webhook"
        ]["clientConfig"].update(
            service={"namespace": "keptn-system", "name": "lifecycle-webhook-service"}
        ),
    ),
    (
        "definitions fault",
        "definition applications.placement.harbourmaster.dev, ",
        lambda w: flags(w, "--placement-enabled=true"),
    ),
    (
        "definitions warning",
        "APIService v1beta1.custom.metrics.k8s.io: the API server can't reach it: Failed: no",
        lambda w: api_service(
            w,
            conditions=[
                {"type": "Available", "status": "False", "reason": "Failed", "message": "no"}
            ],
        ),
    ),
    # rights
    (
        "rights fault",
        f"ServiceAccount {CONTROLLER}: lacks permission to list jobs.batch, patch pods",
        lambda w: w.refused.update({("patch", "pods"), ("list", "jobs")}),
    ),
    (
        "rights unread",
        "ServiceAccounts: missing permission to review others' permissions",
        lambda w: w.forbidden.add("subjectaccessreviews"),
    ),
    (
        "rights note",
        "ada: missing permission to get secrets: some of this could not be read",
        lambda w: w.lacking.add("secrets"),
    ),
    # canary
    (
        "canary fault",
        "pod in default: admitted without a review: the webhook can't be called: tls: failed to ",
        silent(X509),
    ),
    (
        "canary fault",
        "pod in default: admitted without our answer, though the webhook refuses an invalid policy",
        silent(),
    ),
    (
        "canary fault",
        "pod in default: admitted without a review: no webhook answered, and its webhooks ",
        silent(denies=False),
    ),
    (
        "canary fault",
        "pod in default: refused: gated-pods.harbourmaster.dev can't be called: EOF",
        refuses('failed calling webhook "gated-pods.harbourmaster.dev": EOF', 500),
    ),
    (
        "canary unread",
        "pod in default: refused: another party's webhook sidecars.example.com",
        refuses('failed calling webhook "sidecars.example.com": EOF', 500),
    ),
    (
        "canary unread",
        "pod in default: refused before our answer could be seen: admission webhook ",
        refuses('admission webhook "quota.example.com" denied the request: no'),
    ),
    (
        "canary unread",
        "pod in default: missing permission to create pods there: pods is forbidden: User ada ",
        refuses("pods is forbidden: User ada cannot create them"),
    ),
    (
        "other webhooks fault",
        "pod: the pod lacks part of our changes: one of thief removes them",
        steals,
    ),
    (
        "other webhooks fault",
        "pod: spec.nodeSelector of a pod change each time that it is reviewed: another ",
        never_ends,
    ),
    # policies
    (
        "policies warning",
        "PodSchedulingPolicy shop/bad: is skipped",
        lambda w: policy(
            w, "bad", {"podSelector": {"matchLabels": {"no label!": ""}}}, space="shop"
        ),
    ),
    (
        "policies warning",
        "ClusterPodSchedulingPolicy odd: is skipped",
        lambda w: policy(w, "odd", {"podSelector": []}),
    ),
    (
        "policies note",
        "ClusterPodSchedulingPolicy none: selects nothing: it has no namespace",
        lambda w: policy(w, "none", {"podSelector": {}}),
    ),
    (
        "policies note",
        "ClusterPodSchedulingPolicy none: selects nothing: it has no podSelec",
        lambda w: policy(w, "none", {"namespaceSelector": {}}),
    ),
    (
        "policies note",
        "ClusterPodSchedulingPolicy none: selects nothing: its namespaceSelec",
        lambda w: policy(
            w, "none", {"podSelector": {}, "namespaceSelector": {"matchLabels": {"no": "one"}}}
        ),
    ),
    (
        "policies note",
        "PodSchedulingPolicy kube-system/none: selects nothing: pods of the",
        lambda w: policy(w, "none", {"podSelector": {}}, space="kube-system"),
    ),
    # rescheduling
    (
        "rescheduling warning",
        "pod kube-system/dns: does not tolerate CriticalAddonsOnly:NoSchedule: no room is made",
        lambda w: (flags(w, "--rescheduling-enabled=true"), w.put(PODS, addon(tolerates=False))),
    ),
    (
        "rescheduling warning",
        "pod kube-system/dns: has cluster-autoscaler.kubernetes.io/safe-to-evict",
        lambda w: (flags(w, "--rescheduling-enabled=true"), w.put(PODS, addon(safe=True))),
    ),
    (
        "rescheduling note",
        "PodDisruptionBudget kube-system/dns: covers the critical add-on dns",
        lambda w: (
            flags(w, "--rescheduling-enabled=true"),
            w.put(PODS, addon()),
            w.put(
                DISRUPTION_BUDGETS,
                {
                    "metadata": {"name": "dns", "namespace": "kube-system"},
                    "spec": {"selector": {"matchLabels": {"k8s-app": "dns"}}},
                },
            ),
        ),
    ),
    (
        "rescheduling warning",
        "1 node: still reserved for critical add-ons though",
        lambda w: w.put(
            NODES,
            {
                "metadata": {
                    "name": "n1",
                    "annotations": {
                        "rescheduler.harbourmaster.dev/reservations": json.dumps(
                            [
                                {
                                    "uid": "u",
                                    "pod": "kube-system/dns",
                                    "since": "2026-01-01T00:00:00Z",
                                }
                            ]
                        )
                    },
                }
            },
        ),
    ),
    # surroundings
    (
        "versions fault",
        "API server: is Kubernetes 1.24, and 1.25 is the oldest that is supported",
        lambda w: w.version.update(minor="24"),
    ),
    (
        "versions note",
        "API server: is Kubernetes 1.26: without scheduling gates",
        lambda w: w.version.update(minor="26+"),
    ),
    (
        "versions note",
        "your clock: differs from the API server's by",
        lambda w: (setattr(w, "now", w.now + timedelta(minutes=3)), w.age(0)),
    ),
]


@pytest.mark.parametrize(
    ("found", "text", "break_it"), FAULTS, ids=[f"{one[0]}: {one[1][:60]}" for one in FAULTS]
)
async def test_each_fault_is_named_with_what_to_do(cluster, found, text, break_it):
    report = await finds(cluster, found, text, break_it)
    assert report.healthy is found.endswith("note")
