"""Rules of the API server and of our webhook for the kinds of metrics (keptn-spec 4.6)."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from harbourmaster.playground.control_plane import ControlPlane
from harbourmaster.playground.installation import Installation
from helpers.cluster import eventually
from helpers.schemas import METRIC, SCORE, SPECS, Kinds, apply_definitions, definition, keptn_object

SAMPLES = Path(__file__).parents[2] / "deploy/samples/metrics"
METRICS, PROVIDERS = "keptnmetrics", "keptnmetricsproviders"
SERVER = "http://prometheus.example.com:9090"
FLAGS = ["--controllers=registration,metrics"]
NOON, ONE = "2026-01-31T12:00:00Z", "2026-01-31T13:00:00Z"
BROKEN = {**METRIC, "fetchIntervalSeconds": -1}


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory):
    """A control plane in which a faulty metric was before we came."""
    directory = tmp_path_factory.mktemp("metrics-validation")
    with ControlPlane(directory, optional=()) as plane:
        apply_definitions(plane.kubectl)
        early = keptn_object(definition(METRICS), "early", "default", **BROKEN)
        early["metadata"]["finalizers"] = ["example.com/kept"]
        Kinds(plane.kubectl, "default").create(early)
        with Installation(plane, arguments={"controller": FLAGS}):
            yield plane.kubectl


@pytest.fixture
def kinds(kubectl):
    """Reads and writes in a namespace of the test's own."""
    # Without a controller manager no namespace gets a service account to wait for.
    name = f"validation-{uuid.uuid4().hex[:8]}"
    kubectl("create", "namespace", name)
    return Kinds(kubectl, name)


def create_object(kinds, plural, spec, *, name="cart", version=None):
    """kubectl's output for a new object."""
    manifest = keptn_object(definition(plural), name, kinds.namespace, version)
    manifest["spec"] = spec
    return kinds.create(manifest, check=False)


def refusal(kinds, plural, spec, **more):
    """Why there can be no such object."""
    answer = create_object(kinds, plural, spec, **more)
    assert answer.returncode != 0, answer.stdout
    return answer.stderr


def analysis(**timeframe):
    return {**SPECS["analyses"], "timeframe": timeframe}


@pytest.mark.parametrize(
    ("span", "text"),
    [
        ({"interval": "5mins"}, 'spec.range.interval: Invalid value: "5mins"'),
        (
            {"interval": "5m", "step": "1mins", "aggregation": "max"},
            'spec.range.step: Invalid value: "1mins"',
        ),
        ({"interval": "5m", "step": "1m"}, "spec.range.aggregation: Required value"),
        ({"aggregation": "p90"}, "spec.range.step: Required value"),
        ({"step": "1m", "aggregation": "p91"}, 'spec.range.aggregation: Unsupported value: "p91"'),
    ],
)
def test_c91_bad_metrics_are_refused_in_every_version(kinds, span, text):
    for version in ("v1", "v1beta1", "v1alpha3"):
        assert text in refusal(kinds, METRICS, {**METRIC, "range": span}, version=version)


@pytest.mark.parametrize(
    ("timeframe", "text"),
    [
        ({"from": ONE, "to": NOON}, "spec.timeframe.to: Invalid value"),
        ({"recent": "five minutes"}, "spec.timeframe.recent: Invalid value"),
        # Which the schema's pattern lets pass.
        ({"recent": "0 minutes"}, "spec.timeframe.recent: Invalid value"),
    ],
)
def test_c95_bad_analyses_are_refused(kinds, timeframe, text):
    assert text in refusal(kinds, "analyses", analysis(**timeframe))


@pytest.mark.parametrize(
    ("plural", "spec", "text"),
    [
        (METRICS, {**METRIC, "fetchIntervalSeconds": 0}, "spec.fetchIntervalSeconds: Invalid"),
        (
            "analysisdefinitions",
            {
                "objectives": [{"analysisValueTemplateRef": {"name": "latency_p95"}}],
                "totalScore": SCORE,
            },
            "spec.objectives[0].analysisValueTemplateRef.name: Invalid value",
        ),
        (PROVIDERS, {"type": "prometheus2", "targetServer": SERVER}, "spec.type: Unsupported"),
        (PROVIDERS, {"type": "dql", "targetServer": SERVER}, "spec.secretKeyRef: Required value"),
    ],
)
def test_what_keptn_accepts_is_warned_of(kinds, plural, spec, text):
    answer = create_object(kinds, plural, spec, name="mine")
    assert answer.returncode == 0, answer.stderr
    assert "Warning: harbourmaster: spec." in answer.stderr
    assert text in answer.stderr.replace("\\", "")


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        # By the schema, which needs no webhook for it.
        ({"type": "prometheus"}, "targetServer is required for every type except static"),
        ({"type": "influx", "targetServer": SERVER}, "spec.type: Invalid value"),
        ({"type": "kafka", "targetServer": SERVER, "kafka": {}}, "spec.kafka.table: Required"),
        # By us.
        ({"type": "kafka", "targetServer": SERVER}, "spec.kafka: Required value"),
        ({"type": "static", "static": {"metrics": {"a": "much"}}}, "spec.static.metrics[a]"),
    ],
)
def test_bad_providers_are_refused(kinds, spec, text):
    assert text in refusal(kinds, PROVIDERS, spec, name="mine")


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha3", "v1alpha2"])
def test_a_provider_without_a_type_goes_by_its_name(kinds, version):
    spec = {"targetServer": SERVER}
    answer = create_object(kinds, PROVIDERS, spec, name="prometheus", version=version)
    assert answer.returncode == 0, answer.stderr


def test_our_types_of_providers_are_kept_as_they_are_given(kinds):
    static = {"metrics": {"a": 1, "b": 0.5, "c": "500m", "sum(up)": "1e3"}}
    table = {"table": "metrics", "comparisonColumn": "name", "valueColumn": "value"}
    for spec in (
        {"type": "static", "static": static},
        {"type": "kafka", "targetServer": SERVER, "kafka": table},
    ):
        answer = create_object(kinds, PROVIDERS, spec, name=spec["type"])
        assert answer.returncode == 0, answer.stderr
        stored = kinds.read(PROVIDERS, spec["type"], group="metrics.keptn.sh")
        assert spec.items() <= stored["spec"].items()


def test_what_was_faulty_before_can_be_labelled_mended_and_deleted(kubectl):
    def patch(**fields):
        text = json.dumps(fields)
        return kubectl("patch", METRICS, "early", "--type=merge", f"--patch={text}", check=False)

    labelled = patch(metadata={"labels": {"team": "a"}})
    assert labelled.returncode == 0, labelled.stderr
    assert "Warning" in labelled.stderr
    assert "spec.fetchIntervalSeconds: Invalid value: -1" in labelled.stderr
    worse = patch(spec={"range": {"interval": "5mins"}})
    assert worse.returncode != 0
    assert 'spec.range.interval: Invalid value: "5mins"' in worse.stderr
    mended = patch(spec={"fetchIntervalSeconds": 1})
    assert (mended.returncode, mended.stderr) == (0, "")
    again = patch(spec={"fetchIntervalSeconds": -1})
    assert again.returncode != 0
    kubectl("delete", METRICS, "early", "--wait=false")
    released = patch(metadata={"finalizers": None})
    assert released.returncode == 0, released.stderr
    assert kubectl("get", METRICS, "early", check=False).returncode != 0


def test_the_samples_are_accepted_and_the_analysis_among_them_needs_no_server(kubectl):
    answer = kubectl("apply", f"--filename={SAMPLES}")
    assert "Warning" not in answer.stderr
    ask = ("get", "analysis", "release-1", "-o=jsonpath={.status.state}")
    eventually(lambda: kubectl(*ask).stdout, is_right="Completed".__eq__)
    status = json.loads(kubectl("get", "analysis", "release-1", "-o=json").stdout)["status"]
    assert status["pass"] is True
    assert '"totalScore":2.5,"maximumScore":3,' in status["raw"]
