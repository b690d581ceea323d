"""A real node for tests: commands in its namespaces, load through its API server, its cgroups."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

from harbourmaster.playground import api
from harbourmaster.playground.build import NODE, ensure, ensure_binaries
from harbourmaster.playground.control_plane import ControlPlane
from harbourmaster.playground.node import cgroups, host
from harbourmaster.playground.node.machine import Machine, check

REPOSITORY = Path(__file__).parents[2]
# As the Makefile has it: an environment may know an older one.
(VERSION,) = re.findall(r"(?m)^version = (.*)$", (REPOSITORY / "setup.cfg").read_text())
IMAGES = REPOSITORY / "build/images"
FIGURES = REPOSITORY / "build/node/figures.txt"
IMAGE = f"registry.example.com/harbourmaster:{VERSION}"
RUNNERS = [
    f"--lifecycle-{language}-image=registry.example.com/harbourmaster-{language}:{VERSION}"
    for language in ("python", "deno")
]
NAMESPACE = "harbourmaster-system"
BUSYBOX = "registry.example.com/busybox:1"
TOLERATION = "example.com/load"
WAIT_SECONDS = 90
MIB = 1024**2


class RealNode:
    """One control plane with real nodes, ``node-1`` and so on."""

    def __init__(self, directory, nodes=1):
        check(directory, IMAGES)
        self.directory = directory
        self.machine = Machine(
            directory=str(directory),
            binaries=str(ensure_binaries()),
            node_binaries=str(ensure(NODE)),
            images=str(IMAGES),
            nodes=nodes,
            install=False,
        )
        self.host = host.Node(self.machine, figure)
        self.kubeconfig = directory / "kubeconfig"
        self.kubectl = ControlPlane(directory, binaries=Path(self.machine.binaries)).kubectl
        self._groups = cgroups.find(self.machine.cgroup)

    def __enter__(self):
        self.host.start()
        return self

    def __exit__(self, *_):
        self.host.stop()

    def run(self, *command, check=True):
        """Run a command in the namespaces of the first node; return its output."""
        return output(*self.host.command(*command), check=check)

    def make(self, target, *variables):
        """Run make outside, with the kubeconfig that works there too."""
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        return output("make", target, *variables, cwd=REPOSITORY, env=environment)

    def harbourmaster(self, *arguments, check=True):
        """Run the command outside."""
        program = Path(sys.executable).with_name("harbourmaster")
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        return output(program, *arguments, check=check, env=environment)

    def get(self, *arguments):
        """An object, or the items of a list, as kubectl gets them."""
        result = json.loads(self.kubectl("get", "--output=json", *arguments).stdout)
        return result["items"] if result["kind"].endswith("List") else result

    def load_image(self, archive, name):
        """Import an OCI archive on every node, under the name and its digest."""
        command = ("ctr", "--namespace=k8s.io", "images", "import", "--digests")
        for number in range(1, self.machine.nodes + 1):
            enter = ("nsenter", f"--target={self._pid('containerd', number)}", "--mount")
            self.run(*enter, *command, f"--base-name={name}", str(archive))

    def apply(self, *objects):
        """Apply objects."""
        content = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.kubectl("apply", "--filename=-", stdin=json.dumps(content))

    def wait(self, condition, *what, seconds=WAIT_SECONDS):
        """Wait until a condition of kubectl's is so: ``condition=Ready`` or ``delete``."""
        self.kubectl("wait", f"--for={condition}", f"--timeout={seconds}s", *what)

    def rollout(self, *deployments, namespace=NAMESPACE):
        """Wait until Deployments are rolled out."""
        for name in deployments:
            timeout = f"--timeout={WAIT_SECONDS}s"
            self.kubectl(
                *("--namespace", namespace, "rollout", "status", timeout), f"deployment/{name}"
            )

    def add_flags(self, component, *flags):
        """Add flags to a Deployment of ours, and wait until it is rolled out."""
        name = f"harbourmaster-{component}"
        path = "/spec/template/spec/containers/0/args/-"
        patch = [{"op": "add", "path": path, "value": flag} for flag in flags]
        self.kubectl(
            *("--namespace", NAMESPACE, "patch", "deployment", name, "--type=json"),
            f"--patch={json.dumps(patch)}",
        )
        self.rollout(name)

    def containers(self, component=None, namespace=NAMESPACE):
        """The ids of running containers by the names of their pods; none of a pod that goes."""
        selector = [f"--selector=app.kubernetes.io/component={component}"] if component else []
        pods = self.get("pods", f"--namespace={namespace}", *selector)
        return {
            pod["metadata"]["name"]: status["containerID"].rpartition("/")[2]
            for pod in pods
            for status in pod["status"].get("containerStatuses", ())
            if "running" in status["state"] and "deletionTimestamp" not in pod["metadata"]
        }

    def cgroup(self, container, controller="memory"):
        """The folder of a container's cgroup, in version 1 of this controller."""
        folders = self._groups.folders
        group = folders[""] if self._groups.unified else folders[controller]
        return next(group.glob(f"node-*/kubepods/**/{container}"))

    def memory(self, namespace=NAMESPACE):
        """Anonymous memory and working set in MiB, by pod."""
        return {
            pod: self._memory(self.cgroup(container))
            for pod, container in self.containers(namespace=namespace).items()
        }

    def _memory(self, folder):
        lines = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        unified = self._groups.unified
        usage = int((folder / f"memory.{'current' if unified else 'usage_in_bytes'}").read_text())
        anonymous, inactive = (
            ("anon", "inactive_file") if unified else ("total_rss", "total_inactive_file")
        )
        return int(lines[anonymous]) / MIB, (usage - int(lines[inactive])) / MIB

    def busiest(self, component="webhook", seconds=2.0):
        """Pod and container id of the one that uses most CPU: API servers keep to connections."""
        containers = self.containers(component)
        before = {pod: self.cpu(container) for pod, container in containers.items()}
        time.sleep(seconds)
        pod = max(containers, key=lambda pod: self.cpu(containers[pod]) - before[pod])
        return pod, containers[pod]

    def cpu(self, container):
        """CPU time of a container in nanoseconds."""
        return self._cpu(self.cgroup(container, "cpuacct"))

    def _cpu(self, folder):
        if self._groups.unified:
            return int((folder / "cpu.stat").read_text().split()[1]) * 1000
        return int((folder / "cpuacct.usage").read_text())

    def cost_of_pods(self, uids):
        """CPU time in nanoseconds and MiB of memory of pods; of those without a node none."""
        return (
            sum(map(self._cpu, self._pods(uids, "cpuacct"))),
            sum(self._memory(pod)[1] for pod in self._pods(uids, "memory")),
        )

    def _pods(self, uids, controller):
        folders = self._groups.folders
        group = folders[""] if self._groups.unified else folders[controller]
        pods = group.glob("node-*/kubepods/**/pod*")
        return [pod for pod in pods if pod.name.removeprefix("pod") in uids]

    def kill(self, container):
        """SIGKILL the first process of a container."""
        processes = (self.cgroup(container) / "cgroup.procs").read_text().split()
        os.kill(int(processes[0]), signal.SIGKILL)

    @contextlib.contextmanager
    def freeze(self, container):
        """Freeze all processes of a container for as long as this lasts."""
        if self._groups.unified:
            file, frozen, thawed = self.cgroup(container) / "cgroup.freeze", "1", "0"
        else:
            file = self.cgroup(container, "freezer") / "freezer.state"
            frozen, thawed = "FROZEN", "THAWED"
        file.write_text(frozen)
        try:
            yield
        finally:
            with contextlib.suppress(FileNotFoundError):
                file.write_text(thawed)

    def stop(self, *programs, number=1):
        """SIGKILL containerd, kubelet or kube-proxy of a node; its containers go on."""
        for program in programs:
            self.run("kill", "-KILL", str(self._pid(program, number)))

    def _pid(self, program, number):
        records = json.loads((self.directory / "workers.json").read_bytes())["processes"]
        (pid,) = [record["pid"] for record in records if record["name"] == f"{program}-{number}"]
        return pid

    def revive(self):
        """Start what was stopped."""
        self.host.revive()

    @contextlib.contextmanager
    def load(self, per_second=80, threads=8):
        """Create pods by dry run at a steady pace; yields the counts, complete at the end."""
        load = Load(self, per_second / threads)
        workers = [threading.Thread(target=load.work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        try:
            yield load
        finally:
            load.stop.set()
            for worker in workers:
                worker.join()


class Load:
    """The results of pods that the policy of ``conftest`` is for."""

    def __init__(self, node, pace):
        self._context = api.client_context(node.directory / "pki", "admin")
        self._port = host.port(node.directory)
        self._pace = pace
        self._lock = threading.Lock()
        self.stop = threading.Event()
        self.seconds = []
        self.bad = []

    def work(self):
        """Send at fixed times, however long an answer takes; late ones are sent at once."""
        connection = self._connect()
        at = begun = time.monotonic()
        while not self.stop.wait(max(0.0, at - time.monotonic())):
            at += 1 / self._pace
            start = time.monotonic()
            try:
                fault = self._send(connection)
            except (OSError, ssl.SSLError, http.client.HTTPException) as error:
                fault = repr(error)
                connection.close()
                connection = self._connect()
            with self._lock:
                self.seconds.append(time.monotonic() - start)
                if fault:
                    self.bad.append(f"{start - begun:.1f} s: {fault}")
        connection.close()

    def _connect(self):
        return http.client.HTTPSConnection("127.0.0.1", self._port, context=self._context)

    def _send(self, connection):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "load-", "labels": {"load": "yes"}},
            "spec": {"containers": [{"name": "load", "image": BUSYBOX}]},
        }
        headers = {"Content-Type": "application/json"}
        path = "/api/v1/namespaces/default/pods?dryRun=All"
        connection.request("POST", path, json.dumps(pod), headers)
        response = connection.getresponse()
        content = json.loads(response.read())
        if response.status != http.HTTPStatus.CREATED:
            return f"{response.status} {content.get('message')}"
        keys = {toleration.get("key") for toleration in content["spec"].get("tolerations", ())}
        return None if TOLERATION in keys else "without the policy"

    def __str__(self):
        times = sorted(self.seconds)
        p50, p99 = (1000 * times[int(len(times) * share)] for share in (0.5, 0.99))
        return (
            f"{len(times)} pods, {len(self.bad)} without the policy or refused; "
            f"p50 {p50:.0f} ms, p99 {p99:.0f} ms, longest {1000 * times[-1]:.0f} ms"
            + "".join(f"\n    {fault}" for fault in self.bad[:5])
        )


def output(*command, check=True, **options):
    """The output of a command, with its errors; those of a failed one are in the assertion."""
    result = subprocess.run(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **options,
    )
    assert not check or result.returncode == 0, f"{command}: {result.stdout}"
    return result.stdout


def figure(line):
    """Show a figure, and keep it."""
    print(line, flush=True)  # noqa: T201 - figures to note
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    with FIGURES.open("a") as file:
        file.write(f"{line}\n")
