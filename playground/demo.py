"""An evaluation judged by a real Prometheus that scrapes Harbourmaster itself, in printed steps."""

from __future__ import annotations

import json
import shlex
import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.playground.build import ensure_binaries, ensure_prometheus
from harbourmaster.playground.control_plane import ControlPlane
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.installation import Installation
from harbourmaster.playground.manifests import DEPLOY
from harbourmaster.playground.processes import interrupt_on
from harbourmaster.playground.prometheus import Prometheus
from harbourmaster.playground.workloads import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLES: Final = DEPLOY / "samples"
NAMESPACE: Final = "market"
NAME: Final = "stall"
# What the sample names, and this machine's Prometheus takes the place of.
SAMPLE_SERVER: Final = "http://prometheus.monitoring.svc:9090"
STEPS: Final = 4
FIRST: Final = "1.0"
SECOND: Final = "1.1"
PATIENCE: Final = "300s"
# The controller refuses loopback addresses, which metrics in a cluster never have.
CONTROLLER_FLAGS: Final = (
    f"--metrics-allowed-addresses={LOOPBACK}/32",
    "--certificates-publish-seconds=0",
)
VERSIONS: Final = r"VERSION:.metadata.annotations.keptn\.sh/version,PHASE:.status.phase"
_PODS: Final = f"{VERSIONS},REASON:.status.conditions[*].reason,NODE:.spec.nodeName"
_EVALUATIONS: Final = (
    "WORKLOAD:.spec.workloadVersion,"
    "STATUS:.status.overallStatus,"
    "TRIES:.status.retryCount,"
    "MESSAGE:.status.evaluationStatus.policies.message"
)


def run(directory: Path, *, keep: bool, say: Callable[[str], None]) -> None:
    """Start everything in the folder, show all steps, and end it; ``keep`` waits for Ctrl-C first.

    Raises PlaygroundError where something goes otherwise than it should.
    """
    interrupt_on(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    binaries = ensure_binaries(progress=say)
    program = ensure_prometheus(progress=say)
    with ExitStack() as stack:
        say(f"== 0 of {STEPS}: a control plane, Harbourmaster on it, a Prometheus that scrapes it")
        plane = stack.enter_context(ControlPlane(directory, binaries=binaries))
        nodes = plane.create_nodes(1)
        installation = stack.enter_context(
            Installation(plane, arguments={"controller": CONTROLLER_FLAGS}, progress=say)
        )
        plane.await_nodes(nodes)
        scrapes = installation.scrapes
        folder = directory / "prometheus"
        prometheus = stack.enter_context(Prometheus(folder, scrapes, program=program))
        prometheus.await_targets()
        say(f"Prometheus at {prometheus.url} scrapes {', '.join(scrapes)}")
        say(f"$ export KUBECONFIG={plane.kubeconfig}")
        demo = Demo(plane, say)
        demo.measure(prometheus.url)
        demo.fail()
        demo.mend()
        demo.succeed()
        if keep:
            say(f"\nEverything keeps running until Ctrl-C: export KUBECONFIG={plane.kubeconfig}")
            with suppress(KeyboardInterrupt):
                signal.pause()


class Demo:
    """An installation, and the steps of the demo. Each step raises PlaygroundError if it fails."""

    namespace = NAMESPACE
    name = NAME

    def __init__(self, plane: ControlPlane, say: Callable[[str], None], steps: int = STEPS) -> None:
        self._plane = plane
        self._say = say
        self._step = 0
        self._steps = steps

    def measure(self, server: str) -> None:
        """Apply what measures, and wait for the first value."""
        self.headline("a metric of Harbourmaster's own, and an evaluation of it")
        manifest = SAMPLES / "evaluation" / "metric.yaml"
        self._say(f"$ sed 's|{SAMPLE_SERVER}|{server}|' {shorten(manifest)} | kubectl apply -f -")
        content = manifest.read_text().replace(SAMPLE_SERVER, server)
        self.tell(self._plane.kubectl("apply", "-f", "-", stdin=content).stdout)
        self._await_value("0")

    def fail(self) -> None:
        """Roll out the first version, whose evaluation fails; its pod must stay where it is."""
        self.headline(f"version {FIRST} is rolled out, and its evaluation fails")
        self.kubectl("apply", "-f", shorten(SAMPLES / "evaluation" / "stall.yaml"))
        self._await_version(FIRST, "status", "Failed")
        self._show()
        self._check(FIRST, "Pending")
        self._say(f"Version {FIRST} stays pending: a failed evaluation is not repeated.")

    def mend(self) -> None:
        """Make the measured value what the evaluation wants."""
        self.headline("the missing scheduling policy is created")
        self.kubectl("apply", "-f", shorten(SAMPLES / "cluster-toleration.yaml"))
        self._await_value("1")

    def succeed(self) -> None:
        """Roll out the second version, whose evaluation succeeds; its pod must run."""
        self.headline(f"version {SECOND} is rolled out, and its evaluation succeeds")
        self.annotate({"keptn.sh/version": SECOND})
        self._await_version(SECOND, "preDeploymentEvaluationStatus", "Succeeded")
        self.kubectl("rollout", "status", f"deployment/{NAME}", f"--timeout={PATIENCE}")
        self._show()
        self._check(SECOND, "Running")
        self._say(f"Version {SECOND} runs.")

    def _await_value(self, value: str) -> None:
        try:
            self.wait_for("keptnmetric/policies", "value", value)
        except PlaygroundError as error:
            fault = self._plane.kubectl(
                "get",
                "keptnmetric/policies",
                "-n",
                NAMESPACE,
                "-o",
                "jsonpath={.status.errMsg}",
            ).stdout
            text = f"the metric is not {value}: {fault or 'it was not fetched yet'}"
            raise PlaygroundError(text) from error
        self.kubectl("get", "keptnmetrics")

    def _await_version(self, version: str, field: str, value: str) -> None:
        name = f"keptnworkloadversion/{self.name}-{self.name}-{version}"
        self.kubectl("wait", name, "--for=create", f"--timeout={PATIENCE}")
        self.wait_for(name, field, value)

    def wait_for(self, name: str, field: str, value: str) -> None:
        """Wait until a field of the status has a value."""
        condition = f"--for=jsonpath={{.status.{field}}}={value}"
        self.kubectl("wait", name, condition, f"--timeout={PATIENCE}")

    def _show(self) -> None:
        self.kubectl("get", "keptnevaluations", "-o", f"custom-columns={_EVALUATIONS}")
        self.kubectl("get", "pods", "-o", f"custom-columns={_PODS}")

    def annotate(self, annotations: dict[str, str]) -> None:
        """Change annotations in the template of the Deployment."""
        patch = json.dumps({"spec": {"template": {"metadata": {"annotations": annotations}}}})
        self.kubectl("patch", f"deployment/{self.name}", "-p", patch)

    def pods_of(self, version: str) -> list[dict[str, Any]]:
        """Return the pods of a version."""
        command = ("get", "pods", "-n", self.namespace, "-l", f"app={self.name}", "-o=json")
        return [
            pod
            for pod in json.loads(self._plane.kubectl(*command).stdout)["items"]
            if pod["metadata"]["annotations"].get("keptn.sh/version") == version
        ]

    def _check(self, version: str, phase: str) -> None:
        phases = {pod["status"]["phase"] for pod in self.pods_of(version)}
        if phases != {phase}:
            actual = ", ".join(sorted(phases)) or "missing"
            raise PlaygroundError(f"the pod of version {version} is {actual} instead of {phase}")

    def headline(self, text: str) -> None:
        """Begin a step."""
        self._step += 1
        self._say(f"\n== {self._step} of {self._steps}: {text}")

    def kubectl(self, *arguments: str, namespace: str = "") -> None:
        """Show a command and what it prints."""
        command = ("-n", namespace or self.namespace, *arguments)
        self._say(f"$ kubectl {shlex.join(command)}")
        self.tell(self._plane.kubectl(*command).stdout)

    def tell(self, text: str) -> None:
        """Show what a command printed."""
        for line in text.rstrip().splitlines():
            self._say(f"  {line}".rstrip())


def shorten(path: Path) -> str:
    """Return a path relative to the current folder, if it is below."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
