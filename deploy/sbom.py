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
from typing import Any, Final
from urllib.parse import quote

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
    root = next(component for component in found["components"] if component["name"] == ROOT)
    root["type"] = "application"
    # Where it was installed from is this machine's affair.
    root.pop("externalReferences", None)
    found["metadata"]["component"] = root
    found["components"] = [_merged(components[each["purl"]], each) for each in locked["components"]]
    kept = {each["bom-ref"] for each in (root, *found["components"])}
    found["dependencies"] = [
        {
            **dependency,
            "dependsOn": [name for name in dependency.get("dependsOn", ()) if name in kept],
        }
        for dependency in found["dependencies"]
        if dependency["ref"] in kept
    ]
    written(found, output)


def written(found: dict[str, Any], output: Path) -> None:
    """Write an SBOM. Exits with one line if it is not valid."""
    # Takes a second or more, which not every step of a release needs.
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    text = json.dumps(found, indent=2, sort_keys=True) + "\n"
    error = JsonStrictValidator(SchemaVersion.from_version(found["specVersion"])).validate_str(text)
    if error is not None:
        sys.exit(f"{output}: not written, it would not be valid: {error}")
    output.write_text(text)


def of_image(archive: Path, reference: str, base: str, found: dict[str, Any]) -> dict[str, Any]:
    """The SBOM of an OCI archive: what we install, the base image, and its packages of Debian."""
    root = found["metadata"]["component"]
    image = {"type": "container", "bom-ref": reference, "name": reference}
    packages = _packages(archive)
    names = [package["bom-ref"] for package in packages]
    return {
        **found,
        "metadata": {**found["metadata"], "component": image},
        "components": [
            root,
            *found["components"],
            {"type": "container", "bom-ref": base, "name": base},
            *packages,
        ],
        "dependencies": [
            {"ref": reference, "dependsOn": [root["bom-ref"], base]},
            {"ref": base, "dependsOn": names},
            *found["dependencies"],
        ],
    }


def image_digest(archive: Path) -> str:
    """The digest of the one manifest in an OCI archive, by which registries know the image."""
    with tarfile.open(archive) as blobs:
        (manifest,) = _json(blobs, "index.json")["manifests"]
        return str(manifest["digest"])


def _packages(archive: Path) -> list[dict[str, str]]:
    """The packages of Debian in an image, as its last layers list them."""
    files: dict[str, str] = {}
    with tarfile.open(archive) as blobs:
        for layer in _json(blobs, _blob(image_digest(archive)))["layers"]:
            with tarfile.open(fileobj=blobs.extractfile(_blob(layer["digest"]))) as content:
                for each in content:
                    name = each.name.removeprefix("./")
                    if _DPKG.fullmatch(name) and each.isfile():
                        files[name] = content.extractfile(each).read().decode()  # type: ignore[union-attr]
    texts = "\n\n".join(files.values()).split("\n\n")
    found = (_package(text.strip()) for text in texts if text.strip())
    return sorted(found, key=lambda each: each["purl"])


def _package(text: str) -> dict[str, str]:
    said = message_from_string(text)
    name, version = said["Package"], said["Version"]
    purl = f"pkg:deb/debian/{name}@{quote(version)}?arch={said['Architecture']}"
    return {"type": "library", "bom-ref": purl, "purl": purl, "name": name, "version": version}


def _json(blobs: tarfile.TarFile, name: str) -> Any:  # noqa: ANN401 -- as json.load
    return json.load(blobs.extractfile(name))  # type: ignore[arg-type]


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


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
