"""CPU milliseconds, as medians, of a scheduler's request about 5,000 nodes."""

from __future__ import annotations

import statistics
import time
import timeit

import msgspec
from figures import ROUNDS, medians, ratio

from harbourmaster.controller.extender.extender import FILTER, PREEMPT, Answers
from harbourmaster.lifecycle.model import FailedNode
from helpers import scheduler

NODES = [f"ip-10-0-{index // 250}-{index % 250}.example.com" for index in range(5000)]
DECODING = "the body decoded, for comparison"
FAILED = tuple(
    FailedNode(name=name, reason="a check failed", expires="2026-03-01T12:30:00Z")
    for name in NODES[:20]
)
decode = msgspec.json.Decoder().decode


def cases():
    """Return the measured functions by name."""
    body, preemption = scheduler.filter_body(NODES), scheduler.preempt_body(NODES)
    passed = scheduler.version(**scheduler.PASSED)

    def make_versions(*versions):
        mirror = scheduler.Mirror(*versions)
        return Answers(mirror, deadline=300, now=lambda: scheduler.NOW)

    free, waiting = make_versions(passed), make_versions(scheduler.version(**scheduler.CHECKED))
    avoiding = make_versions(msgspec.structs.replace(passed, status=_failed_status(passed)))
    nobodys = scheduler.filter_body(NODES, annotations={})
    return {
        DECODING: lambda: decode(body),
        "pod of no workload": lambda: free.answer(FILTER, nobodys),
        "pod whose checks passed": lambda: free.answer(FILTER, body),
        "the same, 20 nodes to avoid": lambda: avoiding.answer(FILTER, body),
        "pod that waits": lambda: waiting.answer(FILTER, body),
        "pod that waits, preemption": lambda: waiting.answer(PREEMPT, preemption),
    }


def _failed_status(version):
    return msgspec.structs.replace(version.status, failed_nodes=FAILED)


def milliseconds(call, *, repeats=9, number=20):
    """The median of repeated timings of one call, of this process alone."""
    timings = timeit.repeat(call, repeat=repeats, number=number, timer=time.process_time)
    return statistics.median(timings) / number * 1e3


def measure(_folder):
    """Milliseconds by case, and their ratios to the decoding alone."""
    known = cases()
    rounds = [
        {name: milliseconds(call, repeats=1) for name, call in known.items()} for _ in range(ROUNDS)
    ]
    ratios = {
        f"{name} / decoding": ratio(rounds, name, DECODING) for name in known if name != DECODING
    }
    return {"ms": medians(rounds), "ratios": ratios}
