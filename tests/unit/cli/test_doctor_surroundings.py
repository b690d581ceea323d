"""``harbourmaster doctor``: faults of kinds, rights, and of what is around us."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from harbourmaster.api.resources import (
    DEFINITIONS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    NODES,
    PODS,
    SECRETS,
)
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
from helpers.examined import (
    HOME,
    WEBHOOK,
    ExaminedCluster,
    assert_reported,
    each_fault,
    examine,
    findings,
)


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
    "definitions": {
        "a kind that is not defined": lambda w: w.remove(DEFINITIONS, TASKS),
        "a version that is not served": lambda w: w.at(DEFINITIONS, TASKS)["spec"].update(
            versions=[{"name": "v1alpha3", "served": True, "storage": True}]
        ),
        "a name that is taken": lambda w: w.at(DEFINITIONS, TASKS)["status"].update(
            conditions=[{"type": "NamesAccepted", "status": "False", "message": "taken"}]
        ),
        "a kind that is not established": lambda w: w.at(DEFINITIONS, TASKS)["status"].update(
            conditions=[]
        ),
        "a kind that does not convert": lambda w: w.at(DEFINITIONS, KEPTN_APPS)["spec"].update(
            conversion={"strategy": "None"}
        ),
        "kinds of placement that are not defined": lambda w: flags(w, "--placement-enabled=true"),
        "a former version in etcd": lambda w: w.at(DEFINITIONS, TASKS)["status"].update(
            storedVersions=["v1alpha3", "v1"]
        ),
        "a kind that another Service converts": lambda w: w.at(DEFINITIONS, KEPTN_APPS)["spec"][
            "conversion"
        ]["webhook"]["clientConfig"].update(
            service={"namespace": "keptn-system", "name": "lifecycle-webhook-service"}
        ),
        "an APIService that is unavailable": lambda w: api_service(w, conditions=[UNAVAILABLE]),
    },
    "rights": {
        "missing permissions of an account": lambda w: w.refused.update(
            {("patch", "pods"), ("list", "jobs")}
        ),
        "no permission to review permissions": lambda w: w.forbidden.add("subjectaccessreviews"),
        "no permission to read Secrets": lambda w: w.lacking.add("secrets"),
    },
    "canary": {
        "a webhook that cannot be called": silent(X509),
        "a webhook that refuses and does not answer": silent(),
        "webhooks that fail open": silent(denies=False),
        "a webhook that fails closed": refuses(
            'failed calling webhook "gated-pods.harbourmaster.dev": EOF', 500
        ),
        "a foreign webhook that cannot be called": refuses(
            'failed calling webhook "sidecars.example.com": EOF', 500
        ),
        "a foreign webhook that denies": refuses(
            'admission webhook "quota.example.com" denied the request: no'
        ),
        "no permission to create pods": refuses("pods is forbidden: User ada cannot create them"),
    },
    "other webhooks": {
        "a webhook that removes tolerations": steals,
        "a webhook that adds on each review": never_ends,
    },
    "policies": {
        "a selector that is invalid": lambda w: policy(
            w, "bad", {"podSelector": {"matchLabels": {"no label!": ""}}}, space="shop"
        ),
        "a selector of another type": lambda w: policy(w, "odd", {"podSelector": []}),
        "an annotation with an unknown value": lambda w: policy(
            w, "odd", {"podSelector": {}}, {ON_TOO_LARGE: "deny"}
        ),
        "no namespaceSelector": lambda w: policy(w, "none", {"podSelector": {}}),
        "no podSelector": lambda w: policy(w, "none", {"namespaceSelector": {}}),
        "a namespaceSelector without namespace": lambda w: policy(
            w, "none", {"podSelector": {}, "namespaceSelector": {"matchLabels": {"no": "one"}}}
        ),
        "a policy in kube-system": lambda w: policy(
            w, "none", {"podSelector": {}}, space="kube-system"
        ),
    },
    "rescheduling": {
        "an add-on without toleration": lambda w: reschedules(w, (PODS, addon(tolerates=False))),
        "an add-on that may be evicted": lambda w: reschedules(w, (PODS, addon(safe=True))),
        "a node that stays reserved": lambda w: w.put(
            NODES, {"metadata": {"name": "n1", "annotations": RESERVATIONS}}
        ),
        "a budget of an add-on": lambda w: reschedules(
            w, (PODS, addon()), (DISRUPTION_BUDGETS, BUDGET)
        ),
    },
    "versions": {
        "Kubernetes that is too old": lambda w: w.version.update(minor="24"),
        "Kubernetes without scheduling gates": lambda w: w.version.update(minor="26+"),
        "a clock that differs": lambda w: (
            setattr(w, "now", w.now + timedelta(minutes=3)),
            w.age(0),
        ),
    },
}
"""The functions that cause faults by the check that finds them."""


async def test_the_helm_release_of_the_installation_is_no_leftover(cluster):
    def owned_by(release):
        names = ("meta.helm.sh/release-name", "meta.helm.sh/release-namespace")
        return dict(zip(names, (release, HOME), strict=True))

    for release in ("harbourmaster", "keptn"):
        record = {"metadata": {"name": f"sh.helm.release.v1.{release}.v1", "namespace": HOME}}
        cluster.put(SECRETS, record)
    cluster.at(DEPLOYMENTS, WEBHOOK, HOME)["metadata"]["annotations"] = owned_by("harbourmaster")
    definitions = cluster.at(DEFINITIONS, KEPTN_APPS), cluster.at(DEFINITIONS, TASKS)
    for definition in definitions:
        definition["metadata"]["annotations"] = owned_by("harbourmaster")
    assert findings(await examine(cluster), "leftovers") == []
    definitions[0]["metadata"]["annotations"] = owned_by("keptn")
    (finding,) = findings(await examine(cluster), "leftovers")
    assert finding.startswith(f"warning helm release keptn in namespace {HOME}: ")


@each_fault(FAULTS)
async def test_each_fault_is_named_with_what_to_do(cluster, assert_golden, check, break_it):
    await assert_reported(cluster, assert_golden, check, break_it)
