"""The faults that befall an installation, what doctor must say to each, and what to do."""

from __future__ import annotations

import base64
import contextlib
import json

from helpers import ailing as told
from helpers.ailing import CERTIFICATE, HOME, NAME, Meddler, webhook_of

MUTATING = "mutatingwebhookconfiguration"
VALIDATING = "validatingwebhookconfiguration"
GATED = "gated-pods.harbourmaster.dev"
PODS = "pods.harbourmaster.dev"
ANNOTATED = {"keptn.sh/lifecycle-toolkit": "enabled"}


def strange(configuration):
    authority, _ = told.strange_bundle()
    bundle = base64.b64encode(authority.certificate).decode()
    webhook_of(configuration, GATED)["clientConfig"]["caBundle"] = bundle


def untrusted_bundle(ailing, _directory):
    return ailing.edited(MUTATING, NAME, strange)


def no_bundle(ailing, _directory):
    def edit(one):
        del one["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"]

    return ailing.edited("crd", "keptnapps.lifecycle.keptn.sh", edit)


def ended_certificate(ailing, _directory):
    def edit(one):
        data = ailing.certificates()
        leaf = told.ended_leaf(data, [f"harbourmaster-webhook.{HOME}.svc"])
        one["data"]["tls.crt"] = base64.b64encode(leaf.certificate).decode()
        one["data"]["tls.key"] = base64.b64encode(leaf.key).decode()

    return ailing.edited("secret", CERTIFICATE, edit, HOME)


def no_secret(ailing, _directory):
    @contextlib.contextmanager
    def fault():
        with ailing.paused():
            stored = ailing.stored("secret", CERTIFICATE, HOME)
            ailing.kubectl("delete", "secret", CERTIFICATE, "--namespace", HOME)
            try:
                yield
            finally:
                for key in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
                    stored["metadata"].pop(key, None)
                ailing.kubectl("create", "--filename=-", stdin=json.dumps(stored))

    return fault()


def no_configuration(ailing, _directory):
    return ailing.gone(VALIDATING, NAME, None, is_paused=True)


def other_policy(ailing, _directory):
    return ailing.edited(
        MUTATING, NAME, lambda one: webhook_of(one, GATED).update(failurePolicy="Ignore")
    )


def less_rules(ailing, _directory):
    return ailing.edited(MUTATING, NAME, lambda one: one["webhooks"].remove(webhook_of(one, PODS)))


def twin(ailing, _directory):
    configuration = ailing.stored(VALIDATING, NAME)
    configuration["metadata"] = {"name": "harbourmaster-of-yesterday"}
    return ailing.there(configuration)


def selects_home(ailing, _directory):
    return ailing.edited(
        MUTATING, NAME, lambda one: webhook_of(one, PODS).update(namespaceSelector={})
    )


def selects_nothing(ailing, _directory):
    never = {
        "matchLabels": {"a": "b"},
        "matchExpressions": [{"key": "a", "operator": "DoesNotExist"}],
    }
    return ailing.edited(
        MUTATING, NAME, lambda one: webhook_of(one, PODS).update(objectSelector=never)
    )


def no_label(ailing, _directory):
    @contextlib.contextmanager
    def fault():
        metadata = {"name": "unlabelled", "annotations": ANNOTATED}
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        with ailing.paused(), ailing.there(manifest):
            yield

    return fault()


def no_kind(ailing, _directory):
    name = "podschedulingpolicies.kupid.gardener.cloud"
    return ailing.gone("crd", name, ailing.shipped("CustomResourceDefinition", name))


def no_conversion(ailing, _directory):
    def edit(one):
        one["spec"]["conversion"] = {"strategy": "None"}

    return ailing.edited("crd", "keptnapps.lifecycle.keptn.sh", edit, is_paused=False)


def no_rights(ailing, _directory):
    name = "harbourmaster-webhook"
    return ailing.gone("clusterrolebinding", name, ailing.shipped("ClusterRoleBinding", name))


def dead_webhook(ailing, _directory):
    return ailing.killed("webhook")


def no_leader(ailing, _directory):
    return ailing.ended("controller")


def takes_away(pod):
    return [{"op": "add", "path": "/spec/tolerations", "value": []}]


def never_ends(pod):
    number = len(pod["spec"].get("tolerations", ()))
    toleration = {"key": f"example.com/{number}", "operator": "Exists"}
    return [{"op": "add", "path": "/spec/tolerations/-", "value": toleration}]


def meddled(patch):
    def fault(ailing, directory):
        @contextlib.contextmanager
        def meddling():
            with (
                Meddler(directory, patch) as other,
                ailing.there(other.configuration("meddler")),
            ):
                yield

        return meddling()

    return fault


def of_kupid(ailing, _directory):
    return ailing.there(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "gardener-extension-kupid"},
            "webhooks": [
                {
                    "name": "podschedulingpolicies.kupid.gardener.cloud",
                    "admissionReviewVersions": ["v1"],
                    "clientConfig": {"service": {"name": "kupid", "namespace": "nowhere"}},
                    "failurePolicy": "Ignore",
                    "namespaceSelector": {"matchLabels": {"example.com/never": ""}},
                    "rules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "operations": ["CREATE"],
                            "resources": ["pods"],
                        }
                    ],
                    "sideEffects": "None",
                }
            ],
        }
    )


def intolerant_addon(ailing, _directory):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "dns", "namespace": "kube-system"},
        "spec": {
            "priorityClassName": "system-cluster-critical",
            "containers": [{"name": "dns", "image": "registry.example.com/dns:1"}],
        },
    }

    @contextlib.contextmanager
    def fault():
        with ailing.configured("controller", "--rescheduling-enabled=true"), ailing.there(pod):
            yield

    return fault()


def movable_addon(ailing, _directory):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "proxy",
            "namespace": "kube-system",
            "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
        },
        "spec": {
            "priorityClassName": "system-node-critical",
            "containers": [{"name": "proxy", "image": "registry.example.com/proxy:1"}],
            "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        },
    }

    @contextlib.contextmanager
    def fault():
        with ailing.configured("controller", "--rescheduling-enabled=true"), ailing.there(pod):
            yield

    return fault()


def no_replicas(ailing, _directory):
    return ailing.configured("webhook", replicas=0)


def two_images(ailing, _directory):
    return ailing.configured("webhook", image="registry.example.com/harbourmaster:2")


def bad_settings(ailing, _directory):
    return ailing.configured("controller", "--webhook-timeout-seconds=soon")


def nobody_opens(ailing, _directory):
    metadata = {"name": "waiting", "annotations": ANNOTATED}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}

    @contextlib.contextmanager
    def fault():
        flag = "--controllers=registration,namespaces,metrics"
        with ailing.configured("controller", flag), ailing.there(manifest):
            yield

    return fault()


def broken_policy(ailing, _directory):
    policy = {
        "apiVersion": "kupid.gardener.cloud/v1alpha1",
        "kind": "ClusterPodSchedulingPolicy",
        "metadata": {"name": "broken"},
        "spec": {
            "podSelector": {"matchLabels": {"no label!": ""}},
            "namespaceSelector": {},
        },
    }

    @contextlib.contextmanager
    def fault():
        with contextlib.ExitStack() as stack:
            with ailing.gone(VALIDATING, NAME, None, is_paused=True):
                create = ailing.kubectl
                for _ in range(50):
                    # The API server asks the webhook for a moment after it went.
                    made = create("create", "-f=-", stdin=json.dumps(policy), check=False)
                    if made.returncode == 0:
                        break
                assert made.returncode == 0, made.stderr
                gone = ("delete", "--ignore-not-found", "-f=-")
                stack.callback(lambda: ailing.kubectl(*gone, stdin=json.dumps(policy)))
            yield

    return fault()


FAULTS = {
    "a caBundle that trusts somebody else": (
        untrusted_bundle,
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
        no_configuration,
        ("configurations", "fault", "ValidatingWebhookConfiguration harbourmaster: not found"),
        "a running controller creates it",
    ),
    "a policy that somebody edited": (
        other_policy,
        ("configurations", "fault", f"failurePolicy of {GATED} (mutating): is Ignore, Fail"),
        "webhook.gatedFailurePolicy",
    ),
    "a webhook that is not registered": (
        less_rules,
        ("configurations", "fault", f"webhook {PODS} (mutating): is missing"),
        "a running controller repairs it",
    ),
    "a second registration": (
        twin,
        ("configurations", "warning", "harbourmaster-of-yesterday: has webhooks of ours"),
        "kubectl delete validatingwebhookconfigurations harbourmaster-of-yesterday",
    ),
    "a selector of everything": (
        selects_home,
        ("selectors", "warning", f"{PODS}: selects our own namespace {HOME}"),
        "webhook.excludedNamespaces",
    ),
    "a selector of nothing": (
        selects_nothing,
        ("selectors", "fault", f"{PODS}: its objectSelector can select no object"),
        "webhook.objectSelector",
    ),
    "a namespace without its label": (
        no_label,
        ("gates", "fault", "namespace unlabelled: annotated"),
        "a running controller mirrors it",
    ),
    "a kind that is gone": (
        no_kind,
        ("definitions", "fault", "podschedulingpolicies.kupid.gardener.cloud: not found"),
        "kubectl apply --server-side -k deploy/crds",
    ),
    "a kind that does not convert": (
        no_conversion,
        ("definitions", "fault", "keptnapps.lifecycle.keptn.sh: does not convert"),
        "kubectl apply --server-side -k deploy/crds",
    ),
    "no rights": (
        no_rights,
        ("rights", "fault", "ServiceAccount harbourmaster-webhook: lacks permission"),
        "make deploy IMG=",
    ),
    "a dead webhook": (
        dead_webhook,
        (
            "canary",
            "fault",
            "pod in default: admitted without a review: the webhook can't be called",
        ),
        "kubectl get pods",
    ),
    "a controller that ended": (
        no_leader,
        ("installation", "fault", "harbourmaster-controller: has no holder"),
        "logs deployment/harbourmaster-controller",
    ),
    "a webhook that takes ours away": (
        meddled(takes_away),
        ("other webhooks", "fault", "pod: the pod lacks part of what we gave it: one of meddler"),
        "exclude our fields there",
    ),
    "a webhook that never ends": (
        meddled(never_ends),
        ("other webhooks", "fault", "pod: spec.tolerations of a pod change each time"),
        "have only one of the two",
    ),
    "a leftover of kupid": (
        of_kupid,
        ("leftovers", "warning", "gardener-extension-kupid"),
        "harbourmaster migrate",
    ),
    "an add-on without the toleration": (
        intolerant_addon,
        ("rescheduling", "warning", "pod kube-system/dns: does not tolerate CriticalAddonsOnly"),
        "{key: CriticalAddonsOnly, operator: Exists}",
    ),
    "an add-on that may be moved": (
        movable_addon,
        ("rescheduling", "warning", "pod kube-system/proxy: has cluster-autoscaler"),
        "remove that annotation",
    ),
    "a Deployment of no replicas": (
        no_replicas,
        ("installation", "fault", "Deployment harbourmaster-webhook: is scaled to 0 replicas"),
        "scale deployment harbourmaster-webhook",
    ),
    "processes of two versions": (
        two_images,
        ("installation", "warning", "controller and webhook run different images"),
        "make deploy",
    ),
    "settings that can't be used": (
        bad_settings,
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
