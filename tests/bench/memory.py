"""Peaks of memory (VmHWM) of both processes, first lists included, beside a simulated API server.

Each process runs as in its Deployment: with the features and controllers of the defaults, by a
ServiceAccount. Run alone, it prints the figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import sys
import tempfile
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

import engine  # noqa: E402
import planning  # noqa: E402
from servers import Server, load, wait_for  # noqa: E402

from harbourmaster.api.resources import (  # noqa: E402
    CLUSTER_POLICIES,
    NAMESPACES,
    NODES,
    PODS,
    POLICIES,
    REPLICA_SETS,
)
from harbourmaster.certs.reload import CertificateHolder  # noqa: E402
from harbourmaster.certs.store import ensure  # noqa: E402
from harbourmaster.controller.rescheduling.caches import UNFINISHED  # noqa: E402
from helpers.api_server import Answer  # noqa: E402
from helpers.fake_api import FakeApi  # noqa: E402
from helpers.objects import body, cluster_policy, large_deployment, policy  # noqa: E402

POLICY_COUNT, NAMESPACE_COUNT, REPLICA_SET_COUNT = 1000, 10_000, 50_000
NODE_COUNT, PODS_PER_NODE = 5000, 30
REVIEWS = 5000
HOME = "harbourmaster-system"
COMMAND = None
# structlog loads these if they are there; the image has neither.
PROGRAM = """
import sys
sys.modules.update(dict.fromkeys(("rich", "greenlet")))
from harbourmaster.cli.main import main
sys.exit(main())
"""
PATIENCE = 60.0


class BulkApi(FakeApi):
    """A server that also lists objects which are made when they are asked for."""

    def __init__(self, tls, bulk):
        """``bulk`` holds, by resource, how many there are and the JSON of one by its number."""
        super().__init__(tls=tls)
        self._bulk = bulk

    def answer(self, seen):
        if seen.path.endswith("/selfsubjectaccessreviews"):
            return Answer(201, b'{"status": {"allowed": true}}')
        resource = self._find(seen)
        if resource not in self._bulk:
            return super().answer(seen)
        count, item = self._bulk[resource]
        begin = int(seen.query.get("continue") or 0)
        end = min(begin + int(seen.query["limit"]), count)
        token = str(end) if end < count else ""
        head = json.dumps(
            {"metadata": {"resourceVersion": str(self.objects.version), "continue": token}}
        )
        items = ",".join(map(item, range(begin, end)))
        return Answer(200, f'{head[:-1]}, "items": [{items}]}}'.encode())

    def _find(self, seen):
        is_whole = seen.query.get("fieldSelector") in {None, UNFINISHED}
        is_whole = is_whole and "labelSelector" not in seen.query
        return (
            self.find(seen)[0]
            if is_whole and seen.verb == "list" and "limit" in seen.query
            else None
        )


def namespace_json(number):
    labels = {
        "kubernetes.io/metadata.name": f"ns-{number}",
        "team": f"t-{number % 50}",
        "env": "prod",
    }
    metadata = {"name": f"ns-{number}", "uid": f"uid-{number}", "labels": labels}
    return json.dumps({"metadata": metadata | {"resourceVersion": "1"}})


def replica_set_json(number):
    """The metadata of a ReplicaSet of a Deployment, as the API server writes it."""
    name, digest = f"service-{number // 5}", f"{number * 2654435761 % 2**32:08x}"
    managed = {f"f:field-{field}": {"f:value": {}, "f:other": {}} for field in range(12)}
    metadata = {
        "name": f"{name}-{digest}",
        "namespace": f"ns-{number // 5 % NAMESPACE_COUNT}",
        "uid": f"11111111-1111-1111-1111-{number:012}",
        "resourceVersion": str(number),
        "creationTimestamp": "2026-03-01T12:00:00Z",
        "labels": {"app": name, "pod-template-hash": digest},
        "annotations": {
            "deployment.kubernetes.io/desired-replicas": "3",
            "deployment.kubernetes.io/max-replicas": "4",
            "deployment.kubernetes.io/revision": str(number % 5),
        },
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "name": name,
                "uid": f"22222222-2222-2222-2222-{number // 5:012}",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "managedFields": [{"manager": "kube-controller-manager", "fieldsV1": managed}],
    }
    return json.dumps({"metadata": metadata})


def pods():
    """A function that makes the JSON of a running pod by its number."""
    chance = random.Random(1)  # noqa: S311 - a fixed seed
    workloads = planning.apps(chance, NODE_COUNT * PODS_PER_NODE // 100)

    def pod_json(number):
        node = planning.node_json(number // PODS_PER_NODE)["metadata"]["name"]
        app = workloads[chance.randrange(len(workloads))]
        return json.dumps(planning.pod_json(chance, app, number, node, (250, 256)))

    return pod_json


def put_policies(api, count):
    for number in range(count // 2):
        api.put(
            CLUSTER_POLICIES,
            cluster_policy(
                f"c-{number}",
                pods={"app": f"a-{number}"},
                namespaces={"team": f"t-{number}"},
                nodeSelector={"a": "b"},
            ),
        )
    for number in range(count - count // 2):
        api.put(
            POLICIES,
            policy(
                f"p-{number}",
                f"ns-{number}",
                tolerations=[engine.TOLERATION],
                affinity=engine.required({"a": "b"}),
            ),
        )


@contextlib.asynccontextmanager
async def running(folder, bulk, *arguments, policies=0):
    """A process beside a server of its own, when it has taken its certificate and first lists."""
    account, certificates = folder / "account", folder / "certificates"
    bundle = ensure(account, ("localhost", "127.0.0.1"), datetime.now(UTC))
    ensure(certificates, ("localhost",), datetime.now(UTC))
    (account / "token").write_text("token")
    async with BulkApi(CertificateHolder(bundle).context, bulk) as api:
        api.put(NAMESPACES, {"metadata": {"name": HOME}})
        put_policies(api, policies)
        options = ("--health-port=0", "--log-format=json", f"--namespace={HOME}")
        account_option = f"--service-account-dir={account}"
        host, port = "127.0.0.1", str(api.port)
        environment = {
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            "POD_NAME": "measured",
            # As in the image.
            "FROZENLIST_NO_EXTENSIONS": "1",
            "MALLOC_MMAP_THRESHOLD_": "65536",
            "MALLOC_TRIM_THRESHOLD_": "65536",
        }
        program = (sys.executable, "-c", PROGRAM) if COMMAND is None else (COMMAND,)
        server = Server(
            [*program, "server", *arguments, account_option, *options], environment=environment
        )
        try:
            yield server, certificates
        finally:
            await asyncio.to_thread(server.stop)


async def measure_webhook(folder, bulk, policies):
    """Return the peak in MB: after the first lists, and after some reviews."""
    certificates = folder / "certificates"
    flags = ("webhook", "--port=0", f"--cert-dir={certificates}", "--drain-seconds=0")
    async with running(folder, bulk, *flags, policies=policies) as (server, certificates):
        serving = await asyncio.to_thread(wait_for, server)
        server.port = int(serving["reviews"].rpartition(":")[2])
        listed = peak_mb(server)
        payload = folder / "review.json"
        payload.write_bytes(body(large_deployment(), namespace="ns-1"))
        await asyncio.to_thread(load, server, certificates, payload, REVIEWS)
        return {"listed_mb": listed, "mb": peak_mb(server)}


async def measure_controller(folder, bulk, *options):
    """Return the peak in MB when all is listed that there is."""
    flags = ("controller", "--metrics-custom-metrics-port=0", "--host=127.0.0.1", *options)
    async with running(folder, bulk, *flags) as (server, _):
        await asyncio.to_thread(wait_until_listed, server, bulk)
        return {"mb": peak_mb(server)}


def wait_until_listed(server, bulk):
    begun = time.monotonic()
    while not has_listed(server, bulk):
        assert time.monotonic() < begun + PATIENCE, server.read_log()
        time.sleep(0.1)


def has_listed(server, bulk):
    lines = [line for line in server.read_log().splitlines() if '"started"' in line]
    if not lines:
        return False
    health = json.loads(lines[0])["health"]
    try:
        urllib.request.urlopen(f"{health}/readyz").read()  # noqa: S310
    except OSError:
        return False
    text = urllib.request.urlopen(f"{health}/metrics").read().decode()  # noqa: S310
    cached = dict(
        re.findall(r'^harbourmaster_cached_objects{resource="(.+?)"} (\S+)', text, re.MULTILINE)
    )
    counts = {resource.plural: count for resource, (count, _) in bulk.items()}
    counts["all-pods"] = counts.pop("pods", 0)
    return all(float(cached.get(name, count)) == count for name, count in counts.items())


def peak_mb(server):
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", text)[1]) * 1024 / 1e6


async def measure_all(folder):
    """Return all figures."""
    namespaces = {NAMESPACES: (NAMESPACE_COUNT, namespace_json)}
    large = {
        **namespaces,
        REPLICA_SETS: (REPLICA_SET_COUNT, replica_set_json),
        NODES: (NODE_COUNT, lambda number: json.dumps(planning.node_json(number))),
        PODS: (NODE_COUNT * PODS_PER_NODE, pods()),
    }
    few = {NAMESPACES: (2, namespace_json)}
    owners = namespaces | {REPLICA_SETS: large[REPLICA_SETS]}
    rescheduling = "--rescheduling-enabled=true"
    return {
        "webhook": await measure_webhook(folder / "one", few, 1),
        "webhook, large": await measure_webhook(folder / "many", owners, POLICY_COUNT),
        "controller": await measure_controller(folder / "empty", few),
        "controller, large": await measure_controller(folder / "full", large),
        "rescheduling, large": await measure_controller(folder / "moved", large, rescheduling),
    }


def measure(folder):
    """Return the peaks of each process, in MB."""
    return asyncio.run(measure_all(folder))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps(measure(Path(name)), indent=1))  # noqa: T201
