"""``harbourmaster doctor`` on a real installation: each fault by its name, and well again.

What an edited object of another kind leads to is in ``tests/unit/cli/test_doctor_*.py``.
"""

from __future__ import annotations

import base64
import contextlib

import pytest

from harbourmaster.cli.doctor.checks import CHECKS
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.migrate.survey import read_observed
from helpers.cluster import rule, webhook_configuration
from helpers.doctor.deployed_installation import (
    HOME,
    NAME,
    findings_of,
    look,
    strange_bundle,
    until,
    webhook_of,
)
from helpers.patience import WAIT
from helpers.stand_in import allow, stand_in

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

MUTATING = "mutatingwebhookconfiguration"
GATED = "gated-pods.harbourmaster.dev"
PODS = "pods.harbourmaster.dev"
POLICIES = "podschedulingpolicies.kupid.gardener.cloud"


def strange(configuration):
    authority, _ = strange_bundle()
    bundle = base64.b64encode(authority.certificate).decode()
    webhook_of(configuration, GATED)["clientConfig"]["caBundle"] = bundle


def other_policy(obj):
    webhook_of(obj, GATED).update(failurePolicy="Ignore")


def less_rules(obj):
    obj["webhooks"].remove(webhook_of(obj, PODS))


def takes_away(pod):
    return [{"op": "add", "path": "/spec/tolerations", "value": []}]


def never_ends(pod):
    number = len(pod["spec"].get("tolerations", ()))
    toleration = {"key": f"example.com/{number}", "operator": "Exists"}
    return [{"op": "add", "path": "/spec/tolerations/-", "value": toleration}]


def with_other_webhook(patch):
    """A foreign webhook, which answers each pod with ``patch(pod)``."""

    async def answer(request):
        review = await request.json()
        return allow(review, *patch(review["request"]["object"]))

    @contextlib.contextmanager
    def fault(deployed):
        with stand_in(answer) as (url, authority):
            # Like ours it is called again after changes of others: the last call wins.
            foreign = webhook_configuration(
                "Mutating",
                url,
                authority,
                name="meddler",
                webhook="meddler.example.com",
                failurePolicy="Ignore",
                namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "default"}},
                rules=[rule(["pods"])],
            )
            with deployed.there(foreign):
                yield

    return fault


@contextlib.contextmanager
def opted_in_late(deployed):
    """A Deployment whose pods were created before its namespace got gates."""
    keys = {
        "keptn.sh/workload": "cart",
        "keptn.sh/version": "1",
        "keptn.sh/post-deployment-tasks": "notify",
    }
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "late"}}
    labels = {"app": "cart"}
    template = {
        "metadata": {"labels": labels, "annotations": keys},
        "spec": {"containers": [{"name": "cart", "image": "registry.example.com/cart:1"}]},
    }
    cart = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "cart", "namespace": "late"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    with deployed.there(space):
        deployed.apply(cart)
        deployed.kubectl("rollout", "status", WAIT, "--namespace=late", "deployment/cart")
        deployed.kubectl("annotate", "namespace", "late", "keptn.sh/lifecycle-toolkit=enabled")
        yield


FAULTS = {
    "a caBundle that trusts somebody else": (
        lambda it: it.edit_object(MUTATING, NAME, strange),
        ("certificates", "fault", f"{GATED} (mutating): its caBundle does not trust"),
        "a running controller repairs it",
    ),
    "a policy that somebody edited": (
        lambda it: it.edit_object(MUTATING, NAME, other_policy),
        ("configurations", "fault", f"failurePolicy of {GATED} (mutating): is Ignore, Fail"),
        "webhook.gatedFailurePolicy",
    ),
    "a webhook that is not registered": (
        lambda it: it.edit_object(MUTATING, NAME, less_rules),
        ("configurations", "fault", f"webhook {PODS} (mutating): is missing"),
        "a running controller repairs it",
    ),
    "a kind that is gone": (
        lambda it: it.delete_object("crd", POLICIES, "CustomResourceDefinition"),
        ("definitions", "fault", f"{POLICIES}: not found"),
        "kubectl apply --server-side -k deploy/crds",
    ),
    "no rights": (
        lambda it: it.delete_object(
            "clusterrolebinding", "harbourmaster-webhook", "ClusterRoleBinding"
        ),
        ("rights", "fault", "ServiceAccount harbourmaster-webhook: lacks permission"),
        "docs/howto/installing.md",
    ),
    "a dead webhook": (
        lambda it: it.kill_process("webhook"),
        (
            "canary",
            "fault",
            "pod in default: admitted without a review: the webhook can't be called",
        ),
        "kubectl get pods",
    ),
    "a webhook that hangs": (
        lambda it: it.pause_process("webhook"),
        ("canary", "fault", "the webhook can't be called: "),
        'harbourmaster doctor --break-glass on --reason "no webhook answers"',
    ),
    "an opt-in after the Deployment": (
        opted_in_late,
        ("workloads", "warning", "Deployment late/cart: 1 pod (cart-"),
        "kubectl -n late rollout restart deployment cart",
    ),
    "a controller that ended": (
        lambda it: it.end_process("controller"),
        ("installation", "fault", "harbourmaster-controller: has no holder"),
        "logs deployment/harbourmaster-controller",
    ),
    "a webhook that takes ours away": (
        with_other_webhook(takes_away),
        ("other webhooks", "fault", "pod: the pod lacks part of our changes: one of meddler"),
        "exclude our fields there",
    ),
    "a webhook that never ends": (
        with_other_webhook(never_ends),
        ("other webhooks", "fault", "pod: spec.tolerations of a pod change each time"),
        "have only one of the two",
    ),
}


async def test_a_healthy_installation_is_said_to_be_healthy(deployed, doctored):
    report = await until(doctored, lambda report: report.healthy)
    assert report.summary == "Harbourmaster is healthy."
    assert {finding.severity for finding in report.findings} <= {"ok", "note"}
    assert {finding.check for finding in report.findings} == {check.name for check in CHECKS}


@pytest.mark.parametrize("fault", FAULTS)
async def test_each_fault_is_named_with_its_remedy_and_healed(deployed, doctored, fault):
    make, (check, severity, words), remedy = FAULTS[fault]
    await until(doctored, lambda report: report.healthy)
    with make(deployed):
        report = await until(doctored, lambda report: findings_of(report, check, severity, words))
        assert all(
            remedy in finding.remedy for finding in findings_of(report, check, severity, words)
        )
        assert not report.healthy
        order = [finding.severity for finding in report.findings]
        ranks = ["fault", "warning", "unknown", "note", "ok"]
        assert order == sorted(order, key=ranks.index)
    await until(doctored, lambda report: report.healthy)


async def test_pods_of_our_scheduler_are_no_leftovers_by_its_settings(deployed, doctored):
    spec = {
        "schedulerName": "keptn-scheduler",
        "containers": [{"name": "ledger", "image": "registry.example.com/ledger:3"}],
    }
    metadata = {"name": "waits", "namespace": "default"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    with deployed.there(pod):
        await until(doctored, lambda report: findings_of(report, "leftovers", "fault", "pod waits"))
        with deployed.configure("controller", "--scheduler-enabled=true"):
            report = await look(doctored)
            assert not any("waits" in finding.subject for finding in report.findings)
            observed = await read_observed(Installation(doctored, HOME))
            assert (observed.pods, observed.scheduled_pods) == ((), 0)
    await until(doctored, lambda report: report.healthy)
