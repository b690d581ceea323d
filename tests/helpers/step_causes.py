"""The causes of the codes of ``why`` on a control plane, and what their printed steps must do."""

from __future__ import annotations

from typing import NamedTuple

from harbourmaster.api.resources import (
    APP_VERSIONS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    PODS,
    REPLICA_SETS,
    WORKLOAD_VERSIONS,
)
from helpers.flow.manifests import app, app_context, container_task, deployment, keptn, of_kind
from helpers.flow.manifests import template as pod_template

OPT_IN = "keptn.sh/lifecycle-toolkit"
WAIT_FOR = "gates.harbourmaster.dev/wait-for"
FOREIGN = "example.com/quota"
TAINTED = "steps-tainted"


class Event(NamedTuple):
    """An object of a kind of which a predicate holds, for which a watch waits."""

    resource: object
    is_right: object


class Cause(NamedTuple):
    """The cause of a code, and what shows that its step helped.

    ``about`` is the object for ``why``; ``objects`` come at once with those of all causes, then
    ``ready`` comes, then ``after`` is run, with its own event. ``correct`` are objects that the
    user applies because the step says so, ``editor`` what the user changes in an editor. After the
    step its output matches ``says``, ``then`` comes, or ``code`` is the next one ("" for none).
    """

    about: str
    objects: tuple = ()
    ready: Event | None = None
    after: str = ""
    changed: Event | None = None
    correct: tuple = ()
    editor: tuple = ()
    says: str = ""
    then: Event | None = None
    code: str | None = None
    gates: bool = True
    labels: dict = {}  # noqa: RUF012 - constant
    annotations: dict = {}  # noqa: RUF012 - constant
    in_gate: bool = False
    at_first: tuple = ()
    """Objects that count before any other comes, such as quotas."""


def is_gated(pod):
    return bool(pod["spec"].get("schedulingGates"))


def is_placed(pod):
    return "nodeName" in pod["spec"]


def condition(kind, status="True"):
    def is_so(obj):
        conditions = obj.get("status", {}).get("conditions", ())
        return any(one["type"] == kind and one["status"] == status for one in conditions)

    return is_so


def has_ended(state):
    return lambda obj: obj.get("status", {}).get("status") == state


def bare(name="x", annotations=None, **spec):
    """A pod without an owner."""
    made = pod_template(name, **spec)["spec"]
    return of_kind("Pod", name, made, annotations=annotations)


def cart(annotations=None, **more):
    return deployment("cart", annotations, **more)


def checked(**more):
    """Keys for a check that never comes."""
    return keptn("cart", pre_deployment_tasks="absent", **more)


def in_namespace(namespace, manifest):
    """Return the manifest in a namespace, unless it has one."""
    return {**manifest, "metadata": {"namespace": namespace, **manifest["metadata"]}}


def with_spec(manifest, **spec):
    manifest["spec"]["template"]["spec"].update(spec)
    return manifest


def quota(**hard):
    names = {"pods": "pods", "versions": "count/keptnworkloadversions.lifecycle.keptn.sh"}
    counts = {names[key]: value for key, value in hard.items()}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "full"},
        "spec": {"hard": counts},
    }


def is_counted(obj):
    return bool(obj.get("status", {}).get("hard"))


GATED, PLACED = Event(PODS, is_gated), Event(PODS, is_placed)
THERE = Event(DEPLOYMENTS, condition("Available"))
MISTYPED = {**keptn("cart"), "keptn.sh/pre-deployment-task": "absent"}
CART = "deployment/cart"
ADD_CHECK = r"s|^( +)keptn.sh/version: .*|&\n\1keptn.sh/pre-deployment-tasks: absent|"

CAUSES = {
    # First, because retries get rarer.
    "version-refused": Cause(
        CART,
        (cart(checked()),),
        Event(EVENTS, lambda event: event["reason"].startswith("CreateWorkloadVersion")),
        at_first=(quota(versions="0"),),
        editor=(r's|: "0"|: "9"|',),
        then=Event(WORKLOAD_VERSIONS, bool),
    ),
    "pods-refused": Cause(
        CART,
        (cart(checked()),),
        Event(DEPLOYMENTS, condition("ReplicaFailure")),
        at_first=(quota(pods="0"),),
        editor=(r's|: "0"|: "9"|',),
        then=GATED,
    ),
    # Gates.
    "foreign-gates-only": Cause(
        "pod/x",
        (bare(schedulingGates=[{"name": FOREIGN}]),),
        GATED,
        editor=("/schedulingGates:/,+1d",),
        then=PLACED,
    ),
    "app-failed": Cause(
        CART,
        (
            container_task("fails", "fail"),
            app("shop", "1.0", ("cart", "1.0")),
            app_context("shop", preDeploymentTasks=["fails"]),
            cart(keptn("cart", app="shop")),
        ),
        Event(APP_VERSIONS, has_ended("Failed")),
        correct=(container_task("fails"),),
        then=PLACED,
    ),
    "waits-for-app": Cause(
        CART,
        (app("shop", "1.0", ("other", "1.0")), cart(keptn("cart", app="shop"))),
        Event(WORKLOAD_VERSIONS, bool),
        editor=("s|name: other|name: cart|",),
        then=PLACED,
        in_gate=True,
    ),
    "checks-failed": Cause(
        CART,
        (container_task("fails", "fail"), cart(keptn("cart", pre_deployment_tasks="fails"))),
        Event(WORKLOAD_VERSIONS, has_ended("Failed")),
        correct=(container_task("fails"),),
        then=PLACED,
    ),
    "checks-pending": Cause(
        CART, (cart(checked()),), Event(WORKLOAD_VERSIONS, bool), then=PLACED, in_gate=True
    ),
    "waits-for-objects": Cause(CART, (cart({WAIT_FOR: "configmap/none"}),), GATED, then=PLACED),
    "wait-blocked": Cause(CART, (cart({WAIT_FOR: "jbo/none"}),), GATED, then=PLACED),
    "waits-forbidden": Cause(
        CART,
        (cart({WAIT_FOR: "configmap/none"}),),
        PLACED,
        labels={WAIT_FOR: "disabled"},
        code="",
    ),
    "definition-missing": Cause(
        "-f", (container_task("there"),), correct=(cart(checked()),), says="there"
    ),
    "to-be-gated": Cause("-f", (container_task("absent"),), correct=(cart(checked()),), then=GATED),
    "namespace-excluded": Cause(
        "-f", correct=(in_namespace("kube-system", cart(checked())),), says="namespaceSelector"
    ),
    "not-opted-in": Cause(
        CART, (cart(checked()),), PLACED, gates=False, code="admitted-before", in_gate=True
    ),
    "owner-unsupported": Cause(
        "pod/x",
        (bare(annotations=keptn("x", pre_deployment_tasks="absent")),),
        editor=("/keptn.sh/d",),
        code="",
    ),
    "gate-owner-unsupported": Cause(
        "job/once",
        (
            of_kind(
                "Job",
                "once",
                {"template": pod_template("once", checked(), restartPolicy="Never")},
            ),
        ),
        Event(JOBS, bool),
        says='job.batch "once" deleted',
    ),
    "no-keys": Cause("pod", (cart(),), PLACED, then=Event(WORKLOAD_VERSIONS, bool)),
    "admitted-before": Cause(
        CART,
        (cart(checked()),),
        PLACED,
        gates=False,
        after=f"kubectl annotate namespace {{}} {OPT_IN}=enabled",
        then=GATED,
    ),
    "scaled-to-zero": Cause(CART, (cart(checked(), replicas=0),), then=GATED),
    "paused": Cause(CART, (cart(checked(), paused=True),), then=GATED),
    "suspended": Cause(
        "job/once",
        (
            of_kind(
                "Job",
                "once",
                {"suspend": True, "template": pod_template("once", restartPolicy="Never")},
            ),
        ),
        Event(JOBS, bool),
        editor=("s|suspend: true|suspend: false|",),
        then=PLACED,
    ),
    "version-not-raised": Cause(
        CART,
        (container_task("migrate"), cart(keptn("cart", pre_deployment_tasks="migrate"))),
        THERE,
        after="kubectl -n {} set image deployment/cart ledger=registry.example.com/ledger:4",
        changed=Event(REPLICA_SETS, lambda obj: "ledger:4" in str(obj["spec"])),
        editor=('s|keptn.sh/version: .*|keptn.sh/version: "2.0"|',),
        then=Event(WORKLOAD_VERSIONS, lambda obj: obj["spec"]["version"] == "2.0"),
    ),
    # Checks.
    "gate-key-unknown": Cause(
        CART,
        (cart(MISTYPED),),
        PLACED,
        editor=("s|deployment-task:|deployment-tasks:|",),
        then=GATED,
    ),
    "gate-list-empty": Cause(
        CART,
        (cart(keptn("cart", pre_deployment_tasks=",")),),
        editor=("s|tasks: .*|tasks: absent|",),
        code="",
    ),
    "gate-state-key": Cause(
        CART,
        (cart({**checked(), "gates.harbourmaster.dev/released": "true"}),),
        editor=("/dev.released/d",),
        code="",
    ),
    "gate-timeout-invalid": Cause(
        CART,
        (cart({**checked(), "gates.harbourmaster.dev/deployment-timeout": "5"}),),
        editor=("s|deployment-timeout: .*|deployment-timeout: 5m|",),
        code="",
    ),
    "gate-list-invalid": Cause(
        CART,
        (cart(keptn("cart", pre_deployment_tasks="lint;migrate")),),
        editor=("s|tasks: .*|tasks: absent|",),
        code="",
    ),
    "gate-wait-invalid": Cause(
        CART,
        (cart({"gates.harbourmaster.dev/wait-timeout": "5m"}),),
        editor=("/wait-timeout/d",),
        code="",
    ),
    "gate-wait-shadowed": Cause(
        CART,
        (cart({WAIT_FOR: "configmap/a"}, above={WAIT_FOR: "configmap/b"}),),
        editor=("s|configmap/a|configmap/b|",),
        code="",
    ),
    "gate-opt-in-unknown": Cause(
        CART,
        (cart(checked()),),
        PLACED,
        gates=False,
        annotations={OPT_IN: "yes"},
        code="admitted-before",
    ),
    "no-checks": Cause(CART, (cart(keptn("cart")),), editor=(ADD_CHECK,), then=GATED),
    # Nodes.
    "no-node-matches": Cause(
        "pod",
        (with_spec(cart(), nodeSelector={"disk": "none"}),),
        Event(PODS, condition("PodScheduled", "False")),
        says="kubernetes.io/hostname=",
    ),
    "node-excluded": Cause(
        "pod",
        (with_spec(cart(), nodeSelector={"example.com/only": TAINTED}),),
        Event(PODS, condition("PodScheduled", "False")),
        says="Taints: +example.com/pool=till:NoSchedule",
    ),
    "unschedulable": Cause(
        "pod",
        (
            with_spec(
                cart(),
                containers=[
                    {
                        "name": "huge",
                        "image": "registry.example.com/huge:1",
                        "resources": {"requests": {"cpu": "10k"}},
                    }
                ],
            ),
        ),
        Event(EVENTS, lambda event: event["reason"] == "FailedScheduling"),
        says="Insufficient cpu",
    ),
    "not-looked-at": Cause(
        "pod",
        (with_spec(cart(), schedulerName="nobody"),),
        Event(PODS, bool),
        editor=("s|schedulerName: nobody|schedulerName: default-scheduler|",),
        then=PLACED,
    ),
    # Policies and references.
    "no-consent": Cause(
        "analysisvaluetemplate/errors",
        (
            of_kind(
                "AnalysisValueTemplate",
                "errors",
                {"provider": {"name": "prom", "namespace": "step-providers"}, "query": "up"},
            ),
        ),
        code="",
    ),
}
