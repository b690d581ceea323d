"""The faults that befall an installation, what doctor must say to each, and what to do."""

from __future__ import annotations

import base64
import contextlib
import json

from helpers.cluster import rule, webhook_configuration
from helpers.doctor import deployed_installation
from helpers.doctor.deployed_installation import CERTIFICATE, HOME, NAME, webhook_of
from helpers.patience import WAIT
from helpers.stand_in import allow, stand_in

MUTATING = "mutatingwebhookconfiguration"
VALIDATING = "validatingwebhookconfiguration"
GATED = "gated-pods.harbourmaster.dev"
PODS = "pods.harbourmaster.dev"
ANNOTATED = {"keptn.sh/lifecycle-toolkit": "enabled"}


def strange(configuration):
    authority, _ = deployed_installation.strange_bundle()
    bundle = base64.b64encode(authority.certificate).decode()
    webhook_of(configuration, GATED)["clientConfig"]["caBundle"] = bundle


def no_bundle(deployed):
    def edit(obj):
        del obj["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"]

    return deployed.edited("crd", "keptnapps.lifecycle.keptn.sh", edit)


def ended_certificate(deployed):
    def edit(obj):
        data = deployed.certificates()
        leaf = deployed_installation.ended_leaf(data, [f"harbourmaster-webhook.{HOME}.svc"])
        obj["data"]["tls.crt"] = base64.b64encode(leaf.certificate).decode()
        obj["data"]["tls.key"] = base64.b64encode(leaf.key).decode()

    return deployed.edited("secret", CERTIFICATE, edit, HOME)


@contextlib.contextmanager
def no_secret(deployed):
    with deployed.paused():
        stored = deployed.stored("secret", CERTIFICATE, HOME)
        deployed.kubectl("delete", "secret", CERTIFICATE, "--namespace", HOME)
        try:
            yield
        finally:
            for key in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
                stored["metadata"].pop(key, None)
            deployed.kubectl("create", "--filename=-", stdin=json.dumps(stored))


def other_policy(obj):
    webhook_of(obj, GATED).update(failurePolicy="Ignore")


def less_rules(obj):
    obj["webhooks"].remove(webhook_of(obj, PODS))


def annotated(deployed, name):
    """A namespace that asks for gates."""
    metadata = {"name": name, "annotations": ANNOTATED}
    return deployed.there({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


@contextlib.contextmanager
def no_label(deployed):
    with deployed.paused(), annotated(deployed, "unlabelled"):
        yield


@contextlib.contextmanager
def nobody_opens(deployed):
    flag = "--controllers=registration,namespaces,metrics"
    with deployed.configured("controller", flag), annotated(deployed, "waiting"):
        yield


def without(what, name, kind):
    """One of our manifests is not applied."""
    return lambda deployed: deployed.gone(what, name, deployed.shipped(kind, name))


def no_conversion(deployed):
    def edit(obj):
        obj["spec"]["conversion"] = {"strategy": "None"}

    return deployed.edited("crd", "keptnapps.lifecycle.keptn.sh", edit, is_paused=False)


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
def broken_policy(deployed):
    policy = {
        "apiVersion": "kupid.gardener.cloud/v1alpha1",
        "kind": "ClusterPodSchedulingPolicy",
        "metadata": {"name": "broken"},
        "spec": {
            "podSelector": {"matchLabels": {"no label!": ""}},
            "namespaceSelector": {},
        },
    }

    with contextlib.ExitStack() as stack:
        with deployed.gone(VALIDATING, NAME, None, is_paused=True):
            create = deployed.kubectl
            for _ in range(50):
                # The API server asks the webhook for a moment after it went.
                made = create("create", "-f=-", stdin=json.dumps(policy), check=False)
                if made.returncode == 0:
                    break
            assert made.returncode == 0, made.stderr
            gone = ("delete", "--ignore-not-found", "-f=-")
            stack.callback(lambda: deployed.kubectl(*gone, stdin=json.dumps(policy)))
        yield


def of_metrics(kind, name, **spec):
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "metrics.keptn.sh/v1", "kind": kind, "metadata": metadata, "spec": spec}


def wrong_credentials(deployed):
    """A metric whose provider finds only one of two keys in its Secret."""
    secret = {"name": "datadog", "namespace": "default"}
    reference = {"name": "datadog", "key": "APP_KEY"}
    server = {"type": "datadog", "targetServer": "https://datadog.example.com"}
    provider = {"name": "datadog"}
    items = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": secret,
            "stringData": {"DD_CLIENT_API_KEY": "a"},
        },
        of_metrics("KeptnMetricsProvider", "datadog", secretKeyRef=reference, **server),
        of_metrics("KeptnMetric", "load", query="q", fetchIntervalSeconds=5, provider=provider),
    ]
    return deployed.there({"apiVersion": "v1", "kind": "List", "items": items})


@contextlib.contextmanager
def stopped_elsewhere(deployed):
    """Rescheduling is on, and its stop is in a namespace where it has no effect."""
    metadata = {"name": "harbourmaster-rescheduling", "namespace": "default"}
    stop = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    with deployed.configured("controller", "--rescheduling-enabled=true"), deployed.there(stop):
        yield


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
        opt_in = next(f"{key}={value}" for key, value in ANNOTATED.items())
        deployed.kubectl("annotate", "namespace", "late", opt_in)
        yield


def unused_interval(deployed):
    objective = {"keptnMetricRef": {"name": "load"}, "evaluationTarget": "<5"}
    definition = {
        "apiVersion": "lifecycle.keptn.sh/v1",
        "kind": "KeptnEvaluationDefinition",
        "metadata": {"name": "ready", "namespace": "default"},
        "spec": {"objectives": [objective], "retryInterval": "0.5"},
    }
    return deployed.there(definition)


FAULTS = {
    "a caBundle that trusts somebody else": (
        lambda it: it.edited(MUTATING, NAME, strange),
        ("certificates", "fault", f"{GATED} (mutating): its caBundle does not trust"),
        "a running controller repairs it",
    ),
    "a conversion without caBundle": (
        no_bundle,
        ("certificates", "fault", "conversion of keptnapps.lifecycle.keptn.sh: has no caBundle"),
        "a running controller repairs it",
    ),
    "a certificate that has ended": (
        ended_certificate,
        ("certificates", "fault", f"Secret {HOME}/{CERTIFICATE}: tls.crt"),
        f"delete secret {CERTIFICATE}",
    ),
    "no certificates": (
        no_secret,
        ("certificates", "fault", f"Secret {HOME}/{CERTIFICATE}: not found"),
        "the controller writes it",
    ),
    "no configuration": (
        lambda it: it.gone(VALIDATING, NAME, None, is_paused=True),
        ("configurations", "fault", "ValidatingWebhookConfiguration harbourmaster: not found"),
        "a running controller creates it",
    ),
    "a policy that somebody edited": (
        lambda it: it.edited(MUTATING, NAME, other_policy),
        ("configurations", "fault", f"failurePolicy of {GATED} (mutating): is Ignore, Fail"),
        "webhook.gatedFailurePolicy",
    ),
    "a webhook that is not registered": (
        lambda it: it.edited(MUTATING, NAME, less_rules),
        ("configurations", "fault", f"webhook {PODS} (mutating): is missing"),
        "a running controller repairs it",
    ),
    "a namespace without its label": (
        no_label,
        ("gates", "fault", "namespace unlabelled: annotated"),
        "a running controller mirrors it",
    ),
    "a kind that is gone": (
        without("crd", "podschedulingpolicies.kupid.gardener.cloud", "CustomResourceDefinition"),
        ("definitions", "fault", "podschedulingpolicies.kupid.gardener.cloud: not found"),
        "kubectl apply --server-side -k deploy/crds",
    ),
    "a kind that does not convert": (
        no_conversion,
        ("definitions", "fault", "keptnapps.lifecycle.keptn.sh: does not convert"),
        "kubectl apply --server-side -k deploy/crds",
    ),
    "no rights": (
        without("clusterrolebinding", "harbourmaster-webhook", "ClusterRoleBinding"),
        ("rights", "fault", "ServiceAccount harbourmaster-webhook: lacks permission"),
        "docs/howto/installing.md",
    ),
    "a dead webhook": (
        lambda it: it.killed("webhook"),
        (
            "canary",
            "fault",
            "pod in default: admitted without a review: the webhook can't be called",
        ),
        "kubectl get pods",
    ),
    "a webhook that hangs": (
        lambda it: it.paused("webhook"),
        ("canary", "fault", "the webhook can't be called: "),
        'harbourmaster doctor --break-glass on --reason "no webhook answers"',
    ),
    "a key that a Secret lacks": (
        wrong_credentials,
        (
            "metrics",
            "warning",
            "secret does not contain DD_CLIENT_APP_KEY: 1 metric fail: load",
        ),
        "kubectl -n default edit secret datadog",
    ),
    "a stop of the rescheduler in another namespace": (
        stopped_elsewhere,
        ("rescheduling", "warning", "ConfigMap default/harbourmaster-rescheduling: stops no"),
        f"kubectl create configmap harbourmaster-rescheduling --namespace {HOME}",
    ),
    "an opt-in after the Deployment": (
        opted_in_late,
        ("workloads", "warning", "Deployment late/cart: 1 pod (cart-"),
        "kubectl -n late rollout restart deployment cart",
    ),
    "an interval that is not used": (
        unused_interval,
        ("checks", "warning", "KeptnEvaluationDefinition default/ready: spec.retryInterval: "),
        "write for example 30s",
    ),
    "a controller that ended": (
        lambda it: it.ended("controller"),
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
    "settings that can't be used": (
        lambda it: it.configured("controller", "--webhook-timeout-seconds=soon"),
        ("installation", "fault", "harbourmaster-controller: its settings are not valid: "),
        "edit deployment harbourmaster-controller",
    ),
    "gates that nobody opens": (
        nobody_opens,
        ("gates", "fault", "controller: releases no pod, and pods of waiting wait"),
        "add lifecycle to controllers",
    ),
    "a policy that is left out": (
        broken_policy,
        ("policies", "warning", "ClusterPodSchedulingPolicy broken: is skipped"),
        "correct it",
    ),
}
