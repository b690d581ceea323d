"""Writes the installed packages as CycloneDX JSON: ``sbom.py REQUIREMENTS OUTPUT``.

The lock file has the hashes, the environment has licences and dependencies; the bill has both. It
does not depend on the day or the machine.
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
"""The licences of packages that state theirs in words which the tool does not know."""
_DPKG: Final = re.compile(r"var/lib/dpkg/status(?:\.d/(?!.*\.md5sums$).+)?")
_TOOL: Final = Path(sys.executable).with_name("cyclonedx-py")


def main(requirements: str, output: Path) -> None:
    """Write ``output``. Exits with one line if the environment differs from the lock file."""
    locked = _list_components("requirements", requirements)
    bill = _list_components("environment", sys.prefix)
    components = {component.get("purl"): component for component in bill["components"]}
    missing = [
        component["name"]
        for component in locked["components"]
        if component["purl"] not in components
    ]
    if missing:
        sys.exit(f"{requirements}: not installed here as locked: {', '.join(missing)}: make venv")
    root = next(component for component in bill["components"] if component["name"] == ROOT)
    root["type"] = "application"
    # Its origin is a path of this machine.
    root.pop("externalReferences", None)
    bill["metadata"]["component"] = root
    bill["components"] = [
        _merge(components[component["purl"]], component) for component in locked["components"]
    ]
    kept = {component["bom-ref"] for component in (root, *bill["components"])}
    bill["dependencies"] = [
        {
            **dependency,
            "dependsOn": [name for name in dependency.get("dependsOn", ()) if name in kept],
        }
        for dependency in bill["dependencies"]
        if dependency["ref"] in kept
    ]
    write_bill(bill, output)


def write_bill(bill: dict[str, Any], output: Path) -> None:
    """Write an SBOM. Exits with one line if it is not valid."""
    # Takes a second or more, which not every step of a release needs.
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    text = json.dumps(bill, indent=2, sort_keys=True) + "\n"
    error = JsonStrictValidator(SchemaVersion.from_version(bill["specVersion"])).validate_str(text)
    if error is not None:
        sys.exit(f"{output}: not written, it would not be valid: {error}")
    output.write_text(text)


def bill_of_image(archive: Path, reference: str, base: str, bill: dict[str, Any]) -> dict[str, Any]:
    """Return the SBOM of an OCI archive: our packages, the base image, and its Debian packages."""
    root = bill["metadata"]["component"]
    image = {"type": "container", "bom-ref": reference, "name": reference}
    packages = _packages(archive)
    names = [package["bom-ref"] for package in packages]
    return {
        **bill,
        "metadata": {**bill["metadata"], "component": image},
        "components": [
            root,
            *bill["components"],
            {"type": "container", "bom-ref": base, "name": base},
            *packages,
        ],
        "dependencies": [
            {"ref": reference, "dependsOn": [root["bom-ref"], base]},
            {"ref": base, "dependsOn": names},
            *bill["dependencies"],
        ],
    }


def image_digest(archive: Path) -> str:
    """Return the digest of the only manifest in an OCI archive, which identifies the image."""
    with tarfile.open(archive) as blobs:
        (manifest,) = _json(blobs, "index.json")["manifests"]
        return str(manifest["digest"])


def _packages(archive: Path) -> list[dict[str, str]]:
    """Return the Debian packages of an image, as listed in its last layers."""
    files: dict[tuple[int, str], str] = {}
    with tarfile.open(archive) as blobs:
        for platform, manifest in enumerate(_manifests(blobs, image_digest(archive))):
            for layer in manifest["layers"]:
                with tarfile.open(fileobj=blobs.extractfile(_blob(layer["digest"]))) as content:
                    for member in content:
                        name = member.name.removeprefix("./")
                        if _DPKG.fullmatch(name) and member.isfile():
                            text = content.extractfile(member).read().decode()  # type: ignore[union-attr]
                            files[platform, name] = text
    texts = "\n\n".join(files.values()).split("\n\n")
    packages = [_package(text.strip()) for text in texts if text.strip()]
    # Packages of all architectures are in the image of each platform.
    by_purl = {package["purl"]: package for package in packages}
    return [by_purl[purl] for purl in sorted(by_purl)]


def _manifests(blobs: tarfile.TarFile, digest: str) -> list[Any]:
    """Return the manifest of each platform."""
    content = _json(blobs, _blob(digest))
    if "manifests" not in content:
        return [content]
    return [_json(blobs, _blob(manifest["digest"])) for manifest in content["manifests"]]


def _package(text: str) -> dict[str, str]:
    fields = message_from_string(text)
    name, version = fields["Package"], fields["Version"]
    purl = f"pkg:deb/debian/{name}@{quote(version)}?arch={fields['Architecture']}"
    return {"type": "library", "bom-ref": purl, "purl": purl, "name": name, "version": version}


def _json(blobs: tarfile.TarFile, name: str) -> Any:  # noqa: ANN401 -- as json.load
    return json.load(blobs.extractfile(name))  # type: ignore[arg-type]


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _list_components(kind: str, source: str) -> dict[str, Any]:
    command = [str(_TOOL), kind, *_OPTIONS, source]
    listed: dict[str, Any] = json.loads(
        subprocess.run(command, check=True, capture_output=True).stdout  # noqa: S603 -- our own tool
    )
    return listed


def _merge(installed: dict[str, Any], locked: dict[str, Any]) -> dict[str, Any]:
    """Return the installed component, with the hashes of the lock file."""
    references = [*installed.get("externalReferences", ()), *locked["externalReferences"]]
    merged = {**installed, "externalReferences": references}
    stated = _LICENCES.get(merged["name"])
    if stated is not None:
        merged.setdefault("licenses", [{"license": {"id": stated}}])
    return merged


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
