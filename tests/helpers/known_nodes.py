"""Nodes and pools as admission knows them."""

from __future__ import annotations

import json

import msgspec

from harbourmaster.rescheduling.unmet import HOST, Pool, decode_known, known_nodes


def node(name="n1", labels=None, *taints):
    metadata = {"name": name, "labels": {HOST: f"{name}.example.com", **(labels or {})}}
    return {"metadata": metadata, "spec": {"taints": list(taints)}}


def taint(effect="NoSchedule", value="ml", key="example.com/dedicated"):
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def nodes_of(*nodes, **pools):
    read = [decode_known(json.dumps(node).encode()) for node in nodes]
    return known_nodes(read, msgspec.convert([*pools.values()], list[Pool]))


def knowing(engine, *nodes, **pools):
    """The engine of the next snapshot, in which these are the nodes."""
    nodes_of_cluster = nodes_of(*nodes, **pools)
    return engine.with_snapshot(msgspec.structs.replace(engine.snapshot, nodes=nodes_of_cluster))
