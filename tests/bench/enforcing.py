"""Cost of a pod's creation without policies, with policies of the webhook, and of the API server.

All cases share one control plane and one server, and take turns in namespaces of their own. CPU is
that of the API server and of the webhook, by the kernel's accounting. Run alone, it prints a table.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
import yaml

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from servers import COMMAND, harbourmaster, write_policies  # noqa: E402

from harbourmaster.playground.control_plane import ControlPlane  # noqa: E402
from harbourmaster.playground.processes import read_records  # noqa: E402
from helpers.cluster import webhook_configuration  # noqa: E402
from helpers.objects import cluster_policy, required  # noqa: E402

COUNTS = (1, 10, 100)
CREATIONS = 2000
ROUNDS = 5
CLIENTS = 4
PATIENCE = 60.0
LABEL = "bench.example.com/set"
POD = {
    "metadata": {"generateName": "pod-", "labels": {"app": "ledger"}},
    "spec": {"containers": [{"name": "ledger", "image": "registry.example.com/ledger:3"}]},
}


def policies(count, namespaces=None):
    """So many that all select the pod; every tenth has required node affinity, too."""
    items = []
    for index in range(count):
        more = {"affinity": required({f"example.com/r{index}": "a"})} if index % 10 == 0 else {}
        toleration = {"key": f"example.com/t{index}", "operator": "Exists"}
        fields = {"nodeSelector": {f"example.com/n{index}": "a"}, "tolerations": [toleration]}
        name = f"p{count}-{index:03}"
        chosen = {"pods": {"app": "ledger"}, "namespaces": namespaces or {}}
        items.append(cluster_policy(name, **chosen, **fields, **more))
    return items


def compile_policies(folder, count):
    """Return what ``harbourmaster compile`` prints, with a binding to one namespace."""
    file = write_policies(folder / f"compiled-{count}", asking(policies(count)))
    command = [COMMAND, "compile", "-f", str(file), "--step", "policies"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    objects = [
        obj
        for obj in yaml.safe_load_all(text)
        if obj
        and obj["kind"] == "MutatingAdmissionPolicy"
        and obj["metadata"]["name"].endswith("pods")
    ]
    selector = {"namespaceSelector": {"matchLabels": {LABEL: f"api-{count}"}}}
    binding = {
        "apiVersion": objects[0]["apiVersion"],
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": f"bench-{count}"},
        "spec": {"policyName": objects[0]["metadata"]["name"], "matchResources": selector},
    }
    return [*objects, binding]


def asking(items):
    """Return the policies with annotations that have the API server enforce them."""
    for item in items:
        item["metadata"]["annotations"] = {"harbourmaster.dev/enforcement": "APIServer"}
    return items


class Creating:
    """Clients that create pods, and the processes whose CPU is read meanwhile."""

    def __init__(self, session, webhook, api_server):
        self._session = session
        self._read = {"webhook": webhook.cpu_seconds, "api": lambda: _cpu_seconds(api_server)}

    async def create(self, namespace):
        """Create one; returns it and the seconds that took."""
        begun = time.perf_counter()
        path = f"/api/v1/namespaces/{namespace}/pods"
        async with self._session.post(path, json=POD) as answer:
            answer.raise_for_status()
            return await answer.json(), time.perf_counter() - begun

    async def until_enforced(self, namespace, count):
        """Return when so many policies change what is created there."""
        async with asyncio.timeout(PATIENCE):
            while True:
                pod, _ = await self.create(namespace)
                if len(pod["spec"].get("nodeSelector") or ()) == count:
                    return

    async def round(self, namespace, creations):
        """Create so many by all clients; returns CPU in ms a creation, and each one's seconds."""
        before = {name: read() for name, read in self._read.items()}
        taken = []

        async def client():
            taken.extend([(await self.create(namespace))[1] for _ in range(creations // CLIENTS)])

        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(client())
        cpu = {
            name: (read() - before[name]) / len(taken) * 1e3 for name, read in self._read.items()
        }
        return cpu, taken


def _cpu_seconds(pid):
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _api_server(plane):
    return next(
        record.pid
        for record in read_records(plane.layout.records)
        if record.name == "kube-apiserver"
    )


async def measure(folder, creations=CREATIONS):
    """Rows by case: CPU of both in ms a creation, p50 and p99 in ms; medians of ROUNDS."""
    served = [policy for count in COUNTS for policy in policies(count, {LABEL: f"webhook-{count}"})]
    cases = {"none": 0} | {f"{by}-{count}": count for by in ("webhook", "api") for count in COUNTS}
    namespaces = [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {LABEL: name}},
        }
        for name in cases
    ]
    file = folder / "namespaces.yaml"
    file.write_text(yaml.safe_dump_all(namespaces))
    certificates = folder / "certificates"
    certificates.mkdir()
    webhook = harbourmaster(
        certificates, write_policies(folder / "served", served), "--namespaces", str(file)
    )
    plane = ControlPlane(folder / "plane", optional=("kube-controller-manager",))
    try:
        with plane:
            for namespace in namespaces:
                plane.kubectl("create", "-f=-", stdin=json.dumps(namespace))
            url, bundle = (
                f"https://localhost:{webhook.port}",
                (certificates / "ca.crt").read_bytes(),
            )
            chosen = {"key": LABEL, "operator": "In", "values": [f"webhook-{n}" for n in COUNTS]}
            selector = {"matchExpressions": [chosen]}
            registered = webhook_configuration("Mutating", url, bundle, namespaceSelector=selector)
            objects = [registered, *(obj for n in COUNTS for obj in compile_policies(folder, n))]
            for obj in objects:
                plane.kubectl("create", "-f=-", stdin=json.dumps(obj))
            for name in cases:
                plane.kubectl("wait", "--for=create", "serviceaccount/default", "-n", name)
            connector = aiohttp.TCPConnector(ssl=plane.admin)
            async with aiohttp.ClientSession(plane.server, connector=connector) as session:
                creating = Creating(session, webhook, _api_server(plane))
                for name, count in cases.items():
                    await creating.until_enforced(name, count)
                rounds = [
                    {name: await creating.round(name, creations // ROUNDS) for name in cases}
                    for _ in range(ROUNDS)
                ]
    finally:
        webhook.stop()
    return {name: _row([row[name] for row in rounds]) for name in cases}


def _row(rounds):
    taken = sorted(seconds for _, latencies in rounds for seconds in latencies)
    return {
        **{
            f"{name}_ms": statistics.median(cpu[name] for cpu, _ in rounds) for name in rounds[0][0]
        },
        "p50_ms": statistics.median(taken) * 1e3,
        "p99_ms": taken[int(len(taken) * 0.99)] * 1e3,
    }


def rows(measured):
    """Yield the rows of the printed table."""
    yield ("enforced by, policies", "API server, CPU ms", "webhook, CPU ms", "p50 ms", "p99 ms")
    for name, row in measured.items():
        figures = (row["api_ms"], row["webhook_ms"], row["p50_ms"], row["p99_ms"])
        yield (name.replace("-", ", "), *(f"{value:.2f}" for value in figures))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        result = asyncio.run(measure(Path(name)))
    print(*("\t".join(row) for row in rows(result)), sep="\n")  # noqa: T201
