"""``harbourmaster why`` of placement and of the rescheduler, on real API servers."""

from __future__ import annotations

import asyncio
import json

import pytest

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import NODES, PODS
from harbourmaster.cli.main import main
from harbourmaster.rescheduling.reservation import RecordedVictim, Reservation, render
from helpers.patience import WAIT
from helpers.placement_flow import deployment, flow_in
from helpers.processes import client_of
from helpers.rescheduling.objects import CASE, RESERVATIONS, critical, node, pod, removable


@pytest.fixture
def ask_why(capsys):
    """Ask why; the text, and the section of that name, None where there is none."""

    async def ask(kubeconfig, section, *what):
        command = ["why", *what, "--kubeconfig", str(kubeconfig)]
        capsys.readouterr()
        assert await asyncio.to_thread(main, command) == 0
        text = capsys.readouterr().out
        assert await asyncio.to_thread(main, [*command, "-o", "json"]) == 0
        sections = json.loads(capsys.readouterr().out)["sections"]
        return text, next(
            (candidate for candidate in sections if candidate["name"] == section), None
        )

    return ask


async def test_the_pods_of_a_placed_application_tell_where_it_is_and_why(
    request, control_plane, ask_why
):
    """The managing cluster is its own member, so that the record is at hand."""
    kubectl, kubeconfig = control_plane.kubectl, control_plane.kubeconfig
    async with (
        flow_in(control_plane, request.node.name) as flow,
        flow.watching(),
        flow.placing(),
    ):
        name = flow.namespace
        await flow.cluster("here", control_plane)
        await flow.until_online("here")
        await flow.application(deployment("web", name))
        await flow.until_running("here")
        kubectl("wait", f"-n={name}", "--for=create", WAIT, "deployment/web")
        text, facts = await ask_why(kubeconfig, "placement", "deployment", f"{name}/web")
        assert (facts["state"], facts["code"]) == ("fine", "placed")
        assert facts["summary"] == (
            f"Deployment {name}/web is of application {name}/app, which is placed on 'here'"
        )
        record = facts["detail"]["record"]
        assert record["decision"]["chosen"] == "here"
        assert record["decision"]["reason"] in text
        selector = "app=web"
        kubectl("wait", f"-n={name}", "--for=create", WAIT, "pod", f"--selector={selector}")
        (its,) = json.loads(
            kubectl("get", "pods", f"-n={name}", f"--selector={selector}", "-o=json").stdout
        )["items"]
        text, facts = await ask_why(
            kubeconfig, "placement", "pod", f"{name}/{its['metadata']['name']}"
        )
        # Its labels are not on its pods, which are found by their owners.
        assert facts["detail"]["placed"] == f"Deployment {name}/web"
        assert "1 of 1 clusters matched" in text
        await flow.delete()
        await flow.until_gone()


async def test_what_the_rescheduler_has_to_do_with_pods(throwaway_control_plane, ask_why):
    plane = await asyncio.to_thread(throwaway_control_plane, optional=())
    plane.kubectl("create", "namespace", "shop")
    for space in ("shop", "kube-system"):
        plane.kubectl("create", "serviceaccount", "default", f"-n={space}", check=False)
    async with client_of(plane.kubeconfig) as client:
        made = node("n1", 4, labels={CASE: "why"})
        await client.create(NODES, made)
        patch = MergePatch({"status": made["status"]})
        await client.patch(NODES, "n1", patch, subresource="status")
        stored = {}
        for where, manifest in (
            *(("shop", removable(f"v{at}", "n1")) for at in range(4)),
            ("shop", pod("idle")),
            ("kube-system", critical("dns", "why", 1)),
            ("kube-system", critical("huge", "why", 100)),
        ):
            raw = json.loads(await client.create(PODS, manifest, where))
            stored[manifest["metadata"]["name"]] = raw["metadata"]

        async def why(name):
            where = stored[name]["namespace"]
            return await ask_why(plane.kubeconfig, "rescheduling", "pod", f"{where}/{name}")

        text, facts = await why("dns")
        assert facts["code"] == "room-can-be-made"
        assert facts["summary"].endswith("1 pod would have to move from n1")
        (candidate,) = facts["detail"]["plan"]["candidates"]
        (victim,) = candidate["victims"]
        assert f"{victim['namespace']}/{victim['name']}" in text
        _, facts = await why("huge")
        assert (facts["state"], facts["code"]) == ("fault", "no-room")
        assert (await why("idle"))[1] is None
        assert (await why("v0"))[1] is None

        # As the rescheduler writes it while it makes room.
        reservation = Reservation(
            pod="kube-system/dns",
            uid=stored["dns"]["uid"],
            since="2026-03-01T12:00:00Z",
            deadline="2026-03-01T12:10:00Z",
            victims=(RecordedVictim(stored["v0"]["uid"], "shop", "v0"),),
        )
        annotation = {"metadata": {"annotations": {RESERVATIONS: render([reservation])}}}
        await client.patch(NODES, "n1", MergePatch(annotation))
        text, facts = await why("dns")
        assert (facts["state"], facts["code"]) == ("waits", "reserved")
        assert facts["summary"] == "n1 is reserved for it while room is made there"
        (kept,) = facts["detail"]["keptForIt"]
        assert (kept["node"], kept["evicted"]) == ("n1", ["shop/v0"])
        assert "until 2026-03-01T12:10:00Z" in text
        _, facts = await why("v0")
        assert facts["code"] == "makes-room"
        assert facts["summary"] == "it is evicted to make room for kube-system/dns"
        _, facts = await why("idle")
        assert (facts["state"], facts["code"]) == ("note", "kept-away")
        text, facts = await why("v1")
        assert facts is None
