"""Cost of one policy event for the webhook's event loop, among 10,000 policies."""

from __future__ import annotations

import gc
import statistics
import time

import msgspec
from figures import ROUNDS, medians, ratio

from harbourmaster.policies.compiled import compile_policy
from harbourmaster.telemetry.metrics import create_metrics
from harbourmaster.webhook.engine import Engine, EngineHolder
from harbourmaster.webhook.policy_feed import PolicyFeed
from harbourmaster.webhook.policy_objects import decode_policy, project_policy
from harbourmaster.webhook.settings import AdmissionSettings
from harbourmaster.webhook.snapshot import Snapshot
from harbourmaster.webhook.verdict import OUTCOMES
from helpers.objects import cluster_policy, policy

POLICIES = 10_000
FEW = 100
EVENTS = 100


SHAPES = {
    "in one namespace": lambda index: policy(f"p{index}", "ns", pods={"app": f"a{index}"}),
    "in a namespace each": lambda index: policy(f"p{index}", f"ns{index}", pods={"app": "a"}),
    "of the cluster, a value each": lambda index: cluster_policy(
        f"p{index}", pods={"app": f"a{index}"}
    ),
    "of the cluster, a key each": lambda index: cluster_policy(
        f"p{index}", pods={f"k{index}": "a"}
    ),
    "of the cluster, for all pods": lambda index: cluster_policy(f"p{index}"),
}


def event(document, version):
    """The object as a watch gives it, and its reference."""
    document["spec"]["nodeSelector"] = {"version": str(version)}
    raw = msgspec.json.encode(document)
    return decode_policy(raw).reference, raw


def milliseconds(shape, count=POLICIES, events=EVENTS):
    """CPU time of the loop for each of some events; what a thread compiles is not among it."""
    metrics = create_metrics("0", OUTCOMES)
    holder = EngineHolder(Engine(Snapshot(namespaces={}), AdmissionSettings()))

    def take(policies):
        holder.current = holder.current.with_snapshot(Snapshot(policies, {}))
        metrics.policies_invalid.set(policies.invalid)

    feed = PolicyFeed(take)
    given = [event(SHAPES[shape](index), 0) for index in range(count)]
    feed._take({name: compile_policy(decode_policy(raw)) for name, raw in given})
    # As the process does when all is known.
    gc.collect()
    gc.freeze()
    spent = []
    for number in range(events):
        reference, raw = event(SHAPES[shape](number * count // events), 1)
        compiled = compile_policy(decode_policy(raw))
        began = time.thread_time()
        feed.change({reference: project_policy(raw)})
        feed._next()
        feed._take({reference: compiled})
        spent.append((time.thread_time() - began) * 1e3)
    gc.unfreeze()
    return spent


def measure(_folder):
    """Milliseconds by shape, and the ratio of an event among all policies to one among few."""
    figures, ratios = {}, {}
    for shape in SHAPES:
        spent = [
            {count: milliseconds(shape, count, EVENTS) for count in (FEW, POLICIES)}
            for _ in range(ROUNDS)
        ]
        rounds = [{count: statistics.median(many[count]) for count in many} for many in spent]
        figures[shape] = {
            "median_ms": medians(rounds)[POLICIES],
            "max_ms": max(max(many[POLICIES]) for many in spent),
        }
        ratios[f"{shape}, {POLICIES:,} / {FEW} policies"] = ratio(rounds, POLICIES, FEW)
    return {"shapes": figures, "ratios": ratios}
