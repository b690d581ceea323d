from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from helpers.manifests import ROOT, VERSION

REQUIREMENTS = ROOT / "requirements-tracing.txt"


@pytest.fixture(scope="module")
def sbom(tmp_path_factory):
    output = tmp_path_factory.mktemp("sbom") / "sbom.json"
    subprocess.run([sys.executable, ROOT / "deploy/sbom.py", REQUIREMENTS, output], check=True)
    return json.loads(output.read_text())


def locked_packages():
    """Name, version and hashes of each package in the lock file."""
    text = REQUIREMENTS.read_text().replace("\\\n", " ")
    for name, version, rest in re.findall(r"^(\S+)==(\S+)(.*)$", text, re.MULTILINE):
        yield name, version, set(re.findall(r"--hash=sha256:(\w{64})", rest))


def test_every_locked_package_is_listed_with_its_version_and_hashes(sbom):
    listed = {}
    for component in sbom["components"]:
        hashes = {
            digest["content"]
            for reference in component["externalReferences"]
            for digest in reference.get("hashes", ())
            if digest["alg"] == "SHA-256"
        }
        name = re.sub("[-_.]+", "-", component["name"]).lower()
        listed[name] = (component["version"], hashes)
    expected = {name: (version, hashes) for name, version, hashes in locked_packages()}
    assert len(expected) > 20
    assert all(hashes for _, hashes in expected.values())
    assert listed == expected


def test_every_package_has_a_licence(sbom):
    assert len(sbom["components"]) == len(list(locked_packages()))
    for component in sbom["components"]:
        assert component["licenses"], component["name"]


def test_the_list_is_of_this_version_and_says_who_needs_whom(sbom):
    assert sbom["bomFormat"] == "CycloneDX"
    root = sbom["metadata"]["component"]
    assert (root["name"], root["version"], root["type"]) == (
        "harbourmaster",
        VERSION,
        "application",
    )
    needs = {dependency["ref"]: set(dependency["dependsOn"]) for dependency in sbom["dependencies"]}
    references = {component["bom-ref"] for component in sbom["components"]}
    assert set().union(*needs.values()) <= references
    reached, waiting = set(), {root["bom-ref"]}
    while waiting:
        reached |= (name := {waiting.pop()})
        waiting |= needs[name.pop()] - reached
    assert reached - {root["bom-ref"]} == references


def test_the_list_tells_nothing_of_the_machine_or_the_day(sbom):
    text = json.dumps(sbom)
    assert "file:" not in text
    assert str(ROOT) not in text
    assert "serialNumber" not in sbom
    assert "timestamp" not in sbom["metadata"]


def test_an_environment_of_other_versions_is_refused(tmp_path):
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"yarl==0.1 --hash=sha256:{'0' * 64}\n")
    result = subprocess.run(
        [sys.executable, ROOT / "deploy/sbom.py", requirements, tmp_path / "sbom.json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert result.stderr == f"{requirements}: not installed here as locked: yarl: make venv\n"
    assert not (tmp_path / "sbom.json").exists()
