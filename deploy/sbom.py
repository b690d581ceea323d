"""Writes what runs as CycloneDX JSON: ``sbom.py REQUIREMENTS OUTPUT``, in our environment.

The lock file knows the hashes, the environment the licences and who needs whom; a list that can be
used needs both. Nothing of it depends on the day or the machine.
"""  # noqa: INP001 -- a script beside manifests, no package

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from email import message_from_string
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

if TYPE_CHECKING:
    from email.message import Message

ROOT: Final = "harbourmaster"
_OPTIONS: Final = ("--output-reproducible", "--no-validate", "--output-file=-")
_LICENCES: Final = {"protobuf": "BSD-3-Clause"}
"""Of packages that state theirs in words which the tool does not know."""
_DPKG: Final = re.compile(r"var/lib/dpkg/status(?:\.d/(?!.*\.md5sums$).+)?")
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
    written(found, output)


def written(found: dict[str, Any], output: Path) -> None:
    """Write an SBOM. Exits with one line if it is not valid."""
    text = json.dumps(found, indent=2, sort_keys=True) + "\n"
    error = JsonStrictValidator(SchemaVersion.from_version(found["specVersion"])).validate_str(text)
    if error is not None:
        sys.exit(f"{output}: not written, it would not be valid: {error}")
    output.write_text(text)


def of_image(archive: Path, reference: str, base: str, found: dict[str, Any]) -> dict[str, Any]:
    """The SBOM of an OCI archive: what we install, the base image, and its packages of Debian."""
    root = found["metadata"]["component"]
    image = {"type": "container", "name": reference, "version": root["version"]}
    components = [
        {"bom-ref": base, "type": "container", "name": base},
        *(
            {
                "bom-ref": f"{package['Package']}:{package['Architecture']}",
                "type": "library",
                "name": package["Package"],
                "version": package["Version"],
                "purl": f"pkg:deb/debian/{package['Package']}@{quote(package['Version'])}"
                f"?arch={package['Architecture']}",
            }
            for package in _packages(archive)
        ),
    ]
    of_base = sorted(each["bom-ref"] for each in components[1:])
    dependencies = [
        {"ref": reference, "dependsOn": [root["bom-ref"], base]},
        {"ref": base, "dependsOn": of_base},
    ]
    return {
        **found,
        "metadata": {**found["metadata"], "component": {"bom-ref": reference, **image}},
        "components": [root, *found["components"], *components],
        "dependencies": [*dependencies, *found["dependencies"]],
    }


def _packages(archive: Path) -> list[Message]:
    """The packages of Debian in an image, as its last layers list them."""
    files: dict[str, bytes] = {}
    with tarfile.open(archive) as blobs:

        def blob(name: str) -> Any:  # noqa: ANN401 -- a file, unless the archive is broken
            return blobs.extractfile(name)

        (manifest,) = json.load(blob("index.json"))["manifests"]
        for layer in json.load(blob(_path(manifest)))["layers"]:
            with tarfile.open(fileobj=blob(_path(layer))) as content:
                for each in content:
                    name = each.name.removeprefix("./")
                    if _DPKG.fullmatch(name) and each.isfile():
                        files[name] = content.extractfile(each).read()  # type: ignore[union-attr]
    texts = "\n\n".join(files[name].decode() for name in sorted(files)).split("\n\n")
    found = [message_from_string(text.strip()) for text in texts if text.strip()]
    return sorted(found, key=lambda each: (each["Package"], each["Architecture"]))


def _path(descriptor: dict[str, str]) -> str:
    return f"blobs/{descriptor['digest'].replace(':', '/')}"


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
