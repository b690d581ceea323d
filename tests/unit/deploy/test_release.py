"""The refusals of ``make release``, and the content of the files that it adds."""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile

import pytest
import release
import sbom
import yaml

from harbourmaster.controller.settings import ControllerSettings
from helpers.manifests import (
    ROOT,
    VERSION,
    container,
    controller_settings,
    deploy_without_schemas,
    hardened_overlay,
    objects_of,
    of_kind,
    parse,
)
from helpers.stubs import write_program

DIGEST = f"sha256:{'0123456789abcdef' * 4}"
IMAGE = "registry.example.com/harbourmaster"
PARAMETERS = {
    "IMG": IMAGE,
    "PYTHON_IMAGE": f"registry.example.com/python:3.13@{DIGEST}",
    "PYTHON_RUNNER": f"registry.example.com/python-runtime@{DIGEST}",
    "DENO_RUNNER": f"registry.example.com/deno-runtime@{DIGEST}",
    "BUILDER": "https://ci.example.com/builders/1",
}
CHANGELOG = """\
# Changelog

## [Unreleased]

## [1.10.0] - 2026-03-01

### Added

- A line.

## [1.9.0] - 2026-02-28

- Another one.

[1.10.0]: https://example.com/1.10.0
[1.9.0]: https://example.com/1.9.0
"""


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        ("[1.10.0] - 2026-03-01", "[1.11.0] - 2026-03-01", "no section: "),
        ("[1.10.0] - 2026-03-01", "1.10.0 - 2026-03-01", 'invalid heading "1.10.0 - 2026-03-01": '),
        ("[1.10.0] - 2026-03-01", "[1.10.0]", 'invalid heading "[1.10.0]": '),
        ("[Unreleased]", "[Unreleased] - 2026-03-02", "invalid heading "),
        ("[Unreleased]\n", "[Unreleased]\n\n- Not yet.\n", "[Unreleased] is not first and empty: "),
        ("## [Unreleased]\n\n", "", "[Unreleased] is not first and empty: "),
        ("- A line.\n", "", "section [1.10.0] is empty: "),
        ("[1.9.0] - 2026-02-28", "[1.9.0] - 2026-03-02", "sections are not in order: "),
        ("[1.9.0] - 2026-02-28", "[1.11.0] - 2026-02-28", "sections are not in order: "),
        ("[1.9.0] - 2026-02-28", "[1.10.0] - 2026-02-28", "sections are not in order: "),
        ("[1.10.0]: https", "[1.10.1]: https", "no link: "),
    ],
)
def test_any_other_changelog_is_refused_in_one_line(old, new, refused):
    assert old in CHANGELOG
    told = release.changelog_error(CHANGELOG.replace(old, new, 1), "1.10.0")
    assert told.startswith(refused)
    assert "CHANGELOG.md: " in told
    assert "\n" not in told


def test_the_changelog_of_the_project_is_in_order():
    text = (ROOT / "CHANGELOG.md").read_text()
    text = re.sub(
        r"(?<=## \[Unreleased\]\n).*?(?=^## \[\d)", "", text, flags=re.MULTILINE | re.DOTALL
    )
    newest = re.search(r"## \[(\d.+?)\]", text)[1]
    assert release.changelog_error(text, newest) == ""


@pytest.mark.parametrize("name", release.PINNED)
@pytest.mark.parametrize("image", ["", "python:3", "python@sha256:12", f"python@{DIGEST}\nx"])
def test_an_image_without_a_digest_is_refused(name, image):
    expected = f'image "{image}" has no digest: {name}: give IMAGE@sha256:DIGEST'
    assert release.image_error({**PARAMETERS, name: image}) == expected


@pytest.mark.parametrize("image", ["harbourmaster", f"{IMAGE}:1", f"{IMAGE}@{DIGEST}", ""])
def test_the_new_image_is_named_by_its_repository_alone(image):
    told = release.image_error({**PARAMETERS, "IMG": image})
    assert told.startswith(f'invalid image "{image}": IMG: expected a repository')


@pytest.fixture
def checkout(tmp_path):
    """A repository with what ``check`` reads, and ``check(**parameters)`` in it."""
    shutil.copy(ROOT / "setup.cfg", tmp_path)
    changelog = CHANGELOG.replace("1.10.0", VERSION).replace("1.9.0", "0.0.1")
    (tmp_path / "CHANGELOG.md").write_text(changelog)
    for command in ("init --quiet", "add --all", "commit --quiet --message=all"):
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", *identity, *command.split()], cwd=tmp_path, check=True)

    def check(**parameters):
        given = (f"{key}={value}" for key, value in {**PARAMETERS, **parameters}.items())
        command = [sys.executable, ROOT / "deploy/release.py", "check", *given]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return check


def test_only_a_commit_is_released(checkout, tmp_path):
    accepted = checkout()
    assert (accepted.returncode, accepted.stdout, accepted.stderr) == (0, "", "")
    (tmp_path / "notes").touch()
    refused = checkout()
    assert refused.returncode == 1
    assert refused.stderr == "release refused: uncommitted changes: notes: commit or stash them\n"


def test_a_refusal_is_one_line(checkout):
    refused = checkout(DENO_RUNNER="deno")
    assert refused.returncode == 1
    assert refused.stderr == (
        'release refused: image "deno" has no digest: DENO_RUNNER: give IMAGE@sha256:DIGEST\n'
    )


def pack_tar(files):
    """A tar archive of the files."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return content.getvalue()


def status(name, version):
    return f"Package: {name}\nArchitecture: amd64\nVersion: {version}\n"


@pytest.fixture
def archive(tmp_path):
    """An OCI archive of two layers, with packages of Debian as dpkg and as a stand-in list them."""
    layers = [
        pack_tar(
            {
                "var/lib/dpkg/status": f"{status('libc6', '1')}\n{status('zlib1g', '2')}".encode(),
                "var/lib/dpkg/status-old": status("removed", "1").encode(),
            }
        ),
        pack_tar(
            {"./var/lib/dpkg/status.d/base-files": status("base-files", "1:2+deb12u1").encode()}
        ),
    ]
    manifest = {"layers": [{"digest": f"sha256:layer{number}"} for number in range(2)]}
    files = {
        f"blobs/sha256/layer{number}": gzip.compress(layer) for number, layer in enumerate(layers)
    }
    files["blobs/" + DIGEST.replace(":", "/")] = json.dumps(manifest).encode()
    files["index.json"] = json.dumps({"manifests": [{"digest": DIGEST}]}).encode()
    path = tmp_path / "image.tar"
    path.write_bytes(pack_tar(files))
    return path


def test_the_image_is_known_by_the_digest_of_its_manifest(archive):
    assert release.image_digest(archive) == DIGEST


def test_the_packages_of_each_platform_are_listed_once(tmp_path):
    both, own = status("base-files", "1").encode(), status("libc6", "2").encode()
    layers = {"a": {"./var/lib/dpkg/status.d/base-files": both}}
    layers["b"] = {**layers["a"], "./var/lib/dpkg/status.d/libc6": own}
    files = {f"blobs/sha256/{name}": pack_tar(content) for name, content in layers.items()}
    for name in layers:
        manifest = {"layers": [{"digest": f"sha256:{name}"}]}
        files[f"blobs/sha256/manifest-{name}"] = json.dumps(manifest).encode()
    platforms = {"manifests": [{"digest": f"sha256:manifest-{name}"} for name in layers]}
    files["blobs/" + DIGEST.replace(":", "/")] = json.dumps(platforms).encode()
    files["index.json"] = json.dumps({"manifests": [{"digest": DIGEST}]}).encode()
    path = tmp_path / "image.tar"
    path.write_bytes(pack_tar(files))
    assert release.image_digest(path) == DIGEST
    root = {"metadata": {"component": {"bom-ref": "a"}}, "components": [], "dependencies": []}
    bill = sbom.bill_of_image(path, IMAGE, "base", root)
    names = [component["name"] for component in bill["components"][2:]]
    assert names == ["base-files", "libc6"]


@pytest.mark.slow
def test_the_sbom_of_the_image_has_the_packages_of_its_base(archive, tmp_path):
    ours = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "metadata": {
            "component": {"bom-ref": "a", "type": "application", "name": "a", "version": "1"}
        },
        "components": [{"bom-ref": "b", "type": "library", "name": "b"}],
        "dependencies": [{"ref": "a", "dependsOn": ["b"]}],
    }
    base = PARAMETERS["PYTHON_IMAGE"]
    bill = sbom.bill_of_image(archive, f"{IMAGE}@{DIGEST}", base, ours)
    # It is valid, or this exits.
    sbom.write_bill(bill, tmp_path / "image.cdx.json")
    assert bill["metadata"]["component"]["name"] == f"{IMAGE}@{DIGEST}"
    packages = {component["name"]: component.get("purl") for component in bill["components"]}
    assert packages == {
        "a": None,
        "b": None,
        base: None,
        "base-files": "pkg:deb/debian/base-files@1%3A2%2Bdeb12u1?arch=amd64",
        "libc6": "pkg:deb/debian/libc6@1?arch=amd64",
        "zlib1g": "pkg:deb/debian/zlib1g@2?arch=amd64",
    }
    needs = {dependency["ref"]: dependency["dependsOn"] for dependency in bill["dependencies"]}
    assert needs[f"{IMAGE}@{DIGEST}"] == ["a", base]
    assert needs[base] == [purl for purl in packages.values() if purl]


def test_the_provenance_is_a_statement_about_every_file():
    source = f"git+https://example.com/harbourmaster@{'1' * 40}"
    files = {"a.whl": "2" * 64, IMAGE: DIGEST[7:]}
    statement = release.provenance(files, source, {"requirements.txt": "3" * 64}, PARAMETERS)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert {
        subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]
    } == files
    definition = statement["predicate"]["buildDefinition"]
    assert definition["buildType"].startswith("https://example.com/harbourmaster/")
    assert definition["externalParameters"] == {"source": source, **PARAMETERS}
    used = {
        dependency.get("uri") or dependency["name"]: dependency["digest"]
        for dependency in definition["resolvedDependencies"]
    }
    assert used == {
        source: {"gitCommit": "1" * 40},
        "requirements.txt": {"sha256": "3" * 64},
        f"docker://{PARAMETERS['PYTHON_IMAGE']}": {"sha256": DIGEST[7:]},
    }
    assert statement["predicate"]["runDetails"] == {"builder": {"id": PARAMETERS["BUILDER"]}}


@pytest.fixture(scope="module")
def manifests(tmp_path_factory):
    """Return ``manifests(base)``, the file of a release, rendered in a folder beside deploy."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "deploy").symlink_to(ROOT / "deploy")

    def manifests(base):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            return release.manifests(base, f"{IMAGE}@{DIGEST}", PARAMETERS)

    return manifests


def references(manifests):
    return {container(deployment)["image"] for deployment in of_kind(manifests, "Deployment")}


@pytest.mark.slow
def test_every_image_of_the_manifests_has_a_digest(manifests):
    rendered_objects = list(parse(manifests("default")))
    assert references(rendered_objects) == {f"{IMAGE}@{DIGEST}"}
    lifecycle = controller_settings(rendered_objects).lifecycle
    assert lifecycle.python_image == PARAMETERS["PYTHON_RUNNER"]
    assert lifecycle.deno_image == PARAMETERS["DENO_RUNNER"]
    images = [
        name for name in vars(type(ControllerSettings().lifecycle)) if name.endswith("_image")
    ]
    assert sorted(images) == ["deno_image", "python_image"]


@pytest.fixture(scope="module")
def hardened_text(manifests):
    return manifests("hardened")


@pytest.mark.slow
def test_the_hardened_manifests_are_refused_as_a_whole_without_ranges(hardened_text):
    first, *rest = hardened_text.split("\n---\n")
    with pytest.raises(yaml.YAMLError):
        yaml.safe_load(first)
    # kubectl reads document by document: the first one stops it.
    assert not any(release.RANGES in document for document in rest)
    assert first.count(f": [{release.RANGES}]\n") == 3


@pytest.mark.slow
def test_one_command_of_the_manual_completes_the_hardened_manifests(hardened_text, tmp_path):
    page = (ROOT / "docs/howto/installing.md").read_text()
    (command,) = re.findall(r"^sed .+?hardened.yaml", page, re.MULTILINE)
    (tmp_path / "hardened.yaml").write_text(hardened_text)
    filled = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    ranges = re.findall(r'cidr: "?([^}"]+)', command)
    assert len(ranges) == 2
    first, *rest = parse(filled.stdout)
    assert first["kind"] == "List"
    rendered_objects = [*first["items"], *rest]
    overlay = hardened_overlay(tmp_path, *ranges, deploy=deploy_without_schemas())
    expected = objects_of(overlay)

    def without_what_a_release_changes(objects):
        for policy in of_kind(objects, "Deployment"):
            container(policy).pop("image")
            container(policy)["args"] = [
                flag
                for flag in container(policy)["args"]
                if not re.match("--lifecycle-.*-image", flag)
            ]
        for policy in of_kind(objects, "NetworkPolicy"):
            policy["metadata"].pop("annotations", None)
        return sorted(objects, key=lambda obj: (obj["kind"], obj["metadata"]["name"]))

    assert references(rendered_objects) == {f"{IMAGE}@{DIGEST}"}
    assert without_what_a_release_changes(rendered_objects) == without_what_a_release_changes(
        expected
    )


def workflow(name):
    """The only job of a workflow in the manual."""
    content = yaml.safe_load((ROOT / f"docs/examples/ci/{name}.yaml").read_text())
    # YAML 1.1 reads the key "on" as true.
    assert content.keys() == {"name", True, "permissions", "jobs"}
    (job,) = content["jobs"].values()
    return job


@pytest.mark.parametrize("name", ["policy-check", "release"])
def test_no_step_of_a_workflow_runs_what_a_branch_is_called(name):
    steps = workflow(name)["steps"]
    assert {key for step in steps for key in step} <= {"name", "uses", "with", "env", "run"}
    assert not any("${{" in step.get("run", "") for step in steps)


def test_the_workflow_and_the_manual_give_every_variable_of_make_release():
    job = workflow("release")
    assert not any("secrets." in value for value in job["env"].values())
    assert "make release" in [step.get("run") for step in job["steps"]]
    assert job["env"].keys() >= PARAMETERS.keys()
    page = (ROOT / "docs/howto/releasing.md").read_text()
    assert all(f"`{name}`" in page for name in PARAMETERS)


def test_the_workflow_signs_and_attests_the_image_before_it_gets_its_tag(tmp_path):
    for name, told in (("skopeo", f"*inspect*) echo {DIGEST}"), ("cosign", "x)"), ("jq", "x)")):
        script = f'echo {name} "$*" >> {tmp_path}/log\ncase "$*" in {told};; esac'
        write_program(tmp_path / "bin" / name, script)
    job = workflow("release")
    (step,) = [step for step in job["steps"] if "cosign sign" in step.get("run", "")]
    environment = {
        "PATH": f"{tmp_path}/bin:/usr/bin:/bin",
        "IMG": job["env"]["IMG"],
        "GITHUB_REF_NAME": "v1.10.0",
        "RUNNER_TEMP": str(tmp_path),
        **dict.fromkeys(step["env"], "secret"),
    }
    shell = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")
    subprocess.run([*shell, step["run"]], env=environment, cwd=tmp_path, check=True)
    calls = (tmp_path / "log").read_text().splitlines()
    pushed, signed, *_, tagged = [line for line in calls if IMAGE in line]
    assert pushed.endswith(f" docker://{IMAGE}@{DIGEST}")
    assert signed == f"cosign sign --yes {IMAGE}@{DIGEST}"
    assert tagged.endswith(f" docker://{IMAGE}:1.10.0")
    kinds = re.findall(r"attest --yes --type=(\S+) .*@sha256", "\n".join(calls))
    assert kinds == ["slsaprovenance1", "cyclonedx"]
    (secret,) = [
        path for path in tmp_path.iterdir() if path.is_file() and path.read_text() == "secret"
    ]
    assert secret.stat().st_mode & 0o777 == 0o600
