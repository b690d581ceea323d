"""Nodes and pools as admission knows them."""

from __future__ import annotations

import itertools
import json

import msgspec

from harbourmaster.rescheduling.unmet import HOST, Pool, decode_known, known_nodes

_versions = itertools.count()


def node(name="n1", labels=None, *taints):
    metadata = {"name": name, "labels": {HOST: f"{name}.example.com", **(labels or {})}}
    return {"metadata": metadata, "spec": {"taints": list(taints)}}


def known(*nodes, **pools):
    read = [decode_known(json.dumps(each).encode()) for each in nodes]
    return known_nodes(1, read, msgspec.convert([*pools.values()], list[Pool]))


def knowing(engine, *nodes, **pools):
    """The engine of the next snapshot, in which these are the nodes."""
    found = msgspec.structs.replace(known(*nodes, **pools), version=next(_versions))
    return engine.succeeded(msgspec.structs.replace(engine.snapshot, nodes=found))
