"""Everyday mistakes in manifests: the check of files names each, with what to do."""

from __future__ import annotations

import json

import pytest
import yaml

from harbourmaster.api.resources import CLUSTER_POLICIES, CLUSTERS, DEFINITIONS, POLICIES
from harbourmaster.cli.doctor.checks import environment
from harbourmaster.cli.main import main
from harbourmaster.serving.definitions import schemas
from helpers.examined import ExaminedCluster, definition, examine, findings

POLICY = {"apiVersion": "kupid.gardener.cloud/v1alpha1", "kind": "PodSchedulingPolicy"}
PLACEMENT = "placement.harbourmaster.dev/v1alpha1"
TEMPLATE = "spec.template.metadata.annotations"


def policy(annotations=None, labels=None, **spec):
    metadata = {"name": "p", "annotations": annotations or {}, "labels": labels or {}}
    return {**POLICY, "metadata": metadata, "spec": {"podSelector": {}, **spec}}


def deployment(annotations=None, own=None, labels=None):
    labels = {"app": "till", **(labels or {})}
    pod = {"metadata": {"labels": labels, "annotations": annotations or {}}}
    pod["spec"] = {"containers": [{"name": "till", "image": "registry.example.com/till:1"}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "till", "annotations": own or {}},
        "spec": {"selector": {"matchLabels": {"app": "till"}}, "template": pod},
    }


def object_of(api_version, kind, name, **spec):
    metadata = {"name": name}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def spread(key):
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "till"}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return policy(affinity={"podAntiAffinity": required})


def zones(*values):
    expression = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return policy(nodeSelector={"a": "b"}, affinity={"nodeAffinity": required})


def migrate(**spec):
    return object_of("batch/v1", "Job", "migrate", **spec)


MARK = "rescheduler.harbourmaster.dev/never-evict"
WAIT = "gates.harbourmaster.dev/wait-for"
TASKS = "keptn.sh/pre-deployment-tasks"
WAITER = {WAIT: "job/migrate"}
BRIEF = "remove spec.ttlSecondsAfterFinished of the Job"
CASES = {
    "labels beside matchLabels": (
        [policy(podSelector={"app": "till"}, nodeSelector={"a": "b"})],
        "write it below spec.podSelector.matchLabels",
        [policy(podSelector={"matchLabels": {"app": "till"}}, nodeSelector={"a": "b"})],
    ),
    "a boolean as a label": (
        [policy(nodeSelector={"gpu": True})],
        "must be of the type string: put it in quotes",
        [policy(nodeSelector={"gpu": "true"})],
    ),
    "a mode as a label": (
        [policy(labels={"harbourmaster.dev/mode": "Audit"}, nodeSelector={"a": "b"})],
        "metadata.labels[harbourmaster.dev/mode]: has no effect: did you mean the annotation",
        [policy({"harbourmaster.dev/mode": "Audit"}, nodeSelector={"a": "b"})],
    ),
    "a misspelt annotation": (
        [policy({"harbourmaster.dev/enforcment": "Webhook"}, nodeSelector={"a": "b"})],
        "did you mean the annotation harbourmaster.dev/enforcement?",
        [policy({"harbourmaster.dev/enforcement": "Webhook"}, nodeSelector={"a": "b"})],
    ),
    "an annotation of another prefix": (
        [policy({"kupid.gardener.cloud/mode": "Audit"}, nodeSelector={"a": "b"})],
        "did you mean the annotation harbourmaster.dev/mode?",
        [policy({"harbourmaster.dev/mode": "Audit"}, nodeSelector={"a": "b"})],
    ),
    "a topology key that no node has": (
        [spread("hostname")],
        "did you mean kubernetes.io/hostname?",
        [spread("kubernetes.io/hostname")],
    ),
    "a list in one string": (
        [zones("eu-1a,eu-1b")],
        "write one item for each value",
        [zones("eu-1a", "eu-1b")],
    ),
    "a wait for a Job that is deleted": (
        [migrate(ttlSecondsAfterFinished=60), deployment(WAITER)],
        f"{WAIT}: {BRIEF}",
        [migrate(), deployment(WAITER)],
    ),
    "a list with another separator": (
        [deployment({TASKS: "lint;migrate"})],
        f'{TEMPLATE}[{TASKS}]: "lint;migrate" is not a name of a definition: write names',
        [deployment({TASKS: "lint,migrate"})],
    ),
    "a wait with a namespace": (
        [deployment({WAIT: "shop/job/migrate"})],
        "objects are of the pod's own namespace: write job/migrate",
        [deployment(WAITER)],
    ),
    "a metric where an evaluation is meant": (
        [
            deployment({"keptn.sh/pre-deployment-evaluations": "latency"}),
            object_of(
                "metrics.keptn.sh/v1",
                "KeptnMetric",
                "latency",
                provider={"name": "p"},
                query="q",
                fetchIntervalSeconds=5,
            ),
        ],
        "KeptnMetric latency is",
        [deployment()],
    ),
    "a Metric without its scope": (
        [
            object_of(PLACEMENT, "Cluster", "dresden", metrics=[{"name": "load", "weight": 1}]),
            object_of(
                PLACEMENT, "Metric", "load", min=0, max=1, provider={"name": "p", "metric": "load"}
            ),
        ],
        "Metric load is",
        [
            object_of(
                PLACEMENT,
                "Cluster",
                "dresden",
                metrics=[{"name": "load", "weight": 1, "scope": "Namespaced"}],
            )
        ],
    ),
    "a mark of pods on the workload": (
        [deployment(own={MARK: "true"})],
        f"{MARK} protects no pod: write it in the metadata of the pod template",
        [deployment({MARK: "true"}, own={MARK: "true"})],
    ),
    "a label of namespaces with another value": (
        [
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "ops", "labels": {WAIT: "require"}},
            }
        ],
        "label it with required or disabled",
        [
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "ops", "labels": {WAIT: "required"}},
            }
        ],
    ),
}


@pytest.fixture
def check(tmp_path, capsys):
    """Return ``check(manifests)``, which returns what is printed of them."""

    def check(manifests):
        file = tmp_path / "manifests.yaml"
        file.write_text(yaml.safe_dump_all(manifests))
        main(["check", "manifests", str(file)])
        return capsys.readouterr().out

    return check


@pytest.mark.parametrize("mistake", sorted(CASES))
def test_a_mistake_is_named_with_its_step_until_it_is_corrected(check, mistake):
    manifests, says, corrected = CASES[mistake]
    assert says in check(manifests)
    assert says not in check(corrected)


def test_a_flag_that_is_nearly_one_of_the_command_is_named(capsys):
    with pytest.raises(SystemExit):
        main(["server", "controller", "--rescheduling-dryrun=true"])
    text = '--rescheduling-dryrun=true: did you mean "--rescheduling-dry-run"?'
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rule", "is_open"),
    [
        ({}, True),
        ({"ports": [{"port": 9443}]}, True),
        ({"ports": [{"port": "webhook"}]}, True),
        ({"ports": [{"port": "metrics"}, {"port": 443}]}, False),
        ({"ports": [{"port": 9000, "endPort": 9500}]}, True),
        ({"ports": [{"port": 9000, "endPort": 9400}]}, False),
        ({"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}, True),
        ({"from": [{"ipBlock": {"cidr": "::/0"}}], "ports": [{"port": 9443}]}, True),
        ({"from": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}]}, False),
        ({"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}, False),
        ({"from": [{"podSelector": {}}]}, False),
    ],
)
def test_rules_that_let_everybody_connect_to_the_webhooks_are_known(rule, is_open):
    assert environment._opens_webhook(rule) is is_open


async def outdated(change):
    cluster = ExaminedCluster()
    for resource in (CLUSTER_POLICIES, POLICIES):
        stored = cluster.at(DEFINITIONS, resource.name)
        schema = json.loads(json.dumps(schemas(resource.group, resource.kind)[resource.version]))
        change(schema["properties"]["spec"]["properties"])
        stored["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": schema}
    return findings(await examine(cluster), "definitions")


async def test_definitions_that_are_older_than_this_version_are_one_finding():
    (told,) = await outdated(lambda properties: properties.pop("schedulerName"))
    assert "2 definitions: lacks fields of this version" in told
    assert "clusterpodschedulingpolicies.kupid.gardener.cloud spec.schedulerName" in told
    assert "kubectl apply --server-side -k deploy/crds" in told


async def test_a_definition_of_placement_is_judged_though_placement_is_off():
    cluster = ExaminedCluster()
    stored = definition(CLUSTERS, "")
    schema = json.loads(json.dumps(schemas(CLUSTERS.group, CLUSTERS.kind)[CLUSTERS.version]))
    schema["properties"]["status"]["properties"].pop("server")
    stored["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": schema}
    cluster.put(DEFINITIONS, stored)
    (told,) = findings(await examine(cluster), "definitions")
    assert "clusters.placement.harbourmaster.dev status.server" in told


async def test_definitions_of_this_version_and_of_a_newer_one_are_not_told():
    assert await outdated(lambda properties: properties) == []
    assert await outdated(lambda properties: properties.update(later={"type": "string"})) == []
