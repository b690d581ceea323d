"""The columns that ``kubectl get`` shows of each kind, on a real API server."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from harbourmaster.playground.control_plane import ControlPlane
from helpers.schemas import CRDS, apply_definitions

FIXTURES = Path(__file__).parents[1] / "fixtures"
OBJECTS = yaml.safe_load((FIXTURES / "columns.yaml").read_text())
EXPECTED = (FIXTURES / "columns.txt").read_text()
TIMES = {"AGE", "UPDATED", "MOVED"}
# Keptn's own columns leave no room, and an error is the last column of a metric.
WIDER = {"KeptnEvaluation", "KeptnTask", "KeptnMetric"}


def one_kind(obj):
    return f"{obj['kind'].lower()}.{obj['apiVersion'].partition('/')[0]}"


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory):
    with ControlPlane(tmp_path_factory.mktemp("columns"), optional=()) as plane:
        apply_definitions(plane.kubectl)
        for obj in OBJECTS:
            plane.kubectl("create", "-f=-", stdin=json.dumps(obj))
            if "status" in obj:
                patch = json.dumps({"status": obj["status"]})
                name = obj["metadata"]["name"]
                flags = ("--subresource=status", "--type=merge", f"--patch={patch}")
                plane.kubectl("patch", one_kind(obj), name, *flags)
        yield plane.kubectl


def read_cells(output):
    """The cells of each line, with ``TIME`` for what changes by itself."""
    header, *lines = output.splitlines()
    spans = [(match[0].rstrip(), *match.span()) for match in re.finditer(r"\S+( \S+)* *", header)]
    text = " | ".join(name for name, _, _ in spans) + "\n"
    for line in lines:
        cells = {name: line[start:end].strip() for name, start, end in spans[:-1]}
        cells[spans[-1][0]] = line[spans[-1][1] :].strip()
        text += " | ".join("TIME" if name in TIMES else cells[name] for name in cells).rstrip()
        text += "\n"
    return text


def test_kubectl_get_shows_the_columns_of_each_kind(kubectl):
    blocks = []
    for obj in OBJECTS:
        narrow, wide = (
            read_cells(kubectl("get", one_kind(obj), *flags).stdout)
            for flags in ((), ("--output=wide",))
        )
        blocks.append(f"$ kubectl get {obj['kind']}\n{narrow}")
        if wide != narrow:
            blocks.append(f"$ kubectl get {obj['kind']} --output=wide\n{wide}")
    assert "\n".join(blocks) == EXPECTED


def test_a_table_fits_in_120_columns(kubectl):
    tables = {
        obj["kind"]: kubectl("get", one_kind(obj)).stdout
        for obj in OBJECTS
        if obj["kind"] not in WIDER
    }
    widths = {kind: max(map(len, text.splitlines())) for kind, text in tables.items()}
    assert {kind: width for kind, width in widths.items() if width > 120} == {}


def test_the_category_names_every_kind(kubectl):
    result = kubectl("get", "harbourmaster", "--output=name").stdout.split()
    assert sorted(result) == sorted(f"{one_kind(obj)}/{obj['metadata']['name']}" for obj in OBJECTS)
    assert len(OBJECTS) == len(list(CRDS.glob("*.yaml"))) - 1
