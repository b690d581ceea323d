"""The registration when its API server dies and comes back."""

from __future__ import annotations

import asyncio
import time

import pytest

from harbourmaster.api.resources import MUTATING_WEBHOOKS, SECRETS
from helpers.processes import Controller, Watched, client_of
from helpers.registration import CONFIGURATIONS, served_leaf

BACK = 45.0


@pytest.fixture
def plane(throwaway_control_plane):
    return throwaway_control_plane(optional=())


async def test_a_killed_api_server_costs_no_certificate_and_repairs_go_on(plane):
    plane.kubectl("create", "namespace", "harbour")
    controller = Controller(plane.kubeconfig, "harbour", "--controllers=registration,namespaces")
    try:
        async with (
            client_of(plane.kubeconfig) as client,
            Watched(client, "harbour") as watched,
        ):
            await watched.until(lambda: all(map(watched.configuration, CONFIGURATIONS)))
            first = watched.secret()
            plane.kill("kube-apiserver")
            # The loss of leadership can be seen in the controller only.
            await asyncio.to_thread(controller.await_event, "lost leadership", patience=BACK)
            plane.restart("kube-apiserver")
            begun = time.monotonic()
            await asyncio.to_thread(controller.await_event, "became leader", patience=BACK)
            await watched.delete(MUTATING_WEBHOOKS)
            await watched.until_replaced(MUTATING_WEBHOOKS, BACK)
            assert time.monotonic() - begun < 2 * BACK
            # The authority and the leaf are the ones of before.
            assert watched.secret()["metadata"] == first["metadata"]
            assert watched.secret()["data"] == first["data"]
            assert served_leaf(watched.secret()) is not None
            versions = [resource for resource, _ in watched._versions.values()]
            assert versions.count(SECRETS) == 1
    finally:
        assert controller.stop() == 0
    assert controller.errors == []
    # A process that waits for its API server says so, and not again and again.
    assert len(controller.lines) < 60
