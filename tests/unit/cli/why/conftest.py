"""``harbourmaster why`` as it is run against a fake API server."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.api.resources import CLUSTER_POLICIES, NAMESPACES, POLICIES
from harbourmaster.cli.main import main
from helpers.command import kubeconfig
from helpers.explanations import NAMESPACE, put_registration
from helpers.objects import cluster_policy, policy

SSD = cluster_policy("disks", pods={"app": "cart"}, nodeSelector={"disk": "ssd"})
OTHERS = cluster_policy("others", pods={"app": "till"}, nodeName="n1")
LOCAL = policy("local", NAMESPACE, tolerations=[{"key": "pool", "operator": "Exists"}])


@pytest.fixture
def why(api, tmp_path, capsys):
    """Return ``why(*arguments)``: the exit code, and what was printed on both streams."""
    put_registration(api)
    api.put(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    for result in (SSD, OTHERS):
        api.put(CLUSTER_POLICIES, result)
    api.put(POLICIES, LOCAL)
    path = kubeconfig(tmp_path, api.url)

    async def run(*arguments):
        command = ["why", *arguments, "--kubeconfig", path]
        code = await asyncio.to_thread(main, command)
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return run
