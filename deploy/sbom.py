"""Writes what runs as CycloneDX JSON: ``sbom.py REQUIREMENTS OUTPUT``, in our environment.

The lock file knows the hashes, the environment the licences and who needs whom; a list that can be
used needs both. Nothing of it depends on the day or the machine.
"""  # noqa: INP001 -- a script beside manifests, no package

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT: Final = "harbourmaster"
_OPTIONS: Final = ("--output-reproducible", "--no-validate", "--output-file=-")
_LICENCES: Final = {"protobuf": "BSD-3-Clause"}
"""Of packages that state theirs in words which the tool does not know."""
_TOOL: Final = Path(sys.executable).with_name("cyclonedx-py")


def main(requirements: str, output: Path) -> None:
    """Write ``output``. Exits with one line where the environment is not that of the lock file."""
    locked = _listed("requirements", requirements)
    found = _listed("environment", sys.prefix)
    components = {each.get("purl"): each for each in found["components"]}
    missing = [each["name"] for each in locked["components"] if each["purl"] not in components]
    if missing:
        sys.exit(f"{requirements}: not installed here as locked: {', '.join(missing)}: make venv")
    root = next(each for each in found["components"] if each["name"] == ROOT)
    root["type"] = "application"
    # Where it was installed from is this machine's affair.
    root.pop("externalReferences", None)
    found["metadata"]["component"] = root
    found["components"] = [_merged(components[each["purl"]], each) for each in locked["components"]]
    kept = {each["bom-ref"] for each in (root, *found["components"])}
    found["dependencies"] = [
        {**each, "dependsOn": [name for name in each.get("dependsOn", ()) if name in kept]}
        for each in found["dependencies"]
        if each["ref"] in kept
    ]
    text = json.dumps(found, indent=2, sort_keys=True) + "\n"
    error = JsonStrictValidator(SchemaVersion.from_version(found["specVersion"])).validate_str(text)
    if error is not None:
        sys.exit(f"{output}: not written, it would not be valid: {error}")
    output.write_text(text)


def _listed(kind: str, source: str) -> dict[str, Any]:
    command = [str(_TOOL), kind, *_OPTIONS, source]
    listed: dict[str, Any] = json.loads(
        subprocess.run(command, check=True, capture_output=True).stdout  # noqa: S603 -- our own tool
    )
    return listed


def _merged(installed: dict[str, Any], locked: dict[str, Any]) -> dict[str, Any]:
    """The installed component, with the lock file's hashes of its archives."""
    references = [*installed.get("externalReferences", ()), *locked["externalReferences"]]
    merged = {**installed, "externalReferences": references}
    stated = _LICENCES.get(merged["name"])
    if stated is not None:
        merged.setdefault("licenses", [{"license": {"id": stated}}])
    return merged


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
