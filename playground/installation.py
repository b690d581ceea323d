"""Harbourmaster on a control plane: its processes, run as their pods would be, and disturbed."""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harbourmaster.playground import api, manifests
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.group import Group, Started, living
from harbourmaster.playground.kubelet import Duties, is_mounted, write_duties
from harbourmaster.playground.ports import free_ports
from harbourmaster.playground.workloads import KUBELET, REGISTRATION, Files, Workload, workload_name

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from harbourmaster.playground.control_plane import ControlPlane
    from harbourmaster.playground.workloads import Role

# One for each review that was answered, whatever the answer.
REVIEWS = "harbourmaster_admission_duration_seconds_count"
CONFIGURATIONS = tuple(
    f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/{REGISTRATION}"
    for kind in ("mutating", "validating")
)
_TRIED = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "tried-"},
    "spec": {"containers": [{"name": "tried", "image": "registry.example.com/tried"}]},
}


def missing(port: int, context: ssl.SSLContext, paths: Iterable[str]) -> str | None:
    """Return None if the API server serves all paths, else its answer for the first other one."""
    for path in paths:
        try:
            api.request(port, context, "GET", f"{path}?limit=1")
        except PlaygroundError as error:
            return str(error)
    return None


class Trial:
    """Checks by dry runs in ``default`` whether webhooks review pods.

    A pod is also admitted if no webhook can be called, so the webhooks' own metrics decide.
    ``health`` has the URL of each webhook.
    """

    def __init__(self, port: int, context: ssl.SSLContext, health: Sequence[str]) -> None:
        self._port = port
        self._context = context
        self._health = health
        self._before: float | None = None

    def why_not(self) -> str | None:
        """Try a pod; return None when the counts are above those of the first call."""
        path = "/api/v1/namespaces/default/pods?dryRun=All"
        try:
            # A webhook counts a moment after it answered, so a later call may see it.
            now = sum(count_reviews(api.ask(f"{url}/metrics")[1]) for url in self._health)
            if self._before is None:
                self._before = now
            if now > self._before:
                return None
            api.request(self._port, self._context, "POST", path, _TRIED)
        except PlaygroundError as error:
            return str(error)
        return "the API server asks no webhook about a pod"


def count_reviews(metrics: str) -> float:
    """Return the number of reviews in the Prometheus text of one webhook."""
    lines = (line for line in metrics.splitlines() if line.startswith(REVIEWS))
    return sum(float(line.rpartition(" ")[2]) for line in lines)


READY_SECONDS = 120.0
# Meanwhile the controller creates the certificate.
MOUNT_SECONDS = 120.0
# Meanwhile the controller releases its Lease, and the webhook lets connections end.
GRACE_SECONDS = 5.0
ROLES: tuple[Role, ...] = ("controller", "webhook")


class Installation(Started):
    """The controllers, the webhooks and a kubelet; methods return when their effect is observed.

    ``service_port`` is where the API server finds the webhooks: a balancer's, by default the first
    webhook's. ``arguments`` are further flags by role. ``api_ports`` has by process the port of a
    server between it and the API server. The processes end with this one, however it ends, unless
    ``detached``. All files are in ``directory``, by default the control plane's; ports are chosen
    when this is created, and stay.
    """

    def __init__(  # noqa: PLR0913 -- what a test may vary
        self,
        control_plane: ControlPlane,
        directory: Path | None = None,
        *,
        webhooks: int = 1,
        controllers: int = 1,
        service_port: int | None = None,
        arguments: Mapping[Role, Sequence[str]] | None = None,
        api_ports: Mapping[str, int] | None = None,
        folder: Path = manifests.DEFAULT,
        detached: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self.files = Files((directory or control_plane.layout.directory).absolute())
        self.workloads = _workloads(self.files, {"controller": controllers, "webhook": webhooks})
        self.service_port = service_port or self.webhooks[0].port
        self._control_plane = control_plane
        self._api_ports = dict(api_ports or {})
        self._folder = folder
        self._progress = progress or (lambda _: None)
        given = arguments or {}
        self._arguments = {
            name: tuple(given.get(workload.role, ())) for name, workload in self.workloads.items()
        }
        self._kinds: list[str] = []
        self._shipped: dict[Role, list[str]] = {}
        self._group = Group(self.files.records, self.files.logs, detached=detached)

    @property
    def webhooks(self) -> list[Workload]:
        """The webhooks, with the ports of each."""
        return [workload for workload in self.workloads.values() if workload.role == "webhook"]

    @property
    def controllers(self) -> list[Workload]:
        """The controllers, with the ports of each."""
        return [workload for workload in self.workloads.values() if workload.role == "controller"]

    @property
    def scrapes(self) -> dict[str, str]:
        """The URL of the metrics of each process."""
        return {name: f"{workload.health}/metrics" for name, workload in self.workloads.items()}

    def start(self) -> None:
        """Install the manifests, start all, and wait for an answered review; or leave nothing."""
        self._claim()
        try:
            with step("manifests: kinds, service accounts, roles, service", self._progress):
                self.install()
            self.start_kubelet()
            with step("processes started: " + ", ".join(self.workloads), self._progress):
                for name in self.workloads:
                    self.launch(name)
            with step("processes ready", self._progress):
                self.await_ready()
            with step("webhook configurations, and a pod's review answered", self._progress):
                self.await_answer()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process: SIGTERM, and SIGKILL to what outlives the grace period."""
        end_in_order(self._group)

    def install(self) -> None:
        """Apply the manifests; of the Deployments only their flags are taken."""
        kubectl = self._control_plane.kubectl
        items = manifests.render(kubectl, self._folder)
        metrics_port = self.controllers[0].metrics_api_port
        manifests.apply(kubectl, manifests.adapt(items, self.service_port, metrics_port))
        self._kinds = manifests.served_paths(items)
        self._shipped = {role: manifests.container_flags(items, role) for role in ROLES}

    def start_kubelet(self) -> None:
        """Start what mounts the volumes of the other processes."""
        plane = self._control_plane
        volumes = [volume for workload in self.workloads.values() for volume in workload.volumes()]
        write_duties(self.files.duties, Duties(plane.port, str(plane.layout.pki), volumes))
        command = [
            sys.executable,
            "-P",
            "-m",
            "harbourmaster.playground.kubelet",
            str(self.files.duties),
        ]
        self._group.start(KUBELET, command, os.environ)

    def launch(self, name: str, arguments: Sequence[str] | None = None) -> None:
        """Start one process once its volumes are mounted.

        ``arguments`` are its further flags from now on.
        """
        workload = self.workloads[name]
        why_not = partial(_why_not_mounted, workload)
        controllers = [workload.name for workload in self._workloads_of("controller")]
        self._group.wait_until(KUBELET, why_not, MOUNT_SECONDS, controllers)
        if arguments is not None:
            self._arguments[name] = tuple(arguments)
        shipped = self._shipped[workload.role]
        command = [*workload.command(shipped, self.service_port), *self._arguments[name]]
        api_port = self._api_ports.get(name, self._control_plane.port)
        environment = workload.environment(os.environ, api_port)
        ready = f"{workload.health}/readyz"
        self._group.start(name, command, environment, ready=ready, ports=workload.ports)

    def restart(
        self,
        name: str,
        arguments: Sequence[str] | None = None,
        *,
        grace: float = GRACE_SECONDS,
    ) -> None:
        """End one process if it runs, start it again on its ports, and wait until it is ready."""
        self.end(name, grace=grace)
        self.launch(name, arguments)
        self.await_ready(name)

    def end(self, name: str, *, grace: float = GRACE_SECONDS) -> None:
        """End one process by SIGTERM, and SIGKILL after ``grace`` seconds."""
        self._group.end([name], grace)

    def await_ready(self, *names: str) -> None:
        """Wait until the named processes, by default all, say that they are ready."""
        for name in names or self.workloads:
            why_not = partial(api.why_not_ready, self._group.record(name).ready, None)
            self._group.wait_until(name, why_not, READY_SECONDS)

    def await_answer(self) -> None:
        """Wait until our kinds are served, and the webhooks registered and asked about a pod."""
        plane = self._control_plane
        needed = (*self._kinds, *CONFIGURATIONS)
        trial = Trial(
            plane.port, plane.admin, [webhook.health for webhook in self._workloads_of("webhook")]
        )

        def why_not() -> str | None:
            return missing(plane.port, plane.admin, needed) or trial.why_not()

        first, *beside = [workload.name for role in ROLES for workload in self._workloads_of(role)]
        self._group.wait_until(first, why_not, READY_SECONDS, beside)

    def pid(self, name: str) -> int:
        """The process id of a process that was started."""
        return self._group.record(name).pid

    def log(self, name: str) -> Path:
        """Return the log of a process, to which restarts append."""
        return self._group.log(name)

    def _workloads_of(self, role: Role) -> list[Workload]:
        names = self._group.names
        return [
            workload
            for workload in self.workloads.values()
            if workload.role == role and workload.name in names
        ]

    def _claim(self) -> None:
        alive = living(self.files.records)
        if alive:
            raise PlaygroundError(
                f"{self.files.directory}: {', '.join(alive)} of an earlier start still running: "
                f"harbourmaster local down --dir {self.files.directory}"
            )
        self.files.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Tokens of an earlier start are signed by a key that is gone.
        shutil.rmtree(self.files.pods, ignore_errors=True)


@contextmanager
def step(what: str, progress: Callable[[str], None]) -> Iterator[None]:
    """Say what was done when it is, and in how many seconds."""
    start = time.monotonic()
    yield
    progress(f"{what} ... {time.monotonic() - start:.1f} s")


def end_in_order(group: Group) -> list[str]:
    """End the processes of an installation, the kubelet last; return the names of what ended."""
    ended = group.end([name for name in group.names if name != KUBELET], GRACE_SECONDS)
    return [*ended, *group.end([KUBELET], GRACE_SECONDS)]


def _why_not_mounted(workload: Workload) -> str | None:
    missing = [
        volume.directory for volume in workload.volumes() if not is_mounted(Path(volume.directory))
    ]
    return f"{workload.name} waits for {', '.join(missing)}" if missing else None


def _workloads(files: Files, counts: Mapping[Role, int]) -> dict[str, Workload]:
    ports = iter(free_ports(4 * sum(counts.values())))
    workloads = {}
    for role in ROLES:
        for number in range(1, counts[role] + 1):
            name = workload_name(role, number)
            port = next(ports) if role == "webhook" else 0
            workload = Workload(name, role, files.pods / name, port, next(ports))
            if role == "controller":
                workload = workload._replace(
                    values_port=next(ports),
                    metrics_api_port=next(ports),
                    extender_port=next(ports),
                )
            workloads[name] = workload
    return workloads
