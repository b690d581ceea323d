"""The limits on sizes against the samples, and against the table of the manual."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from harbourmaster.api.sizes import LIMITS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/operations/limits.md"
ROW = re.compile(
    r"^\| `(\w+)` \| `?([\w ]+?)`? \| ([\d,]+) \w+ \| ([\d,]+|none) \| (\d*) ?\|$", re.MULTILINE
)
BY_KIND = {(kind.group, kind.kind): limits for kind, limits in LIMITS.items()}
LEAST = 10


def rows():
    """The limit, the largest sample and the factor by kind and field."""
    return {
        (kind, what): (
            int(limit.replace(",", "")),
            0 if sample == "none" else int(sample.replace(",", "")),
            int(factor or 0),
        )
        for kind, what, limit, sample, factor in ROW.findall(PAGE.read_text())
    }


def samples():
    """All samples in the repository of kinds with limits."""
    for path in sorted((ROOT / "deploy").rglob("*.yaml")):
        if "samples" in path.parts:
            yield from yaml.safe_load_all(path.read_text())
    outcomes = yaml.safe_load((ROOT / "tests/conformance/sample-outcomes.yaml").read_text())
    for sample in outcomes["samples"]:
        yield {"apiVersion": "kupid.gardener.cloud/v1alpha1", **sample}


def sizes(spec, fields):
    """The sizes of the limited fields of a spec, by their names in the table."""
    yield "spec", len(msgspec.json.encode(spec))
    stack = [("", spec)]
    while stack:
        name, value = stack.pop()
        if isinstance(value, str):
            if name in fields:
                yield name, len(value.encode())
            continue
        if not isinstance(value, dict | list):
            continue
        yield name if name in fields else "lists and maps", len(value)
        parts = value.items() if isinstance(value, dict) else ((name, item) for item in value)
        stack.extend((key if isinstance(value, dict) else "", item) for key, item in parts)


def largest():
    """The largest of all samples here, by kind and field."""
    largest = {}
    for sample in samples():
        key = str(sample["apiVersion"]).partition("/")[0], sample["kind"]
        if key in BY_KIND:
            for what, size in sizes(sample["spec"], BY_KIND[key].fields):
                at = sample["kind"], what
                largest[at] = max(size, largest.get(at, 0))
    return largest


def test_the_table_has_every_limit():
    wanted = {}
    for resource, limits in LIMITS.items():
        wanted[resource.kind, "spec"] = limits.spec
        if limits.items:
            wanted[resource.kind, "lists and maps"] = limits.items
        wanted |= {(resource.kind, name): most for name, most in limits.fields.items()}
    assert {key: limit for key, (limit, _, _) in rows().items()} == wanted


@pytest.mark.claim("O10")
def test_each_limit_is_above_ten_times_the_largest_sample():
    here = largest()
    assert {("KeptnTaskDefinition", "spec"), ("PodSchedulingPolicy", "values")} <= here.keys()
    for key, (limit, sample, factor) in rows().items():
        assert here.get(key, 0) <= sample, key
        assert not sample or limit // sample == factor > LEAST, key
