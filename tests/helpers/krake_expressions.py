"""Constraints of Krake's documents and of krake-spec 2, by what our languages make of them."""

from __future__ import annotations

from pathlib import Path

import yaml

_FILE = Path(__file__).parents[1] / "fixtures/placement/constraints.yaml"
CONSTRAINTS = yaml.safe_load(_FILE.read_text())
"""For each language the canonical spelling of valid texts, and the position of others' errors."""
VALID_LABELS, INVALID_LABELS = map(list, CONSTRAINTS["label"].values())
VALID_METRICS, INVALID_METRICS = map(list, CONSTRAINTS["metric"].values())
