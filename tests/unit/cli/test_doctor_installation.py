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
    scaled,
    unready_pod,
)
from helpers.examined import CONTROLLER, HOME, NAME, SECRET_NAME, WEBHOOK, ExaminedCluster, finds


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

FAULTS = {
    "installation fault": [
        (
            f"Harbourmaster: is only partly installed: no Deployment {WEBHOOK}",
            lambda w: w.remove(DEPLOYMENTS, WEBHOOK, HOME),
        ),
        (
            f"Harbourmaster: is only partly installed: no ServiceAccount {CONTROLLER}",
            lambda w: w.remove(SERVICE_ACCOUNTS, CONTROLLER, HOME),
        ),
        (
            f"Harbourmaster: is only partly installed: no Service {HOME}/{WEBHOOK}",
            lambda w: w.remove(SERVICES, WEBHOOK, HOME),
        ),
        (
            f"Service {HOME}/{WEBHOOK}: has no ready endpoint, so the API server reaches no",
            lambda w: w.at(SERVICES, WEBHOOK, HOME)["spec"].update(type="ClusterIP"),
        ),
        (
            f"Deployment {CONTROLLER}: is scaled to 0 replicas",
            lambda w: scaled(w, CONTROLLER, 0, 0),
        ),
        (f"Deployment {WEBHOOK}: 0 of 3 replicas are ready", lambda w: scaled(w, WEBHOOK, 3, 0)),
        (
            f"Lease {HOME}/{CONTROLLER}: not found: no controller has led yet, so nothing is ",
            lambda w: w.remove(LEASES, CONTROLLER, HOME),
        ),
        (
            f"Lease {HOME}/{CONTROLLER}: has no holder: no controller runs",
            lambda w: w.at(LEASES, CONTROLLER, HOME)["spec"].update(holderIdentity=""),
        ),
        (
            f"Lease {HOME}/{CONTROLLER}: was renewed 19 s ago by pod-1, which is late: no",
            lambda w: w.age(20),
        ),
        (
            f"Deployment {CONTROLLER}: its settings are not valid: unrecognized arguments: ",
            lambda w: flags(w, "--no-such=1"),
        ),
        (
            f"Deployment {WEBHOOK}: its settings are not valid: /etc/none.yaml is mo",
            lambda w: flags(w, "--config=/etc/none.yaml", name=WEBHOOK),
        ),
    ],
    "installation warning": [
        (
            f"Deployment {WEBHOOK}: 2 of 3 replicas are ready: w-1 ImagePullBackOff no\x1b[2J",
            lambda w: unready_pod(w, {"phase": "Pending", "containerStatuses": [PULLING]}),
        ),
        (
            f"Deployment {WEBHOOK}: 2 of 3 replicas are ready: w-1 Unschedulable: 0/3 nodes",
            lambda w: unready_pod(w, {"conditions": [UNSCHEDULABLE]}),
        ),
        (
            "Deployments: controller and webhook run different images: harbourmaster, ",
            lambda w: w.container(WEBHOOK).update(image="registry.example.com/other:2"),
        ),
    ],
    "certificates fault": [
        (
            f"Secret {HOME}/{SECRET_NAME}: not found: no webhook can start",
            lambda w: w.remove(SECRETS, SECRET_NAME, HOME),
        ),
        (
            f"Secret {HOME}/{SECRET_NAME}: tls.key holds no unencrypted private key in PEM form",
            lambda w: w.at(SECRETS, SECRET_NAME, HOME)["data"].update({"tls.key": b"x"}),
        ),
        (
            f"Secret {HOME}/{SECRET_NAME}: tls.crt is not valid for harbourmaster-metrics,",
            lambda w: leaf(w, w.now, ["elsewhere.example.com"]),
        ),
        (
            f"Secret {HOME}/{SECRET_NAME}: tls.crt",
            lambda w: leaf(
                w, w.now - timedelta(days=6.5), names_of(w.settings, HOME), create_authority(w.now)
            ),
        ),
        (
            f"{GATED} (mutating): has no caBundle, so the API server refuses our certificate",
            lambda w: w.entry(GATED)["clientConfig"].pop("caBundle"),
        ),
        (
            f"{GATED} (mutating): its caBundle holds no valid authority",
            lambda w: w.entry(GATED)["clientConfig"].update(caBundle="bm9uZQ=="),
        ),
        (
            "conversion of keptnapps.lifecycle.keptn.sh: its caBundle does not trust the ",
            lambda w: w.at(DEFINITIONS, "keptnapps.lifecycle.keptn.sh")["spec"]["conversion"][
                "webhook"
            ]["clientConfig"].update(
                caBundle=base64.b64encode(create_authority(w.now).certificate).decode()
            ),
        ),
    ],
    "configurations fault": [
        (
            f"{MUTATING} harbourmaster: not found: the API server does not call ",
            lambda w: w.remove(MUTATING_WEBHOOKS, NAME),
        ),
        (
            f"failurePolicy of {POD} (mutating): is Fail, Ignore expected",
            lambda w: w.entry(POD).update(failurePolicy="Fail"),
        ),
        (
            f'matchConditions of {POD} (mutating): is [{{"name":"n","expression":"false"}}], ',
            lambda w: w.entry(POD).update(matchConditions=[{"name": "n", "expression": "false"}]),
        ),
    ],
    "configurations warning": [
        ("metadata.labels", lambda w: w.at(MUTATING_WEBHOOKS, NAME)["metadata"].pop("labels")),
        (
            "ValidatingWebhookConfiguration old: has webhooks of ours as well as harbourmaster",
            lambda w: w.put(
                VALIDATING_WEBHOOKS,
                {**w.at(VALIDATING_WEBHOOKS, NAME), "metadata": {"name": "old"}},
            ),
        ),
        (f"{MUTATING}: break-glass mode is on, by ada: fire: all its", glass),
        (
            f"{MUTATING}: break-glass mode is on, by ada: fire: but {GATED}",
            lambda w: (glass(w), w.entry(GATED).update(failurePolicy="Fail")),
        ),
    ],
    "selectors fault": [
        (
            f"{GATED}: selects our own namespace {HOME}: while no webhook answers, none can be ",
            lambda w: w.entry(GATED).update(namespaceSelector={}),
        ),
        (
            "pods: no webhook on pods selects any namespace of this cluster: nothing is ever ",
            lambda w: w.entry(POD).update(namespaceSelector={"matchLabels": {"no": "one"}}),
        ),
        (
            f"{POD}: its objectSelector can select no object",
            lambda w: w.entry(POD).update(
                objectSelector={"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}
            ),
        ),
    ],
    "selectors warning": [
        (
            f"{POD}: selects kube-system: what the cluster itself needs waits for us",
            lambda w: w.entry(POD).update(namespaceSelector={}),
        ),
        (
            f"{POD} and {GATED}: both select pods of default, shop: each is reviewed twice",
            lambda w: w.entry(GATED).update(namespaceSelector=w.entry(POD)["namespaceSelector"]),
        ),
        (
            f"{MUTATING}: no webhook is registered for pods, so policies and gates ",
            lambda w: w.at(MUTATING_WEBHOOKS, NAME).update(
                webhooks=[w.entry("templates.harbourmaster.dev")]
            ),
        ),
    ],
    "gates fault": [
        (
            "namespace asks: annotated keptn.sh/lifecycle-toolkit, without",
            lambda w: namespace(w, "asks", annotations=ASKED),
        ),
        (
            "controller: releases no pod, and pods of asks wait at gates",
            lambda w: (
                namespace(w, "asks", annotations=ASKED),
                flags(w, "--controllers=registration,namespaces"),
            ),
        ),
    ],
    "gates warning": [
        (
            "namespace left: labelled gates.harbourmaster.dev/enabled without",
            lambda w: namespace(w, "left", labels={"gates.harbourmaster.dev/enabled": "true"}),
        ),
        (
            "controller: does not mirror the annotation of namespaces",
            lambda w: flags(w, "--controllers=registration,lifecycle"),
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
