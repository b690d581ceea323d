"""The Dockerfile, taken apart, so that its steps can be looked at and run without an engine."""

from __future__ import annotations

import re
import shlex

from helpers.manifests import ROOT

DOCKERFILE = ROOT / "Dockerfile"
HOME = "/opt/harbourmaster"


def stages():
    """The instructions of each stage, as pairs of keyword and arguments; before the first: ''."""
    by_stage = {"": []}
    current = ""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip():
            continue
        keyword, _, rest = line.partition(" ")
        # Secrets are lent by an engine, and modes are its affair.
        rest = re.sub(r"^\s*(--(mount|chmod)=\S+\s+)+", "", rest)
        if keyword == "FROM":
            _, _, current = rest.partition(" AS ")
            current = current or "final"
            by_stage[current] = []
        by_stage[current].append((keyword, rest.strip()))
    return by_stage


def values(stage, keyword):
    """The arguments of each instruction of the kind, in order."""
    return [rest for word, rest in stages()[stage] if word == keyword]


def environment(stage):
    """The variables that ENV sets."""
    pairs = (pair for line in values(stage, "ENV") for pair in shlex.split(line))
    return dict(pair.split("=", 1) for pair in pairs)


def labels():
    """The labels of the image; build arguments stay as they are written."""
    pairs = (pair for line in values("final", "LABEL") for pair in shlex.split(line))
    return dict(pair.split("=", 1) for pair in pairs)
