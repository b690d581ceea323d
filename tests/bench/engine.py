"""The engine alone, in this process: microseconds for one review, median of repeated timings."""

from __future__ import annotations

import statistics
import timeit

from helpers.objects import body, cluster_policy, large_deployment, required
from policies.index import policy_set
from webhook.engine import Engine
from webhook.handlers import answer
from webhook.settings import AdmissionSettings
from webhook.snapshot import Snapshot
from webhook.sources import read_policy

SETTINGS = AdmissionSettings()
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


class Forgetful(Engine):
    """An engine that works out each merge anew, as for a pod that it has never seen."""

    __slots__ = ()

    def _keep(self, *_):
        pass


def microseconds(question, known, *, engine=Forgetful, repeats=7, number=2000):
    decides = engine(known, SETTINGS)
    timings = timeit.repeat(lambda: answer(question, decides), repeat=repeats, number=number)
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
    }


def measure(**options):
    """Microseconds by case: each merge made anew, and remembered from before."""
    return {
        name: {
            "first": microseconds(*case, **options),
            "again": microseconds(*case, engine=Engine, **options),
        }
        for name, case in cases().items()
    }
