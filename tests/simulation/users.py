"""People who use the cluster: random valid objects and changes, by the seed."""

from __future__ import annotations

from harbourmaster.api import resources as kinds
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from helpers.fake_store import StatusError
from helpers.flow import manifests
from simulation.cluster import HOLD
from simulation.server import opted_in

NAMESPACES = ("shop", "bank")
TASKS = ("pass-1", "pass-2", "pass-3", "slow-1", "fail-1")
EVALUATIONS = ("latency", "errors")
WORKLOADS = {"cart": "Deployment", "ledger": "Deployment", "till": "StatefulSet"}
"""Two owners that say they are one workload would be at odds for ever."""
APPS = ("store", "")
TARGET = 10


class Users:
    """Do one thing after the other; ``act`` does one."""

    def __init__(self, simulation, server, chance):
        self._simulation = simulation
        self._server = server
        self._chance = chance
        self._values = {}
        self._actions = (
            (8, self._deploy),
            (8, self._roll_out),
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
        """What is there before anything of ours runs."""
        for name in ("harbourmaster-system", "keptn-system"):
            self._make(kinds.NAMESPACES, {"metadata": {"name": name, "finalizers": ["kubernetes"]}})
        for name in NAMESPACES:
            self._make_namespace(name, enabled=self._chance.random() < 0.9)

    def act(self):
        """One thing that somebody does."""
        weights = [weight for weight, _ in self._actions]
        (_, action) = self._chance.choices(self._actions, weights)[0]
        try:
            action()
        except StatusError as error:
            self._simulation.note("user", "is refused", str(error))

    def finish(self):
        """Perhaps make what was left out, so that all can come to an end."""
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
        for each in EVALUATIONS:
            self._note_value(name, each)
            metric = manifests.metric(each)
            metric["spec"]["fetchIntervalSeconds"] = 10
            self._place(kinds.KEPTN_METRICS, metric, name)
            definition = manifests.evaluation_definition(
                each, each, f"<{TARGET}", retries=self._chance.randint(1, 5), retryInterval="5s"
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
        def toggle(found):
            annotations = found["metadata"].setdefault("annotations", {})
            if opted_in(found):
                annotations.pop(OPT_IN_KEY)
            else:
                annotations[OPT_IN_KEY] = OPT_IN

        self._change(kinds.NAMESPACES, self._namespace(), toggle)

    def _delete_namespace(self):
        found = self._namespace()
        name = found["metadata"]["name"]
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
        found = self._server.find_object(kinds.NAMESPACES, ("", name))
        if found is None or "deletionTimestamp" in found["metadata"]:
            raise StatusError(404, f"namespace {name} is not there")
        return found

    # Workloads

    def _deploy(self):
        namespace = self._namespace()["metadata"]["name"]
        name, kind = self._chance.choice(list(WORKLOADS.items()))
        resource = kinds.DEPLOYMENTS if kind == "Deployment" else kinds.STATEFUL_SETS
        version = self._chance.choice(("1.0", "1.1", "2.0"))
        found = manifests.owner(kind, name, replicas=self._chance.randint(1, 3))
        self._annotate(found, name, version, by_owner=self._chance.random() < 0.2)
        if self._chance.random() < 0.3:
            found["spec"]["template"]["spec"]["schedulingGates"] = [{"name": HOLD}]
        self._place(resource, found, namespace)

    def _annotate(self, found, name, version, *, by_owner=False):
        """The same workload in the same version always asks for the same checks."""
        dice = self._simulation.dice(f"{name}/{version}")
        app = dice.choice(APPS)
        given = manifests.keptn(
            name,
            version,
            **({"app": app} if app else {}),
            pre_deployment_tasks=_some(dice, TASKS[:4] if dice.random() < 0.8 else TASKS),
            pre_deployment_evaluations=_some(dice, EVALUATIONS[: dice.randint(0, 2)]),
            post_deployment_tasks=_some(dice, TASKS),
        )
        template = found["spec"]["template"]["metadata"]
        if by_owner:
            template["annotations"] = {}
            found["metadata"]["annotations"] = {**found["metadata"].get("annotations", {}), **given}
        else:
            template["annotations"] = given

    def _roll_out(self):
        resource, found = self._workload()
        version = self._chance.choice(("1.0", "1.1", "1.2", "2.0", "2.1"))
        name = found["metadata"]["name"]
        self._change(resource, found, lambda one: self._annotate(one, name, version))

    def _scale(self):
        resource, found = self._workload()
        replicas = self._chance.randint(0, 4)

        def scale(one):
            one["spec"]["replicas"] = replicas

        self._change(resource, found, scale)

    def _delete_workload(self):
        resource, found = self._workload()
        self._delete(resource, found)

    def _workload(self):
        return self._any((kinds.DEPLOYMENTS, kinds.STATEFUL_SETS))

    def _delete_pod(self):
        self._delete(*self._any((kinds.PODS,)))

    def _delete_child(self):
        """Somebody tidies up what is ours: checks may run again, and nothing may hang."""
        self._delete(*self._any((kinds.TASKS, kinds.EVALUATIONS, kinds.JOBS, kinds.WORKLOADS)))

    def _meddle(self):
        """Change an object in a way that matters to nobody but makes it another version."""
        resource, found = self._any(
            (kinds.PODS, kinds.WORKLOAD_VERSIONS, kinds.TASKS, kinds.NAMESPACES, kinds.APPS)
        )
        number = str(self._chance.randint(1, 99))

        def touch(one):
            one["metadata"].setdefault("annotations", {})["example.com/touched"] = number

        self._change(resource, found, touch)

    def _add_empty_workload(self):
        """One that says nothing, which its schema allows."""
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

        def change(one):
            one["spec"]["static"]["metrics"] = values

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

    # How they do it

    def _any(self, resources):
        found = [
            (resource, each)
            for resource in resources
            for each in self._server.every(resource)
            if "deletionTimestamp" not in each["metadata"]
            and not each["metadata"]["name"].endswith("-system")
        ]
        if not found:
            raise StatusError(404, "there is none")
        return self._chance.choice(found)

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

    def _change(self, resource, found, change):
        metadata = found["metadata"]
        self._server.change(resource, found, change)
        self._simulation.note(
            "user", "changes", f"{resource.kind} {metadata.get('namespace', '')}/{metadata['name']}"
        )

    def _delete(self, resource, found):
        metadata = found["metadata"]
        self._server.objects.delete(resource, metadata["namespace"], metadata["name"])
        self._simulation.note(
            "user", "deletes", f"{resource.kind} {metadata['namespace']}/{metadata['name']}"
        )


def _some(dice, names):
    """A few of the names, for an annotation; None for none."""
    return ",".join(dice.sample(names, dice.randint(0, min(2, len(names))))) or None
