"""The users of the cluster: random valid objects and changes, by the seed."""

from __future__ import annotations

from harbourmaster.api import resources as kinds
from harbourmaster.gates.metadata import DEPLOYMENT_TIMEOUT_KEY, OPT_IN, OPT_IN_KEY
from harbourmaster.gates.stages import (
    PROMOTE_BY_KEY,
    PROMOTE_KEY,
    STAGE_EVALUATIONS_KEY,
    STAGE_PAUSE_KEY,
    STAGE_TASKS_KEY,
    STAGES_KEY,
    STAGES_ON_FIRST_KEY,
)
from helpers.fake_store import StatusError
from helpers.flow import manifests
from simulation.cluster import HOLD
from simulation.server import opted_in

NAMESPACES = ("shop", "bank")
TASKS = ("pass-1", "pass-2", "pass-3", "slow-1", "fail-1")
EVALUATIONS = ("latency", "errors")
WORKLOADS = {"cart": "Deployment", "ledger": "Deployment", "till": "StatefulSet"}
"""The kind of each workload: two owners of one workload would conflict forever."""
STEADY = "ledger"
"""A Deployment that replaces one pod after the other."""
APPS = ("store", "")
IMAGES = (":main@sha256:{a}", ":main@sha256:{b}", ":3.0@sha256:{b}", ":3.0", "@sha256:{a}")
"""Ends of images that give a version: of one tag, with other digests, and without one."""
VERSIONS = ("1.0", "1.1", "1.2", "2.0", "2.1", *IMAGES)
TARGET = 10
MOST = 3
"""The pods that an owner has at first, at most."""
STAGED_SEEDS = 0.3


class Users:
    """Users that create, change and delete objects, one at a time by ``act``."""

    def __init__(self, simulation, server, chance):
        self._simulation = simulation
        self._server = server
        self._chance = chance
        self._values = {}
        # Some seeds have few other reasons for pods to wait than stages.
        self._is_about_stages = simulation.dice("stages").random() < STAGED_SEEDS
        self._actions = (
            (8, self._deploy),
            (8, self._roll_out),
            (3, self._promote),
            (1, self._roll_out_often),
            (3, self._scale),
            (3, self._meddle),
            (2, self._delete_pod),
            (2, self._delete_workload),
            (1, self._delete_child),
            (2, self._define),
            (1, self._undefine),
            (2, self._change_value),
            (0.4, self._opt),
            (1, self._add_policy),
            (1, self._add_context),
            (0.4, self._delete_namespace),
            (0.5, self._delete_lease),
            (0.3, self._add_empty_workload),
        )

    def prepare(self):
        """Create the objects that exist before our processes start."""
        for name in ("harbourmaster-system", "keptn-system"):
            self._make(kinds.NAMESPACES, {"metadata": {"name": name, "finalizers": ["kubernetes"]}})
        for name in NAMESPACES:
            self._make_namespace(name, enabled=self._chance.random() < 0.9)

    def act(self):
        """Do a random action."""
        weights = [weight for weight, _ in self._actions]
        (_, action) = self._chance.choices(self._actions, weights)[0]
        self._attempt(action)

    def _attempt(self, action, *arguments):
        try:
            action(*arguments)
        except StatusError as error:
            self._simulation.note("user", "is refused", str(error))

    def finish(self):
        """Create missing task definitions, by chance, so that waiting checks can run."""
        if self._chance.random() < 0.7:
            for task in TASKS:
                if self._server.find_object(kinds.TASK_DEFINITIONS, ("keptn-system", task)) is None:
                    definition = manifests.container_task(task)
                    self._place(kinds.TASK_DEFINITIONS, definition, "keptn-system")

    # Namespaces

    def _make_namespace(self, name, *, enabled):
        annotations = {OPT_IN_KEY: OPT_IN} if enabled else {}
        metadata = {"name": name, "annotations": annotations, "finalizers": ["kubernetes"]}
        self._make(kinds.NAMESPACES, {"metadata": metadata})
        self._values[name] = {evaluation: self._value() for evaluation in EVALUATIONS}
        self._make(kinds.METRICS_PROVIDERS, self._provider(name))
        for evaluation in EVALUATIONS:
            self._note_value(name, evaluation)
            metric = manifests.metric(evaluation)
            metric["spec"]["fetchIntervalSeconds"] = 10
            self._place(kinds.KEPTN_METRICS, metric, name)
            retries = self._chance.randint(1, 5)
            definition = manifests.evaluation_definition(
                evaluation, evaluation, f"<{TARGET}", retries=retries, retryInterval="5s"
            )
            self._place(kinds.EVALUATION_DEFINITIONS, definition, name)
        for task in TASKS:
            if self._chance.random() < 0.8:
                self._place(kinds.TASK_DEFINITIONS, manifests.container_task(task), name)

    def _provider(self, namespace):
        spec = {"type": "static", "static": {"metrics": self._values[namespace]}}
        metadata = {"name": manifests.PROVIDER, "namespace": namespace}
        return {"metadata": metadata, "spec": spec}

    def _value(self):
        return self._chance.choice((1, 2, 3, 4, 5, 6, 7, 30))

    def _note_value(self, namespace, metric):
        invariants, key = self._simulation.invariants, (namespace, metric)
        if self._values[namespace][metric] < TARGET:
            invariants.met[key] = float("inf")
        else:
            invariants.missed.add(key)
            if invariants.met.get(key, -1) == float("inf"):
                invariants.met[key] = self._simulation.now()

    def _opt(self):
        def toggle(obj):
            annotations = obj["metadata"].setdefault("annotations", {})
            if opted_in(obj):
                annotations.pop(OPT_IN_KEY)
            else:
                annotations[OPT_IN_KEY] = OPT_IN

        self._change(kinds.NAMESPACES, self._namespace(), toggle)

    def _delete_namespace(self):
        namespace = self._namespace()
        name = namespace["metadata"]["name"]
        self._server.objects.delete(kinds.NAMESPACES, "", name)
        self._simulation.note("user", "deletes", f"namespace {name}")
        self._simulation.later(self._chance.uniform(10, 60), self._remake, name)

    def _remake(self, name):
        if self._server.find_object(kinds.NAMESPACES, ("", name)) is not None:
            self._simulation.later(5, self._remake, name)
            return
        self._make_namespace(name, enabled=True)

    def _namespace(self):
        name = self._chance.choice(NAMESPACES)
        namespace = self._server.find_object(kinds.NAMESPACES, ("", name))
        if namespace is None or "deletionTimestamp" in namespace["metadata"]:
            raise StatusError(404, f"namespace {name} is not there")
        return namespace

    # Workloads

    def _deploy(self):
        namespace = self._namespace()["metadata"]["name"]
        name, kind = self._chance.choice(list(WORKLOADS.items()))
        resource = kinds.DEPLOYMENTS if kind == "Deployment" else kinds.STATEFUL_SETS
        version = self._chance.choice(VERSIONS)
        most = MOST + 3 if self._is_about_stages else MOST
        owner = manifests.owner(kind, name, replicas=self._chance.randint(1, most))
        self._annotate(owner, name, version, by_owner=self._chance.random() < 0.2)
        if name == STEADY:
            owner["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        if self._chance.random() < 0.3:
            owner["spec"]["template"]["spec"]["schedulingGates"] = [{"name": HOLD}]
        self._place(resource, owner, namespace)

    def _annotate(self, owner, name, version, *, by_owner=False):
        """Set the annotations, whose checks depend on the workload and version, without digest."""
        dice = self._simulation.dice(f"{name}/{version.partition('@')[0]}")
        app, container = dice.choice(APPS), {"name": "main", "image": manifests.IMAGE}
        is_image = version in IMAGES
        if is_image:
            digests = {digit: digit * 64 for digit in "ab"}
            container["image"] = f"registry.example.com/{name}{version}".format_map(digests)
        owner["spec"]["template"]["spec"]["containers"] = [container]
        given = manifests.keptn(
            name,
            None if is_image else version,
            container="main",
            **({"app": app} if app else {}),
            pre_deployment_tasks=_sample(dice, TASKS[:4] if dice.random() < 0.8 else TASKS),
            pre_deployment_evaluations=_sample(dice, EVALUATIONS[: dice.randint(0, 2)]),
            post_deployment_tasks=_sample(dice, TASKS),
        )
        if self._is_about_stages:
            given = {key: text for key, text in given.items() if "-deployment-" not in key}
        if dice.random() < 0.4:
            given[DEPLOYMENT_TIMEOUT_KEY] = "10s"
        stages = self._stages(dice)
        template = owner["spec"]["template"]["metadata"]
        if by_owner:
            template["annotations"] = stages
            owner["metadata"]["annotations"] = {**owner["metadata"].get("annotations", {}), **given}
        else:
            template["annotations"] = {**given, **stages}

    def _stages(self, dice):
        if dice.random() < (0.1 if self._is_about_stages else 0.4):
            return {}
        given = {
            STAGES_KEY: dice.choice(("1", "1, 50%", "34%, 67%", "2, 3, 100%", "1, 2, 3")),
            STAGE_PAUSE_KEY: dice.choice(("", "", "5s", "40s", "Manual")),
            STAGE_TASKS_KEY: _sample(dice, TASKS[:3] if dice.random() < 0.7 else TASKS),
            STAGE_EVALUATIONS_KEY: _sample(dice, EVALUATIONS[: dice.randint(0, 2)]),
            STAGES_ON_FIRST_KEY: dice.choice(("true", "")),
        }
        return {key: text for key, text in given.items() if text}

    def _promote(self):
        """Release the next stage of a version, or all of them."""
        resource, version = self._any((kinds.WORKLOAD_VERSIONS,))
        stage = (version.get("status") or {}).get("stage") or {"number": 0, "of": 1}
        if stage.get("state") not in {"Held", "Paused", "Checking", "Releasing"}:
            raise StatusError(404, "it has no stage")
        number = self._chance.choice((stage["number"] + 1, stage["of"] + 1))
        request = {
            PROMOTE_KEY: f"{number}/{self._chance.randint(1, 10**6)}",
            PROMOTE_BY_KEY: "eve",
        }

        def change(obj):
            obj["metadata"].setdefault("annotations", {}).update(request)

        self._change(resource, version, change)

    def _roll_out(self):
        self._release(*self._workload())

    def _roll_out_often(self):
        """Release several versions within seconds, so that most are superseded before their end."""
        resource, workload = self._workload()
        for number in range(5):
            delay = number * self._chance.uniform(0.1, 4)
            self._simulation.later(delay, self._attempt, self._release, resource, workload)

    def _release(self, resource, workload):
        version = self._chance.choice(VERSIONS)
        name = workload["metadata"]["name"]
        self._change(resource, workload, lambda obj: self._annotate(obj, name, version))

    def _scale(self):
        resource, workload = self._workload()
        replicas = self._chance.randint(0, 8 if self._is_about_stages else 4)

        def scale(obj):
            obj["spec"]["replicas"] = replicas

        self._change(resource, workload, scale)

    def _delete_workload(self):
        resource, workload = self._workload()
        self._delete(resource, workload)

    def _workload(self):
        return self._any((kinds.DEPLOYMENTS, kinds.STATEFUL_SETS))

    def _delete_pod(self):
        self._delete(*self._any((kinds.PODS,)))

    def _delete_child(self):
        """Delete an object of the controller: checks may run again, and no pod may wait forever."""
        self._delete(*self._any((kinds.TASKS, kinds.EVALUATIONS, kinds.JOBS, kinds.WORKLOADS)))

    def _meddle(self):
        """Change an object without effect except a new version."""
        resource, obj = self._any(
            (kinds.PODS, kinds.WORKLOAD_VERSIONS, kinds.TASKS, kinds.NAMESPACES, kinds.APPS)
        )
        number = str(self._chance.randint(1, 99))

        def touch(obj):
            obj["metadata"].setdefault("annotations", {})["example.com/touched"] = number

        self._change(resource, obj, touch)

    def _add_empty_workload(self):
        """Create a KeptnWorkload without a spec, which its schema allows."""
        namespace = self._namespace()["metadata"]["name"]
        self._place(kinds.WORKLOADS, {"metadata": {"name": "empty"}}, namespace)

    def _delete_lease(self):
        self._delete(*self._any((kinds.LEASES,)))

    # Checks and policies

    def _define(self):
        namespace = self._namespace()["metadata"]["name"]
        if self._chance.random() < 0.3:
            namespace = "keptn-system"
        definition = manifests.container_task(self._chance.choice(TASKS))
        self._place(kinds.TASK_DEFINITIONS, definition, namespace)

    def _undefine(self):
        self._delete(*self._any((kinds.TASK_DEFINITIONS,)))

    def _change_value(self):
        namespace = self._namespace()["metadata"]["name"]
        metric = self._chance.choice(EVALUATIONS)
        values = self._values[namespace] = {**self._values[namespace], metric: self._value()}

        def change(obj):
            obj["spec"]["static"]["metrics"] = values

        key = (namespace, manifests.PROVIDER)
        self._change(
            kinds.METRICS_PROVIDERS, self._server.objects.get(kinds.METRICS_PROVIDERS, *key), change
        )
        self._note_value(namespace, metric)

    def _add_policy(self):
        namespace = self._namespace()["metadata"]["name"]
        name = self._chance.choice(("pool", "zone"))
        spec = {
            "podSelector": {},
            "nodeSelector": {"example.com/pool": name},
            "tolerations": [{"key": f"example.com/{name}", "operator": "Exists"}],
        }
        self._place(kinds.POLICIES, {"metadata": {"name": name}, "spec": spec}, namespace)

    def _add_context(self):
        namespace = self._namespace()["metadata"]["name"]
        tasks = [self._chance.choice(TASKS[:4])]
        context = manifests.app_context(APPS[0], preDeploymentTasks=tasks)
        self._place(kinds.APP_CONTEXTS, context, namespace)

    # Requests

    def _any(self, resources):
        candidates = [
            (resource, obj)
            for resource in resources
            for obj in self._server.every(resource)
            if "deletionTimestamp" not in obj["metadata"]
            and not obj["metadata"]["name"].endswith("-system")
        ]
        if not candidates:
            raise StatusError(404, "there is none")
        return self._chance.choice(candidates)

    def _place(self, resource, obj, namespace):
        self._server.check_namespace(namespace)
        metadata = {**obj["metadata"], "namespace": namespace}
        self._make(resource, {**obj, "metadata": metadata})

    def _make(self, resource, obj):
        body = {**obj, "apiVersion": resource.api_version, "kind": resource.kind}
        metadata = obj["metadata"]
        place = f"{resource.kind} {metadata.get('namespace', '')}/{metadata['name']}"
        self._server.objects.create(resource, metadata.get("namespace", ""), body)
        self._simulation.note("user", "creates", place)

    def _change(self, resource, obj, change):
        metadata = obj["metadata"]
        self._server.change(resource, obj, change)
        self._simulation.note(
            "user", "changes", f"{resource.kind} {metadata.get('namespace', '')}/{metadata['name']}"
        )

    def _delete(self, resource, obj):
        metadata = obj["metadata"]
        self._server.objects.delete(resource, metadata["namespace"], metadata["name"])
        self._simulation.note(
            "user", "deletes", f"{resource.kind} {metadata['namespace']}/{metadata['name']}"
        )


def _sample(dice, names):
    """Return up to two of the names for an annotation; None without one."""
    return ",".join(dice.sample(names, dice.randint(0, min(2, len(names))))) or None
