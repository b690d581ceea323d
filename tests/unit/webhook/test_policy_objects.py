from __future__ import annotations

import json

import msgspec
import pytest

from harbourmaster.api.decoding import MalformedError
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.policy_objects import MAX_SPEC_BYTES, decode_policy
from harbourmaster.webhook.sources import read_policy
from harbourmaster.webhook.verdict import INVALID, VALID
from helpers.admission import policy_engine
from helpers.objects import body, cluster_policy, policy

LIMIT = 64 * 1024
"""Bytes of a new spec; stored ones may be larger."""


def policy_of_size(size):
    """Return a policy whose spec has this many bytes."""
    document = policy(tolerations=[{"key": ""}])
    room = size - len(json.dumps(document["spec"]))
    document["spec"]["tolerations"][0]["key"] = "k" * room
    return document


def encode_raw(document):
    return msgspec.Raw(json.dumps(document).encode())


def test_a_spec_of_the_bound_is_read():
    assert decode_policy(encode_raw(policy_of_size(MAX_SPEC_BYTES))).metadata.name == "p1"


def test_a_larger_one_is_not():
    with pytest.raises(MalformedError, match=r"^spec: 131073 bytes, more than 131072$"):
        decode_policy(encode_raw(policy_of_size(MAX_SPEC_BYTES + 1)))


def test_what_lies_beside_the_spec_is_no_matter():
    document = policy()
    document["metadata"]["annotations"] = {"note": "x" * 2 * MAX_SPEC_BYTES}
    assert decode_policy(encode_raw(document)).metadata.name == "p1"


@pytest.mark.parametrize("document", [b"{", b"[]", b'{"spec": 1}', b'{"spec": ' + b"[" * 2000])
def test_what_is_no_policy_is_malformed_and_not_too_large(document):
    with pytest.raises(MalformedError) as raised:
        decode_policy(document)
    assert f"more than {MAX_SPEC_BYTES}" not in str(raised.value)


@pytest.mark.parametrize(("size", "outcome"), [(LIMIT + 1, INVALID), (LIMIT, VALID)])
def test_a_new_one_that_is_too_large_is_refused(size, outcome):
    document = cluster_policy(nodeSelector={"disk": "ssd"})
    document["spec"]["note"] = ""
    document["spec"]["note"] = "x" * (size - len(json.dumps(document["spec"])))
    result, decision = answer(body(document), policy_engine(), may_patch=False)
    assert decision.verdict.outcome == outcome
    response = json.loads(result)["response"]
    assert response["allowed"] is (outcome == VALID)
    if outcome == INVALID:
        assert "spec: Too long: 65537: must have at most 65536" in response["status"]["reason"]


def test_a_file_is_held_to_the_same_bound():
    large = cluster_policy("large", nodeSelector={f"example.com/k-{i}": "v" for i in range(8000)})
    compiled_policy, errors = read_policy(large)
    assert compiled_policy.fault == errors[0]
    assert "more than 131072" in errors[0]
