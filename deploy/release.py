"""Packs a release: ``release.py check|reference|pack NAME=VALUE...``; ``make release`` runs it.

The values are IMG (the repository of the image), PYTHON_IMAGE (its base), PYTHON_RUNNER and
DENO_RUNNER (what runs functions), each with a digest except IMG, and BUILDER (who builds). Nothing
that is written depends on the day, the machine or the folder.
"""  # noqa: INP001 -- a script beside manifests, no package

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
from sbom import bill_of_image, image_digest, write_bill  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from collections.abc import Mapping

    Names = Mapping[str, str]

DIST: Final = Path("dist")
PINNED: Final = ("PYTHON_IMAGE", "PYTHON_RUNNER", "DENO_RUNNER")
RANGES: Final = "@API_SERVER_RANGES@"
"""Stands for the ranges of the API server in hardened.yaml. No YAML value begins with an @, so that
nothing reads the file before they are filled in."""
_DIGEST: Final = re.compile(r"[^@\s]+@sha256:[0-9a-f]{64}")
_REPOSITORY: Final = re.compile(r"[^@\s]+/[^/:@\s]+")
_HEADING: Final = re.compile(r"\[Unreleased\]|\[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)")
_LINK: Final = re.compile(r"^\[([^]]+)\]: https://\S+$", re.MULTILINE)
_COMPLETION: Final = {
    "bash": "harbourmaster.bash",
    "zsh": "_harbourmaster",
    "fish": "harbourmaster.fish",
    "kubectl": "kubectl_complete-harbourmaster",
}


def main(action: str, parameters: Names) -> None:
    """Do one step. Exits with one line where a release is refused."""
    setup = ConfigParser()
    setup.read("setup.cfg")
    version = setup["metadata"]["version"]
    image = DIST / f"harbourmaster-{version}-image.tar"
    if action == "check":
        changelog = Path("CHANGELOG.md").read_text()
        refused = image_error(parameters) or changelog_error(changelog, version)
        changed = _run("git", "status", "--porcelain").split()
        if not refused and changed:
            refused = f"uncommitted changes: {changed[1]}: commit or stash them"
        if refused:
            sys.exit(f"release refused: {refused}")
    elif action == "reference":
        print(f"{parameters['IMG']}@{image_digest(image)}")  # noqa: T201 -- it prints for make
    else:
        pack(version, setup["metadata"]["url"], image, parameters)


def image_error(parameters: Names) -> str:
    """Return the fault in the references of images, in one line; empty if there is none."""
    for name in PINNED:
        if not _DIGEST.fullmatch(parameters[name]):
            return f'image "{parameters[name]}" has no digest: {name}: give IMAGE@sha256:DIGEST'
    if not _REPOSITORY.fullmatch(parameters["IMG"]):
        expected = "expected a repository, such as registry.example.com/harbourmaster"
        return f'invalid image "{parameters["IMG"]}": IMG: {expected}'
    return ""


def changelog_error(text: str, version: str) -> str:
    """Return the fault in the changelog for this release, in one line; empty if there is none."""
    _, *sections = re.split(r"^## ", _LINK.sub("", text), flags=re.MULTILINE)
    parts = [section.partition("\n") for section in sections]
    numbers, days = [], []
    for heading, _, _ in parts:
        match = _HEADING.fullmatch(heading)
        if match is None:
            return f'invalid heading "{heading}": CHANGELOG.md: write [X.Y.Z] - YYYY-MM-DD'
        if match[1]:
            numbers.append(tuple(map(int, match[1].split("."))))
            days.append(match[2])
    unreleased, newest = [*parts, ("", "", ""), ("", "", "")][:2]
    if unreleased[0] != "[Unreleased]" or unreleased[2].strip():
        return f"[Unreleased] is not first and empty: CHANGELOG.md: move its lines to [{version}]"
    if not newest[0].startswith(f"[{version}]"):
        return f"no section: CHANGELOG.md: add ## [{version}] - YYYY-MM-DD as the newest release"
    if "\n- " not in newest[2]:
        return f"section [{version}] is empty: CHANGELOG.md: list what users notice"
    if numbers != sorted(set(numbers), reverse=True) or days != sorted(days, reverse=True):
        return "sections are not in order: CHANGELOG.md: list the newest version and date first"
    if version not in _LINK.findall(text):
        return f"no link: CHANGELOG.md: add [{version}]: https://... at the end"
    return ""


def pack(version: str, url: str, image: Path, parameters: Names) -> None:
    """Add to ``dist`` what make did not build, and print what is there."""
    commit = _run("git", "log", "-1", "--format=%H")
    reference = f"{parameters['IMG']}@{image_digest(image)}"
    shutil.copyfile("requirements.txt", DIST / f"harbourmaster-{version}-requirements.txt")
    for shell, name in _COMPLETION.items():
        text = _run(sys.executable, "-m", "harbourmaster", "completion", shell)
        (DIST / name).write_text(f"{text}\n")
    for target, base in (("install", "default"), ("hardened", "hardened")):
        (DIST / f"{target}.yaml").write_text(manifests(base, reference, parameters))
    sbom = json.loads((DIST / f"harbourmaster-{version}.cdx.json").read_text())
    bill = bill_of_image(image, reference, parameters["PYTHON_IMAGE"], sbom)
    write_bill(bill, image.with_suffix(".cdx.json"))
    digests = {path.name: _sha256(path) for path in sorted(DIST.iterdir())}
    locks = {path.name: _sha256(path) for path in sorted(Path().glob("requirements*.txt"))}
    subjects = {**digests, parameters["IMG"]: reference[-64:]}
    statement = provenance(subjects, f"git+{url}@{commit}", locks, parameters)
    name = f"harbourmaster-{version}.intoto.json"
    (DIST / name).write_text(json.dumps(statement, indent=2) + "\n")
    digests[name] = _sha256(DIST / name)
    lines = (f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
    (DIST / "SHA256SUMS").write_text("".join(lines))
    for path in sorted(DIST.iterdir()):
        path.chmod(0o755 if path.name.startswith("kubectl") else 0o644)
        print(f"{path.stat().st_size / 1e6:10.3f} MB  {path}")  # noqa: T201 -- it is for people
    print(f"{reference}: sign and publish it with dist: docs/howto/releasing.md")  # noqa: T201


def manifests(base: str, reference: str, parameters: Names) -> str:
    """Return what kustomize builds from a folder of ``deploy``, with all images by digest."""
    folder = Path("build/release", base)
    folder.mkdir(parents=True, exist_ok=True)
    source = Path("deploy", base, "kustomization.yaml").read_text()
    overlay = yaml.safe_load(source.replace("../", "../../../deploy/"))
    name, _, digest = reference.partition("@")
    overlay["images"] = [{"name": "harbourmaster", "newName": name, "digest": digest}]
    flags = {"python": parameters["PYTHON_RUNNER"], "deno": parameters["DENO_RUNNER"]}
    path = "/spec/template/spec/containers/0/args/-"
    patch = [
        {"op": "add", "path": path, "value": f"--lifecycle-{runtime}-image={image}"}
        for runtime, image in flags.items()
    ]
    target = {"kind": "Deployment", "name": "harbourmaster-controller"}
    overlay["patches"] = [{"target": target, "patch": json.dumps(patch)}]
    if base == "hardened":
        guarded = yaml.safe_load(Path("deploy/hardened/api-server.yaml").read_text())
        guarded["spec"]["ingress"] = [{"from": [{"ipBlock": {"cidr": "RANGES"}}]}]
        (folder / "api-server.yaml").write_text(yaml.safe_dump(guarded))
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    text = _run(str(Path(sys.executable).with_name("kubectl")), "kustomize", str(folder)) + "\n"
    return _require_ranges(text) if base == "hardened" else text


def _require_ranges(text: str) -> str:
    """Put what has ranges, and its namespace, into a first document that nothing can parse.

    kubectl applies the documents before one that is wrong, and those after an object that the API
    server refuses: only this way nothing is installed without ranges.
    """
    text = re.sub(r"  annotations:\n    \S+/first-range: RANGES\n", "", text)
    text = re.sub(r":\n +- ipBlock:\n +cidr: RANGES$", f": [{RANGES}]", text, flags=re.MULTILINE)
    documents = text.split("---\n")
    first = [
        document
        for document in documents
        if RANGES in document or "\nkind: Namespace\n" in document
    ]
    items = "".join(
        f"- {document.rstrip().replace(chr(10), chr(10) + '  ')}\n" for document in first
    )
    head = "# Fill in the ranges of your API server: docs/howto/installing.md\n"
    head += "apiVersion: v1\nkind: List\nitems:\n"
    return "---\n".join(
        [head + items, *(document for document in documents if document not in first)]
    )


def provenance(subjects: Names, source: str, locks: Names, parameters: Names) -> dict[str, Any]:
    """An in-toto statement with a SLSA provenance; digests are SHA-256, by name."""
    base = parameters["PYTHON_IMAGE"]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": subjects[name]}} for name in subjects],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{source.removeprefix('git+').rpartition('@')[0]}/make-release/v1",
                "externalParameters": {"source": source, **parameters},
                "resolvedDependencies": [
                    {"uri": source, "digest": {"gitCommit": source.rpartition("@")[2]}},
                    *({"name": name, "digest": {"sha256": locks[name]}} for name in locks),
                    {"uri": f"docker://{base}", "digest": {"sha256": base[-64:]}},
                ],
            },
            "runDetails": {"builder": {"id": parameters["BUILDER"]}},
        },
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _run(*command: str) -> str:
    """Return the output of a command. Exits with its last line if it fails."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if result.returncode:
        told = (result.stderr or result.stdout).strip().splitlines() or ["no message"]
        sys.exit(f"{Path(command[0]).name} failed: {told[-1]}")
    return result.stdout.rstrip("\n")


if __name__ == "__main__":
    main(sys.argv[1], dict(argument.split("=", 1) for argument in sys.argv[2:]))
