"""Shadow mode beside a stand-in for kupid and Keptn, on a real API server."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter

import pytest

from harbourmaster.api.resources import DEPLOYMENTS, PODS
from harbourmaster.cli.migrate import shadow
from harbourmaster.playground.control_plane import ControlPlane
from harbourmaster.playground.installation import READY_SECONDS, Installation, missing
from harbourmaster.playground.workloads import NAMESPACE
from harbourmaster.registration.desired import SHADOW
from harbourmaster.webhook.shadow import report_in
from helpers.cluster import eventually, rule, webhook_configuration
from helpers.manifests import DEPLOY
from helpers.objects import cluster_policy, workload
from helpers.processes import client_of
from helpers.stand_in import allow, stand_in

SHOP = "shop"
REPORT = ("get", "configmap", "harbourmaster-shadow", f"-n={NAMESPACE}", "-o=json")
KUPID, KEPTN = "gardener-extension-kupid", "lifecycle-mutating-webhook-configuration"
SCRIPT = "script"
"""The label that tells the stand-in what to do otherwise."""
WIDTH = 8
OWNERS = 40
SELECTOR = "spec.template.spec.nodeSelector"
GATE = "spec.schedulingGates[keptn-prechecks-gate]"
APP, VERSION = (f"metadata.annotations[keptn.sh/{key}]" for key in ("app", "version"))
POLICY = cluster_policy(pods={"app": "web"}, nodeSelector={"disk": "ssd"})


CONFIGURATIONS = tuple(f"{kind}webhookconfigurations" for kind in ("mutating", "validating"))
READING = {"get", "list", "watch"}


class ShadowInstallation(Installation):
    """The overlay of shadow mode, whose configurations have another name."""

    def await_answer(self):
        plane = self._control_plane
        root = "/apis/admissionregistration.k8s.io/v1"
        paths = [f"{root}/{configuration}/{SHADOW}" for configuration in CONFIGURATIONS]
        self._group.wait_until(
            self.webhooks[0].name,
            lambda: missing(plane.port, plane.admin, paths),
            READY_SECONDS,
            [self.controllers[0].name],
        )


async def originals(request):
    """Answer as kupid and Keptn would, unless the script of the object says otherwise."""
    review = await request.json()
    obj = review["request"]["object"]
    script = obj["metadata"]["labels"].get(SCRIPT)
    if script == "nothing":
        return allow(review)
    if request.path.startswith("/kupid"):
        disk = "hdd" if script == "hdd" else "ssd"
        path = "/spec/template/spec/nodeSelector"
        return allow(review, {"op": "add", "path": path, "value": {"disk": disk}})
    at = "/metadata/annotations/keptn.sh~1"
    version = "9" if script == "version" else obj["metadata"]["annotations"]["keptn.sh/version"]
    gates = [{"name": "keptn-prechecks-gate"}]
    return allow(
        review,
        {"op": "add", "path": "/spec/schedulingGates", "value": gates},
        {"op": "add", "path": f"{at}app", "value": "web"},
        {"op": "add", "path": f"{at}version", "value": version},
    )


def register_stand_in(kubectl, url, bundle):
    """Register the stand-in under the names of both."""
    for name, path, resource in (
        (KUPID, "kupid", rule(["deployments"], "apps")),
        (KEPTN, "keptn", rule(["pods"])),
    ):
        configuration = webhook_configuration(
            "Mutating", f"{url}/{path}", bundle, name=name, rules=[resource], timeoutSeconds=10
        )
        kubectl("create", "-f=-", stdin=json.dumps(configuration))


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    """A control plane with objects of kupid and Keptn, and nothing that collects garbage."""
    with ControlPlane(tmp_path_factory.mktemp("shadow"), optional=(), audit=True) as control_plane:
        kubectl = control_plane.kubectl
        for scope in ("", "cluster"):
            kubectl("apply", f"-f={DEPLOY / 'crds' / f'{scope}podschedulingpolicies.yaml'}")
        kubectl("wait", "--for=condition=Established", "crd", "--all")
        kubectl("create", "-f=-", stdin=json.dumps(POLICY))
        kubectl("create", "namespace", SHOP)
        kubectl("annotate", "namespace", SHOP, "keptn.sh/lifecycle-toolkit=enabled")
        kubectl("create", "serviceaccount", "default", f"-n={SHOP}")
        with stand_in(originals) as (url, bundle):
            register_stand_in(kubectl, url, bundle)
            with ShadowInstallation(control_plane, folder=DEPLOY / "shadow"):
                yield control_plane


def object_of(number):
    """An object, and the differences that the stand-in makes of it."""
    owner = number // 2 % OWNERS
    script = {0: "nothing", 100: "hdd", 1: "nothing", 101: "version"}.get(number % 200)
    labels = {SCRIPT: script} if script else {"script-free": "true"}
    if number % 2 == 0:
        name = f"d-{number}"
        manifest = workload(name=name)
        manifest["metadata"]["labels"] = labels
        manifest["spec"] |= {"selector": {"matchLabels": {"app": "web"}}, "replicas": 0}
        reason = {"nothing": "only-harbourmaster", "hdd": "different-values"}.get(script)
        place = f"Deployment {SHOP}/{name}"
        return DEPLOYMENTS, manifest, [(place, SELECTOR, reason)] if reason else []
    name = f"w{owner}-5d9c"
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"u{owner}"}
    manifest = workload("Pod", {"app": "other", "pod-template-hash": "5d9c", **labels})
    manifest["metadata"] |= {
        "name": None,
        "generateName": f"{name}-",
        "annotations": {"keptn.sh/workload": "web", "keptn.sh/version": "1"},
        "ownerReferences": [{**reference, "controller": True}],
    }
    fields = {
        "nothing": [(GATE, "only-harbourmaster"), (APP, "only-harbourmaster")],
        "version": [(VERSION, "only-kupid-or-keptn")],
    }.get(script, [])
    place = f"Deployment {SHOP}/w{owner}"
    return PODS, manifest, [(place, *field) for field in fields]


async def create_all(plane, numbers):
    """Create the objects, some at a time, and wait until the report has them.

    Returns the differences that the stand-in was given, and those that were added to the report.
    """
    former, numbers = report_of(plane), list(numbers)
    expected, left = Counter(), iter(numbers)

    async def work(client):
        for number in left:
            resource, manifest, differences = object_of(number)
            await client.create(resource, manifest, SHOP)
            expected.update(differences)

    async with client_of(plane.kubeconfig) as client:
        await asyncio.gather(*(work(client) for _ in range(WIDTH)))
    total = sum(former.counts.values()) + len(numbers)
    report = eventually(
        lambda: report_of(plane), is_right=lambda value: sum(value.counts.values()) >= total
    )
    return expected, numbers_in(report) - numbers_in(former)


def report_of(plane):
    """The report as it stands."""
    return report_in(plane.kubectl(*REPORT).stdout.encode())


def numbers_in(report):
    """The numbers of objects by owner, field and reason."""
    return Counter(
        {
            (
                f"{difference.kind} {difference.namespace}/{difference.name}",
                difference.field,
                difference.reason,
            ): difference.objects
            for difference in report.differences
        }
    )


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [300, 10_000])
async def test_the_report_lists_exactly_the_differences_that_the_stand_in_makes(plane, count):
    first = count * 100
    expected, actual = await create_all(plane, range(first, first + count))
    assert len(expected) > 4
    assert actual == expected
    counts = report_of(plane).counts
    assert counts["unpaired"] == counts["more"] == 0


async def test_objects_are_stored_as_the_stand_in_makes_them(plane):
    await create_all(plane, (0, 4))
    async with client_of(plane.kubeconfig) as client:
        stored = [json.loads(await client.get(DEPLOYMENTS, f"d-{n}", SHOP)) for n in (0, 4)]
    specs = [obj["spec"]["template"]["spec"] for obj in stored]
    assert [spec.get("nodeSelector") for spec in specs] == [None, {"disk": "ssd"}]


async def test_nothing_is_written_but_its_own_objects(plane):
    await create_all(plane, (6,))
    written = set()
    for line in (plane.layout.logs / "audit.log").read_text().splitlines():
        event = json.loads(line)
        target = event.get("objectRef", {})
        is_ours = event["user"]["username"].startswith(f"system:serviceaccount:{NAMESPACE}:")
        if is_ours and event["verb"] not in READING:
            written.add((event["verb"], target["resource"], target.get("namespace", "")))
    assert ("patch", "configmaps", NAMESPACE) in written
    outside = {write for write in written if write[2] != NAMESPACE}
    assert {resource for _, resource, _ in outside} <= {"events", *CONFIGURATIONS}


async def test_no_permission_is_missing(plane):
    await create_all(plane, (8,))
    log = (plane.layout.logs / "audit.log").read_text().splitlines()
    denied = [
        event["requestURI"]
        for event in map(json.loads, log)
        if event["user"]["username"].startswith(f"system:serviceaccount:{NAMESPACE}:")
        and event.get("responseStatus", {}).get("code") == 403
    ]
    assert denied == []


async def test_the_command_reports_what_the_webhook_found(plane, capsys):
    await create_all(plane, (800,))
    arguments = argparse.Namespace(installed_in=NAMESPACE, output="json")
    async with client_of(plane.kubeconfig) as client:
        assert await shadow.run(arguments, client) == 1
    differences = json.loads(capsys.readouterr().out)["differences"]
    named = [
        (difference["name"], difference["reason"], difference["intended"])
        for difference in differences
    ]
    assert ("d-800", "only-harbourmaster", "") in named
