"""Tests of the known keys, and of the key that a mistyped one was meant to be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harbourmaster.gates.known_keys import (
    KNOWN_KEYS,
    MAX_MEANT,
    PREFIXES,
    WRITTEN_KEYS,
    mistaken_opt_in,
    similar_key,
    unknown_keys,
)
from harbourmaster.gates.metadata import OPT_IN_KEY
from harbourmaster.gates.mistakes import key_mistakes

ROOT = Path(__file__).parents[3]
SOURCES = [
    path
    for folder in ROOT.iterdir()
    if folder.is_dir() and folder.name not in {"tests", "build"} and folder.name[0] != "."
    for path in folder.rglob("*")
    if path.suffix in {".py", ".yaml"}
]
KEY = re.compile(r"(?<![\w.-])((?:gates\.harbourmaster\.dev|keptn\.sh)/[a-z-]*[a-z])(?![\w*…-])")
COMPOSED = re.compile(r"\{OURS\}([a-z-]+)")


def test_every_key_in_our_sources_is_known():
    texts = [path.read_text() for path in SOURCES]
    used_keys = {key for text in texts for key in KEY.findall(text)}
    used_keys |= {f"gates.harbourmaster.dev/{name}" for t in texts for name in COMPOSED.findall(t)}
    assert len(used_keys) > 15
    assert used_keys <= KNOWN_KEYS, used_keys - KNOWN_KEYS


def test_keys_of_others_are_nobody_s_business():
    others = ["app.kubernetes.io/name", "example.com/keptn.sh", "keptn.sh", "metrics.keptn.sh/x"]
    assert unknown_keys([*others, *KNOWN_KEYS]) == []


def test_unknown_keys_stay_in_order():
    keys = ["keptn.sh/b", "example.com/x", "gates.harbourmaster.dev/a", "keptn.sh/"]
    assert unknown_keys(keys) == ["keptn.sh/b", "gates.harbourmaster.dev/a", "keptn.sh/"]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("keptn.sh/pre-deployment-task", "keptn.sh/pre-deployment-tasks"),
        ("keptn.sh/post-deployment-evaluation", "keptn.sh/post-deployment-evaluations"),
        ("keptn.sh/preDeploymentTasks", "keptn.sh/pre-deployment-tasks"),
        ("keptn.sh/worklod", "keptn.sh/workload"),
        ("keptn.sh/Version", "keptn.sh/version"),
        ("gates.harbourmaster.dev/pre-deployment-tasks", "keptn.sh/pre-deployment-tasks"),
        ("keptn.sh/stage", "gates.harbourmaster.dev/stages"),
        ("gates.harbourmaster.dev/stage-analyses", "gates.harbourmaster.dev/stage-analysis"),
        ("gates.harbourmaster.dev/stagePause", "gates.harbourmaster.dev/stage-pause"),
        ("keptn.sh/colour", ""),
        ("keptn.sh/", ""),
        ("keptn.sh/" + "workload" * 9, ""),
    ],
)
def test_a_near_key_is_proposed(key, expected):
    assert similar_key(key) == expected


def test_only_keys_that_people_write_are_proposed():
    assert similar_key("gates.harbourmaster.dev/parents") == ""
    assert OPT_IN_KEY not in WRITTEN_KEYS
    assert WRITTEN_KEYS < KNOWN_KEYS
    assert max(map(len, WRITTEN_KEYS)) < MAX_MEANT
    assert all(key.startswith(PREFIXES) for key in KNOWN_KEYS)


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, {}),
        ({OPT_IN_KEY: "enabled"}, {}),
        ({OPT_IN_KEY: "disabled"}, {}),
        ({OPT_IN_KEY: "False"}, {}),
        ({OPT_IN_KEY: "true"}, {OPT_IN_KEY: "true"}),
        ({OPT_IN_KEY: "Enabled"}, {OPT_IN_KEY: "Enabled"}),
        ({OPT_IN_KEY: ""}, {OPT_IN_KEY: ""}),
        ({"keptn.sh/lifecyle-toolkit": "enabled"}, {"keptn.sh/lifecyle-toolkit": ""}),
        ({"keptn.sh/lifecyle-toolkit": "enabled", OPT_IN_KEY: "enabled"}, {}),
        ({"keptn.sh/lifecyle-toolkit": "disabled"}, {}),
        ({"keptn.sh/workload": "cart", "example.com/lifecycle-toolkit": "enabled"}, {}),
    ],
)
def test_another_value_or_name_of_the_opt_in_is_a_mistake(annotations, expected):
    assert mistaken_opt_in(annotations) == expected


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("10m", ""),
        ("1h30m", ""),
        ("soon", '"soon" is not a duration: write for example 30s, 5m or 1h30m'),
        ("-5m", '"-5m" is not above zero'),
    ],
)
def test_a_time_out_of_the_deployment_is_a_duration(text, fault):
    key = "gates.harbourmaster.dev/deployment-timeout"
    expected = f"metadata.annotations[{key}]: {fault}; that of the KeptnConfig counts"
    texts = [mistake.text for mistake in key_mistakes({key: text}, {})]
    assert texts == ([expected] if fault else [])
