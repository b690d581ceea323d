from __future__ import annotations

import re

import pytest

from helpers.manifests import ROOT

RUNTIMES = ROOT / "deploy/runtimes"
ENTRY = r"^([a-z0-9-]+)==\S+ \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+"


def instructions(name):
    text = (RUNTIMES / name / "Dockerfile").read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("name", ["deno", "python"])
def test_an_image_has_no_root_and_one_exact_base(name):
    lines = instructions(name)
    # The number is that of the setting runnerUser.
    assert "USER 1000:1000" in lines
    assert lines.index("USER 1000:1000") == len(lines) - 2
    assert lines[-1].startswith("ENTRYPOINT [")
    (base,) = (line for line in lines if line.startswith("ARG "))
    assert re.fullmatch(r"ARG [A-Z]+_IMAGE=[a-z/]+:[a-z-]*\d+\.\d+\.\d+[a-z-]*", base)


def test_what_python_functions_may_import_is_locked():
    (install,) = (line for line in instructions("python") if line.startswith("RUN "))
    assert "--require-hashes" in install
    assert "--only-binary :all:" in install
    locked = (RUNTIMES / "python/requirements.txt").read_text()
    entries = re.findall(ENTRY, locked, re.MULTILINE)
    assert {"pyyaml", "requests"} <= set(entries)
    assert len(entries) == locked.count("==")


def test_it_is_what_we_lock_ourselves():
    ours = (ROOT / "requirements-tracing.txt").read_text()
    locked = (RUNTIMES / "python/requirements.txt").read_text()
    entries = re.findall(r"^[a-z0-9-]+==\S+", locked, re.MULTILINE)
    assert len(entries) == locked.count("==")
    for entry in entries:
        assert f"{entry} \\\n" in ours
