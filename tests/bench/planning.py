"""Cost of a plan over 5,000 full nodes of 30 pods, fed by the JSON of watches."""

from __future__ import annotations

import gc
import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

import msgspec  # noqa: E402
from figures import ROUNDS, medians, ratio, reference_ms  # noqa: E402

from harbourmaster.rescheduling.cluster import Cluster  # noqa: E402
from harbourmaster.rescheduling.decoding import decode_budget, decode_node, decode_pod  # noqa: E402
from harbourmaster.rescheduling.planner import plan, plan_in_slices  # noqa: E402
from harbourmaster.rescheduling.plans import PlannerSettings  # noqa: E402
from helpers.planning import NOW, critical  # noqa: E402

NODES, PODS = 5000, 30
CPU, MEMORY = 15_890, 62 * 1024
"""The size of a node, in milli-CPU and MiB."""
CHANGES = 5000
CHANGES_PER_SECOND = 50
CHANGING = "1,000 changes"
SETTINGS = PlannerSettings()
STARTED = "2026-03-01T12:00:{:02}Z"
WANTED = {
    "0.5 CPU, 512 MiB": (0.5, 0.5),
    "1 CPU, 1 GiB": (1, 1),
    "4 CPU, 8 GiB": (4, 8),
    "1 CPU, no memory": (1, 0),
    "4 CPU, no memory": (4, 0),
    "more than any node has": (64, 1),
}
"""Critical pods, by what they ask for."""
MEASURED = ("0.5 CPU, 512 MiB", "4 CPU, 8 GiB", "more than any node has")
"""Those whose plans are usual, the slowest and the fastest."""


class Event(msgspec.Struct):
    """An event of a watch."""

    type: str
    object: msgspec.Raw


_decode = msgspec.json.Decoder(Event).decode


def apps(rng, count):
    """The workloads whose pods fill the nodes."""
    return [
        {
            "name": f"service-{index}",
            "namespace": f"team-{index % 60}",
            "hash": f"{rng.getrandbits(40):010x}"[:10],
            "cpu": rng.choice([100, 200, 250, 500, 500, 750, 1000]),
            "memory": rng.choice([128, 256, 512, 1024, 1024, 2048]),
            "priority": rng.choice([0, 0, 0, 100, 1000]),
            "grace": rng.choice([5, 10, 30, 30, 30, 60]),
            "kind": rng.choice(["ReplicaSet"] * 8 + ["StatefulSet", "Job"]),
            "is_local": rng.random() < 0.05,
            "has_budget": rng.random() < 0.6,
            "allowed": rng.choice([0, 1, 1, 2]),
        }
        for index in range(count)
    ]


def node_json(index):
    """A node of 16 CPUs and 64 GiB, as the API writes it, shortened."""
    name = f"ip-10-0-{index // 250}-{index % 250}.example.com"
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": f"zone-{index % 3}",
        "node.kubernetes.io/instance-type": "m5.4xlarge",
    }
    allocatable = {"cpu": f"{CPU}m", "memory": f"{MEMORY}Mi", "pods": "110"}
    conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    return {
        "metadata": {"name": name, "uid": f"node-{index:08}", "labels": labels},
        "spec": {"providerID": f"aws:///{name}"},
        "status": {"allocatable": allocatable, "conditions": conditions},
    }


def pod_json(rng, app, index, node, asks):
    """Return a running pod of an app: 3.8 kB, including fields that are not decoded."""
    name = f"{app['name']}-{app['hash']}-{index:07x}"
    labels = {
        "app": app["name"],
        "app.kubernetes.io/part-of": "shop",
        "pod-template-hash": app["hash"],
    }
    stamp = STARTED.format(index % 60)
    requests = {"cpu": f"{asks[0]}m", "memory": f"{asks[1]}Mi"}
    container = {
        "name": "app",
        "image": f"registry.example.com/team/{app['name']}:v1.2.3",
        "env": [{"name": f"SETTING_{number}", "value": f"value-{number}"} for number in range(14)],
        "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
        "resources": {"requests": requests, "limits": {"memory": "4Gi"}},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 10},
        "volumeMounts": [{"mountPath": "/var/run/secrets", "name": "token", "readOnly": True}],
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }
    owner = {
        "apiVersion": "apps/v1",
        "kind": app["kind"],
        "name": f"{app['name']}-{app['hash']}",
        "uid": f"owner-{app['name']}",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    volumes = [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {}}]}}]
    if app["is_local"]:
        volumes.append({"name": "scratch", "emptyDir": {}})
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    managed = {f"f:field-{number}": {"f:value": {}, "f:other": {}} for number in range(12)}
    return {
        "metadata": {
            "name": name,
            "generateName": f"{app['name']}-{app['hash']}-",
            "namespace": app["namespace"],
            "uid": f"{rng.getrandbits(128):032x}",
            "resourceVersion": str(1_000_000 + index),
            "creationTimestamp": stamp,
            "labels": labels,
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
            "ownerReferences": [owner],
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": managed}],
        },
        "spec": {
            "nodeName": node,
            "containers": [container],
            "volumes": volumes,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": app["grace"],
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "schedulerName": "default-scheduler",
            "priority": app["priority"],
            "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{condition}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                }
                for condition in ("not-ready", "unreachable")
            ],
        },
        "status": {
            "phase": "Running",
            "startTime": stamp,
            "hostIP": "10.0.0.1",
            "podIP": "10.1.2.3",
            "qosClass": "Burstable",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": stamp} for kind in kinds
            ],
            "containerStatuses": [
                {
                    "name": "app",
                    "ready": True,
                    "restartCount": 0,
                    "image": container["image"],
                    "imageID": f"registry.example.com/team/{app['name']}@sha256:{'0' * 64}",
                    "containerID": f"containerd://{index:064x}",
                    "state": {"running": {"startedAt": stamp}},
                }
            ],
        },
    }


def stream(nodes=NODES, *, budgets=True, seed=1):
    """Yield the events with which each watch begins; nodes are almost full."""
    rng = random.Random(seed)  # noqa: S311 - a fixed seed
    workloads = apps(rng, max(nodes * PODS // 100, 10))
    if budgets:
        for app in workloads:
            if app["has_budget"]:
                yield "budget", _encode(budget_json(app))
    for index in range(nodes):
        node = node_json(index)
        yield "node", _encode(node)
        chosen = rng.choices(workloads, k=PODS)
        free = [CPU - rng.randint(0, 200), MEMORY - rng.randint(0, 300)]
        scale = _scale(free, chosen)
        for place, app in enumerate(chosen):
            asks = (round(app["cpu"] * scale), round(app["memory"] * scale))
            if place == PODS - 1:
                # The last pod takes nearly all of the rest.
                asks = tuple(free)
            free = [free[0] - asks[0], free[1] - asks[1]]
            pod = pod_json(rng, app, index * PODS + place, node["metadata"]["name"], asks)
            yield "pod", _encode(pod)


def _scale(free, chosen):
    """Scale requests in steps until the pods fit; most nodes have the same requests."""
    cpu, memory = (sum(app[name] for app in chosen) for name in ("cpu", "memory"))
    return int(min(free[0] / cpu, free[1] / memory) * 16) / 16


def budget_json(app):
    return {
        "metadata": {"name": app["name"], "namespace": app["namespace"], "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": app["name"]}}, "minAvailable": 1},
        "status": {
            "observedGeneration": 1,
            "disruptionsAllowed": app["allowed"],
            "currentHealthy": 3,
            "desiredHealthy": 1,
        },
    }


def _encode(event):
    return msgspec.json.encode({"type": "ADDED", "object": event})


def feed(events):
    """A cluster that has seen these events."""
    cluster = Cluster()
    put = {
        "pod": lambda raw: cluster.put_pod(decode_pod(raw)),
        "node": lambda raw: cluster.put_node(decode_node(raw)),
        "budget": lambda raw: cluster.put_budget(decode_budget(raw)),
    }
    for kind, raw in events:
        put[kind](_decode(raw).object)
    return cluster


def milliseconds(cluster, pending, repeats=9):
    """The processor's time for a plan, the median."""
    times = []
    for _ in range(repeats):
        before = time.process_time()
        plan(cluster, pending, SETTINGS, NOW)
        times.append((time.process_time() - before) * 1e3)
    return statistics.median(times)


def longest_slice(cluster, pending):
    """The longest time that a plan keeps everything else waiting, in milliseconds."""
    steps = plan_in_slices(cluster, pending, SETTINGS, NOW)
    longest = 0.0
    while True:
        before = time.process_time()
        try:
            next(steps)
        except StopIteration:
            return max(longest, (time.process_time() - before) * 1e3)
        longest = max(longest, (time.process_time() - before) * 1e3)


def change_seconds(cluster, count=CHANGES):
    """Return the seconds of one change of a pod, decoded: readiness changes, and pods end."""
    rng = random.Random(2)  # noqa: S311 - a fixed seed
    workloads = apps(rng, 1500)
    names = [node.name for node in cluster.nodes()]
    raws = []
    for index in range(count // 4):
        pod = pod_json(rng, rng.choice(workloads), 10_000_000 + index, rng.choice(names), (5, 5))
        raws.append(_encode(pod))
        pod["status"]["conditions"][2]["status"] = "False"
        raws.append(_encode(pod))
        pod["metadata"]["deletionTimestamp"] = STARTED.format(59)
        raws.append(_encode(pod))
    before = time.process_time()
    for index, raw in enumerate(raws):
        pod = decode_pod(_decode(raw).object)
        cluster.put_pod(pod)
        if index % 3 == 2:
            cluster.remove_pod(pod.uid)
    return (time.process_time() - before) / (len(raws) * 4 / 3)


def resident_mb():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024 / 1e6
    raise AssertionError("no VmRSS")


def measure_in_process(nodes=NODES):
    """Return all figures, of this process."""
    cluster = feed(stream(nodes))
    gc.collect()
    resident = resident_mb()
    gc.freeze()
    asked = {name: critical(cpu=WANTED[name][0], memory=WANTED[name][1]) for name in MEASURED}
    rounds = [
        {"reference": reference_ms(), CHANGING: change_seconds(cluster, 1000) * 1e6}
        | {name: milliseconds(cluster, pending, 1) for name, pending in asked.items()}
        for _ in range(ROUNDS)
    ]
    ms = medians(rounds)
    return {
        "resident_mb": resident,
        "pods": len(cluster.pods()),
        "ms": ms,
        "slice_ms": {name: longest_slice(cluster, pending) for name, pending in asked.items()},
        "cores": ms[CHANGING] * CHANGES_PER_SECOND / 1e6,
        "ratios": {
            f"{name} / reference": ratio(rounds, name, "reference") for name in (CHANGING, *asked)
        },
    }


def measure(_folder):
    """Return all figures, of a process of its own."""
    command = [sys.executable, __file__]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    print(json.dumps(measure_in_process(*map(int, sys.argv[1:]))))  # noqa: T201
