"""Rules of the API server and of our webhook for the placement kinds (krake-spec 2, 7.2)."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from harbourmaster.cli.main import main
from harbourmaster.placement.model import API_VERSION, GROUP, KINDS
from harbourmaster.playground.control_plane import ControlPlane
from harbourmaster.playground.installation import Installation
from helpers.schemas import apply_definitions

SAMPLES = Path(__file__).parents[2] / "deploy/samples/placement"
FLAGS = ["--controllers=registration"]
MANIFEST = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "b"}}
APPLICATION = {"manifests": [MANIFEST]}
BOUNDS = {"min": 0, "max": 5, "provider": {"name": "prometheus", "metric": "load_1"}}
TABLE = {"table": "t", "comparisonColumn": "c", "valueColumn": "v"}
WITH_METRICS = ("Cluster", "Cloud", "GlobalCloud", "Project", "MagnumCluster")
METRICS = ("Metric", "GlobalMetric")
PROVIDERS = ("MetricsProvider", "GlobalMetricsProvider")
FAULTY = {**APPLICATION, "constraints": {"cluster": {"labels": ["location IS DE"]}}}

KRAKE = """
api: core
kind: GlobalMetric
metadata: {name: load_zone_1}
spec: {max: 5.0, min: 0.0, provider: {metric: load_zone_1, name: given_here}}
---
api: core
kind: GlobalMetricsProvider
metadata: {name: given_here}
spec: {type: static, static: {metrics: {load_zone_1: 0.9}}}
---
api: kubernetes
kind: Cluster
metadata: {name: zone_1, labels: {location: DE}}
spec:
  kubeconfig: {apiVersion: v1, kind: Config}
  metrics: [{name: load_zone_1, weight: 0.45}]
---
api: kubernetes
kind: Application
metadata: {name: shop_1}
spec:
  manifest: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}]
  constraints: {cluster: {labels: [location is DE], metrics: [load_zone_1 > 0.5]}}
"""


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory):
    """A control plane in which a faulty Application was before we came."""
    directory = tmp_path_factory.mktemp("placement-crds")
    with ControlPlane(directory, optional=()) as plane:
        apply_definitions(plane.kubectl)
        early = manifest_of("Application", FAULTY, "early", "default")
        early["metadata"]["finalizers"] = ["example.com/kept"]
        plane.kubectl("create", "-f=-", stdin=json.dumps(early))
        with Installation(plane, arguments={"controller": FLAGS}):
            yield plane.kubectl


@pytest.fixture
def namespace(kubectl):
    name = f"placement-{uuid.uuid4().hex[:8]}"
    kubectl("create", "namespace", name)
    return name


def manifest_of(kind, spec, name, namespace):
    place = {} if kind.startswith("Global") else {"namespace": namespace}
    metadata = {"name": name, **place}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


@pytest.fixture
def create(kubectl, namespace):
    """Create an object; what kubectl says."""

    def create(kind, spec, name=None):
        # Global ones of several tests stand side by side.
        name = name or f"a-{uuid.uuid4().hex[:8]}"
        text = json.dumps(manifest_of(kind, spec, name, namespace))
        return kubectl("create", "-f=-", "-o=json", stdin=text, check=False)

    return create


@pytest.fixture
def refusal(create):
    """Why there can be no such object."""

    def refuse(*given, **more):
        answer = create(*given, **more)
        assert answer.returncode != 0, answer.stdout
        return answer.stderr

    return refuse


def assert_stored(answer):
    assert answer.returncode == 0, answer.stderr
    assert "Warning" not in answer.stderr
    return json.loads(answer.stdout)


def test_the_samples_are_accepted(kubectl):
    answer = kubectl("apply", f"--kustomize={SAMPLES}")
    assert "Warning" not in answer.stderr
    assert len(answer.stdout.splitlines()) == 8


def test_what_the_commands_print_is_accepted(kubectl, namespace, tmp_path, capsys):
    file = tmp_path / "krake.yaml"
    file.write_text(KRAKE)
    assert main(["migrate", "krake", str(file), "-n", namespace]) == 0
    imported = capsys.readouterr().out
    metric = ("--global-metric", "load_zone_1", "0.45")
    assert main(["placement", "new", "cluster", "wanted", "-n", namespace, *metric]) == 0
    answers = [
        kubectl("create", "-f=-", stdin=text) for text in (imported, capsys.readouterr().out)
    ]
    assert [len(answer.stdout.splitlines()) for answer in answers] == [5, 1]
    assert not any("Warning" in answer.stderr for answer in answers)


def test_defaults_are_filled_in(create):
    spec = assert_stored(create("Application", {**APPLICATION, "backoff": {}, "constraints": {}}))[
        "spec"
    ]
    assert spec["backoff"] == {"delaySeconds": 1, "factor": 1, "limit": -1}
    assert spec["constraints"] == {"migration": True}
    assert (spec["migrationOrder"], spec["conflictPolicy"]) == ("DeleteFirst", "Force")
    assert spec["manifests"] == [MANIFEST]
    reference = {"metrics": [{"name": "load", "weight": 1}], "kubeconfigSecretRef": {"name": "a"}}
    spec = assert_stored(create("Cluster", reference))["spec"]
    assert spec["metrics"] == [{"name": "load", "weight": 1, "scope": "Global"}]
    assert spec["kubeconfigSecretRef"]["key"] == "kubeconfig"
    assert spec["discoverCustomResources"] is True
    assert not any(spec[name] for name in ("allowClusterScoped", "inheritLabels", "unschedulable"))


def test_null_is_no_constraint_at_every_level(create):
    for constraints in (
        None,
        {"cluster": None, "migration": None},
        {"cluster": {"labels": None, "metrics": None, "customResources": None}},
    ):
        assert_stored(create("Application", {**APPLICATION, "constraints": constraints}))
    assert_stored(create("Cluster", {"constraints": {"cloud": None}, "metrics": None}))
    assert_stored(create("MagnumCluster", {"constraints": {"project": {"labels": None}}}))


def test_what_nobody_knows_is_pruned_but_not_from_manifests(create, kubectl, namespace):
    manifest = {**MANIFEST, "kind": "Thing", "spec": {"deep": [{"a": None, "b": 1}]}}
    text = json.dumps(
        manifest_of("Application", {"manifests": [manifest], "more": 1}, "a", namespace)
    )
    answer = kubectl("create", "-f=-", "-o=json", "--validate=ignore", stdin=text)
    spec = json.loads(answer.stdout)["spec"]
    assert "more" not in spec
    assert spec["manifests"][0]["spec"] == manifest["spec"]
    assert_stored(create("GlobalCloud", {"provider": {"anything": {"goes": [1]}}}))


@pytest.mark.parametrize(
    ("manifest", "text"),
    [
        ({**MANIFEST, "apiVersion": None}, "spec.manifests[0].apiVersion: Required value"),
        ({**MANIFEST, "kind": None}, "spec.manifests[0].kind: Required value"),
        ({**MANIFEST, "metadata": {}}, "metadata.name is missing: each object has a name"),
        ({**MANIFEST, "metadata": {"generateName": "a"}}, "metadata.name is missing"),
    ],
)
def test_a_manifest_is_an_object_with_a_name(refusal, manifest, text):
    manifest = {name: value for name, value in manifest.items() if value is not None}
    assert text in refusal("Application", {"manifests": [manifest]})


def test_an_application_is_something(refusal):
    assert "spec.manifests" in refusal("Application", {"manifests": []})
    assert "spec.manifests: Required value" in refusal("Application", {})
    twice = refusal("Application", {"manifests": [MANIFEST, MANIFEST]})
    assert "spec.manifests[1]" in twice
    assert "repeats spec.manifests[0]" in twice


def test_readiness_is_a_condition_or_a_field(refusal, create):
    tests = [{"kind": "ConfigMap", **test} for test in ({"condition": "Ready"}, {"field": "a"}, {})]
    values = {"values": ["3"]}
    assert_stored(
        create("Application", {**APPLICATION, "readiness": [tests[0], tests[1] | values]})
    )
    assert "a field needs at least one" in refusal(
        "Application", {**APPLICATION, "readiness": tests[1:2]}
    )
    for test in (tests[2], {**tests[0], **tests[1], **values}):
        text = refusal("Application", {**APPLICATION, "readiness": [test]})
        assert "spec.readiness[0]: Invalid value" in text
        assert "set either condition or field" in text


@pytest.mark.parametrize("kind", ["Application", "Cluster"])
def test_backoff_has_bounds(refusal, kind):
    backoff = {"delaySeconds": -1, "factor": 0.5, "limit": -2}
    told = refusal(kind, {**(APPLICATION if kind == "Application" else {}), "backoff": backoff})
    for field in backoff:
        assert f"spec.backoff.{field}: Invalid value" in told


def test_checks(create, refusal):
    def checks(**fields):
        return {**APPLICATION, "checks": fields}

    both = {"preDeployment": {"tasks": ["a"]}, "postDeployment": {"evaluations": ["a"]}}
    spec = assert_stored(create("Application", checks(**both)))["spec"]
    more = {"when": ["Deploy", "Update", "Move"], "forcedMoves": "Skip", "onFailure": "Keep"}
    assert spec["checks"] == {**both, **more}
    for nothing in ({}, {"preDeployment": {}, "postDeployment": {"tasks": []}}):
        assert "name a task or an evaluation" in refusal("Application", checks(**nothing))
    for wrong, text in (
        ({"preDeployment": {"tasks": ["a", "a"]}}, 'Duplicate value: "a"'),
        ({"preDeployment": {"evaluations": [str(n) for n in range(33)]}}, "at most 32 items"),
        ({"preDeployment": {"tasks": ["b/a"]}}, "must be the name of an object"),
        ({**both, "when": ["Delete"]}, 'spec.checks.when[0]: Unsupported value: "Delete"'),
        ({**both, "when": []}, "should have at least 1 items"),
    ):
        assert text in refusal("Application", checks(**wrong))


@pytest.mark.parametrize("kind", WITH_METRICS)
def test_weights(create, refusal, kind):
    def metrics(*weights):
        return {
            "metrics": [{"name": f"m{n}", "weight": weight} for n, weight in enumerate(weights)]
        }

    assert_stored(create(kind, metrics(0, 0.5)))
    assert_stored(create(kind, metrics()))
    assert "at least one weight must be above 0" in refusal(kind, metrics(0, 0))
    assert "spec.metrics[0].weight: Invalid value: -1" in refusal(kind, metrics(-1, 1))
    twice = {"metrics": [{"name": "a", "weight": 1}, {"name": "a", "weight": 2}]}
    assert "Duplicate value" in refusal(kind, twice)
    # A Magnum cluster takes over those of its project.
    most = 32 if kind == "MagnumCluster" else 16
    assert_stored(create(kind, metrics(*[1] * most)))
    assert "spec.metrics: Too many" in refusal(kind, metrics(*[1] * (most + 1)))


def test_what_is_global_has_global_metrics_only(create, refusal):
    spec = {"metrics": [{"name": "a", "weight": 1, "scope": "Namespaced"}]}
    assert "a global object can use only global metrics" in refusal("GlobalCloud", spec)
    assert_stored(create("Cloud", spec))


@pytest.mark.parametrize("kind", METRICS)
def test_bounds_of_metrics(create, refusal, kind):
    assert_stored(create(kind, {**BOUNDS, "allowedValues": [0, 0.5, 5]}))
    for low in (5, 6):
        assert "spec.max: Invalid value: max must be above min" in refusal(
            kind, {**BOUNDS, "min": low}
        )
    told = refusal(kind, {**BOUNDS, "allowedValues": [1, 7]})
    assert "allowedValues must lie between min and max" in told
    assert "must have at most 63 characters" in refusal(kind, BOUNDS, name="a" * 64)
    assert_stored(create(kind, BOUNDS, name=uuid.uuid4().hex.ljust(63, "a")))
    for field in BOUNDS:
        rest = {name: value for name, value in BOUNDS.items() if name != field}
        assert f"spec.{field}: Required value" in refusal(kind, rest)


@pytest.mark.parametrize("kind", METRICS)
def test_a_label_with_the_names_of_clusters_is_one(create, refusal, kind):
    def by(label):
        return {**BOUNDS, "provider": {**BOUNDS["provider"], "byLabel": label}}

    assert_stored(create(kind, by("cluster_name")))
    for label in ("", "a/b", "1a", "a b"):
        assert "byLabel must be the name of a label, such as cluster" in refusal(kind, by(label))


@pytest.mark.parametrize("kind", PROVIDERS)
def test_a_provider_is_of_one_type(create, refusal, kind):
    url = {"url": "https://a.example.com:9090/base"}
    assert_stored(create(kind, {"type": "prometheus", "prometheus": url}))
    assert_stored(create(kind, {"type": "kafka", "kafka": {**url, **TABLE}}))
    assert_stored(create(kind, {"type": "static", "static": {"metrics": {"load_1": 0.9, "b": 1}}}))
    assert 'Unsupported value: "influx"' in refusal(kind, {"type": "influx"})
    assert "kafka is required for the type kafka" in refusal(kind, {"type": "kafka"})
    both = {"type": "prometheus", "prometheus": url, "static": {"metrics": {}}}
    assert "static is required for the type static and forbidden for others" in refusal(kind, both)
    assert "spec.kafka.table: Required value" in refusal(kind, {"type": "kafka", "kafka": url})


def test_a_magnum_cluster_keeps_its_masters(create, kubectl, namespace):
    assert_stored(create("MagnumCluster", {"nodeCount": 1}, "a"))

    def patch_cluster(**spec):
        patch = f"--patch={json.dumps({'spec': spec})}"
        options = ("magnumclusters", "a", f"--namespace={namespace}", "--type=merge", patch)
        return kubectl("patch", *options, check=False)

    assert patch_cluster(masterCount=1).returncode == 0
    assert patch_cluster(nodeCount=2).returncode == 0
    for count in (2, None):
        told = patch_cluster(masterCount=count)
        assert told.returncode != 0
        assert "masterCount cannot be changed" in told.stderr


def test_people_see_in_columns_how_things_stand(create, kubectl, namespace):
    assert_stored(create("Application", APPLICATION, "a"))
    assert_stored(create("Cluster", {}, "a"))
    there = f"--namespace={namespace}"
    dresden = {"name": "dresden", "uid": "1"}
    ready = {"type": "Ready", "status": "True"}
    for plural, status in (
        (
            "applications",
            {
                "phase": "Running",
                "scheduledTo": dresden,
                "runningOn": dresden,
                "conditions": [ready],
            },
        ),
        ("clusters", {"state": "Online", "conditions": [{"type": "Reachable", "status": "True"}]}),
    ):
        patch = f"--patch={json.dumps({'status': status})}"
        options = ("--subresource=status", "--type=merge", there, patch)
        kubectl("patch", f"{plural}.{GROUP}", "a", *options)
    head, row = kubectl("get", "kapp", there).stdout.splitlines()
    columns = ["SCHEDULED TO", "RUNNING ON", "PHASE", "READY", "AGE"]
    assert [column for column in columns if column in head] == columns
    assert row.split()[:5] == ["a", "dresden", "dresden", "Running", "True"]
    head, row = kubectl("get", "kcl", there).stdout.splitlines()
    assert head.split()[:3] == ["NAME", "STATE", "REACHABLE"]
    assert row.split()[:3] == ["a", "Online", "True"]


def test_every_kind_has_a_list_of_its_own(kubectl):
    listed = kubectl("api-resources", f"--api-group={GROUP}", "-o=name").stdout.split()
    assert len(listed) == len(KINDS) == 10
    for name in listed:
        kubectl("get", name, "--all-namespaces")


def test_the_caret_stands_below_the_place(refusal):
    told = refusal("Application", FAULTY)
    *_, shown, caret = told.rstrip("\n").splitlines()
    assert shown[caret.index("^") :] == "IS DE"
    assert "operators are lower case" in told


def test_what_was_faulty_before_can_be_labelled_mended_and_deleted(kubectl):
    name = f"applications.{GROUP}"

    def patch(**fields):
        return kubectl(
            "patch", name, "early", "--type=merge", f"--patch={json.dumps(fields)}", check=False
        )

    labelled = patch(metadata={"labels": {"team": "a"}})
    assert labelled.returncode == 0, labelled.stderr
    assert "Warning" in labelled.stderr
    assert "spec.constraints.cluster.labels[0]" in labelled.stderr
    worse = patch(spec={"constraints": {"cluster": {"labels": ["location IS DE", "a IS b"]}}})
    assert worse.returncode != 0
    mended = patch(spec={"constraints": {"cluster": {"labels": ["location is DE"]}}})
    assert (mended.returncode, mended.stderr) == (0, "")
    kubectl("delete", name, "early", "--wait=false")
    released = patch(metadata={"finalizers": None})
    assert released.returncode == 0, released.stderr
