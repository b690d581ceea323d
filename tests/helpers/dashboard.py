"""The dashboard without a cluster: stores filled by hand, and whoever has a token may see it.

``python -m helpers.dashboard 1000`` (with PYTHONPATH=.:tests) serves it for a look; the token is
``captain``.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from datetime import UTC, datetime, timedelta

import msgspec
from multidict import CIMultiDict

from harbourmaster.api.times import stamp, utc_now
from harbourmaster.dashboard.app import Dashboard
from harbourmaster.dashboard.caches import PodCounter
from harbourmaster.dashboard.session import Sealer
from harbourmaster.dashboard.sources import (
    KnownPolicy,
    LabelledPod,
    MatchCounts,
    PageSources,
)
from harbourmaster.evaluation.model import Metric
from harbourmaster.gates.gate import GATE
from harbourmaster.kube.access import User
from harbourmaster.kube.store import Store
from harbourmaster.lifecycle.gate_verdict import GateWaitRules
from harbourmaster.lifecycle.gated_pods import decode_pod
from harbourmaster.lifecycle.model import (
    AppVersion,
    Evaluation,
    EvaluationDefinition,
    Task,
    TaskDefinition,
    Workload,
    WorkloadVersion,
)
from harbourmaster.lifecycle.workloads import names_of
from harbourmaster.placement.model import Application, ReportedCluster
from harbourmaster.policies.compiled import compile_policy
from harbourmaster.policies.model import Policy
from harbourmaster.rescheduling.model import RESERVATIONS, TAINT_KEY
from harbourmaster.rescheduling.reservation import taint_value
from harbourmaster.rescheduling.wire import decode_node
from harbourmaster.serving.site import Site

TOKEN = "captain"  # noqa: S105 - of a stub
ALL = frozenset(("*",))
NAMESPACES = ("shop", "payments", "search", "mail", "billing")
REGIONS = ("amsterdam", "bergen", "cadiz", "dublin", "esbjerg", "fowey", "genoa", "haifa")
GOODS = ("cart", "checkout", "ledger", "catalogue", "mailer", "invoices", "ranking", "accounts")


class StaticSource:
    """A store without a watch behind it: what is in it is all there is."""

    def __init__(self, store=None):
        self.store = Store() if store is None else store
        self.synced = asyncio.Event()
        self.synced.set()
        self.absent = False
        self.error = None


class StubAccess:
    """Tokens by name; of each user the namespaces in which everything may be listed, ``*`` is all.

    ``kinds`` limits a user to some plurals.
    """

    def __init__(self, **users):
        self.namespaces = {TOKEN: ALL} | {name: frozenset(found) for name, found in users.items()}
        self.kinds = {}
        self.asked = []
        self.fault = None
        self.tokens = []
        self.pause = None

    async def user(self, token):
        self.tokens.append(token)
        if self.pause is not None:
            await self.pause.wait()
        if self.fault is not None:
            raise self.fault
        return User(token) if token in self.namespaces else None

    async def may_list(self, user, resource, namespace):
        self.asked.append((user.name, resource.plural, namespace))
        allowed = self.kinds.get(user.name)
        if allowed is not None and resource.plural not in allowed:
            return False
        found = self.namespaces.get(user.name, frozenset())
        return "*" in found or namespace in found


class Filled:
    """A world to be filled; ``put`` and ``remove`` tell open pages, as mirrors do."""

    SOURCES = (
        "app_versions",
        "workloads",
        "workload_versions",
        "tasks",
        "task_definitions",
        "evaluations",
        "evaluation_definitions",
        "metrics",
        "gated_pods",
        "policies",
        "cluster_policies",
        "applications",
        "clusters",
        "nodes",
        "namespaces",
    )

    def __init__(self, now=None, max_age=0.0):
        self.now = now or utc_now()
        self.sources = {each: StaticSource() for each in self.SOURCES}
        self.pods = Store()
        self.rules = GateWaitRules(max_age_seconds=max_age)
        self.dashboard = None
        self.counter = PodCounter(
            lambda: [
                each.compiled
                for name in ("policies", "cluster_policies")
                for each in self.sources[name].store.values()
            ],
            self.pods.values,
            self.sources["namespaces"].store.get,
        )

    async def world(self, *, counts=True):
        found = await self.counter.counts() if counts else MatchCounts()
        return PageSources(**self.sources, counts=found, rules=self.rules)

    def put(self, source, obj, key=None):
        key = key or obj.metadata.key
        self.sources[source].store.put(key, obj)
        self._tell(source, key)

    def remove(self, source, key):
        self.sources[source].store.remove(key)
        self._tell(source, key)

    def ago(self, seconds):
        return stamp(self.now - timedelta(seconds=seconds))

    def _tell(self, source, key):
        self.counter.outdate()
        if self.dashboard is not None:
            self.dashboard.changed(source, frozenset((key,)))

    # What it is filled with.

    def fill(self, count):
        """So many objects of each kind, over five namespaces, in all states."""
        for each in NAMESPACES if count else ():
            self.namespace(each)
        for number in range(count):
            namespace = NAMESPACES[number % len(NAMESPACES)]
            name = f"{GOODS[number % len(GOODS)]}-{number}"
            self.app(namespace, name, number)
            self.gated(namespace, name, number)
            self.policy(namespace, f"keep-{name}", number)
            self.member(namespace, number)
            self.placed(namespace, name, number, count)
            self.reserved(number)
            self.pod(namespace, {"app": name})
        return self

    def namespace(self, name, **labels):
        found = {"kubernetes.io/metadata.name": name, **labels}
        self.sources["namespaces"].store.put(name, found)

    def pod(self, namespace, labels):
        self.pods.put(f"{namespace}/{len(self.pods)}", LabelledPod(namespace, labels))
        self.counter.outdate()

    def app(self, namespace, name, number=0):
        """An application in a version, with two workloads, in one of five states."""
        case = number % 5
        begun = 120 + 37 * (number % 400)
        workloads = [("web", "1.4.2"), ("worker", "1.4.2")]
        states = ("Succeeded", "Progressing", "Failed", "Pending", "Succeeded")
        status = {"status": states[case], "startTime": self.ago(begun)}
        checks = {"preDeploymentTasks": ["backup"], "preDeploymentEvaluations": ["errors"]}
        if case == 3:
            status = {"status": "Pending"}
        else:
            status |= self._done("preDeployment", "backup", begun, begun - 20)
        if case in {0, 4}:
            status |= self._done("preDeploymentEvaluation", "errors", begun - 20, begun - 35)
            status |= {
                "workloadOverallStatus": "Succeeded",
                "postDeploymentStatus": "Succeeded",
                "postDeploymentEvaluationStatus": "Succeeded",
                "currentPhase": "Completed",
                "endTime": self.ago(begun - 90),
                "workloadStatus": [
                    {"workload": {"name": each, "version": of}, "status": "Succeeded"}
                    for each, of in workloads
                ],
            }
        elif case == 1:
            status |= self._done("preDeploymentEvaluation", "errors", begun - 20, begun - 35)
            status |= {"workloadOverallStatus": "Progressing", "currentPhase": "AppDeploy"}
        elif case == 2:
            status |= self._done(
                "preDeploymentEvaluation", "errors", begun - 20, begun - 60, "Failed"
            )
            status |= {"currentPhase": "AppPreDeployEvaluations", "endTime": self.ago(begun - 60)}
        self.put(
            "app_versions",
            self._made(
                AppVersion,
                f"{name}-1.4.2-6b86b273",
                namespace,
                begun,
                spec={
                    "appName": name,
                    "version": "1.4.2",
                    "previousVersion": "1.4.1",
                    "workloads": [{"name": each, "version": of} for each, of in workloads],
                    **checks,
                },
                status=status,
            ),
        )
        for each, version in workloads:
            self._workload(namespace, name, each, version, case, begun - 35)

    def _workload(self, namespace, app, name, version, case, begun):
        names = names_of(app, name, version)
        status = {"status": "Pending"}
        if case in {0, 4}:
            status = {
                "status": "Succeeded",
                "startTime": self.ago(begun),
                "endTime": self.ago(begun - 50),
                "deploymentStartTime": self.ago(begun - 12),
                "deploymentStatus": "Succeeded",
                "preDeploymentEvaluationStatus": "Succeeded",
                "postDeploymentStatus": "Succeeded",
                "postDeploymentEvaluationStatus": "Succeeded",
                "currentPhase": "Completed",
                **self._done("preDeployment", "migrate", begun, begun - 12),
            }
        elif case == 1:
            status = {
                "status": "Progressing",
                "startTime": self.ago(begun),
                "currentPhase": "WorkloadPreDeployEvaluations",
                "preDeploymentEvaluationStatus": "Progressing",
                "preDeploymentEvaluationTaskStatus": [
                    {
                        "definitionName": "latency",
                        "name": f"pre-eval-latency-{app}",
                        "status": "Progressing",
                        "startTime": self.ago(begun - 12),
                    }
                ],
                **self._done("preDeployment", "migrate", begun, begun - 12),
            }
            self._evaluation(namespace, app, begun - 12)
        spec = {
            "app": app,
            "version": version,
            "resourceReference": {"uid": f"uid-{app}", "kind": "ReplicaSet", "name": f"{app}-6f"},
            "preDeploymentTasks": ["migrate"],
            "preDeploymentEvaluations": ["latency"],
        }
        self.put(
            "workload_versions",
            self._made(
                WorkloadVersion,
                names.version,
                namespace,
                begun,
                spec={**spec, "workloadName": names.workload},
                status=status,
            ),
        )
        self.put("workloads", self._made(Workload, names.workload, namespace, begun, spec=spec))
        for each in ("backup", "migrate"):
            made = self._made(TaskDefinition, each, namespace, 9999, spec={})
            self.put("task_definitions", made)
        for each in ("errors", "latency"):
            reference = {"keptnMetricRef": {"name": "p95"}, "evaluationTarget": "<200"}
            made = self._made(
                EvaluationDefinition, each, namespace, 9999, spec={"objectives": [reference]}
            )
            self.put("evaluation_definitions", made)

    def _evaluation(self, namespace, app, begun):
        self.put(
            "evaluations",
            self._made(
                Evaluation,
                f"pre-eval-latency-{app}",
                namespace,
                begun,
                spec={"evaluationDefinition": "latency", "retries": 10, "retryInterval": "30s"},
                status={
                    "retryCount": 3,
                    "overallStatus": "Progressing",
                    "startTime": self.ago(begun),
                    "evaluationStatus": {
                        "p95": {"value": "412.5", "status": "Progressing", "message": ""}
                    },
                },
            ),
        )
        self.put(
            "metrics",
            self._made(
                Metric,
                "p95",
                namespace,
                9999,
                spec={
                    "provider": {"name": "prometheus"},
                    "query": "histogram_quantile(0.95, rate(latency_bucket[5m]))",
                    "fetchIntervalSeconds": 10,
                },
                status={"value": "398.1", "lastUpdated": self.ago(4)},
            ),
        )

    def gated(self, namespace, app, number=0, name=None):
        """A pod at its gate, of a workload of the app."""
        workload = ("web", "worker")[number % 2]
        raw = {
            "metadata": {
                "name": name or f"{app}-{workload}-6f{number:04x}",
                "namespace": namespace,
                "uid": f"uid-pod-{number}",
                "creationTimestamp": self.ago(40 + 31 * (number % 500)),
                "annotations": {
                    "keptn.sh/app": app,
                    "keptn.sh/workload": workload,
                    "keptn.sh/version": "1.4.2",
                },
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "ReplicaSet",
                        "name": f"{app}-6f",
                        "uid": f"uid-{app}" if number % 11 else "uid-other",
                        "controller": True,
                    }
                ],
            },
            "spec": {
                "schedulingGates": [
                    {"name": GATE},
                    *([{"name": "example.com/quota"}] if number % 7 == 3 else []),
                ]
            },
            "status": {},
        }
        pod = decode_pod(msgspec.json.encode(raw))
        self.put("gated_pods", pod, pod.key)

    def policy(self, namespace, name, number=0, **spec):
        """A policy; each third is a cluster's, each ninth is at fault."""
        is_cluster = number % 3 == 2
        spec = spec or {
            "podSelector": {"matchLabels": {"app": name.removeprefix("keep-")}},
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [
                {"key": "pool", "operator": "Equal", "value": "etcd", "effect": "NoExecute"}
            ],
        }
        if is_cluster:
            spec = {
                **spec,
                "namespaceSelector": {
                    "matchExpressions": [
                        {
                            "key": "kubernetes.io/metadata.name",
                            "operator": "In",
                            "values": [namespace],
                        }
                    ]
                },
            }
        if number % 9 == 4:
            spec = {**spec, "nodeSelector": {"disk type": "ssd"}}
        raw = {
            "apiVersion": "kupid.gardener.cloud/v1alpha1",
            "kind": "ClusterPodSchedulingPolicy" if is_cluster else "PodSchedulingPolicy",
            "metadata": {"name": name} | ({} if is_cluster else {"namespace": namespace}),
            "spec": spec,
        }
        policy = msgspec.convert(raw, Policy)
        known = KnownPolicy(policy, compile_policy(policy))
        if is_cluster:
            self.put("cluster_policies", known, name)
        else:
            self.put("policies", known, f"{namespace}/{name}")

    def member(self, namespace, number=0, name=None):
        """A member cluster with two metrics."""
        name = name or f"{REGIONS[number % len(REGIONS)]}-{number}"
        state = ("Online", "Online", "Online", "NotReady", "Online", "Offline")[number % 6]
        conditions = [{"type": "Reachable", "status": "True", "reason": "Answers"}]
        if state == "NotReady":
            conditions.append(
                {
                    "type": "NodesReady",
                    "status": "False",
                    "reason": "NodeNotReady",
                    "message": "node worker-3 is not ready",
                }
            )
        if state == "Offline":
            conditions = [
                {
                    "type": "Reachable",
                    "status": "False",
                    "reason": "NoAnswer",
                    "message": "connect to member.example.com:6443: timed out",
                }
            ]
        spec = {
            "kubeconfigSecretRef": {"name": f"{name}-kubeconfig"},
            "metrics": [
                {"name": "load", "weight": 0.7},
                {"name": "carbon", "weight": 0.3},
            ],
        }
        metrics = [
            {"name": "load", "value": 0.1 + number % 80 / 100, "normalised": 0.5},
            {"name": "carbon", "reason": "the provider answers with status 503"}
            if number % 10 == 9
            else {"name": "carbon", "value": 231, "normalised": 0.4},
        ]
        status = {"state": state, "conditions": conditions, "metrics": metrics}
        self.put(
            "clusters",
            self._made(ReportedCluster, name, namespace, 9999, spec=spec, status=status),
        )

    def placed(self, namespace, name, number=0, count=10):
        """An application that is placed on one of three clusters."""
        targets = [
            f"{REGIONS[(number + step) % len(REGIONS)]}-{(number + step) % max(count, 1)}"
            for step in range(3)
        ]
        phase = ("Running", "Running", "Migrating", "Running", "Degraded")[number % 5]
        terms = [
            {"metric": "load", "weight": 0.7, "value": 0.42, "normalised": 0.58},
            {"metric": "carbon", "weight": 0.3, "value": 231, "normalised": 0.4},
        ]
        status = {
            "phase": phase,
            "scheduledTo": {"kind": "Cluster", "name": targets[0]},
            "runningOn": {"kind": "Cluster", "name": targets[1 if phase == "Migrating" else 0]},
            "scheduledTime": self.ago(600),
            "conditions": [
                {
                    "type": "Deployed",
                    "status": "False",
                    "reason": "NotReady",
                    "message": "Deployment web has 1 of 3 replicas",
                }
            ]
            if phase == "Degraded"
            else [],
            "lastDecision": {
                "time": self.ago(600),
                "outcome": "Chosen",
                "chosen": targets[0],
                "reason": f"{targets[0]} has the best score",
                "considered": 3,
                "matched": 2,
                "candidates": [
                    {
                        "cluster": targets[0],
                        "matched": True,
                        "score": 0.526,
                        "terms": terms,
                        "stickiness": 0.1,
                    },
                    {"cluster": targets[1], "matched": True, "score": 0.481, "terms": terms},
                    {
                        "cluster": targets[2],
                        "matched": False,
                        "reason": "label region is fowey, and the constraint wants bergen",
                    },
                ],
                "wouldChange": [f"'{targets[1]}' if 'load' were below 0.31; it is 0.42"],
            },
        }
        self.put(
            "applications", self._made(Application, name, namespace, 9999, spec={}, status=status)
        )

    def reserved(self, number=0, pod=None):
        """A node that is kept for a pod of kube-system."""
        pod = pod or f"kube-system/metrics-agent-{number}"
        reservation = {
            "pod": pod,
            "uid": f"uid-{pod}",
            "since": self.ago(30 + number % 60),
            "deadline": self.ago(-240 + 5 * (number % 80)),
            "attempt": 1 + number % 3,
            "tier": 2,
            "victims": [
                {"uid": f"v-{number}-{each}", "ns": "search", "name": f"ranking-{number}-{each}"}
                for each in range(number % 3)
            ],
        }
        raw = {
            "metadata": {
                "name": f"node-{number}",
                "uid": f"uid-node-{number}",
                "annotations": {RESERVATIONS: msgspec.json.encode([reservation]).decode()},
            },
            "spec": {
                "taints": [
                    {
                        "key": TAINT_KEY,
                        "value": taint_value(reservation["uid"]),
                        "effect": "NoSchedule",
                    }
                ]
            },
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
        self.put("nodes", decode_node(msgspec.json.encode(raw)), f"node-{number}")

    def task(self, namespace, name, **status):
        """A KeptnTask."""
        spec = {"taskDefinition": name}
        self.put("tasks", self._made(Task, name, namespace, 60, spec=spec, status=status))

    def _done(self, phase, name, begun, ended, state="Succeeded"):
        """The fields of a phase with one item that is over."""
        item = {
            "definitionName": name,
            "name": f"pre-{name}-81724",
            "status": state,
            "startTime": self.ago(begun),
            "endTime": self.ago(ended),
        }
        items = "TaskStatus" if phase.endswith(("Deployment", "Evaluation")) else ""
        return {f"{phase}Status": state, f"{phase}{items}": [item]}

    def _made(self, kind, name, namespace, age, **parts):
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}",
            "creationTimestamp": self.ago(age),
        }
        return msgspec.convert({"metadata": metadata, **parts}, kind)


@contextlib.asynccontextmanager
async def served(filled, access=None, *, port=0, tls=None, host="127.0.0.1", clock=utc_now):
    """A site that serves the world; its ``url`` is where."""
    dashboard = Dashboard(
        filled.world,
        access or StubAccess(),
        Sealer(lambda: clock().timestamp()),
        is_tls=tls is not None,
        now=clock,
    )
    filled.dashboard = dashboard
    site = Site(dashboard.app(), host=host, port=port, tls=tls)
    await site.start()
    try:
        yield site
    finally:
        filled.dashboard = None
        await site.stop()


def bearer(token=TOKEN, **more):
    """The headers of a request with this token."""
    return CIMultiDict({"Authorization": f"Bearer {token}", **more})


async def _main(count, port):
    filled = Filled(datetime.now(UTC), max_age=3600).fill(count)
    async with served(filled, StubAccess(sailor=["shop"]), port=port) as site:
        print(f"{site.url} token {TOKEN}", flush=True)  # noqa: T201 - it is for a person
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
