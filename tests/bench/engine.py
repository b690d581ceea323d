"""The engine alone, in this process: microseconds of CPU for one review."""

from __future__ import annotations

import statistics
import time
import timeit

import msgspec
from figures import ROUNDS, medians, ratio

from harbourmaster.policies.index import policy_set
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.gate_cache import GateCache, SizedCache
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.parents import ParentObject, parents_of
from harbourmaster.webhook.settings import AdmissionSettings
from harbourmaster.webhook.snapshot import NamespaceObject, Snapshot
from harbourmaster.webhook.sources import namespaces_of, read_policy
from helpers.admission import OPT_IN, family, keys, pod
from helpers.objects import body, cluster_policy, large_deployment, required

NUMBER = 500
DECODING = "the review decoded, for comparison"
decode = msgspec.json.Decoder().decode
SETTINGS = AdmissionSettings()
TRACKED = keys(workload="etcd", version="3.5", app="store", pre_deployment_tasks="a,b")
NAMESPACES = {
    has_gates: {"kind": "Namespace", "metadata": {"name": "ns1", "annotations": annotations}}
    for has_gates, annotations in ((False, {}), (True, OPT_IN))
}
TOLERATION = {"key": "pool", "operator": "Equal", "value": "etcd", "effect": "NoExecute"}


def matching(index):
    """A policy that selects the Deployment and adds requirements of its own."""
    return cluster_policy(
        f"matching-{index}",
        pods={"app": "etcd"},
        nodeSelector={f"example.com/disk-{index}": "ssd"},
        tolerations=[TOLERATION],
        affinity=required({f"example.com/pool-{index}": "etcd"}),
    )


def foreign(index):
    """A policy that selects another application."""
    return cluster_policy(
        f"foreign-{index}", pods={"app": f"other-{index}"}, nodeSelector={"a": "b"}
    )


def snapshot(*policies):
    return Snapshot(policy_set(read_policy(policy)[0] for policy in policies))


def large_pod(annotations=None):
    """A pod of about 5 kB of a ReplicaSet."""
    template = large_deployment()["spec"]["template"]
    return pod(annotations, labels=template["metadata"]["labels"], **template["spec"])


def in_namespace(*policies, has_gates):
    """Return a snapshot with one namespace, and with the owners of its pods."""
    namespaces = msgspec.convert([NAMESPACES[has_gates]], list[NamespaceObject])
    parents = msgspec.convert(family(TRACKED), list[ParentObject])
    return Snapshot(
        snapshot(*policies).policies, namespaces_of(namespaces), parents=parents_of(parents)
    )


class ColdCache(SizedCache):
    """One that keeps nothing."""

    __slots__ = ()

    def keep(self, *_):
        return False


class ColdEngine(Engine):
    """An engine without caches, as for a pod that it has never seen."""

    __slots__ = ()

    def __init__(self, *arguments):
        super().__init__(*arguments)
        for owner, name in caches(self):
            setattr(owner, name, ColdCache())


def caches(decides):
    """Yield the owner and name of each cache of an engine."""
    for owner, kind in ((decides, Engine), (decides.gates, GateCache)):
        for name in kind.__slots__:
            if isinstance(getattr(owner, name), SizedCache):
                yield owner, name


def microseconds(question, known, *, engine=ColdEngine, repeats=7, number=2000):
    decides = engine(known, SETTINGS)
    timings = timeit.repeat(
        lambda: answer(question, decides), repeat=repeats, number=number, timer=time.process_time
    )
    return statistics.median(timings) / number * 1e6


def cases():
    """Name, review and policies of each case."""
    plain = body(large_deployment())
    with_affinity = body(large_deployment(affinity=required({"zone": "a"})))
    five = [matching(index) for index in range(5)]
    return {
        "no policy": (plain, snapshot()),
        "100 policies, no match": (plain, snapshot(*map(foreign, range(100)))),
        "one match": (plain, snapshot(matching(0))),
        "one match, pod with affinity": (with_affinity, snapshot(matching(0))),
        "five matches with affinity": (with_affinity, snapshot(*five)),
        "five matches of 10 policies": (with_affinity, snapshot(*five, *map(foreign, range(5)))),
        "five matches of 10,000 policies": (
            with_affinity,
            snapshot(*five, *map(foreign, range(9995))),
        ),
        **gate_cases(),
    }


def gate_cases():
    """A pod and one match: without gates, and with all that they may have to find out."""
    plain, gated = (in_namespace(matching(0), has_gates=gated_too) for gated_too in (False, True))
    unversioned = {key: value for key, value in TRACKED.items() if not key.endswith("/version")}
    return {
        "pod, one match": (body(large_pod(TRACKED)), plain),
        "pod, one match, gate": (body(large_pod(TRACKED)), gated),
        "pod, one match, gate inherited": (body(large_pod()), gated),
        "pod, one match, gate, version computed": (body(large_pod(unversioned)), gated),
    }


def measure(_folder):
    """Return microseconds by case, with each merge recomputed and with cached merges."""
    known = cases()
    question = known["one match"][0]
    decoding = timeit.Timer(lambda: decode(question), timer=time.process_time)
    rounds = [
        {DECODING: decoding.timeit(NUMBER) / NUMBER * 1e6}
        | {
            f"{name}, {state}": microseconds(*case, engine=engine, repeats=1, number=NUMBER)
            for name, case in known.items()
            for state, engine in (("first", ColdEngine), ("cached", Engine))
        }
        for _ in range(ROUNDS)
    ]
    ratios = {
        f"{case} / {base}": ratio(rounds, case, base)
        for case, base in (
            ("one match, first", DECODING),
            ("one match, cached", DECODING),
            ("five matches with affinity, first", DECODING),
            ("100 policies, no match, first", "no policy, first"),
            ("five matches of 10,000 policies, first", "five matches of 10 policies, first"),
            ("pod, one match, gate, first", "pod, one match, first"),
            ("pod, one match, gate inherited, cached", "pod, one match, cached"),
        )
    }
    return {"us": medians(rounds), "ratios": ratios}
