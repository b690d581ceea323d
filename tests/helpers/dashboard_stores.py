"""Stores with the objects that the dashboard shows, without watches behind them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec

from harbourmaster.api.resources import CORE_EVENTS, REPLICA_SETS
from harbourmaster.api.times import format_rfc3339, utc_now
from harbourmaster.dashboard.caches import PodCounter
from harbourmaster.dashboard.sources import MatchCounts, PageSources
from harbourmaster.evaluation.model import Metric
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.release import CHECKS_KEY
from harbourmaster.gates.waits import WAIT_FOR_KEY, waits_of
from harbourmaster.kube.client import ListPage
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.kube.store import Store
from harbourmaster.lifecycle.gate_verdict import GateWaitRules
from harbourmaster.lifecycle.gated_pods import decode_pod
from harbourmaster.lifecycle.model import (
    AppVersion,
    Evaluation,
    EvaluationDefinition,
    Task,
    TaskDefinition,
    Workload,
    WorkloadVersion,
)
from harbourmaster.lifecycle.wait_items import ItemReport
from harbourmaster.lifecycle.workloads import names_of
from helpers.lifecycle_objects import owners


class StaticSource:
    """A store without a watch behind it: what is in it is all there is."""

    def __init__(self, store=None):
        self.store = Store() if store is None else store
        self.synced = asyncio.Event()
        self.synced.set()
        self.absent = False
        self.error = None
        self.is_forbidden = False


class StaticWaits:
    """Known states of the objects for which pods wait, by namespace."""

    def __init__(self):
        self.items = {}
        self.found = {}
        self.asked = []

    def reports(self, namespace):
        return self.items.get(namespace, {})

    def cycles(self, namespace):
        self.asked.append(namespace)
        return self.found.get(namespace, {})


class StubClient:
    """The lists of an API server, from raw objects; ``faults`` are errors by plural."""

    def __init__(self):
        self.objects = {}
        self.tables = {}
        self.faults = {}
        self.asked = []
        self.page = 500

    def put(self, resource, namespace, raw):
        self.objects.setdefault((resource.plural, namespace), []).append(raw)

    async def list(
        self, resource, namespace, *, field_selector="", continue_token="", limit=500, **_
    ):
        self.asked.append((resource.plural, namespace, field_selector))
        if fault := self.faults.get(resource.plural):
            raise fault
        terms = [term.split("=") for term in field_selector.split(",") if term]
        fitting = [
            raw
            for raw in self.objects.get((resource.plural, namespace), ())
            if all(_field(raw, path) == value for path, value in terms)
        ]
        rest = fitting[int(continue_token or 0) :]
        token = str(len(fitting) - len(rest) + limit) if len(rest) > limit else ""
        items = tuple(msgspec.Raw(msgspec.json.encode(raw)) for raw in rest[:limit])
        return ListPage(items, "1", token)

    async def get(self, resource, name, namespace):
        listed = await self.list(resource, namespace, field_selector=f"metadata.name={name}")
        if not listed.items:
            raise NotFoundError(f"{resource.plural} {name} not found", status=404)
        return bytes(listed.items[0])

    async def table(self, resource, namespace, continue_token="", **selectors):
        """All pods; with a label selector those in ``tables``."""
        (selector,) = selectors.values()
        self.asked.append((resource.plural, namespace, selector))
        if fault := self.faults.get(resource.plural):
            raise fault
        start = int(continue_token or 0)
        stored = self.objects.get((resource.plural, namespace), ())
        if "labelSelector" in selectors:
            stored = self.tables.get(selector, ())
        rows = [
            dict(zip(_COLUMNS, _cells(raw), strict=True))
            for raw in stored[start : start + self.page]
        ]
        token = str(start + self.page) if len(stored) > start + self.page else ""
        return rows, token


_COLUMNS = ("Name", "Ready", "Status", "Restarts", "Age", "Node")


def _cells(raw):
    status = raw.get("status", {})
    return (
        raw["metadata"]["name"],
        status.get("ready", "1/1"),
        status.get("phase", "Running"),
        status.get("restarts", 0),
        None,
        raw.get("spec", {}).get("nodeName", "<none>"),
    )


def _field(raw, path):
    for name in path.split("."):
        raw = raw.get(name, "")
    return raw


class Stores:
    """``put`` and ``remove`` tell open pages, as mirrors do."""

    SOURCES = (
        "app_versions",
        "workloads",
        "workload_versions",
        "tasks",
        "task_definitions",
        "evaluations",
        "evaluation_definitions",
        "metrics",
        "analyses",
        "analysis_definitions",
        "gated_pods",
        "policies",
        "cluster_policies",
        "applications",
        "clusters",
        "nodes",
        "namespaces",
    )

    def __init__(self, now=None, max_age=0.0):
        self.now = now or utc_now()
        self.sources = {source: StaticSource() for source in self.SOURCES}
        self.waits = StaticWaits()
        self.pods = Store()
        self.sources["labels"] = StaticSource(self.pods)
        self.client = StubClient()
        self.rules = GateWaitRules(max_age_seconds=max_age)
        self.dashboard = None
        self.counter = PodCounter(
            lambda: [
                entry.compiled
                for name in ("policies", "cluster_policies")
                for entry in self.sources[name].store.values()
            ],
            self.pods.values,
            self.sources["namespaces"].store.get,
        )

    async def world(self, *, counts=True, read=None):
        match_counts = await self.counter.counts() if counts else MatchCounts()
        return PageSources(
            **self.sources, waits=self.waits, counts=match_counts, rules=self.rules, read=read
        )

    def put(self, source, obj, key=None):
        key = key or obj.metadata.key
        self.sources[source].store.put(key, obj)
        self._tell(source, key)

    def remove(self, source, key):
        self.sources[source].store.remove(key)
        self._tell(source, key)

    def ago(self, seconds):
        return format_rfc3339(self.now - timedelta(seconds=seconds))

    def _tell(self, source, key):
        self.counter.outdate()
        if self.dashboard is not None:
            self.dashboard.notify(source, frozenset((key,)))

    def made(self, source, kind, namespace, name, owner=None, age=60, **parts):
        """Put an object; ``owner`` is kind and name of the version that controls it."""
        self.put(source, self._made(kind, name, namespace, age, owner, **parts))

    def _made(self, kind, name, namespace, age, owner=None, **parts):
        owned_by = owners(uid=f"uid-{namespace}-{parts.get('spec', {}).get('workloadName')}")
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}",
            "creationTimestamp": self.ago(age),
            **(owned_by if owner is None else owners(owner[0], f"uid-{owner[1]}", owner[1])),
        }
        return msgspec.convert({"metadata": metadata, **parts}, kind)


class LifecycleStores(Stores):
    """Stores to be filled with objects of the lifecycle."""

    def app(self, namespace, name, number=0, release="1.4.2"):
        """An application in a version, with two workloads, in one of five states."""
        case = number % 5
        begun = 120 + 37 * (number % 400)
        workloads = [("web", release), ("worker", release)]
        states = ("Succeeded", "Progressing", "Failed", "Pending", "Succeeded")
        status = {"status": states[case], "startTime": self.ago(begun)}
        checks = {"preDeploymentTasks": ["backup"], "preDeploymentEvaluations": ["errors"]}
        if case == 3:
            status = {"status": "Pending"}
        else:
            status |= self._done("preDeployment", "backup", begun, begun - 20)
        if case in {0, 4}:
            status |= self._done("preDeploymentEvaluation", "errors", begun - 20, begun - 35)
            status |= {
                "workloadOverallStatus": "Succeeded",
                "postDeploymentStatus": "Succeeded",
                "postDeploymentEvaluationStatus": "Succeeded",
                "currentPhase": "Completed",
                "endTime": self.ago(begun - 90),
                "workloadStatus": [
                    {"workload": {"name": workload, "version": of}, "status": "Succeeded"}
                    for workload, of in workloads
                ],
            }
        elif case == 1:
            status |= self._done("preDeploymentEvaluation", "errors", begun - 20, begun - 35)
            status |= {"workloadOverallStatus": "Progressing", "currentPhase": "AppDeploy"}
        elif case == 2:
            status |= self._done(
                "preDeploymentEvaluation", "errors", begun - 20, begun - 60, "Failed"
            )
            status |= {"currentPhase": "AppPreDeployEvaluations", "endTime": self.ago(begun - 60)}
            # All failed ones of a namespace share it.
            self._evaluation(namespace, "pre-errors-81724", "errors", begun - 20, "Failed")
        self.put(
            "app_versions",
            self._made(
                AppVersion,
                f"{name}-{release}-6b86b273",
                namespace,
                begun,
                spec={
                    "appName": name,
                    "version": release,
                    "previousVersion": "1.4.1",
                    "workloads": [{"name": workload, "version": of} for workload, of in workloads],
                    **checks,
                },
                status=status,
            ),
        )
        for workload, version in workloads:
            self._workload(namespace, name, workload, version, case, begun - 35)

    def _workload(self, namespace, app, name, version, case, begun):
        names = names_of(app, name, version)
        status = {"status": "Pending"}
        if case in {0, 4}:
            status = {
                "status": "Succeeded",
                "startTime": self.ago(begun),
                "endTime": self.ago(begun - 50),
                "deploymentStartTime": self.ago(begun - 12),
                "deploymentStatus": "Succeeded",
                "preDeploymentEvaluationStatus": "Succeeded",
                "postDeploymentStatus": "Succeeded",
                "postDeploymentEvaluationStatus": "Succeeded",
                "currentPhase": "Completed",
                **self._done("preDeployment", "migrate", begun, begun - 12),
            }
        elif case == 1:
            status = {
                "status": "Progressing",
                "startTime": self.ago(begun),
                "currentPhase": "WorkloadPreDeployEvaluations",
                "preDeploymentEvaluationStatus": "Progressing",
                "preDeploymentEvaluationTaskStatus": [
                    {
                        "definitionName": "latency",
                        "name": f"pre-eval-latency-{app}",
                        "status": "Progressing",
                        "startTime": self.ago(begun - 12),
                    }
                ],
                **self._done("preDeployment", "migrate", begun, begun - 12),
            }
            self._evaluation(namespace, f"pre-eval-latency-{app}", "latency", begun - 12)
        spec = {
            "app": app,
            "version": version,
            "resourceReference": {"uid": f"uid-{app}", "kind": "ReplicaSet", "name": f"{app}-6f"},
            "preDeploymentTasks": ["migrate"],
            "preDeploymentEvaluations": ["latency"],
        }
        self.put(
            "workload_versions",
            self._made(
                WorkloadVersion,
                names.version,
                namespace,
                begun,
                spec={**spec, "workloadName": names.workload},
                status=status,
            ),
        )
        self.put("workloads", self._made(Workload, names.workload, namespace, begun, spec=spec))
        for task in ("backup", "migrate"):
            made = self._made(TaskDefinition, task, namespace, 9999, spec={})
            self.put("task_definitions", made)
        for task in ("errors", "latency"):
            reference = {"keptnMetricRef": {"name": "p95"}, "evaluationTarget": "<200"}
            made = self._made(
                EvaluationDefinition, task, namespace, 9999, spec={"objectives": [reference]}
            )
            self.put("evaluation_definitions", made)

    def _evaluation(self, namespace, name, definition, begun, state="Progressing"):
        message = "value '412.5' did not meet objective '<200'" if state == "Failed" else ""
        self.put(
            "evaluations",
            self._made(
                Evaluation,
                name,
                namespace,
                begun,
                spec={"evaluationDefinition": definition, "retries": 10, "retryInterval": "30s"},
                status={
                    "retryCount": 3,
                    "overallStatus": state,
                    "startTime": self.ago(begun),
                    "evaluationStatus": {
                        "p95": {"value": "412.5", "status": state, "message": message}
                    },
                },
            ),
        )
        self.metric(namespace, "p95")

    def owner(self, namespace, name, image, uid, *, ready=0, wanted=1, desired=""):  # noqa: PLR0913
        """A ReplicaSet; ``desired`` is the number of pods of its Deployment."""
        notes = {"deployment.kubernetes.io/desired-replicas": str(desired)} if desired else {}
        raw = {
            "metadata": {"name": name, "uid": uid, "annotations": notes},
            "spec": {"replicas": wanted, "template": {"spec": {"containers": [{"image": image}]}}},
            "status": {"readyReplicas": ready} if ready else {},
        }
        self.client.put(REPLICA_SETS, namespace, raw)

    def warning(self, namespace, kind, name, reason, message="", age=30, **fields):
        """An event of type Warning."""
        raw = {
            "metadata": {"name": f"{name}.{age}"},
            "involvedObject": {"kind": kind, "name": name},
            "type": "Warning",
            "reason": reason,
            "message": message,
            "count": 3,
            "lastTimestamp": self.ago(age),
            **fields,
        }
        self.client.put(CORE_EVENTS, namespace, raw)

    def staged(self, namespace, app):
        """A release that its second stage holds: its error rate became worse, its pods crash."""
        old, new = names_of(app, "web", "1.4.1"), names_of(app, "web", "1.4.2")
        item = {"startTime": self.ago(120), "endTime": self.ago(60)}
        results = [{"number": 1, "state": "Passed", "endTime": self.ago(180), "released": 1}]
        failed = {"number": 2, "state": "Failed", "endTime": self.ago(60), "released": 2}
        stage = {"number": 2, "of": 3, "state": "Held", "since": self.ago(60), "wanted": 4}
        stage |= {"allowed": 2, "released": 2, "results": [*results, failed]}
        stage["message"] = "evaluation error-rate, task smoke failed"
        statuses = {
            old: {"status": "Succeeded", "currentPhase": "Completed"},
            new: {
                "status": "Progressing",
                "currentPhase": "WorkloadDeploy",
                "startTime": self.ago(300),
                "deploymentStatus": "Progressing",
                "preDeploymentStatus": "Succeeded",
                "preDeploymentEvaluationStatus": "Succeeded",
                "stage": stage,
                "stageEvaluationStatus": [
                    {"definitionName": "error-rate", "name": "stage-2-errors", **item}
                    | {"status": "Failed"}
                ],
                "stageTaskStatus": [
                    {"definitionName": "smoke", "name": "stage-2-smoke", **item}
                    | {"status": "Failed", "endTime": self.ago(50)}
                ],
            },
        }
        checks = {"stageTasks": ["smoke"], "stageEvaluations": ["error-rate"]}
        for number, (names, status) in enumerate(statuses.items(), 1):
            owner = {"uid": f"uid-{app}-{number}", "kind": "ReplicaSet", "name": f"{app}-{number}"}
            spec = {"app": app, "workloadName": names.workload, "version": f"1.4.{number}"}
            spec |= {"resourceReference": owner, "stages": "1, 50%, 100%", **checks}
            spec["previousVersion"] = "1.4.1" if number > 1 else ""
            made = (WorkloadVersion, names.version, namespace, 600 - number * 100)
            self.put("workload_versions", self._made(*made, spec=spec, status=status))
            image = f"registry.example.com/{namespace}/{app}:1.4.{number}"
            ready, desired = (2, "") if number == 1 else (1, 4)
            shown = {"ready": ready, "wanted": 2, "desired": desired}
            self.owner(namespace, f"{app}-{number}", image, owner["uid"], **shown)
            spec = {"appName": app, "version": f"1.4.{number}", "previousVersion": "1.4.1"}
            spec["workloads"] = [{"name": "web", "version": f"1.4.{number}"}]
            age = 700 - number * 200
            of_app = {"status": status["status"], "currentPhase": "AppDeploy"}
            of_app["startTime"] = self.ago(age)
            made = (AppVersion, f"{app}-1.4.{number}", namespace, age)
            self.put("app_versions", self._made(*made, spec=spec, status=of_app))
        self.measured(namespace, "stage-2-errors", "error-rate", "0.4 1.2 2.1 4.8", "<1")
        context = {"workloadName": new.workload, "appName": app, "workloadVersion": "1.4.2"}
        text = "checkout answers 502 instead of 200"
        for name, state, message, age in (
            ("stage-2-smoke", "Failed", text, 90),
            ("stage-1-smoke", "Succeeded", "12 of 12 requests were answered", 200),
        ):
            self.task(
                namespace,
                "smoke",
                name,
                {"context": context, "checkType": name[:7]},
                status=state,
                message=message,
                jobName=f"job-{name}",
                startTime=self.ago(age),
                endTime=self.ago(age - 30),
            )
        crash = "Back-off restarting failed container web in pod"
        for number in range(3):
            pod = f"{app}-2-x{number}xyz"
            self.warning(namespace, "Pod", pod, "BackOff", f"{crash} {pod}", 20 + number)

    def measured(self, namespace, name, definition, values, target):
        """An evaluation with a try in each half minute, and a target of the form ``<1``."""
        tries = [
            {
                "time": self.ago(30 * (len(values.split()) - number) + 60),
                "status": "Succeeded"
                if value != "-" and float(value) < float(target[1:])
                else "Failed",
                "value": "" if value == "-" else value,
                **(
                    {"message": "inconclusive: the provider answers with 503"}
                    if value == "-"
                    else {}
                ),
            }
            for number, value in enumerate(values.split(), 1)
        ]
        last = tries[-1]
        text = f"value '{last['value']}' did not meet objective '{target}'"
        status = {
            "retryCount": len(tries),
            "overallStatus": "Failed",
            "startTime": tries[0]["time"],
            "endTime": last["time"],
            "evaluationStatus": {
                definition: {"value": last["value"], "status": "Failed", "message": text}
            },
            "measurements": {definition: {"target": target, "tries": tries}},
        }
        spec = {"evaluationDefinition": definition, "retries": 10, "retryInterval": "30s"}
        made = self._made(Evaluation, name, namespace, 200, spec=spec, status=status)
        self.put("evaluations", made)
        objective = {"keptnMetricRef": {"name": definition}, "evaluationTarget": target}
        spec = {"objectives": [objective]}
        made = self._made(EvaluationDefinition, definition, namespace, 9999, spec=spec)
        self.put("evaluation_definitions", made)

    def metric(self, namespace, name, value="398.1", **status):
        """A KeptnMetric that was fetched a moment ago."""
        status = {"value": value, "rawValue": "MQ==", "lastUpdated": self.ago(4), **status}
        spec = {
            "provider": {"name": "prometheus"},
            "query": "histogram_quantile(0.95, rate(latency_bucket[5m]))",
            "fetchIntervalSeconds": 10,
        }
        self.put("metrics", self._made(Metric, name, namespace, 9999, spec=spec, status=status))

    def waiting(self, namespace, name, wait_for, **states):
        """A pod without checks at its gate; ``states`` are of the objects, by their names."""
        self.gated(namespace, "shop", name=name, wait_for=wait_for, checks="none")
        for item in waits_of({WAIT_FOR_KEY: wait_for}).items:
            state, text = states.get(item.name, ("Pending", "does not exist"))
            report = ItemReport(item.text, state, text)
            self.waits.items.setdefault(namespace, {})[item] = report

    def gated(self, namespace, app, number=0, name=None, wait_for="", checks=""):
        """A pod at its gate, of a workload of the app."""
        workload = ("web", "worker")[number % 2]
        waits = {WAIT_FOR_KEY: wait_for, CHECKS_KEY: checks}
        raw = {
            "metadata": {
                "name": name or f"{app}-{workload}-6f{number:04x}",
                "namespace": namespace,
                "uid": f"uid-pod-{number}",
                "creationTimestamp": self.ago(40 + 31 * (number % 500)),
                "annotations": {
                    "keptn.sh/app": app,
                    "keptn.sh/workload": workload,
                    "keptn.sh/version": "1.4.2",
                    **{key: value for key, value in waits.items() if value},
                },
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "ReplicaSet",
                        "name": f"{app}-6f",
                        "uid": f"uid-{app}" if number % 11 else "uid-other",
                        "controller": True,
                    }
                ],
            },
            "spec": {
                "schedulingGates": [
                    {"name": GATE},
                    *([{"name": "example.com/quota"}] if number % 7 == 3 else []),
                ]
            },
            "status": {},
        }
        pod = decode_pod(msgspec.json.encode(raw))
        self.put("gated_pods", pod, pod.key)

    def task(self, namespace, definition, name="", spec=None, **status):
        """A KeptnTask, by default with the name of its definition."""
        spec = {"taskDefinition": definition, **(spec or {})}
        made = self._made(Task, name or definition, namespace, 60, spec=spec, status=status)
        self.put("tasks", made)

    def _done(self, phase, name, begun, ended, state="Succeeded"):
        """The fields of a phase with one item that is over."""
        item = {
            "definitionName": name,
            "name": f"pre-{name}-81724",
            "status": state,
            "startTime": self.ago(begun),
            "endTime": self.ago(ended),
        }
        items = "TaskStatus" if phase.endswith(("Deployment", "Evaluation")) else ""
        return {f"{phase}Status": state, f"{phase}{items}": [item]}
