"""``harbourmaster doctor`` on a real installation: its faults, its command, and break glass.

What an edited object of another kind leads to is in ``tests/unit/cli/test_doctor_*.py``.
"""

from __future__ import annotations

import base64
import contextlib
import json

import pytest

from harbourmaster.cli.doctor.checks import CHECKS
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.migrate.survey import read_observed
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.registration.break_glass import ANNOTATION
from helpers.cluster import bare_pod, eventually, rule, webhook_configuration
from helpers.command import harbourmaster
from helpers.doctor.deployed_installation import (
    HOME,
    NAME,
    findings_of,
    look,
    strange_bundle,
    until,
    webhook_of,
)
from helpers.flow.installation import Harbour
from helpers.patience import WAIT
from helpers.rights import kubeconfig
from helpers.stand_in import allow, stand_in

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
        "kubectl -n late rollout restart deployment/cart",
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


async def test_a_healthy_installation_is_said_to_be_healthy(patient, observer):
    report = await until(observer, lambda report: report.healthy)
    assert report.summary == "Harbourmaster is healthy."
    assert {finding.severity for finding in report.findings} <= {"ok", "note"}
    assert {finding.check for finding in report.findings} == {check.name for check in CHECKS}


@pytest.mark.parametrize("fault", FAULTS)
async def test_each_fault_is_named_with_its_remedy_and_healed(patient, observer, fault):
    make, (check, severity, words), remedy = FAULTS[fault]
    await until(observer, lambda report: report.healthy)
    with make(patient):
        report = await until(observer, lambda report: findings_of(report, check, severity, words))
        assert all(
            remedy in finding.remedy for finding in findings_of(report, check, severity, words)
        )
        assert not report.healthy
        order = [finding.severity for finding in report.findings]
        ranks = ["fault", "warning", "unknown", "note", "ok"]
        assert order == sorted(order, key=ranks.index)
    await until(observer, lambda report: report.healthy)


async def test_what_aks_adds_stays_and_the_namespace_that_it_excludes_is_named(patient, observer):
    await until(observer, lambda report: report.healthy)
    space = {"name": "managed", "annotations": {OPT_IN_KEY: OPT_IN}}
    space["labels"] = {"control-plane": "true"}
    added = {"key": "control-plane", "operator": "NotIn", "values": ["true"]}
    count = len(patient.stored_object(MUTATING, NAME)["webhooks"])
    paths = [f"/webhooks/{at}/namespaceSelector/matchExpressions/-" for at in range(count)]
    with patient.there({"apiVersion": "v1", "kind": "Namespace", "metadata": space}):
        patient.patch(MUTATING, NAME, [{"op": "add", "path": at, "value": added} for at in paths])
        # Its repair shows that the controller has seen the additions.
        slow = {"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 29}
        patient.patch(MUTATING, NAME, [slow])
        named = "namespace managed: has gates or policies, but what others added"
        report = await until(
            observer,
            lambda report: (
                findings_of(report, "configurations", "warning", named)
                and not findings_of(report, "configurations", "fault", "")
            ),
        )
        assert findings_of(
            report, "configurations", "note", json.dumps(added, separators=(",", ":"))
        )
        stored = patient.stored_object(MUTATING, NAME)["webhooks"]
        assert all(added in webhook["namespaceSelector"]["matchExpressions"] for webhook in stored)
        events = eventually(
            lambda: patient.kubectl("get", "events.events.k8s.io", "-o=json").stdout,
            is_right=lambda text: "NamespacesExcluded" in text,
        )
        assert "others exclude managed from gates and policies" in events
    await until(observer, lambda report: report.healthy)


async def test_pods_of_our_scheduler_are_no_leftovers_by_its_settings(patient, observer):
    pod = bare_pod("waits", {"namespace": "default"}, schedulerName="keptn-scheduler")
    with patient.there(pod):
        await until(observer, lambda report: findings_of(report, "leftovers", "fault", "pod waits"))
        with patient.configure("controller", "--scheduler-enabled=true"):
            report = await look(observer)
            assert not any("waits" in finding.subject for finding in report.findings)
            observed = await read_observed(Installation(observer, HOME))
            assert (observed.pods, observed.scheduled_pods) == ((), 0)
    await until(observer, lambda report: report.healthy)


def doctor(file, *arguments):
    return harbourmaster("doctor", *arguments, kubeconfig=file)


def test_the_command_prints_a_line_for_each_check_and_the_verdict_last(patient):
    done = doctor(patient.plane.kubeconfig)
    assert (done.returncode, done.stderr) == (0, "")
    *lines, empty, verdict = done.stdout.splitlines()
    assert (empty, verdict) == ("", "Harbourmaster is healthy.")
    assert "ok        canary          a pod tried in default was answered by version" in done.stdout
    result = json.loads(doctor(patient.plane.kubeconfig, "-o", "json").stdout)
    assert result["healthy"] is True
    assert len(lines) == sum(2 if finding["remedy"] else 1 for finding in result["findings"])


def test_without_rights_one_line_says_what_to_ask_for(patient, tmp_path):
    kubectl = patient.kubectl
    kubectl("create", "serviceaccount", "nobody", "--namespace=default")
    try:
        token = kubectl("create", "token", "nobody", "--namespace=default").stdout.strip()
        file = tmp_path / "nobody"
        file.write_text(kubeconfig(patient.plane.kubeconfig, token=token))
        done = doctor(file)
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith(
            "harbourmaster: system:serviceaccount:default:nobody has no permission to read "
        )
        assert "ask for the permissions to get mutatingwebhookconfigurations" in line
        # Whoever may see a part is told what of it is wrong, and what was not looked at.
        kubectl(
            "create",
            "clusterrolebinding",
            "nobody",
            "--clusterrole=view",
            "--serviceaccount=default:nobody",
        )
        done = doctor(file)
        assert done.returncode == 1
        assert "unknown " in done.stdout
        assert "FAULT" not in done.stdout
        assert done.stdout.splitlines()[-1].startswith("Unknown whether Harbourmaster is")
    finally:
        kubectl("delete", "clusterrolebinding", "nobody", "--ignore-not-found")
        kubectl("delete", "serviceaccount", "nobody", "--namespace=default")


def policies(deployed):
    return {
        webhook["name"]: webhook["failurePolicy"]
        for kind in (MUTATING, "validatingwebhookconfiguration")
        for webhook in deployed.stored_object(kind, NAME)["webhooks"]
    }


@pytest.mark.parametrize("is_alive", [True, False], ids=["controller at work", "controller dead"])
async def test_the_glass_is_broken_and_put_back_to_the_letter(patient, observer, is_alive):
    await until(observer, lambda report: report.healthy)
    before = policies(patient)
    file = patient.plane.kubeconfig
    with contextlib.nullcontext() if is_alive else patient.end_process("controller"):
        without = doctor(file, "--break-glass", "on")
        assert without.returncode == 2
        assert "--reason" in without.stderr
        assert policies(patient) == before
        done = doctor(file, "--break-glass", "on", "--reason", "incident 4711")
        assert (done.returncode, done.stderr) == (0, "")
        assert set(policies(patient).values()) == {"Ignore"}
        again = doctor(file, "--break-glass", "on", "--reason", "another")
        assert again.returncode == 0
        assert "on already" in again.stdout
        noted = json.loads(
            patient.stored_object(MUTATING, NAME)["metadata"]["annotations"][ANNOTATION]
        )
        assert (noted["by"], noted["reason"]) == ("playground-admin", "incident 4711")
        report = await until(
            observer,
            lambda report: findings_of(report, "configurations", "warning", "incident 4711"),
        )
        assert (
            "--break-glass off"
            in findings_of(report, "configurations", "warning", "4711")[0].remedy
        )
        if is_alive:
            # It looks at each change, and leaves this one alone.
            metrics = Harbour(patient.plane, patient.installation).metrics()
            kind = "MutatingWebhookConfiguration"
            assert metrics[f'harbourmaster_break_glass{{kind="{kind}"}}'] == 1
            assert set(policies(patient).values()) == {"Ignore"}
            assert "break-glass" in patient.installation.log("controller").read_text()
        off = doctor(file, "--break-glass", "off")
        assert (off.returncode, off.stderr) == (0, "")
        assert policies(patient) == before
        assert ANNOTATION not in patient.stored_object(MUTATING, NAME)["metadata"]["annotations"]
        assert "break-glass mode is off" in doctor(file, "--break-glass", "off").stdout
    events = json.loads(patient.kubectl("get", "events.events.k8s.io", "-o=json").stdout)["items"]
    notes = [event["note"] for event in events if event["reason"] == "BreakGlassStarted"]
    assert any(
        "playground-admin started break-glass mode" in note and "4711" in note for note in notes
    )
    await until(observer, lambda report: report.healthy)
    assert policies(patient) == before


async def test_with_the_glass_broken_pods_of_gated_namespaces_come_in(patient, observer):
    await until(observer, lambda report: report.healthy)
    metadata = {"name": "gated", "annotations": {OPT_IN_KEY: OPT_IN}}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    kubectl = patient.kubectl
    pod = ("run", "pod", "--image=none", "--namespace=gated", "--dry-run=server")
    with patient.there(manifest):
        kubectl(
            "wait",
            "--for=jsonpath={.metadata.labels.gates\\.harbourmaster\\.dev/enabled}=true",
            "namespace/gated",
            WAIT,
        )
        kubectl(
            "wait",
            "--for=create",
            "serviceaccount/default",
            "--namespace=gated",
            WAIT,
        )
        with patient.kill_process("webhook"):
            refused = kubectl(*pod, check=False)
            assert refused.returncode != 0
            assert "failed calling webhook" in refused.stderr
            done = doctor(patient.plane.kubeconfig, "--break-glass", "on", "--reason", "let in")
            assert done.returncode == 0
            # The API server learns of it a moment later.
            eventually(
                lambda: kubectl(*pod, check=False), is_right=lambda result: not result.returncode
            )
        assert doctor(patient.plane.kubeconfig, "--break-glass", "off").returncode == 0
    await until(observer, lambda report: report.healthy)
