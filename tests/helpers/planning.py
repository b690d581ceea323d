"""Pods, nodes and budgets for plans, in CPUs and GiB; everything else as most pods have it."""

from __future__ import annotations

from harbourmaster.api.selectors import Matcher
from harbourmaster.rescheduling.cluster import Cluster
from harbourmaster.rescheduling.model import (
    Budget,
    HostPort,
    Node,
    PendingPod,
    Pod,
    PodTerm,
    SpreadConstraint,
    Taint,
    Toleration,
    shared_labels,
    shared_requests,
)
from harbourmaster.rescheduling.planner import plan
from harbourmaster.rescheduling.plans import Circumstances, PlannerSettings

NOW = 1_000_000.0
EVERYWHERE = (Toleration(key="CriticalAddonsOnly", operator="Exists"),)
SETTINGS = PlannerSettings()
GI = 2**30


def requests(cpu=0.0, memory=0.0, **others):
    """The requests of a pod; resources of others are counted."""
    amounts = {"cpu": round(cpu * 1000), "memory": round(memory * GI)}
    amounts |= {name.replace("__", "/").replace("_", "."): count for name, count in others.items()}
    return shared_requests(tuple(sorted((name, count) for name, count in amounts.items() if count)))


def node(name, cpu=4.0, memory=8.0, pods=110, **fields):
    """A node that is ready; ``extra`` has what else it offers."""
    labels = {"kubernetes.io/hostname": name, **fields.pop("labels", {})}
    allocatable = {"cpu": round(cpu * 1000), "memory": round(memory * GI), "pods": pods}
    allocatable |= fields.pop("extra", {})
    return Node(name=name, uid=f"uid-{name}", labels=labels, allocatable=allocatable, **fields)


def pod(name, where="n1", cpu=1.0, memory=0.0, **fields):
    """A running pod of a ReplicaSet; ``asks`` replaces its requests, ``bare=True`` its owner."""
    fields.setdefault("namespace", "default")
    fields.setdefault("grace", 5)
    fields.setdefault("requests", fields.pop("asks", None) or requests(cpu, memory))
    if not fields.pop("bare", False):
        fields.setdefault("controller_kind", "ReplicaSet")
        fields.setdefault("owner", "uid-of-owner")
    uid = fields.pop("uid", f"{fields['namespace']}-{name}")
    labels = shared_labels(fields.pop("labels", None))
    return Pod(uid=uid, name=name, node=where, labels=labels, **fields)


def critical(name="c", cpu=1.0, memory=0.0, **fields):
    """A critical pod that waits, more important than others unless a priority is given."""
    fields.setdefault("priority", 2_000_000_000)
    outer = {
        key: fields.pop(key)
        for key in (
            "node_name",
            "node_selector",
            "node_terms",
            "tolerations",
            "affinity",
            "spread",
            "volumes",
            "unsupported",
        )
        if key in fields
    }
    outer.setdefault("tolerations", EVERYWHERE)
    inner = pod(
        name, "", cpu, memory, namespace="kube-system", is_critical=True, phase="Pending", **fields
    )
    return PendingPod(pod=inner, is_unschedulable=True, tolerates_reservation=True, **outer)


def budget(name, allowed, labels=None, **fields):
    """A budget of the pods with these labels; of all without any."""
    fields.setdefault("namespace", "default")
    one_of = tuple((key, frozenset((value,))) for key, value in (labels or {}).items())
    fields.setdefault("selector", Matcher(one_of))
    return Budget(name=name, allowed=allowed, **fields)


def apart(labels, key="kubernetes.io/hostname", namespaces=("default",)):
    """A term that keeps a pod away from those with these labels."""
    one_of = tuple((name, frozenset((value,))) for name, value in labels.items())
    return PodTerm(Matcher(one_of), frozenset(namespaces), None, key)


def spread(labels, key="kubernetes.io/hostname", **fields):
    """A constraint that spreads the pods with these labels."""
    one_of = tuple((name, frozenset((value,))) for name, value in labels.items())
    return SpreadConstraint(topology_key=key, selector=Matcher(one_of), **fields)


def cluster(*objects):
    """An account of these nodes, pods and budgets."""
    cluster = Cluster()
    for obj in objects:
        if isinstance(obj, Node):
            cluster.put_node(obj)
        elif isinstance(obj, Budget):
            cluster.put_budget(obj)
        else:
            cluster.put_pod(obj)
    return cluster


def make_plan(*objects, pending=None, settings=SETTINGS, **around):
    """The plan for a critical pod among these objects; ``around`` is of Circumstances."""
    account = cluster(*objects)
    return plan(account, pending or critical(), settings, NOW, Circumstances(**around))


def going(candidate):
    """The names of the victims."""
    return [victim.name for victim in candidate.victims]


def port(number, ip="", protocol="TCP"):
    """A port of the node."""
    return HostPort(protocol, ip, number)


def taint(key, value="", effect="NoSchedule"):
    """A taint."""
    return Taint(key, value, effect)
