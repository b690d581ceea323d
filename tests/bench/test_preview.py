"""A preview of thousands of pods: in seconds, and in time that grows with their number only."""

from __future__ import annotations

import json
import time

import pytest
import yaml

from harbourmaster.cli.main import main
from helpers.objects import cluster_policy
from helpers.preview_cluster import HOST, deployment, namespace, ready_node

pytestmark = [pytest.mark.slow, pytest.mark.full]

POLICIES = 30
PODS_OF_ONE = 10
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def apart(name):
    term = {"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": HOST}
    return {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}


def cluster(pods, *, are_apart):
    """A tenth as many nodes as pods, of which each tenth is large enough for what is asked."""
    count = pods // PODS_OF_ONE
    objects = [namespace(f"ns-{index}") for index in range(20)]
    objects += [
        ready_node(f"n{index}", 10, disk="hdd" if index % 10 else "ssd") for index in range(count)
    ]
    for index in range(count):
        name = f"app-{index}"
        objects += deployment(
            name,
            cpu="1",
            on=[f"n{(index + step) % count}" for step in range(PODS_OF_ONE)],
            place=f"ns-{index % 20}",
            labels={"app": name, "tier": f"t-{index % POLICIES}"},
            **(apart(name) if are_apart else {}),
        )
    return objects


def seconds(directory, pods, *, are_apart, capsys):
    dump, policies = directory / f"{pods}.json", directory / "policies.yaml"
    items = cluster(pods, are_apart=are_apart)
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    # A half of them finds no node at all, the other only full ones: nothing ends a search early.
    given = [
        cluster_policy(
            f"p-{index}",
            pods={"tier": f"t-{index}"},
            nodeSelector={"disk": "ssd" if index % 2 else "tape"},
        )
        for index in range(POLICIES)
    ]
    policies.write_text(yaml.safe_dump_all(given))
    begun = time.process_time()
    assert main(["preview", "-f", str(policies), "--dump", str(dump), "-o", "json"]) == 0
    took = time.process_time() - begun
    totals = json.loads(capsys.readouterr().out)["totals"]
    assert totals["pods"] == pods
    assert totals["unschedulable"] > pods / 2
    return took


@pytest.mark.parametrize("are_apart", [False, True], ids=["plain", "anti-affinity"])
def test_thousands_of_pods_take_seconds(tmp_path, capsys, are_apart):
    few = seconds(tmp_path, 500, are_apart=are_apart, capsys=capsys)
    many = seconds(tmp_path, 5000, are_apart=are_apart, capsys=capsys)
    with capsys.disabled():
        print(f"5,000 pods, {POLICIES} policies: {many:.1f} s; 500: {few:.2f} s")  # noqa: T201
    # Ten times as many, on ten times as many nodes, some of which each workload looks at.
    assert many / few < 40
    assert many < 60
