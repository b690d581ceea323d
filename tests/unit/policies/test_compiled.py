"""Tests of the memory that a compiled policy takes."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from harbourmaster.policies.compiled import compile_policy
from harbourmaster.webhook.policy_objects import MAX_SPEC_BYTES, decode_policy
from helpers.objects import cluster_policy
from helpers.oracles import NODE_REQUIRED

NODE_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
PREFERRED = {"weight": 1, "preference": {}}
EMPTY = {
    "required": lambda count: {NODE_REQUIRED: {"nodeSelectorTerms": [{}] * count}},
    "preferred": lambda count: {NODE_PREFERRED: [PREFERRED] * count},
}


def largest(make):
    """Return a stored policy of as many terms as fit, and their number."""
    count = 1000
    while len(encode(make(count + 1000))) <= MAX_SPEC_BYTES:
        count += 1000
    return encode(make(count)), count


def encode(affinity):
    return json.dumps(
        cluster_policy(affinity={"nodeAffinity": affinity}), separators=(",", ":")
    ).encode()


@pytest.mark.claim("O11")
@pytest.mark.parametrize("kind", EMPTY)
def test_a_stored_policy_of_equal_terms_takes_little_memory(kind):
    raw, count = largest(EMPTY[kind])
    tracemalloc.start()
    compiled = compile_policy(decode_policy(raw))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert compiled.fault is None
    entries = compiled.required.terms.terms if kind == "required" else compiled.lists[0][1]
    assert len(entries) == count
    # A hundred times the bytes of its JSON before equal terms were shared.
    assert size < 12 * MAX_SPEC_BYTES, size
