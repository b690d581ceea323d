"""A namespace whose opt-in has no effect causes a warning, on the real API server: D19, D21."""

from __future__ import annotations

import json

import pytest

from harbourmaster.gates.mistakes import opt_in_mistakes

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

KEY = "keptn.sh/lifecycle-toolkit"
CASES = {
    "none": ({}, {}),
    "enabled": ({KEY: "enabled"}, {}),
    "disabled": ({KEY: "disabled"}, {}),
    "False": ({KEY: "False"}, {}),
    "true": ({KEY: "true"}, {}),
    "Enabled": ({KEY: "Enabled"}, {}),
    "empty": ({KEY: ""}, {}),
    "label": ({}, {KEY: "enabled"}),
    "label true": ({}, {KEY: "true"}),
    "label off": ({}, {KEY: "false"}),
    "both": ({KEY: "enabled"}, {KEY: "enabled"}),
    "misspelt": ({"keptn.sh/lifecyle-toolkit": "enabled"}, {}),
    "misspelt off": ({"keptn.sh/lifecyle-toolkit": "disabled"}, {}),
    "misspelt beside": ({"keptn.sh/lifecyle-toolkit": "enabled", KEY: "enabled"}, {}),
    "other key": ({"keptn.sh/app": "shop", "example.com/lifecycle-toolkit": "enabled"}, {}),
    "large": ({KEY: "x" * 100_000}, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_policy_warns_where_our_own_rules_find_a_mistake(harbour, case):
    annotations, labels = CASES[case]
    metadata = {"name": "asked", "annotations": annotations, "labels": labels}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    result = harbour.plane.kubectl("create", "--dry-run=server", "-f=-", stdin=json.dumps(manifest))
    warnings = [line for line in result.stderr.splitlines() if "harbourmaster:" in line]
    expected = opt_in_mistakes("asked", annotations, labels)
    assert len(warnings) == len(expected), result.stderr
    for text, mistake in zip(warnings, expected, strict=True):
        # The next step is the same.
        assert text.endswith(mistake.text.rpartition(": ")[2])
