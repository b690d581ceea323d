"""All of it in one go: pods that wait for checks and objects, policies, placement, eviction.

From nothing to a control plane with Harbourmaster and two member clusters; each step is a command
that a user would give, with what it prints.
"""

from __future__ import annotations

import json
import shlex
import signal
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harbourmaster.gates.stages import STAGE_ANALYSIS_KEY, STAGES_KEY
from harbourmaster.lifecycle.stages import HELD
from harbourmaster.playground import api
from harbourmaster.playground.build import ensure_binaries, find_kubectl
from harbourmaster.playground.capabilities import (
    VISITOR,
    controller_flags,
    dashboard_url,
    harbourmaster,
    overlay,
)
from harbourmaster.playground.control_plane import ControlPlane
from harbourmaster.playground.demo import FIRST, PATIENCE, SAMPLES, SECOND, VERSIONS, Demo, shorten
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.installation import Installation, step
from harbourmaster.playground.processes import interrupt_on

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

STEPS: Final = 10
MEMBERS: Final = {"north": "wind", "south": "sun"}
"""Member clusters, and the metric that counts for each."""
CANARY: Final = "1.2"
LAST: Final = "2.0"
APPLICATION: Final = "ferry"
LEDGER: Final = ("run", "ledger", "--image=registry.example.com/ledger:1.0")
LEDGER_LABELS: Final = "--labels=example.com/app=ledger,example.com/role=main"
_STAGES: Final = "VERSION:.spec.version,STAGE:.status.stage.state,REASON:.status.stage.message"
FLAGS: Final = (
    "--certificates-publish-seconds=0",
    "--placement-sample-interval-seconds=1",
    "--placement-reschedule-after=5",
)


def run(directory: Path, *, keep: bool, say: Callable[[str], None]) -> None:
    """Start everything in the folder, show all steps, and end it; ``keep`` waits for Ctrl-C first.

    Raises PlaygroundError where something goes otherwise than it should.
    """
    interrupt_on(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    binaries = ensure_binaries(progress=say)
    with ExitStack() as stack:
        say(f"== 0 of {STEPS}: a control plane with Harbourmaster, and two more clusters")
        plane = ControlPlane(directory, binaries=binaries)
        with step("control plane: etcd, API server, controllers, scheduler, kwok", say):
            stack.enter_context(plane)
        nodes = plane.create_nodes(2)
        flags = (*controller_flags(), *FLAGS)
        installation = Installation(
            plane,
            arguments={"controller": flags},
            folder=overlay(directory / "overlay"),
            progress=say,
        )
        stack.enter_context(installation)
        plane.await_nodes(nodes)
        members = {}
        for name in MEMBERS:
            with step(f"member cluster {name}: etcd and API server", say):
                member = ControlPlane(directory / name, binaries=binaries, optional=())
                members[name] = stack.enter_context(member).kubeconfig
        say("To run the same commands yourself, in another shell in this folder:")
        programs = Path(sys.executable).parent
        say(f'$ export KUBECONFIG={plane.kubeconfig} PATH="{programs}:$PATH"')
        tour = Tour(plane, say, members)
        tour.go()
        tour.show_pages(dashboard_url(flags), find_kubectl(binaries))
        if keep:
            say("Ctrl-C stops everything.")
            with suppress(KeyboardInterrupt):
                signal.pause()
        else:
            say("Everything stops now; KEEP=1 keeps it running until Ctrl-C.")


class Tour(Demo):
    """A step for each capability."""

    namespace = "shop"
    name = "till"

    def __init__(
        self, plane: ControlPlane, say: Callable[[str], None], members: Mapping[str, Path]
    ) -> None:
        super().__init__(plane, say, STEPS)
        self._members = members

    def go(self) -> None:
        """All steps but the last. Raises PlaygroundError where one goes otherwise."""
        self.fail()
        self.succeed()
        self.stage()
        self.wait()
        self.add_fields()
        self.place()
        self.move()
        self.make_room()
        self.leave_waiting()

    def fail(self) -> None:
        """Roll out a version whose check fails, and ask why its pod waits."""
        self.headline(f"a check: version {FIRST} has too many errors, so its pod is not scheduled")
        self.kubectl("apply", "-f", shorten(SAMPLES / "evaluation" / "few-errors.yaml"))
        self._await_version(FIRST, "status", "Failed")
        self._say("Two commands show why. They cannot read the settings of our processes, which")
        self._say("run outside the cluster here.")
        self.harbourmaster("gate", "list", "-A")
        self.harbourmaster("why", "pod", f"--namespace={self.namespace}", f"-l=app={self.name}")
        self._check(FIRST, "Pending")

    def succeed(self) -> None:
        """Correct the value, and roll out a version that runs."""
        self.headline(f"the errors are gone, and version {SECOND} runs")
        patch = json.dumps({"spec": {"static": {"metrics": {"errors-per-minute": 2}}}})
        self.kubectl("patch", "keptnmetricsprovider/constants", "--type=merge", "-p", patch)
        self.wait_for("keptnmetric/errors-per-minute", "value", "2")
        self.annotate({"keptn.sh/version": SECOND})
        self.kubectl("rollout", "status", f"deployment/{self.name}", f"--timeout={PATIENCE}")
        self._check(SECOND, "Running")

    def stage(self) -> None:
        """Release one pod of a version that is held by its error rate, and then the others."""
        self.headline(f"a canary: one pod of version {CANARY} runs, and has too many errors")
        self.kubectl("apply", "-f", shorten(SAMPLES / "demo" / "canary.yaml"))
        self.kubectl("scale", f"deployment/{self.name}", "--replicas=3")
        self.kubectl("rollout", "status", f"deployment/{self.name}", f"--timeout={PATIENCE}")
        stages = {STAGES_KEY: "1, 100%", STAGE_ANALYSIS_KEY: "error-rate"}
        self.annotate({"keptn.sh/version": CANARY, **stages})
        self._await_version(CANARY, "stage.state", HELD)
        self.kubectl("get", "pods", "-o", f"custom-columns={VERSIONS}")
        self.kubectl("get", "keptnworkloadversions", "-o", f"custom-columns={_STAGES}")
        running = [pod["status"]["phase"] for pod in self.pods_of(CANARY)].count("Running")
        if running != 1:
            raise PlaygroundError(f"{running} pods of version {CANARY} run instead of 1")
        self._say("Nothing more happens until the version is rolled back, or a person promotes it:")
        target = (f"deployment/{self.name}", f"--namespace={self.namespace}")
        self.harbourmaster("gate", "promote", *target, "--reason=the errors are known")
        self.kubectl("rollout", "status", f"deployment/{self.name}", f"--timeout={PATIENCE}")

    def wait(self) -> None:
        """Hold a pod until the object that its annotation names exists."""
        self.headline("a wait: a pod starts when its ConfigMap exists")
        annotation = "--annotations=gates.harbourmaster.dev/wait-for=configmap/prices"
        self.kubectl("run", "stall", "--image=registry.example.com/stall:1.0", annotation)
        self.harbourmaster("gate", "list", f"--namespace={self.namespace}")
        self.kubectl("create", "configmap", "prices", "--from-literal=apple=1")
        self.kubectl("wait", "pod/stall", "--for=condition=Ready", f"--timeout={PATIENCE}")

    def add_fields(self) -> None:
        """Create a pod that gets a toleration from a policy."""
        self.headline("a policy adds a toleration to the pods that it selects")
        self.kubectl("apply", "-f", shorten(SAMPLES / "cluster-toleration.yaml"))
        self.kubectl(*LEDGER, LEDGER_LABELS)
        self.kubectl("get", "pod/ledger", "-o=jsonpath={.spec.tolerations[-1:]}")
        self.harbourmaster("why", "pod", f"{self.namespace}/ledger")

    def place(self) -> None:
        """Make the other clusters known, and an application that goes to the better one."""
        self.headline("two clusters, and an application that runs where its metric is best")
        self._say(
            "The metric is the wind in the north and the sun in the south. Both are API servers"
        )
        self._say("only: objects are created there, but no pod becomes ready.")
        for name, metric in MEMBERS.items():
            command = ("placement", "new", "cluster", name, f"--namespace={self.namespace}")
            kubeconfig = f"--kubeconfig={self._members[name]}"
            made = self._ask((*command, kubeconfig, "--metric", metric, "1"))
            line = shlex.join((*command, kubeconfig, "--metric", metric, "1"))
            self._say(f"$ harbourmaster {line} | kubectl apply -f -")
            self.tell(self._plane.kubectl("apply", "-f", "-", stdin=made).stdout)
        self.kubectl("apply", "-f", shorten(SAMPLES / "demo" / "ferry.yaml"))
        self._await_place("north")

    def move(self) -> None:
        """Let the other cluster become the better one."""
        self.headline("the wind drops, and the application moves")
        self._say(
            "Stickiness favours the current cluster; another one must be better by more than that."
        )
        patch = json.dumps({"spec": {"static": {"metrics": {"wind": 0.1, "sun": 0.8}}}})
        provider = "metricsproviders.placement.harbourmaster.dev/weather"
        self.kubectl("patch", provider, "--type=merge", "-p", patch)
        self._await_place("south")

    def make_room(self) -> None:
        """Fill both nodes, and create a critical add-on, for which the rescheduler evicts a pod."""
        self.headline("both nodes are full, and a critical add-on gets room on one")
        self.kubectl("apply", "-f", shorten(SAMPLES / "demo" / "reports.yaml"))
        self.kubectl("rollout", "status", "deployment/reports", f"--timeout={PATIENCE}")
        self._say("The rescheduler waits ten seconds for the scheduler before it evicts pods.")
        manifest = shorten(SAMPLES / "demo" / "dns.yaml")
        self.kubectl("apply", "-f", manifest, namespace="kube-system")
        bound = ("wait", "pod/dns", "--for=condition=PodScheduled", f"--timeout={PATIENCE}")
        self.kubectl(*bound, namespace="kube-system")
        self.kubectl("get", "events", "--field-selector=reason=EvictedByRescheduler")

    def leave_waiting(self) -> None:
        """Roll out a version that waits until the user acts, so that it can be examined."""
        self.headline(f"version {LAST} waits for a task that is missing")
        tasks = {"keptn.sh/pre-deployment-tasks": "manual-approval"}
        self.annotate({"keptn.sh/version": LAST, **tasks})
        self._await_version(LAST, "preDeploymentStatus", "Pending")
        self.harbourmaster("gate", "list", "-A")

    def show_pages(self, address: str, kubectl: Path) -> None:
        """Create a user that may see everything, and print how to log in."""
        self.headline("the dashboard")
        self._say(
            "Users see the objects that they can list with kubectl. This account sees everything:"
        )
        fault = api.why_not_ready(f"{address}login")
        if fault:
            raise PlaygroundError(f"the dashboard at {address} does not answer: {fault}")
        self.kubectl("create", "serviceaccount", VISITOR)
        role = "--clusterrole=harbourmaster-dashboard-viewer"
        account = f"--serviceaccount={self.namespace}:{VISITOR}"
        self.kubectl("create", "clusterrolebinding", VISITOR, role, account)
        self._say(
            "Gates shows what the pod of the last step waits for, Applications the phases of each"
        )
        self._say("version, and Clusters the scores that moved the ferry to the south.")
        filtered = f'.items[?(@.spec.version=="{FIRST}")]'
        command = ("get", "keptnappversions", f"-o=jsonpath={{{filtered}.metadata.name}}")
        failed = self._plane.kubectl("-n", self.namespace, *command).stdout.strip()
        page = f"applications/{self.namespace}/{self.name}?version={failed}"
        self._say(f"\nThe dashboard: {address}")
        self._say(f"The release that failed: {address}{page}")
        self._say("It asks for a token; in another shell, in this folder, this prints one:")
        self._say(
            f"$ {shorten(kubectl)} --kubeconfig={self._plane.kubeconfig} "
            f"create token {VISITOR} -n {self.namespace}"
        )

    def harbourmaster(self, *arguments: str) -> None:
        """Show a command of ours and what it prints."""
        self._say(f"$ harbourmaster {shlex.join(arguments)}")
        self.tell(self._ask(arguments))

    def _await_place(self, cluster: str) -> None:
        self.wait_for(
            f"applications.placement.harbourmaster.dev/{APPLICATION}", "runningOn.name", cluster
        )
        self.harbourmaster("why", "application", f"{self.namespace}/{APPLICATION}")
        for name, kubeconfig in self._members.items():
            command = (f"--kubeconfig={kubeconfig}", "get", "deployments", "--ignore-not-found")
            self._say(f"$ kubectl {shlex.join(command)}")
            output = self._plane.kubectl(*command).stdout
            self.tell(output or "nothing")
            if (APPLICATION in output) != (name == cluster):
                raise PlaygroundError(f"{APPLICATION} should be on {cluster} alone")

    def _ask(self, arguments: Sequence[str]) -> str:
        """Return the output of a harbourmaster command. Raises PlaygroundError."""
        return harbourmaster(self._plane.kubeconfig, arguments)
