"""``harbourmaster import krake``: the converted objects, and the notes about each."""

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
DOCUMENT = """
api: core
kind: GlobalMetric
metadata:
  name: heat_demand_zone_1  # name as stored in Krake API (for management purposes)
spec:
  max: 5.0
  min: 0.0
  provider:
    metric: heat_demand_zone_1  # name on the provider
    name: prometheus_provider
---
api: core
kind: GlobalMetricsProvider
metadata:
  name: prometheus_provider
spec:
  type: prometheus
  prometheus:
    url: http://localhost:9090
---
api: core
kind: GlobalMetricsProvider
metadata:
  name: kafka_provider
spec:
  type: kafka
  kafka:
    comparison_column: my_comp_col
    table: my_table
    url: http://localhost:8080
    value_column: my_value_col
---
api: core
kind: GlobalMetricsProvider
metadata:
  name: static_provider
spec:
  type: static
  static:
    metrics:
      heat_demand_zone_1: 0.9
      electricity_cost_1: 0.1
"""


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

    def run(*objects, options=(), code=0):
        file = tmp_path / "krake.yaml"
        file.write_text(objects[0] if isinstance(objects[0], str) else yaml.safe_dump_all(objects))
        assert main(["import", "krake", str(file), *options]) == code
        out, err = capsys.readouterr()
        converted = {}
        for obj in yaml.safe_load_all(out):
            converted[obj["kind"], obj["metadata"]["name"]] = obj
            if obj["apiVersion"] == API_VERSION:
                check = CHECKS[obj["kind"]]
                assert check.faults(msgspec.convert(obj, check.model)) == []
        return converted, err.splitlines()

    return run


def test_the_document_s_metrics_keep_the_names_that_providers_know(import_objects):
    objects, told = import_objects(DOCUMENT)
    assert objects["GlobalMetric", "heat-demand-zone-1"]["spec"] == {
        "min": 0.0,
        "max": 5.0,
        "provider": {"name": "prometheus-provider", "metric": "heat_demand_zone_1"},
    }
    assert objects["GlobalMetricsProvider", "kafka-provider"]["spec"]["kafka"] == {
        "url": "http://localhost:8080",
        "table": "my_table",
        "comparisonColumn": "my_comp_col",
        "valueColumn": "my_value_col",
    }
    static = objects["GlobalMetricsProvider", "static-provider"]["spec"]["static"]
    assert static == {"metrics": {"heat_demand_zone_1": 0.9, "electricity_cost_1": 0.1}}
    name = "heat_demand_zone_1 is heat-demand-zone-1 here"
    assert f"GlobalMetric heat_demand_zone_1: metadata.name: {name}" in told


def test_every_reference_and_every_key_is_rewritten_with_a_note(import_objects):
    reference = {"name": "heat_1", "weight": 0.45, "namespaced": True}
    cluster = krake("kubernetes", "Cluster", "c_1", kubeconfig=KUBECONFIG, metrics=[reference])
    metrics = ["heat_1 > 0.5", "load is 5", "Heat_2==1"]
    objects, told = import_objects(metric("heat_1"), cluster, app(cluster={"metrics": metrics}))
    assert objects["Metric", "heat-1"]["spec"]["provider"] == {
        "name": "prom-1",
        "metric": "on_provider",
    }
    assert objects["Cluster", "c-1"]["spec"]["metrics"] == [
        {"name": "heat-1", "weight": 0.45, "scope": "Namespaced"}
    ]
    constraints = objects["Application", "a"]["spec"]["constraints"]
    assert constraints == {"cluster": {"metrics": ["heat-1 > 0.5", "load is 5", "heat-2==1"]}}
    at = "Application shop/a: spec.constraints.cluster.metrics"
    for line in (
        "Cluster shop/c_1: spec.metrics[0]: heat_1 is heat-1 here",
        f"{at}[0]: 'heat_1 > 0.5' is 'heat-1 > 0.5' here",
        f"{at}[2]: 'Heat_2==1' is 'heat-2==1' here",
        "create these namespaces first: shop",
    ):
        assert line in told
    assert any("--placement-constraint-value=Weighted" in line for line in told)
    assert not any("'load is 5'" in line for line in told)


def test_an_application(import_objects):
    spec = {"backoff": 3, "backoff_delay": 10, "backoff_limit": 2, "migration": False}
    cluster = {"labels": ["location = DE"], "metrics": None, "custom_resources": ["a.example.com"]}
    objects, told = import_objects(app(cluster=cluster, **spec))
    assert objects["Application", "a"]["spec"] == {
        "constraints": {
            "migration": False,
            "cluster": {"labels": ["location = DE"], "customResources": ["a.example.com"]},
        },
        "backoff": {"delaySeconds": 10, "factor": 3, "limit": 2},
        "manifests": [MANIFEST],
    }
    assert told == ["create these namespaces first: shop"]


def test_what_has_no_meaning_here_is_named(import_objects):
    given = app(
        hooks=["complete"],
        observer_schema=[{"kind": "ConfigMap"}],
        tosca={"a": 1},
        auto_cluster_create=True,
        storage_migration="live",
        backoff=0,
        backoff_limit=-5,
    )
    objects, told = import_objects(given, options=["--drop-hooks"])
    assert objects["Application", "a"]["spec"]["backoff"] == {
        "delaySeconds": 1,
        "factor": 1,
        "limit": 0,
    }
    text = "\n".join(told)
    for field in ("hooks", "observer_schema", "tosca", "auto_cluster_create", "storage_migration"):
        assert f"Application shop/a: spec.{field} " in text
    assert "spec.backoff.factor: 0 is 1 here" in text
    assert "spec.backoff.limit: -5 is 0 here" in text


def test_an_application_with_hooks_is_refused_unless_they_are_given_up(import_objects):
    given = app(hooks=["complete", "shutdown"])
    objects, (line,) = import_objects(given, code=1)
    assert objects == {}
    assert "Application shop/a: spec.hooks: complete, shutdown would not run here: " in line
    assert line.endswith(", then convert it with --drop-hooks")
    objects, told = import_objects(given, options=["--drop-hooks"])
    assert list(objects) == [("Application", "a")]
    text = "Application shop/a: spec.hooks do not run here (--drop-hooks): left out"
    assert text in told
    assert import_objects(app(hooks=[]))[0]


@pytest.mark.parametrize("field", ["running_on", "scheduled_to"])
def test_an_application_stays_on_its_cluster_and_waits_for_a_person(import_objects, field):
    reference = {"api": "kubernetes", "kind": "Cluster", "namespace": "shop", "name": "mk_1"}
    objects, told = import_objects({**app(), "status": {field: reference}})
    assert objects["Application", "a"]["metadata"]["annotations"] == {
        "placement.harbourmaster.dev/confirmed": "false",
        "placement.harbourmaster.dev/current-cluster": "mk-1",
    }
    assert (
        "Application shop/a: it stays on Cluster mk-1, and nothing is done until you run "
        "harbourmaster placement confirm a -n shop"
    ) in told


def test_an_application_that_runs_nowhere_waits_for_nobody(import_objects):
    objects, _ = import_objects({**app(), "status": {"running_on": None, "scheduled_to": None}})
    assert "annotations" not in objects["Application", "a"]["metadata"]


@pytest.mark.parametrize("dump", [yaml.safe_dump, json.dumps])
def test_what_krake_prints_is_read_as_it_is(import_objects, dump):
    names = [("Application", "a"), ("Application", "b")]
    assert list(import_objects(dump([app(), app("b")]))[0]) == names
    wrapped = {"api": "kubernetes", "kind": "ApplicationList", "items": [app(), app("b")]}
    assert list(import_objects(dump(wrapped))[0]) == names
    several = "\n---\n".join((dump([app()]), dump(app("b")), dump([])))
    assert list(import_objects(several)[0]) == names


def test_a_value_in_a_list_that_is_no_object_is_refused_with_its_place(import_objects):
    objects, told = import_objects(yaml.safe_dump([app(), "b"]), code=1)
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


def test_a_kubeconfig_that_the_controller_refuses_gets_a_note(import_objects):
    users = [{"name": "u", "user": {"exec": {"command": "aws"}}}]
    objects, told = import_objects(
        krake("kubernetes", "Cluster", kubeconfig={**KUBECONFIG, "users": users})
    )
    assert ("Secret", "a-kubeconfig") in objects
    assert any("the controller will refuse it: the kubeconfig: exec" in line for line in told)


def test_a_cluster_to_be_made_and_its_clouds(import_objects):
    openstack = {
        "url": "https://cloud.example.com",
        "auth": {"type": "password", "password": {"user": {"password": "s3cret"}}},
        "metrics": [{"name": "cost_1", "weight": 1}],
        "infrastructure_provider": {"name": "im_1"},
    }
    cloud = krake(
        "infrastructure", "GlobalCloud", namespace=None, type="openstack", openstack=openstack
    )
    wanted = krake(
        "kubernetes",
        "Cluster",
        tosca={"x": 1},
        constraints={"cloud": {"labels": ["a is b"], "metrics": ["cost_1 < 5"]}},
    )
    objects, told = import_objects(cloud, wanted)
    assert objects["GlobalCloud", "a"]["spec"] == {
        "metrics": [{"name": "cost-1", "weight": 1, "scope": "Global"}],
        "provider": {
            "type": "openstack",
            "url": "https://cloud.example.com",
            "infrastructureProvider": "im_1",
        },
    }
    assert objects["Cluster", "a"]["spec"] == {
        "constraints": {"cloud": {"labels": ["a is b"], "metrics": ["cost-1 < 5"]}}
    }
    text = "\n".join(told)
    assert "GlobalCloud a: spec.openstack.auth: credentials are not converted" in text
    assert "Cluster shop/a: spec.tosca is ignored" in text
    assert "s3cret" not in text + str(objects)


def test_the_kinds_of_openstack(import_objects):
    project = krake("openstack", "Project", url="https://x", auth={"a": 1}, template="t")
    magnum = krake(
        *("openstack", "MagnumCluster"),
        master_count=1,
        node_count=2,
        constraints={"project": {"labels": ["a is b"]}},
    )
    objects, told = import_objects(project, magnum)
    assert objects["Project", "a"]["spec"] == {"template": "t"}
    assert objects["MagnumCluster", "a"]["spec"] == {
        "masterCount": 1,
        "nodeCount": 2,
        "constraints": {"project": {"labels": ["a is b"]}},
    }
    assert any("Project shop/a: spec.auth holds credentials" in line for line in told)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (app(manifest=[], tosca={"a": 1}), "it is given by tosca only"),
        (app(manifest=[], csar="https://x/a.csar"), "it is given by csar only"),
        (app(manifest=[]), "it has no manifest"),
        (app(cluster={"metrics": ["load gt5"]}), "spec.constraints.cluster.metrics[0]"),
        (app("_"), "none of its characters is valid in a name"),
        (metric("m", max=0.0), "spec.max: Invalid value: 0.0: must be above min"),
        (metric("m", max=None), "spec.max is missing"),
        (
            krake("core", "MetricsProvider", type="influx", influx={}),
            "unknown provider type influx",
        ),
        (krake("core", "Role"), "write a Kubernetes Role for"),
        (krake("infrastructure", "InfrastructureProvider"), "clusters are not created here"),
        (krake("core", "Thing"), "core/Thing has no equivalent here"),
        (app(metadata={"labels": {"a": "_b"}}), "metadata.labels: a: _b"),
        (app(metadata={"labels": ["a"]}), "metadata.labels: expected an object"),
        (krake("openstack", "Project", metrics=[{"name": "a", "weight": -1}]), "weight"),
        (krake("openstack", "Project", metrics=[{"name": "a", "weight": None}]), "weight"),
        ({"apiVersion": "v1", "kind": "ConfigMap"}, "is not an object of Krake"),
        ({"api": "core", "kind": "Metric", "spec": []}, "spec: expected an object"),
    ],
)
def test_what_cannot_be_taken_over_is_refused_in_one_line_and_the_rest_is_not(
    import_objects, given, text
):
    objects, told = import_objects(given, app("other"), code=1)
    assert list(objects) == [("Application", "other")]
    (line,) = (line for line in told if line.startswith("refused: "))
    assert "document 1" in line
    assert text in line


def test_names_that_would_become_one_are_both_refused(import_objects):
    objects, told = import_objects(metric("load_1"), metric("load-1"), metric("load-2"), code=1)
    assert list(objects) == [("Metric", "load-2")]
    (line,) = (line for line in told if line.startswith("refused: "))
    assert line == (
        "refused: Metric shop/load_1 and Metric shop/load-1 would both be Metric shop/load-1: "
        "rename one or leave one out"
    )


def test_the_same_name_elsewhere_is_no_collision(import_objects):
    namesake = metric("load_1")
    namesake["metadata"]["namespace"] = "harbour"
    is_global = krake("core", "GlobalMetric", "load_1", namespace=None, **BOUNDS)
    is_global["spec"]["provider"] = {"name": "a", "metric": "b"}
    objects, _ = import_objects(metric("load_1"), namesake, is_global)
    assert objects.keys() == {("Metric", "load-1"), ("GlobalMetric", "load-1")}


def test_namespaces_that_would_become_one_are_refused(import_objects):
    first, second = app("a"), app("b")
    first["metadata"]["namespace"], second["metadata"]["namespace"] = "team_1", "team-1"
    objects, told = import_objects(first, second, app("c"), code=1)
    assert list(objects) == [("Application", "c")]
    assert "refused: namespaces team-1 and team_1 would both be team-1: rename one first" in told


def test_objects_without_a_namespace_go_where_the_option_says(import_objects):
    given = app()
    del given["metadata"]["namespace"]
    objects, _ = import_objects(given)
    assert objects["Application", "a"]["metadata"]["namespace"] == "default"
    objects, _ = import_objects(given, options=["-n", "harbour"])
    assert objects["Application", "a"]["metadata"]["namespace"] == "harbour"


def test_a_file_that_is_no_yaml_is_refused(import_objects):
    objects, told = import_objects("a: [", code=1)
    assert objects == {}
    assert told[0].startswith("refused: ")


def test_only_this_command_loads_what_it_needs():
    code = (
        "import sys; from harbourmaster.cli.main import create_parser; "
        "[create_parser().parse_args(each) for each in (['import', 'krake', 'a'], "
        "['placement', 'new', 'project', 'a'])]; "
        "found = ('harbourmaster.cli.placement.krake', 'harbourmaster.cli.placement.new'); "
        "print([each for each in found if each in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


NAMES = st.from_regex(r"[A-Za-z0-9_]([-A-Za-z0-9_.:]{0,253}[A-Za-z0-9_])?", fullmatch=True)


@given(NAMES)
def test_every_name_of_krake_s_becomes_a_legal_one_or_none(krake_name):
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
