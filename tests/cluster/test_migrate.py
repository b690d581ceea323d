"""The way over from kupid and Keptn, walked command by command on a real API server."""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import time
from pathlib import Path

import msgspec
import pytest
import trustme

from harbourmaster.api.resources import CLUSTER_POLICIES, PODS, POLICIES, Resource
from harbourmaster.cli.arguments import DEFAULT_NAMESPACE
from harbourmaster.cli.installed import METRICS, WEBHOOK
from harbourmaster.cli.live.cluster import REQUEST_SECONDS
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.migrate import run as migrate
from harbourmaster.cli.migrate.findings import findings
from harbourmaster.cli.migrate.plan import plan
from harbourmaster.cli.migrate.survey import read_observed
from harbourmaster.controller.registration.ca_injector import SERVED
from harbourmaster.gates.gate import GATE
from harbourmaster.kube.client import Client
from harbourmaster.kube.connection_sources import connect
from harbourmaster.kube.errors import ServerError
from harbourmaster.playground.control_plane import ControlPlane
from helpers.cluster import bare_pod, eventually, rule, webhook_configuration
from helpers.patience import PATIENCE, WAIT

ROOT = Path(__file__).parents[2]
LEFTOVERS = ROOT / "tests/fixtures/leftovers"
OURS = "harbourmaster-system"
LEDGER = "ledger"
SERVICE = "kubernetes.io/service-name"
KEPT = (
    (CLUSTER_POLICIES, None, "everywhere"),
    (CLUSTER_POLICIES, None, "refused"),
    (POLICIES, LEDGER, "etcd"),
    (Resource("lifecycle.keptn.sh", "v1", "keptnapps", "KeptnApp"), LEDGER, "ledger"),
    (
        Resource("lifecycle.keptn.sh", "v1", "keptntaskdefinitions", "KeptnTaskDefinition"),
        "keptn-system",
        "shared-check",
    ),
)


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    """A control plane on which nothing is changed once the leftovers are there."""
    with ControlPlane(tmp_path_factory.mktemp("left")) as control_plane:
        control_plane.add_nodes(2)
        leave(control_plane.kubectl)
        yield control_plane


def pod(name, **spec):
    return json.dumps(bare_pod(name, {"namespace": LEDGER}, **spec))


def definitions_of_kupid(kubectl):
    """The CRDs as the chart makes them."""
    names = [f"{scope}podschedulingpolicies" for scope in ("", "cluster")]
    kubectl("apply", *(f"-f={ROOT / 'deploy/crds' / name}.yaml" for name in names))
    crds = [f"crd/{name}.kupid.gardener.cloud" for name in names]
    kubectl("label", *crds, "resources.gardener.cloud/managed-by=gardener")
    kubectl(
        "annotate",
        *crds,
        "meta.helm.sh/release-name=kupid",
        "meta.helm.sh/release-namespace=gardener-extension-kupid",
    )


def leave(kubectl):
    """A living kupid that Gardener and Helm both know of, and what a dead Keptn left."""
    for name in (LEDGER, "keptn-system"):
        kubectl("create", "namespace", name)
        kubectl("wait", "--for=create", WAIT, "serviceaccount/default", f"-n={name}")
    kubectl("annotate", "namespace", LEDGER, "keptn.sh/lifecycle-toolkit=enabled")
    definitions_of_kupid(kubectl)
    for owner in ("keptn", "gardener"):
        kubectl("apply", f"-f={LEFTOVERS / f'{owner}-definitions.yaml'}")
    kubectl("wait", "--for=condition=Established", WAIT, "crd", "--all")
    kubectl("apply", f"-f={LEFTOVERS / 'policies.yaml'}")
    gate = [{"name": "example.com/quota"}, {"name": GATE}]
    kubectl("create", "-f=-", stdin=pod("gated", schedulingGates=gate))
    kubectl("create", "-f=-", stdin=pod("waiting", schedulerName="keptn-scheduler"))
    for owner in ("kupid", "gardener"):
        kubectl("apply", f"-f={LEFTOVERS / f'{owner}.yaml'}")
    kubectl(
        "rollout",
        "status",
        "deployment/gardener-extension-kupid",
        "-n=gardener-extension-kupid",
        WAIT,
    )
    # The controller of slices comes after that of Deployments; until then kupid looks dead.
    where = (
        "endpointslices",
        "-n=gardener-extension-kupid",
        f"-l={SERVICE}=gardener-extension-kupid",
    )
    ready = "-o=jsonpath={.items[*].endpoints[*].conditions.ready}"
    eventually(lambda: "true" in kubectl("get", *where, ready).stdout)
    kubectl("apply", f"-f={LEFTOVERS / 'keptn.yaml'}")


async def refusal(client):
    """The error that keeps a pod from being created, or None."""
    try:
        await client.create(PODS, pod("tried").encode(), LEDGER, dry_run=True)
    except ServerError as error:
        return error
    return None


async def until_refused(client, *, refused):
    """Wait until pods are refused, or no more; return why they are.

    The API server asks by the configurations that its watch has brought, a moment later.
    """
    deadline = time.monotonic() + PATIENCE
    while bool(answer := await refusal(client)) != refused:
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(0.05)
    return answer


async def observe_all(client):
    """All observed objects: a kind whose definition was just changed is read a moment later."""
    deadline = time.monotonic() + PATIENCE
    while (observed := await read_observed(Installation(client, DEFAULT_NAMESPACE))).unread:
        assert time.monotonic() < deadline, observed.unread
        await asyncio.sleep(0.05)
    return observed


async def alive(client):
    """Raise where something of the users' is gone, or Gardener could take it along."""
    for resource, namespace, name in KEPT:
        await client.get(resource, name, namespace)


def install(kubectl):
    """Install as ``make deploy`` and the controller do, with a webhook that does not serve."""
    kubectl("apply", "--server-side", "--force-conflicts", f"--kustomize={ROOT / 'deploy/default'}")
    leads = "-o=jsonpath={.items[*].spec.service.name}"
    assert kubectl("get", "apiservices", *SERVED, leads).stdout == f"{METRICS} {METRICS}"
    # No server answers for these here, and until one does no namespace can be deleted.
    kubectl("delete", "apiservices", *SERVED)
    bundle = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
    service = {"namespace": OURS, "name": "harbourmaster-webhook"}
    configuration = webhook_configuration(
        "Mutating",
        name="harbourmaster",
        webhook="templates.harbourmaster.dev",
        clientConfig={"service": service, "caBundle": bundle},
        rules=[rule(["deployments"], "apps")],
        failurePolicy="Ignore",
        timeoutSeconds=1,
    )
    kubectl("apply", "-f=-", stdin=json.dumps(configuration))


def play(kubectl, command, directory):
    """Run one command of the plan as a user would, except the one that opens an editor."""
    name, *rest = command.arguments
    if name == "make":
        install(kubectl)
        return
    if name != "kubectl":
        # The overlay, which tests/cluster/test_migrate_keptn.py saves and installs.
        return
    assert "apiservice" not in rest, "it is led to us"
    if rest[0] == "edit":
        mended = {"spec": {"tolerations": [{"key": "pool", "operator": "Exists"}]}}
        kubectl("patch", *rest[1:], "--type=merge", "-p", json.dumps(mended))
        return
    out = kubectl(*rest).stdout
    if command.output:
        assert out.startswith("apiVersion: v1\n")
        (directory / command.output).write_text(out)


@pytest.mark.timeout(300)
async def test_the_plan_leads_over_with_every_object_alive_and_pods_creatable(
    tmp_path_factory, tmp_path
):
    with ControlPlane(tmp_path_factory.mktemp("walked")) as plane:
        plane.add_nodes(2)
        async with Client(connect(str(plane.kubeconfig)), timeout=REQUEST_SECONDS) as client:
            assert findings(await read_observed(Installation(client, DEFAULT_NAMESPACE))) == ()
            leave(plane.kubectl)
            await walk(plane.kubectl, client, tmp_path)


async def walk(kubectl, client, directory):
    assert "mpod.keptn.sh" in str(await until_refused(client, refused=True))
    walked = []
    while steps := plan(await observe_all(client)):
        step = next(candidate for candidate in steps if candidate.code not in walked)
        for number, command in enumerate(step.commands, 1):
            play(kubectl, command, directory)
            await alive(client)
            if walked or number == len(step.commands):
                await until_refused(client, refused=False)
        walked.append(step.code)
    assert walked == [
        "unblock",
        "back-up",
        "keep",
        "install",
        "mend",
        "silence",
        "stop",
        "free",
        "remove",
        "namespaces",
    ]
    page = await client.list(PODS, LEDGER)
    gates = {
        pod["metadata"]["name"]: pod["spec"].get("schedulingGates")
        for pod in map(msgspec.json.decode, page.items)
    }
    # Our controller, which is not there, judges what is behind our gate.
    assert gates == {"gated": [{"name": "example.com/quota"}, {"name": GATE}]}
    # Old versions are ours to convert.
    where = "-o=jsonpath={.spec.conversion.webhook.clientConfig.service.name}"
    assert kubectl("get", "crd/keptnapps.lifecycle.keptn.sh", where).stdout == WEBHOOK
    kubectl("get", "clusterrole", "team-kupid-policy-editor")
    kinds = "clusterrole,clusterrolebinding,apiservice,namespace"
    assert "gardener-extension-kupid" not in kubectl("get", kinds, "-o=name").stdout
    assert {finding.code for finding in findings(await observe_all(client))} == {"namespace-in-use"}


FOUND = {
    "webhook-broken": [
        "mutatingwebhookconfiguration lifecycle-mutating-webhook-configuration",
        "validatingwebhookconfiguration lifecycle-validating-webhook-configuration",
    ],
    "pod-gated": ["pod gated in namespace ledger"],
    "pod-unscheduled": ["pod waiting in namespace ledger"],
    "conversion-broken": ["crd keptnapps.lifecycle.keptn.sh"],
    "chart-deletes-definitions": [
        "helm release kupid in namespace gardener-extension-kupid",
        "helm release keptn in namespace keptn-system",
    ],
    "policy-refused": ["clusterpodschedulingpolicy refused"],
    "policy-excluded": ["clusterpodschedulingpolicy everywhere"],
    "namespace-in-use": ["namespace keptn-system"],
    "gardener-returns": [
        "controllerregistration extension-kupid",
        "managedresource extension-kupid in namespace gardener-extension-kupid",
    ],
}
REASONS = {
    "webhook-broken": "every pod is refused",
    "chart-deletes-definitions": "2 definitions with 3 objects",
    "policy-excluded": "kube-node-lease, kube-public, kube-system",
    "namespace-in-use": "1 keptntaskdefinitions",
}
LEFT = {
    *("apiservice", "clusterrole", "clusterrolebinding", "lease", "namespace"),
    *("poddisruptionbudget", "secret", "service", "serviceaccount"),
}


async def test_what_is_found_is_what_was_left(plane):
    async with Client(connect(str(plane.kubeconfig))) as client:
        reported = findings(await read_observed(Installation(client, DEFAULT_NAMESPACE)))
    objects, reasons = {}, {}
    for finding in reported:
        objects.setdefault(finding.code, []).append(finding.object)
        reasons[finding.code] = f"{reasons.get(finding.code, '')} {finding.why}"
    assert FOUND.items() <= objects.items()
    assert {name.split()[0] for name in objects["leftover"]} == LEFT
    assert len(objects["gardener-deletes-definitions"]) == 2
    assert "paths" in objects
    for code, words in REASONS.items():
        assert words in reasons[code]


def arguments(plane, **given):
    return argparse.Namespace(
        **{
            "kubeconfig": str(plane.kubeconfig),
            "context": None,
            "namespace": OURS,
            "output": "text",
            **given,
        }
    )


def test_it_reports_in_text_and_json_and_changes_nothing(plane, capsys):
    before = plane.kubectl("get", "all,crd,secrets", "--all-namespaces", "-o=name").stdout
    assert migrate.run(arguments(plane)) == 1
    text = capsys.readouterr().out
    assert f"kubectl --kubeconfig {plane.kubeconfig} delete mutatingwebhook" in text
    assert "1. Remove webhooks and conversions that get no answer: " in text
    assert migrate.run(arguments(plane, output="json")) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["unread"] == []
    assert report["plan"][0]["code"] == "unblock"
    assert report["findings"][0]["severity"] == "blocking"
    assert plane.kubectl("get", "all,crd,secrets", "--all-namespaces", "-o=name").stdout == before
