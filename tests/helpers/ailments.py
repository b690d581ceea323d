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
        "the controller mends it",
    ),
    "a conversion without caBundle": (
        no_bundle,
        ("certificates", "fault", "conversion of keptnapps.lifecycle.keptn.sh: has no caBundle"),
        "the controller mends it",
    ),
    "a certificate that has ended": (
        ended_certificate,
        ("certificates", "fault", f"Secret {HOME}/{CERTIFICATE}: tls.crt"),
        f"delete secret {CERTIFICATE}",
    ),
    "no certificates": (
        no_secret,
        ("certificates", "fault", f"Secret {HOME}/{CERTIFICATE}: is not there"),
        "the controller writes it",
    ),
    "no configuration": (
        no_configuration,
        ("configurations", "fault", "ValidatingWebhookConfiguration harbourmaster: is not there"),
        "the controller makes it",
    ),
    "a policy that somebody edited": (
        other_policy,
        ("configurations", "fault", f"failurePolicy of {GATED} (mutating): is Ignore, Fail"),
        "webhook.gatedFailurePolicy",
    ),
    "a webhook that is not registered": (
        less_rules,
        ("configurations", "fault", f"webhook {PODS} (mutating): is missing"),
        "the controller puts it right",
    ),
    "a namespace without its label": (
        no_label,
        ("gates", "fault", "namespace unlabelled: annotated"),
        "the controller mirrors it",
    ),
    "a kind that is gone": (
        no_kind,
        ("definitions", "fault", "podschedulingpolicies.kupid.gardener.cloud: not there"),
        "kubectl apply --server-side -k deploy/crds",
    ),
    "a kind that does not convert": (
        no_conversion,
        ("definitions", "fault", "keptnapps.lifecycle.keptn.sh: does not convert"),
        "kubectl apply --server-side -k deploy/crds",
    ),
    "no rights": (
        no_rights,
        ("rights", "fault", "ServiceAccount harbourmaster-webhook: may not"),
        "make deploy IMG=",
    ),
    "a dead webhook": (
        dead_webhook,
        ("canary", "fault", "pod in default: came in unreviewed, for the webhook can't be called"),
        "kubectl get pods",
    ),
    "a controller that ended": (
        no_leader,
        ("installation", "fault", "harbourmaster-controller: is held by nobody"),
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
    "settings that can't be used": (
        bad_settings,
        ("installation", "fault", "harbourmaster-controller: its settings can't be used: "),
        "edit deployment harbourmaster-controller",
    ),
    "gates that nobody opens": (
        nobody_opens,
        ("gates", "fault", "controller: lets no pod go, and pods of waiting wait"),
        "add lifecycle to controllers",
    ),
    "a policy that is left out": (
        broken_policy,
        ("policies", "warning", "ClusterPodSchedulingPolicy broken: is left out"),
        "correct it",
    ),
}
