"""The parts and the code of the Helm chart; tests/cluster/test_chart.py renders it with Helm."""

from __future__ import annotations

import importlib
import itertools
import json
import re

import pytest
import yaml

from helpers.chart import CHART, EXAMPLES, IMAGE, chart, chart_folder, overlays, schema, union
from helpers.manifests import DEPLOY, NAMESPACE, ROOT, VERSION, container, deployment_of, objects

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = schema.schema(VALUES)
NAMES = [component.name for component in overlays.components()]
OF_THEIR_OWN = {"certManager", "besideKeptn", "hardened", "shadow"}
"""Components that have values outside of ``components``."""
MAKES_IT = pytest.mark.timeout(300)
"""Kustomize runs 38 times where ``deploy/`` has changed."""
ALWAYS = [(overlays.Overlay(), overlays.Overlay())]
DIGEST = f"sha256:{'a' * 64}"


@pytest.fixture(scope="module")
def faults_of():
    """Return ``faults_of(values)`` against the schema; jsonschema takes seconds to import."""
    validator = importlib.import_module("jsonschema").Draft7Validator(SCHEMA)
    return lambda values: list(validator.iter_errors(values))


@pytest.fixture(scope="module")
def files():
    """The files of the chart, as text by name."""
    return {
        str(path.relative_to(chart_folder())): path.read_text()
        for path in chart_folder().rglob("*")
        if path.is_file()
    }


def leaves(value, path=()):
    """The paths of all values of the chart."""
    yield from (path,) if not value or not isinstance(value, dict) else ()
    for key, member in value.items() if isinstance(value, dict) else ():
        yield from leaves(member, (*path, key))


def test_the_schema_has_special_rules_only_for_values_of_the_chart():
    names = {name for path in leaves(VALUES) for name in (path[-1], ".".join(path))}
    assert schema.SPECIAL.keys() <= names


def test_the_schema_knows_each_setting_but_those_that_are_values():
    for role, settings in schema.SETTINGS.items():
        part = SCHEMA["properties"][role.partition(".")[0]]["properties"]["settings"]
        assert part["properties"].keys() == schema.flags_of(settings).keys() - schema.OF_VALUES
        assert part["additionalProperties"] is False
    assert "log-level" in part["properties"]


def test_the_manual_has_each_value_once():
    page = (ROOT / "docs/howto/helm.md").read_text()
    rows = re.findall(r"^\| (`.+?`) \|", page, re.MULTILINE)
    named = [word.strip("`") for row in rows for word in row.split(", ")]
    assert sorted(named) == sorted(".".join(path) for path in leaves(VALUES))


def test_every_component_has_a_value_except_that_which_sets_replicas():
    folders = {path.name for path in (DEPLOY / "components").iterdir()}
    assert folders - {
        component.folder.rpartition("/")[2] for component in overlays.components()
    } == {"single-replica"}
    assert set(VALUES["components"]) == set(NAMES) - OF_THEIR_OWN


@pytest.mark.slow
@MAKES_IT
def test_the_default_values_are_those_of_the_manifests(files, faults_of):
    values = yaml.safe_load(files["values.yaml"])
    assert json.loads(files["values.schema.json"]) == SCHEMA
    assert faults_of(values) == []
    for role in ("webhook", "controller"):
        deployment = deployment_of(objects(), role)
        assert values[role]["replicas"] == deployment["spec"]["replicas"]
        assert values[role]["resources"] == container(deployment)["resources"]
    image = values["image"]
    assert f"{image['repository']}:{image['tag']}" == IMAGE
    about = yaml.safe_load(files["Chart.yaml"])
    assert about["version"] == about["appVersion"] == VERSION


@pytest.mark.slow
@MAKES_IT
def test_the_namespace_of_the_manifests_appears_in_no_template(files):
    assert not [name for name, text in files.items() if NAMESPACE in text]


@pytest.mark.parametrize("example", sorted(EXAMPLES.iterdir()), ids=lambda path: path.name)
def test_the_examples_are_valid(example, faults_of):
    values = yaml.safe_load((example / "values.yaml").read_text())
    assert faults_of(values) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": 3},
        {"webhook": {"replica": 3}},
        {"webhook": {"replicas": "three"}},
        {"webhook": {"replicas": 0}},
        {"webhook": {"settings": {"--log-level": "debug"}}},
        {"webhook": {"settings": {"log-levl": "debug"}}},
        {"webhook": {"settings": {"log-level": "loud"}}},
        {"webhook": {"settings": {"log.level": "debug"}}},
        {"webhook": {"settings": {"port": 10250}}},
        {"controller": {"settings": {"denied-namespaces": ["shop"]}}},
        {"controller": {"settings": {"webhook-failure-policy": "Never"}}},
        {"nameOverride": "hm"},
        {"fullnameOverride": "hm"},
        {"commonLabels": {"team": 1}},
        {"commonLabels": {"app.kubernetes.io/name": "other"}},
        {"webhook": {"podLabels": {"app.kubernetes.io/component": "other"}}},
        {"webhook": {"port": 0}},
        {"webhook": {"hostNetwork": "yes"}},
        {"webhook": {"extraEnv": [{"value": "without a name"}]}},
        {"webhook": {"volumeMounts": [{"name": "without-a-path"}]}},
        {"webhook": {"serviceAccount": {"name": "other"}}},
        {"certManager": {"issuerRef": {"nme": "internal"}}},
        {"monitoring": {"interval": "30"}},
        {"podSecurityContext": []},
        {"controller": {"podAnnotations": {"example.com/number": 1}}},
        {"certificates": "foo"},
        {"components": {"guard": True}},
        {"components": {"dashboard": "yes"}},
        {"admission": {"failurePolicy": "Retry"}},
        {"controllers": "lifecycle"},
        {"crossNamespaceReferences": "Closed"},
        {"hardened": {"apiServerCIDRs": ["192.0.2.10"]}},
        {"image": {"digest": "sha256:1"}},
        {"image": {"repository": f"registry.example.com/harbourmaster@{DIGEST}"}},
        {"crds": {"delete": True}},
    ],
    ids=json.dumps,
)
def test_wrong_values_are_refused(wrong, faults_of):
    assert faults_of(wrong)


@pytest.mark.parametrize(
    "settings",
    [
        {"tls-min-version": 1.2},
        {"tls-min-version": "1.3", "log-level": None},
        {"shadow": True, "watch-nodes": "false"},
        {"denied-namespaces": ["a", "b"], "watch-autoscaled-pools": {"fast": {"labels": {}}}},
    ],
    ids=json.dumps,
)
def test_settings_as_yaml_reads_them_are_valid(settings, faults_of):
    assert faults_of({"webhook": {"settings": settings}}) == []


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("harbourmaster", ("harbourmaster", "", "")),
        ("harbourmaster:1.0", ("harbourmaster", "1.0", "")),
        ("registry.example.com:5000/a/b", ("registry.example.com:5000/a/b", "", "")),
        ("registry.example.com:5000/a:1", ("registry.example.com:5000/a", "1", "")),
        (f"example.com/a@{DIGEST}", ("example.com/a", "", DIGEST)),
        (f"example.com/a:1@{DIGEST}", ("example.com/a", "1", DIGEST)),
    ],
)
def test_an_image_reference_becomes_values(image, parts):
    assert chart.split_image(image) == parts


@pytest.mark.parametrize("image", ["", "a@sha256:1", "a@b"])
def test_an_invalid_image_reference_is_refused_in_one_line(image):
    with pytest.raises(SystemExit, match=r'^invalid image ".*": IMG: expected'):
        chart.main(VERSION, image, None)


RENDERED = frozenset(overlay for _, *pair in overlays.additions() for overlay in pair)
PAIRS = [
    pair
    for pair in itertools.combinations(sorted(overlays.nearly_all()), 2)
    # What two parts of one component do together, that component can do by itself.
    if not any(set(pair) <= overlays.with_parts(name) for name in NAMES)
]


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_condition_of_one_or_two_components_is_found_from_few_renderings(is_refused):
    selections = [overlays.with_parts(*NAMES[start : start + 5]) for start in range(len(NAMES))]
    for names in [*((name,) for name in NAMES), *PAIRS]:

        def holds(overlay, names=names):
            return (overlay >= set(names)) != is_refused

        terms = union.find_condition(frozenset(filter(holds, RENDERED)), RENDERED)
        assert [
            overlay for overlay in selections if union.holds(terms, overlay) != holds(overlay)
        ] == []


def test_what_follows_from_no_condition_is_refused_in_one_line():
    some = frozenset(overlays.nearly_all(but=name) for name in ("dashboard", "scheduler"))
    with pytest.raises(SystemExit, match=r"^no condition found: it would be wrong for "):
        union.find_condition(some, RENDERED)


def test_texts_of_other_template_languages_stay_text():
    assert union.write_lines({"legend": [(ALWAYS, "{{pod}} in harbourmaster-system")]}) == [
        'legend: "{{ "{{" }}pod}} in {{ .Release.Namespace }}"'
    ]


def test_text_that_yaml_reads_as_something_else_is_quoted():
    values = ["true", "1.0", "on", "y", "a: b", "null", True, 1, None]
    lines = union.write_lines([(ALWAYS, value) for value in values])
    assert [yaml.safe_load(line)[0] for line in lines] == values
    assert lines[3] == '- "y"'
