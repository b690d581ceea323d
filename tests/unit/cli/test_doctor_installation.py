"""``harbourmaster doctor``: faults of the installation itself."""

from __future__ import annotations

import base64
from datetime import timedelta

import pytest

from harbourmaster.api.resources import (
    DEFINITIONS,
    DEPLOYMENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    POLICIES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING_WEBHOOKS,
)
from harbourmaster.certs.authority import create_authority
from harbourmaster.controller.registration.controller import names_of
from helpers.broken_installations import (
    ASKED,
    GATED,
    POD,
    flags,
    glass,
    leaf,
    namespace,
    policy,
    set_replicas,
    unready_pod,
)
from helpers.examined import (
    CONTROLLER,
    HOME,
    NAME,
    SECRET_NAME,
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


MUTATING = "MutatingWebhookConfiguration"
PULLING = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no\x1b[2J"}}}
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes",
}

AKS = {"control-plane": "true"}
LABEL = "gates.harbourmaster.dev/enabled"
STAGE = {"stage": "test"}


def exclude_as_aks(cluster):
    """Add to each webhook what the admissions enforcer of AKS adds."""
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        for webhook in cluster.at(resource, NAME)["webhooks"]:
            expressions = webhook["namespaceSelector"].setdefault("matchExpressions", [])
            expressions += [
                {"key": "control-plane", "operator": "NotIn", "values": ["true"]},
                {"key": "kubernetes.azure.com/managedby", "operator": "NotIn", "values": ["aks"]},
            ]


FAULTS = {
    "installation": {
        "no Deployment of the webhook": lambda w: w.remove(DEPLOYMENTS, WEBHOOK, HOME),
        "no ServiceAccount of the controller": lambda w: w.remove(
            SERVICE_ACCOUNTS, CONTROLLER, HOME
        ),
        "no Service of the webhook": lambda w: w.remove(SERVICES, WEBHOOK, HOME),
        "a Service without ready endpoints": lambda w: w.at(SERVICES, WEBHOOK, HOME)["spec"].update(
            type="ClusterIP"
        ),
        "a Deployment that is scaled to 0": lambda w: set_replicas(w, CONTROLLER, 0, 0),
        "a Deployment without ready replicas": lambda w: set_replicas(w, WEBHOOK, 3, 0),
        "no Lease": lambda w: w.remove(LEASES, CONTROLLER, HOME),
        "a Lease without holder": lambda w: w.at(LEASES, CONTROLLER, HOME)["spec"].update(
            holderIdentity=""
        ),
        "a Lease that was not renewed": lambda w: w.age(20),
        "a flag that does not exist": lambda w: flags(w, "--no-such=1"),
        "a settings file that is not mounted": lambda w: flags(
            w, "--config=/etc/none.yaml", name=WEBHOOK
        ),
        "a replica that cannot pull its image": lambda w: unready_pod(
            w, {"phase": "Pending", "containerStatuses": [PULLING]}
        ),
        "a replica that is unschedulable": lambda w: unready_pod(
            w, {"conditions": [UNSCHEDULABLE]}
        ),
        "Deployments with different images": lambda w: w.container(WEBHOOK).update(
            image="registry.example.com/other:2"
        ),
    },
    "certificates": {
        "no Secret": lambda w: w.remove(SECRETS, SECRET_NAME, HOME),
        "a Secret without private key": lambda w: w.at(SECRETS, SECRET_NAME, HOME)["data"].update(
            {"tls.key": b"x"}
        ),
        "a certificate for other names": lambda w: leaf(w, w.now, ["elsewhere.example.com"]),
        "a certificate of another authority": lambda w: leaf(
            w, w.now - timedelta(days=6.5), names_of(w.settings, HOME), create_authority(w.now)
        ),
        "an expired certificate": lambda w: leaf(
            w,
            w.now - timedelta(minutes=1),
            names_of(w.settings, HOME),
            lifetime=timedelta(seconds=1),
        ),
        "no caBundle": lambda w: w.entry(GATED)["clientConfig"].pop("caBundle"),
        "a caBundle without authority": lambda w: w.entry(GATED)["clientConfig"].update(
            caBundle="bm9uZQ=="
        ),
        "a conversion with another caBundle": lambda w: w.at(
            DEFINITIONS, "keptnapps.lifecycle.keptn.sh"
        )["spec"]["conversion"]["webhook"]["clientConfig"].update(
            caBundle=base64.b64encode(create_authority(w.now).certificate).decode()
        ),
    },
    "configurations": {
        "no configuration": lambda w: w.remove(MUTATING_WEBHOOKS, NAME),
        "another failurePolicy": lambda w: w.entry(POD).update(failurePolicy="Fail"),
        "a namespace with gates that AKS excludes": lambda w: (
            namespace(w, "aks", annotations=ASKED, labels={**AKS, LABEL: "true"}),
            namespace(w, "kept", annotations=ASKED, labels={LABEL: "true"}),
            exclude_as_aks(w),
        ),
        "namespaces with policies that AKS excludes": lambda w: (
            namespace(w, "own", labels=AKS),
            policy(w, "p", {"podSelector": {}}, space="own"),
            namespace(w, "chosen", labels={**AKS, "stage": "test"}),
            policy(w, "c", {"podSelector": {}, "namespaceSelector": {"matchLabels": STAGE}}),
            namespace(w, "neither", labels=AKS),
            w.put(POLICIES, {"metadata": {"name": "bad", "namespace": "own"}, "spec": 1}),
            exclude_as_aks(w),
        ),
        "another matchCondition": lambda w: w.entry(POD).update(
            matchConditions=[{"name": "n", "expression": "false"}]
        ),
        "a selector of manifests": lambda w: (
            flags(w, "--register-webhooks=false"),
            namespace(w, "aks", annotations=ASKED, labels={**AKS, LABEL: "true"}),
            w.at(MUTATING_WEBHOOKS, NAME)["metadata"].pop("annotations"),
            exclude_as_aks(w),
        ),
        "no labels": lambda w: w.at(MUTATING_WEBHOOKS, NAME)["metadata"].pop("labels"),
        "a configuration of another name": lambda w: w.put(
            VALIDATING_WEBHOOKS,
            {**w.at(VALIDATING_WEBHOOKS, NAME), "metadata": {"name": "old"}},
        ),
        "break-glass mode": glass,
        "break-glass mode with a webhook that fails closed": lambda w: (
            glass(w),
            w.entry(GATED).update(failurePolicy="Fail"),
        ),
    },
    "selectors": {
        "a webhook that selects our namespace": lambda w: w.entry(GATED).update(
            namespaceSelector={}
        ),
        "webhooks that select no namespace": lambda w: w.entry(POD).update(
            namespaceSelector={"matchLabels": {"no": "one"}}
        ),
        "an objectSelector that selects nothing": lambda w: w.entry(POD).update(
            objectSelector={"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}
        ),
        "a webhook that selects kube-system": lambda w: w.entry(POD).update(namespaceSelector={}),
        "two webhooks that select the same pods": lambda w: w.entry(GATED).update(
            namespaceSelector=w.entry(POD)["namespaceSelector"]
        ),
        "no webhook for pods": lambda w: w.at(MUTATING_WEBHOOKS, NAME).update(
            webhooks=[w.entry("templates.harbourmaster.dev")]
        ),
    },
    "gates": {
        "a namespace that asks without its label": lambda w: namespace(
            w, "asks", annotations=ASKED
        ),
        "gates that no controller opens": lambda w: (
            namespace(w, "asks", annotations=ASKED),
            flags(w, "--controllers=registration,namespaces"),
        ),
        "a namespace that is labelled without asking": lambda w: namespace(
            w, "left", labels={"gates.harbourmaster.dev/enabled": "true"}
        ),
        "a controller that mirrors no annotation": lambda w: flags(
            w, "--controllers=registration,lifecycle"
        ),
    },
}
"""The functions that cause faults by the check that finds them."""


async def test_a_namespace_whose_pods_must_wait_for_objects_may_have_the_label(cluster):
    labels = {
        "gates.harbourmaster.dev/enabled": "true",
        "gates.harbourmaster.dev/wait-for": "required",
    }
    namespace(cluster, "fair", labels=labels)
    assert findings(await examine(cluster), "gates") == []
    del labels["gates.harbourmaster.dev/enabled"]
    namespace(cluster, "fair", labels=labels)
    (finding,) = findings(await examine(cluster), "gates")
    assert finding.startswith("fault namespace fair: asks for gates, without the label ")


@each_fault(FAULTS)
async def test_each_fault_is_named_with_what_to_do(cluster, assert_golden, check, break_it):
    await assert_reported(cluster, assert_golden, check, break_it)
