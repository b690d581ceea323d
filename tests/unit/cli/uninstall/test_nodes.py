"""``harbourmaster uninstall`` frees nodes that were kept for critical add-ons."""

from __future__ import annotations

import json

from harbourmaster.api.resources import NODES
from harbourmaster.rescheduling.model import RESERVATIONS
from helpers.uninstalling import done, install, put, run

OURS_ON_NODES = {"key": "CriticalAddonsOnly", "value": "resched.01234567", "effect": "NoSchedule"}
OTHERS_ON_NODES = [
    {"key": "CriticalAddonsOnly", "value": "true", "effect": "NoExecute"},
    {"key": "example.com/other", "value": "resched", "effect": "NoSchedule"},
]


def kept_node(api, name, taints, **annotations):
    spec = {"spec": {"taints": taints}} if taints else {"spec": {}}
    metadata = {"annotations": {"example.com/own": "yes", **annotations}}
    return put(api, NODES, name, labels={}, metadata=metadata, **spec)


def keep_nodes(api):
    """Add nodes with marks of a rescheduler, and one that another program keeps."""
    first, second = OTHERS_ON_NODES
    kept_node(api, "n1", [first, OURS_ON_NODES, second], **{RESERVATIONS: "[]"})
    kept_node(api, "n2", [{**OURS_ON_NODES, "key": "example.com/former"}])
    kept_node(api, "n3", [first], **{RESERVATIONS: "no JSON"})
    kept_node(api, "n4", OTHERS_ON_NODES)


def on_nodes(api):
    nodes = (api.get(NODES, name) for name in ("n1", "n2", "n3", "n4"))
    return [
        (node["spec"].get("taints", []), sorted(node["metadata"]["annotations"])) for node in nodes
    ]


async def test_nodes_that_were_kept_for_add_ons_are_free(api, client):
    install(api)
    keep_nodes(api)
    untouched = api.get(NODES, "n4")
    code, told = await run(client, dry_run=True)
    assert (code, "nodes kept for critical add-ons: would free 3 nodes" in told) == (0, True)
    assert not api.seen("patch", "/nodes/")
    # Another writer is faster once.
    conflict = {"kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid"}
    body = json.dumps({**conflict, "details": {}}).encode()
    api.fail_next("patch", "/nodes/n1$", status=422, body=body)
    told = await done(client)
    assert "nodes kept for critical add-ons: freed 3 nodes" in told
    own = ["example.com/own"]
    first = OTHERS_ON_NODES[0]
    assert on_nodes(api) == [
        (OTHERS_ON_NODES, own),
        ([], own),
        ([first], own),
        (OTHERS_ON_NODES, own),
    ]
    assert api.get(NODES, "n4") == untouched
    _, told = await run(client)
    assert not [line for line in told if line.startswith("nodes kept")]


async def test_nodes_that_cannot_be_freed_are_reported(api, client):
    install(api)
    keep_nodes(api)
    api.forbid("patch", NODES)
    told = await done(client, code=1)
    (line,) = [line for line in told if line.startswith("left: reservations: 3 failed")]
    assert "nodes" in line
