from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import yaml

from harbourmaster.placement.validation import CHECKS
from helpers.placing import INVALID_LABELS, INVALID_METRICS, VALID_LABELS, VALID_METRICS

SAMPLES = Path(__file__).parents[3] / "deploy/samples/placement"
MANIFEST = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
SOURCE = {"name": "prometheus", "metric": "load_1"}
BOUNDS = {"min": 0, "max": 5, "provider": SOURCE}
URL = "https://prometheus.example.com:9090/base"
TABLE = {"url": URL, "table": "t", "comparisonColumn": "c", "valueColumn": "v"}
GOOD = {
    "Application": {"manifests": [MANIFEST]},
    "Cluster": {},
    "Cloud": {},
    "GlobalCloud": {},
    "Project": {},
    "MagnumCluster": {},
    "Metric": BOUNDS,
    "GlobalMetric": BOUNDS,
    "MetricsProvider": {"type": "static", "static": {"metrics": {"load_1": 0.5}}},
    "GlobalMetricsProvider": {"type": "prometheus", "prometheus": {"url": URL}},
}
WITH_METRICS = ["Cluster", "Cloud", "GlobalCloud", "Project", "MagnumCluster"]
PROVIDERS = ["MetricsProvider", "GlobalMetricsProvider"]


def faults(kind, spec=None, name="a"):
    check = CHECKS[kind]
    manifest = {"metadata": {"name": name}, "spec": {**GOOD[kind], **(spec or {})}}
    # As it comes over the wire, where NaN can't.
    return check.faults(msgspec.convert(manifest, check.model))


def fault_texts(kind, spec=None, name="a"):
    return [str(fault) for fault in faults(kind, spec, name)]


def constraint_spec(kind, **constraints):
    target = {"Application": "cluster", "Cluster": "cloud", "MagnumCluster": "project"}[kind]
    return {"constraints": {target: constraints}}


@pytest.mark.parametrize("kind", CHECKS)
def test_the_least_of_each_kind_is_sound(kind):
    assert faults(kind) == []


@pytest.mark.parametrize("file", ["metrics", "clusters", "application"])
def test_the_samples_are_sound(file):
    samples = list(yaml.safe_load_all((SAMPLES / f"{file}.yaml").read_text()))
    assert samples
    for sample in samples:
        check = CHECKS[sample["kind"]]
        assert check.faults(msgspec.convert(sample, check.model)) == []


@pytest.mark.parametrize("kind", ["Application", "Cluster", "MagnumCluster"])
def test_every_label_constraint_is_read_as_for_a_decision(kind):
    assert faults(kind, constraint_spec(kind, labels=VALID_LABELS[:32])) == []
    for text in INVALID_LABELS:
        (fault,) = faults(kind, constraint_spec(kind, labels=["location is DE", text]))
        assert fault.pointer
        assert fault.path.endswith(".labels[1]")
        assert "\n" not in str(fault)
        shown, caret = fault.pointer.split("\n")
        assert caret.strip() == "^"
        assert len(caret) <= len(shown) + 1


@pytest.mark.parametrize("kind", ["Application", "Cluster"])
def test_every_metric_constraint_is_read_as_for_a_decision(kind):
    assert faults(kind, constraint_spec(kind, metrics=VALID_METRICS[:32])) == []
    for text in INVALID_METRICS:
        (fault,) = faults(kind, constraint_spec(kind, metrics=[text]))
        assert fault.path.endswith(".metrics[0]"), text
        assert "^" in fault.pointer


def test_custom_resources_are_plural_and_group():
    assert (
        faults("Application", constraint_spec("Application", customResources=["a.example.com"]))
        == []
    )
    (fault,) = faults("Application", constraint_spec("Application", customResources=["shirts"]))
    assert fault.path == "spec.constraints.cluster.customResources[0]"
    assert fault_texts("Cluster", {"customResources": ["a.b", "A.b"]})[0].startswith(
        'spec.customResources[1]: Invalid value: "A.b"'
    )


def test_constraints_that_a_target_does_not_have_are_refused():
    assert fault_texts("Cluster", constraint_spec("Cluster", customResources=["a.b"])) == [
        "spec.constraints.cloud.customResources: Forbidden: not supported for this kind of target"
    ]
    (text,) = fault_texts("MagnumCluster", constraint_spec("MagnumCluster", metrics=["load > 5"]))
    assert text.startswith("spec.constraints.project.metrics: Forbidden")


def test_nulls_at_every_level_are_no_constraints():
    for constraints in (None, {"cluster": None}, {"cluster": {"labels": None, "metrics": None}}):
        assert faults("Application", {"constraints": constraints}) == []


def test_too_many_constraints_are_one_fault():
    (text,) = fault_texts("Application", constraint_spec("Application", labels=["is DE"] * 33))[:1]
    assert text == "spec.constraints.cluster.labels: Invalid value: 33: must have at most 32 values"


@pytest.mark.parametrize(
    ("manifest", "field", "text"),
    [
        ({**MANIFEST, "apiVersion": ""}, "apiVersion", "Required value"),
        ({**MANIFEST, "kind": 5}, "kind", "is not a string"),
        ({**MANIFEST, "metadata": None}, "metadata.name", "Required value"),
        ({**MANIFEST, "metadata": {"generateName": "a-"}}, "metadata.name", "Required value"),
        ({**MANIFEST, "metadata": {"name": "a", "namespace": "A"}}, "metadata.namespace", '"A"'),
        ({**MANIFEST, "metadata": {"name": "a", "namespace": 5}}, "metadata.namespace", "string"),
    ],
)
def test_an_invalid_manifest_is_rejected(manifest, field, text):
    (fault,) = fault_texts("Application", {"manifests": [{**MANIFEST, "kind": "Secret"}, manifest]})
    assert fault.startswith(f"spec.manifests[1].{field}: ")
    assert text in fault


def test_an_object_is_given_once_in_whatever_version_of_its_group():
    first = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}}
    again = {**first, "apiVersion": "apps/v1beta1"}
    (text,) = fault_texts("Application", {"manifests": [first, MANIFEST, again]})
    assert text.startswith(
        'spec.manifests[2]: Invalid value: "Deployment a": repeats spec.manifests[0]'
    )
    second = {**first, "metadata": {"name": "a", "namespace": "b"}}
    assert faults("Application", {"manifests": [first, second]}) == []
    assert fault_texts("Application", {"manifests": []})[0].startswith(
        "spec.manifests: Required value"
    )


@pytest.mark.parametrize("kind", ["Metric", "GlobalMetric"])
def test_a_query_has_known_placeholders_only(kind):
    def spec(query):
        return {"min": 0, "max": 1, "provider": {"name": "prom", "metric": query}}

    good = 'load{a="$(cluster.name)",b="$(cluster.namespace)",c="$(cluster.labels.a.example/b)"}'
    assert faults(kind, spec(good)) == []
    (text,) = fault_texts(kind, spec("load{a='$(cluster.id)'}"))
    assert text == (
        "spec.provider.metric: Invalid value: unknown placeholder '$(cluster.id)' at character 9: "
        "use $(cluster.name), $(cluster.namespace) or $(cluster.labels.KEY)"
    )


@pytest.mark.parametrize("kind", ["Application", "Cluster"])
@pytest.mark.parametrize(("field", "value"), [("delaySeconds", -1), ("factor", 0.5), ("limit", -2)])
def test_backoff_has_bounds(kind, field, value):
    (text,) = fault_texts(kind, {"backoff": {field: value}})
    assert text.startswith(f"spec.backoff.{field}: Invalid value: {value}")


@pytest.mark.parametrize("kind", WITH_METRICS)
def test_weights_are_finite_not_negative_and_not_all_zero(kind):
    def metrics(*weights):
        return {
            "metrics": [{"name": f"m{n}", "weight": weight} for n, weight in enumerate(weights)]
        }

    assert faults(kind, metrics(0, 0.5)) == []
    assert faults(kind, metrics()) == []
    assert fault_texts(kind, metrics(-1, 1))[0].startswith(
        "spec.metrics[0].weight: Invalid value: -1"
    )
    assert fault_texts(kind, metrics(float("nan"), 1))[0].startswith("spec.metrics[0].weight: ")
    assert fault_texts(kind, metrics(float("inf")))[0].startswith("spec.metrics[0].weight: ")
    (text,) = fault_texts(kind, metrics(0, 0))
    assert text.startswith("spec.metrics: ")
    assert "at least one weight must be above 0" in text


@pytest.mark.parametrize("kind", WITH_METRICS)
def test_the_number_of_metrics_is_limited(kind):
    most = 32 if kind == "MagnumCluster" else 16
    metrics = [{"name": f"m{n}", "weight": 1} for n in range(most + 1)]
    assert faults(kind, {"metrics": metrics[:-1]}) == []
    assert fault_texts(kind, {"metrics": metrics}) == [
        f"spec.metrics: Invalid value: {most + 1}: must have at most {most} values"
    ]


@pytest.mark.parametrize("kind", WITH_METRICS)
def test_a_metric_is_named_legally_and_once(kind):
    for name in ("heat_demand_zone_1", "a" * 64, ""):
        (text,) = fault_texts(kind, {"metrics": [{"name": name, "weight": 1}]})
        assert text.startswith("spec.metrics[0].name: ")
    twice = [{"name": "a", "weight": 1}, {"name": "a", "weight": 2}]
    assert "is given twice" in fault_texts(kind, {"metrics": twice})[0]
    both = [{"name": "a", "weight": 1}, {"name": "a", "weight": 2, "scope": "Namespaced"}]
    assert faults(kind, {"metrics": both}) == [] or kind == "GlobalCloud"


def test_a_global_cloud_has_only_global_metrics():
    metric = {"name": "a", "weight": 1, "scope": "Namespaced"}
    (text,) = fault_texts("GlobalCloud", {"metrics": [metric]})
    assert text.startswith("spec.metrics[0].scope: Forbidden")
    assert faults("Cloud", {"metrics": [metric]}) == []


@pytest.mark.parametrize("kind", ["Metric", "GlobalMetric"])
@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"min": 5}, "spec.max"),
        ({"min": 6}, "spec.max"),
        ({"max": float("nan")}, "spec.max"),
        ({"min": float("-inf")}, "spec.min"),
        ({"allowedValues": [1, 7]}, "spec.allowedValues[1]"),
        ({"allowedValues": [float("nan")]}, "spec.allowedValues[0]"),
        ({"provider": {"name": "", "metric": "a"}}, "spec.provider.name"),
        ({"provider": {"name": "A_b", "metric": "a"}}, "spec.provider.name"),
        ({"provider": {"name": "a", "metric": " "}}, "spec.provider.metric"),
    ],
)
def test_bad_metrics(kind, spec, field):
    """Bounds and names are checked (krake-spec 1.4)."""
    (text,) = fault_texts(kind, spec)
    assert text.startswith(f"{field}: ")


def test_a_metric_s_name_fits_into_constraints():
    assert faults("Metric", name="a" * 63) == []
    assert fault_texts("Metric", name="a" * 64)[0].startswith("metadata.name: ")


@pytest.mark.parametrize("kind", PROVIDERS)
@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"type": "influx"}, ["spec.type"]),
        ({"type": "kafka"}, ["spec.kafka"]),
        ({"type": "kafka", "kafka": TABLE, "static": {}}, ["spec.static"]),
        ({"type": "kafka", "kafka": {**TABLE, "table": ""}}, ["spec.kafka.table"]),
        ({"type": "prometheus", "prometheus": {}}, ["spec.prometheus.url"]),
        (
            {"type": "prometheus", "prometheus": {"url": URL, "secretKeyRef": {"name": "A"}}},
            ["spec.prometheus.secretKeyRef.name", "spec.prometheus.secretKeyRef.key"],
        ),
        (
            {"type": "static", "static": {"metrics": {"a": float("inf")}}},
            ["spec.static.metrics[a]"],
        ),
        (
            {"type": "static", "static": {"metrics": dict.fromkeys(map(str, range(1001)), 1)}},
            ["spec.static.metrics"],
        ),
    ],
)
def test_a_provider_is_given_as_its_type_says(kind, spec, fields):
    """Each type has its own fields (krake-spec 1.4)."""
    bare = {"prometheus": None, "static": None}
    assert [fault.path for fault in faults(kind, {**bare, **spec})] == fields


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://a", "a", "http://", "http:///a", "http://a?b", "http://a#b", "http://a:x"),
        "http://a b",
    ],
)
def test_an_invalid_url_is_rejected(url):
    (fault,) = faults("GlobalMetricsProvider", {"prometheus": {"url": url}})
    assert fault.path == "spec.prometheus.url"


def test_a_password_in_a_url_is_refused_and_not_shown():
    url = "https://me:s3cret@prometheus.example.com"
    (text,) = fault_texts("GlobalMetricsProvider", {"prometheus": {"url": url}})
    assert "Secret" in text
    assert "s3cret" not in text


@pytest.mark.parametrize(
    "server", ["https://a", "https://a:6443/k8s/clusters/c-1", "https://[2001:db8::1]:6443/"]
)
def test_a_server_is_a_url(server):
    assert fault_texts("Cluster", {"server": server}) == []


@pytest.mark.parametrize(
    "server",
    [
        "a:6443",
        "http://a",
        "https://",
        "https://a:0",
        "https://me:s3cret@a",
        "https://a?x=y",
        "https://a#b",
        "https://a b",
        "https://a\\b",
    ],
)
def test_what_is_no_server_is_refused_in_a_line(server):
    text = "must be like https://host:6443"
    assert fault_texts("Cluster", {"server": server}) == [f"spec.server: Invalid value: {text}"]


def test_a_kubeconfig_and_a_cloud_are_named():
    assert fault_texts("Cluster", {"kubeconfigSecretRef": {"name": ""}}) == [
        "spec.kubeconfigSecretRef.name: Required value: name a Secret of the same namespace"
    ]
    for reference, field in (
        ({"kind": "Project", "name": "a"}, "spec.cloudRef.kind"),
        ({"kind": "Cloud", "name": ""}, "spec.cloudRef.name"),
    ):
        assert [fault.path for fault in faults("Cluster", {"cloudRef": reference})] == [field]


def test_a_fault_can_be_sent_whatever_the_user_wrote():
    text = "location is \u202e\x00é\n"
    (fault,) = faults("Application", constraint_spec("Application", labels=[text]))
    json.dumps([str(fault), fault.pointer]).encode()
    assert "\n" not in str(fault)


@pytest.mark.parametrize(
    ("test", "text"),
    [
        ({"condition": "Ready"}, ""),
        ({"group": "", "name": "a", "field": "data.state", "values": ["up"]}, ""),
        ({}, '[0]: Invalid value: "ConfigMap": set either condition or field'),
        (
            {"condition": "Ready", "field": "data.x", "values": ["x"]},
            '[0]: Invalid value: "ConfigMap": set either condition or field',
        ),
        ({"field": "data.x"}, "[0].values: Required value: name at least one value"),
        (
            {"condition": "Ready", "name": "b"},
            '[0].kind: Invalid value: "ConfigMap": no manifest has this kind, group and name',
        ),
        (
            {"condition": "Ready", "group": "example.com/v1"},
            '[0].kind: Invalid value: "ConfigMap": no manifest has this kind, group and name',
        ),
    ],
)
def test_readiness(test, text):
    given = fault_texts("Application", {"readiness": [{"kind": "ConfigMap", **test}]})
    assert given == ([f"spec.readiness{text}"] if text else [])


def test_readiness_has_a_limit():
    tests = [{"kind": "ConfigMap", "condition": "Ready"}] * 33
    (text,) = fault_texts("Application", {"readiness": tests})
    assert text == "spec.readiness: Invalid value: 33: must have at most 32 values"
    nonsense = [{"kind": "ConfigMap", "condition": "Ready"}]
    manifests = {"manifests": [None, {"kind": 5, "metadata": []}, MANIFEST], "readiness": nonsense}
    assert not any("readiness" in text for text in fault_texts("Application", manifests))


@pytest.mark.parametrize(
    ("checks", "text"),
    [
        (None, ""),
        ({"preDeployment": {"tasks": ["a"]}, "postDeployment": {"tasks": ["a"]}}, ""),
        ({"postDeployment": {"evaluations": ["a"]}, "when": ["Move"]}, ""),
        (
            {"preDeployment": {"tasks": []}},
            ": Required value: name a task or an evaluation, or remove spec.checks",
        ),
        (
            {"preDeployment": {"tasks": ["a", "b", "a"]}},
            '.preDeployment.tasks[2]: Invalid value: "a": is given twice',
        ),
        (
            {"preDeployment": {"evaluations": [""]}},
            (
                ".preDeployment.evaluations[0]: Required value: "
                "name a definition of the same namespace"
            ),
        ),
        (
            {"postDeployment": {"tasks": ["other/a"]}},
            (
                '.postDeployment.tasks[0]: Invalid value: "other/a": must be the name of an object '
                "in the same namespace: lower case letters, digits, '-' and '.', and no namespace "
                "before it"
            ),
        ),
        (
            {"postDeployment": {"evaluations": [f"a{number}" for number in range(33)]}},
            ".postDeployment.evaluations: Invalid value: 33: must have at most 32 values",
        ),
        (
            {"preDeployment": {"tasks": ["a"]}, "when": []},
            ".when: Required value: name at least one of Deploy, Update and Move",
        ),
    ],
)
def test_checks(checks, text):
    given = fault_texts("Application", {"checks": checks})
    assert given == ([f"spec.checks{text}"] if text else [])


def test_checks_for_an_unknown_change_cannot_be_read():
    checks = {"preDeployment": {"tasks": ["a"]}, "when": ["Delete"]}
    with pytest.raises(msgspec.ValidationError, match=r"'Delete' - at `\$.spec.checks.when"):
        faults("Application", {"checks": checks})
