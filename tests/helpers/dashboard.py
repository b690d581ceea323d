"""The dashboard without a cluster: stores filled by hand, and whoever has a token may see it.

``python -m helpers.dashboard 1000`` (with PYTHONPATH=.:tests) serves it for a look; the token is
``captain``.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from datetime import UTC, datetime

import msgspec
from multidict import CIMultiDict

from harbourmaster.api.resources import PODS
from harbourmaster.api.times import utc_now
from harbourmaster.dashboard.app import Dashboard
from harbourmaster.dashboard.sources import KnownPolicy, LabelledPod
from harbourmaster.dashboard.tokens import Sealer
from harbourmaster.kube.access import User
from harbourmaster.placement.model import Application, ReportedCluster
from harbourmaster.policies.compiled import compile_policy
from harbourmaster.policies.model import Policy
from harbourmaster.rescheduling.decoding import decode_node
from harbourmaster.rescheduling.model import RESERVATIONS, TAINT_KEY
from harbourmaster.rescheduling.reservation import taint_value
from harbourmaster.serving.site import Site
from helpers.dashboard_stores import LifecycleStores

TOKEN = "captain"  # noqa: S105 - of a stub
ALL = frozenset(("*",))
NAMESPACES = ("shop", "payments", "search", "mail", "billing")
REGIONS = ("amsterdam", "bergen", "cadiz", "dublin", "esbjerg", "fowey", "genoa", "haifa")
GOODS = ("cart", "checkout", "ledger", "catalogue", "mailer", "invoices", "ranking", "accounts")


class StubAccess:
    """Tokens by name; of each user the namespaces in which everything may be listed, ``*`` is all.

    ``kinds`` limits a user to some plurals; ``names`` are users by token.
    """

    def __init__(self, **users):
        self.namespaces = {TOKEN: ALL} | {name: frozenset(user) for name, user in users.items()}
        self.kinds = {}
        self.names = {}
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
        name = self.names.get(token, token)
        return User(name) if name in self.namespaces else None

    async def may_list(self, user, resource, namespace):
        self.asked.append((user.name, resource.plural, namespace))
        allowed = self.kinds.get(user.name)
        if allowed is not None and resource.plural not in allowed:
            return False
        readable = self.namespaces.get(user.name, frozenset())
        return "*" in readable or namespace in readable


class Filled(LifecycleStores):
    """A world to be filled."""

    def fill(self, count):
        """So many objects of each kind, over five namespaces, in all states."""
        for namespace_name in NAMESPACES if count else ():
            self.namespace(namespace_name)
        for number in range(count):
            namespace = NAMESPACES[number % len(NAMESPACES)]
            name = f"{GOODS[number % len(GOODS)]}-{number}"
            self.app(namespace, name, number)
            self.gated(
                namespace,
                name,
                number,
                wait_for="job/migrate, service/cache" if number % 5 == 4 else "",
                checks="none" if number % 10 == 9 else "",
            )
            self.policy(namespace, f"keep-{name}", number)
            self.member(namespace, number)
            self.placed(namespace, name, number, count)
            self.reserved(number)
            self.pod(namespace, {"app": name})
        return self

    def namespace(self, name, **labels):
        all_labels = {"kubernetes.io/metadata.name": name, **labels}
        self.sources["namespaces"].store.put(name, all_labels)

    def pod(self, namespace, labels, name="", managed=(), status=None, **spec):
        """A pod; ``managed`` are names of fields with their manager and the age of its write.

        ``status`` has what the API server prints: phase, ready and restarts.
        """
        key = f"{namespace}/{name or len(self.pods)}"
        self.pods.put(key, LabelledPod(namespace, labels))
        fields = [
            {
                "manager": manager,
                "operation": "Update",
                "time": self.ago(age),
                "fieldsV1": {"f:spec": {f"f:{field}": {}}},
            }
            for field, manager, age in managed
        ]
        metadata = {"labels": labels, "creationTimestamp": self.ago(600), "managedFields": fields}
        metadata["name"] = key.partition("/")[2]
        raw = {"metadata": metadata, "spec": spec, "status": status or {}}
        self.client.put(PODS, namespace, raw)
        self.counter.outdate()

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
                "outcome": "Moved",
                "chosen": targets[0],
                "reason": f"'{targets[0]}' has the best score, 0.526",
                "considered": 3,
                "matched": 2,
                "candidates": [
                    {
                        "cluster": targets[0],
                        "matched": True,
                        "score": 0.526,
                        "terms": terms,
                    },
                    {
                        "cluster": targets[1],
                        "matched": True,
                        "score": 0.518,
                        "terms": [{**terms[0], "value": 0.5, "normalised": 0.5}, terms[1]],
                        "stickiness": 0.1,
                    },
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
                {
                    "uid": f"v-{number}-{letter}",
                    "ns": "search",
                    "name": f"ranking-{number}-{letter}",
                }
                for letter in range(number % 3)
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


@contextlib.asynccontextmanager
async def serve_dashboard(
    filled, access=None, *, port=0, tls=None, host="127.0.0.1", clock=utc_now
):
    """A site that serves the world; its ``url`` is where."""
    dashboard = Dashboard(
        filled.world,
        access or StubAccess(),
        Sealer(lambda: clock().timestamp()),
        filled.client,
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
    async with serve_dashboard(filled, StubAccess(sailor=["shop"]), port=port) as site:
        print(f"{site.url} token {TOKEN}", flush=True)  # noqa: T201 - it is for a person
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
