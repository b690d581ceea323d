"""``harbourmaster migrate krake``: the converted objects, and the notes about each."""

from __future__ import annotations

import base64
import json
import subprocess
import sys

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.api.names import dns_label, dns_subdomain
from harbourmaster.cli.main import main
from harbourmaster.cli.placement.objects import (
    metric_constraint,
    metric_name,
    namespace_name,
    object_name,
)
from harbourmaster.placement.constraints import parse_metric
from harbourmaster.placement.model import API_VERSION
from harbourmaster.placement.validation import CHECKS
from helpers.manifests import ROOT

MANIFEST = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "a", "cluster": {"server": "https://a.example.com"}}],
    "users": [{"name": "u", "user": {"token": "s3cret"}}],
    "contexts": [{"name": "c", "context": {"cluster": "a", "user": "u"}}],
    "current-context": "c",
}
BOUNDS = {"min": 0.0, "max": 5.0, "allowed_values": []}


def krake(api, kind, name="a", /, *, namespace="shop", **spec):
    metadata = {"name": name, "namespace": namespace}
    metadata.update(spec.pop("metadata", {}))
    return {"api": api, "kind": kind, "metadata": metadata, "spec": spec}


def app(name="a", /, **spec):
    constraints = {"cluster": spec.pop("cluster", {}), "migration": spec.pop("migration", True)}
    given = {"manifest": [MANIFEST], "constraints": constraints, **spec}
    return krake("kubernetes", "Application", name, **given)


def metric(name, /, **spec):
    provider = {"name": "prom_1", "metric": "on_provider"}
    return krake("core", "Metric", name, **{**BOUNDS, "provider": provider, **spec})


@pytest.fixture
def import_objects(capsys, tmp_path):
    """Import objects; returns the new objects by kind and name, and the report."""

    def run(*objects, options=()):
        file = tmp_path / "krake.yaml"
        file.write_text(objects[0] if isinstance(objects[0], str) else yaml.safe_dump_all(objects))
        code = main(["migrate", "krake", str(file), *options])
        out, err = capsys.readouterr()
        assert code == ("refused: " in err)
        converted = {}
        for obj in yaml.safe_load_all(out):
            converted[obj["kind"], obj["metadata"]["name"]] = obj
            if obj["apiVersion"] == API_VERSION:
                check = CHECKS[obj["kind"]]
                assert check.faults(msgspec.convert(obj, check.model)) == []
        return converted, err.replace(str(file), "krake.yaml").splitlines()

    return run


METRICS = yaml.safe_load_all((ROOT / "tests/fixtures/krake-metrics.yaml").read_text())
ZONE = krake(
    *("kubernetes", "Cluster", "c_1"),
    kubeconfig=KUBECONFIG,
    metrics=[{"name": "heat_1", "weight": 0.45, "namespaced": True}],
)
REWRITTEN = app(cluster={"metrics": ["heat_1 > 0.5", "load is 5", "Heat_2==1"]})
BACKED_OFF = app(
    cluster={"labels": ["location = DE"], "metrics": None, "custom_resources": ["a.example.com"]},
    backoff=3,
    backoff_delay=10,
    backoff_limit=2,
    migration=False,
)
MEANINGLESS = app(
    observer_schema=[{"kind": "ConfigMap"}],
    tosca={"a": 1},
    auto_cluster_create=True,
    storage_migration="live",
    backoff=0,
    backoff_limit=-5,
)
EXECUTES = {**KUBECONFIG, "users": [{"name": "u", "user": {"exec": {"command": "aws"}}}]}
CLOUD = krake(
    *("infrastructure", "GlobalCloud"),
    namespace=None,
    type="openstack",
    openstack={
        "url": "https://cloud.example.com",
        "auth": {"type": "password", "password": {"user": {"password": "s3cret"}}},
        "metrics": [{"name": "cost_1", "weight": 1}],
        "infrastructure_provider": {"name": "im_1"},
    },
)
WANTED = krake(
    *("kubernetes", "Cluster"),
    tosca={"x": 1},
    constraints={"cloud": {"labels": ["a is b"], "metrics": ["cost_1 < 5"]}},
)
PROJECT = krake("openstack", "Project", url="https://x", auth={"a": "s3cret"}, template="t")
MAGNUM = krake(
    *("openstack", "MagnumCluster"),
    master_count=1,
    node_count=2,
    constraints={"project": {"labels": ["a is b"]}},
)
GLOBAL = krake(
    *("core", "GlobalMetric", "load_1"),
    namespace=None,
    provider={"name": "a", "metric": "b"},
    **BOUNDS,
)


def running(field, cluster):
    """An application with the cluster on which it runs, or is to run."""
    name = {"name": cluster, "api": "kubernetes", "kind": "Cluster", "namespace": "shop"}
    return {**app(), "status": {field: name if cluster else None}}


def project(**spec):
    return krake("openstack", "Project", **spec)


OBJECTS = {
    "metrics, whose providers know other names": [*METRICS],
    "references and keys with names that are not valid here": [metric("heat_1"), ZONE, REWRITTEN],
    "an application": [BACKED_OFF],
    "an application with fields that have no meaning here": [MEANINGLESS],
    "an application with hooks": [app(hooks=["complete", "shutdown"])],
    "an application without hooks": [app(hooks=[])],
    "an application that runs": [running("running_on", "mk_1")],
    "an application that is to run": [running("scheduled_to", "mk_1")],
    "an application that runs nowhere": [running("running_on", None)],
    "a kubeconfig that the controller refuses": [
        krake("kubernetes", "Cluster", kubeconfig=EXECUTES)
    ],
    "a cluster to be made, and a cloud": [CLOUD, WANTED],
    "a project and a Magnum cluster": [PROJECT, MAGNUM],
    "an application of TOSCA only": [app(manifest=[], tosca={"a": 1})],
    "an application of a CSAR only": [app(manifest=[], csar="https://x/a.csar")],
    "an application without a manifest": [app(manifest=[])],
    "a constraint that is none": [app(cluster={"metrics": ["load gt5"]})],
    "a name without a valid character": [app("_")],
    "a metric whose bounds are equal": [metric("m", max=0.0)],
    "a metric without a bound": [metric("m", max=None)],
    "a provider of an unknown type": [krake("core", "MetricsProvider", type="influx", influx={})],
    "a role": [krake("core", "Role")],
    "a provider of infrastructure": [krake("infrastructure", "InfrastructureProvider")],
    "an unknown kind": [krake("core", "Thing")],
    "an invalid label": [app(metadata={"labels": {"a": "_b"}})],
    "labels that are no object": [app(metadata={"labels": ["a"]})],
    "a weight below zero": [project(metrics=[{"name": "a", "weight": -1}])],
    "a weight that is null": [project(metrics=[{"name": "a", "weight": None}])],
    "an object of Kubernetes": [{"apiVersion": "v1", "kind": "ConfigMap"}],
    "a spec that is no object": [{"api": "core", "kind": "Metric", "spec": []}],
    "names that become one": [metric("load_1"), metric("load-1"), metric("load-2")],
    "one name in two places": [metric("load_1"), metric("load_1", namespace="harbour"), GLOBAL],
    "namespaces that become one": [app("a", namespace="team_1"), app("b", namespace="team-1")],
}


@pytest.mark.parametrize("given", OBJECTS.values(), ids=OBJECTS)
def test_what_becomes_of_objects_while_others_are_converted(import_objects, given, assert_golden):
    objects, told = import_objects(*given, app("other"))
    *converted, last = [obj for obj in objects.values() if obj["kind"] != "Secret"]
    assert last["metadata"]["name"] == "other"
    assert "s3cret" not in str((told, converted))
    assert_golden([told, converted])


def test_hooks_are_given_up_by_a_flag(import_objects):
    objects, told = import_objects(app(hooks=["complete"]), options=["--drop-hooks"])
    assert list(objects) == [("Application", "a")]
    assert "Application shop/a: spec.hooks do not run here (--drop-hooks): left out" in told


@pytest.mark.parametrize("dump", [yaml.safe_dump, json.dumps])
def test_what_krake_prints_is_read_as_it_is(import_objects, dump):
    names = [("Application", "a"), ("Application", "b")]
    assert list(import_objects(dump([app(), app("b")]))[0]) == names
    wrapped = {"api": "kubernetes", "kind": "ApplicationList", "items": [app(), app("b")]}
    assert list(import_objects(dump(wrapped))[0]) == names
    several = "\n---\n".join((dump([app()]), dump(app("b")), dump([])))
    assert list(import_objects(several)[0]) == names


def test_a_value_in_a_list_that_is_no_object_is_refused_with_its_place(import_objects):
    objects, told = import_objects(yaml.safe_dump([app(), "b"]))
    assert list(objects) == [("Application", "a")]
    assert any("items[1]: expected an object" in line for line in told)


def test_a_kubeconfig_moves_into_a_secret(import_objects):
    cluster = krake("kubernetes", "Cluster", kubeconfig=KUBECONFIG, inherit_metrics=True)
    cluster["metadata"] |= {"labels": {"location": "DE"}, "inherit_labels": True}
    objects, told = import_objects(cluster)
    secret = objects["Secret", "a-kubeconfig"]
    assert secret["metadata"]["namespace"] == "shop"
    assert yaml.safe_load(base64.b64decode(secret["data"]["kubeconfig"])) == KUBECONFIG
    assert objects["Cluster", "a"]["metadata"]["labels"] == {"location": "DE"}
    assert objects["Cluster", "a"]["spec"] == {
        "kubeconfigSecretRef": {"name": "a-kubeconfig"},
        "inheritMetrics": True,
        "inheritLabels": True,
    }
    assert "Cluster shop/a: its kubeconfig is in Secret shop/a-kubeconfig" in told
    assert not any("will refuse" in line for line in told)
    assert "s3cret" not in "\n".join(told)


def test_objects_without_a_namespace_go_where_the_option_says(import_objects):
    given = app()
    del given["metadata"]["namespace"]
    objects, _ = import_objects(given)
    assert objects["Application", "a"]["metadata"]["namespace"] == "default"
    objects, _ = import_objects(given, options=["-n", "harbour"])
    assert objects["Application", "a"]["metadata"]["namespace"] == "harbour"


def test_a_file_that_is_no_yaml_is_refused(import_objects):
    objects, told = import_objects("a: [")
    assert objects == {}
    assert told[0].startswith("refused: ")


def test_only_this_command_loads_what_it_needs():
    code = (
        "import sys; from harbourmaster.cli.main import create_parser; "
        "[create_parser().parse_args(each) for each in (['migrate', 'krake', 'a'], "
        "['placement', 'new', 'project', 'a'])]; "
        "found = ('harbourmaster.cli.placement.krake', 'harbourmaster.cli.placement.new'); "
        "print([each for each in found if each in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


NAMES = st.from_regex(r"[A-Za-z0-9_]([-A-Za-z0-9_.:]{0,253}[A-Za-z0-9_])?", fullmatch=True)


@given(NAMES)
def test_every_name_of_krake_s_becomes_a_legal_one_or_none(krake_name):
    """Kubernetes allows less (krake-spec 1.1)."""
    for make, check, longest in (
        (object_name, dns_subdomain, 253),
        (metric_name, dns_subdomain, 63),
        (namespace_name, dns_label, 63),
    ):
        name = make(krake_name)
        assert name == "" or not check(name)
        assert len(name) <= longest
        assert make(name) == name
        assert name or set(name) <= set("_.-:")


@given(NAMES.filter(lambda name: ":" not in name and len(name) <= 63 and set(name) - set("_.-")))
def test_a_constraint_s_key_is_the_metric_s_name(name):
    text = metric_constraint(f" {name}  greater than 5")
    assert parse_metric(text).key == metric_name(name)
    assert text.endswith("  greater than 5")


def test_long_names_stay_apart():
    assert metric_name("a" * 64) != metric_name("a" * 65)
