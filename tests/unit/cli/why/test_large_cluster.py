"""The requests of ``harbourmaster why`` do not grow with the cluster."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.cli.main import main
from helpers.command import kubeconfig
from helpers.large_cluster import SUBJECTS, LargeApi, fill

MOST = 20
"""Requests about one object."""
SMALL = {"nodes": 5, "pods": 60, "namespaces": 3, "large": 40, "waiting": 10}
LARGER = {"nodes": 900, "pods": 4000, "namespaces": 60, "large": 3400, "waiting": 2700}


async def requests_about(name, size, folder):
    async with LargeApi() as api:
        fill(api, **size)
        path = kubeconfig(folder, api.url)
        assert await asyncio.to_thread(main, ["why", *SUBJECTS[name], "--kubeconfig", path]) == 0
        return list(api.requests)


@pytest.mark.parametrize("name", SUBJECTS)
async def test_requests_are_few_however_large_the_cluster_is(name, tmp_path):
    few = await requests_about(name, SMALL, tmp_path)
    many = await requests_about(name, LARGER, tmp_path)
    assert len(few) == len(many) <= MOST


@pytest.mark.parametrize("name", SUBJECTS)
async def test_pods_and_events_are_selected_by_the_api_server(name, tmp_path):
    requests = await requests_about(name, SMALL, tmp_path)
    assert requests
    for seen in requests:
        if seen.verb == "list" and seen.path.endswith(("/pods", "/events")):
            assert seen.query.keys() & {"labelSelector", "fieldSelector"}, seen
        if seen.verb == "list" and seen.path.endswith("/nodes"):
            assert name == "unschedulable pod"
