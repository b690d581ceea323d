"""A release, made twice from clones, and installed from its folder alone."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from harbourmaster.playground.errors import PlaygroundError
from helpers import node_objects as objects
from helpers.cluster import plane_for
from helpers.manifests import ROOT, VERSION, parse
from helpers.manual_commands import blocks
from helpers.node import RealNode
from helpers.releases import clean, make_clone, needs, run

# Two releases, each with an image whose packages are fetched.
pytestmark = [
    pytest.mark.timeout(1200),
    *needs("buildah", "apt-get", "faketime", "skopeo", "curl"),
]
IMAGE = "registry.example.com/harbourmaster"
MAKE = ("make", "--no-print-directory", "CONTAINER_ENGINE=buildah")
RUNNERS = {
    f"{name}_RUNNER": f"registry.example.com/runner@sha256:{digit * 64}"
    for name, digit in (("PYTHON", "1"), ("DENO", "2"))
}
PAGE = ROOT / "docs/howto/installing.md"
NEEDS_FILES = "needs the files of a release; tests/node/test_release.py runs it"
DUMP = [
    {
        "kind": "Node",
        "metadata": {"name": "node-0"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
    },
    {"kind": "Namespace", "metadata": {"name": "shop"}},
    {
        "kind": "Pod",
        "metadata": {"name": "till", "namespace": "shop"},
        "spec": {"containers": [{"name": "main", "image": "none"}], "nodeName": "node-0"},
    },
]


def run_git(*command, **options):
    """Run Git with the same committer on every machine."""
    return run("git", "-c", "user.name=a", "-c", "user.email=a@example.com", *command, **options)


def link_tree(source, directory, umask=0o022):
    """A clone in which make uses our environment."""
    make_clone(source, directory, umask)
    setup = (directory / "setup.cfg").read_text()
    for name in re.findall(r"^    harbourmaster\.\S+ = (\S+)$", setup, re.MULTILINE):
        (directory / "harbourmaster" / name).symlink_to(f"../{name}")
    return directory


def in_clone(clone, store, umask=0o022, **environment):
    """The options of a command of make in a clone."""
    environment = {**clean(), "CONTAINERS_STORAGE_CONF": str(store), **environment}
    return {"cwd": clone, "umask": umask, "env": environment}


def make_release(base, clock=(), **options):
    """Make the release in a clone; return its folder, and what make printed."""
    images = {"IMG": IMAGE, "PYTHON_IMAGE": base, "PLATFORMS": "", **RUNNERS}
    given = (f"{key}={value}" for key, value in images.items())
    told = run(*clock, *MAKE, "release", f"BIN={Path(sys.executable).parent}", *given, **options)
    return options["cwd"] / "dist", told.splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("release")


@pytest.fixture(scope="module")
def store(folder):
    """Images of both clones, in a file system that may itself be an overlay."""
    text = '[storage]\ndriver = "vfs"\ngraphroot = "{0}/storage"\nrunroot = "{0}/run"\n'
    (folder / "storage.conf").write_text(text.format(folder))
    return folder / "storage.conf"


@pytest.fixture(scope="module")
def clone(folder):
    """Clone the commit, with a changelog of this version."""
    clone = link_tree(ROOT, folder / "here")
    changelog = clone / "CHANGELOG.md"
    text = re.sub(
        rf"^(## )?\[{re.escape(VERSION)}\].*\n", "", changelog.read_text(), flags=re.MULTILINE
    )
    dated = f"## [Unreleased]\n\n## [{VERSION}] - 2999-01-01\n\n- All.\n"
    link = f"[{VERSION}]: https://example.com/{VERSION}\n"
    changelog.write_text(text.replace("## [Unreleased]\n", dated, 1) + link)
    run_git("commit", "--all", "--quiet", "--message=release", cwd=clone)
    return clone


@pytest.fixture(scope="module")
def base(clone, store):
    """The base image, by its digest in the local storage."""
    options = in_clone(clone, store)
    name = run(*MAKE, "base-image", **options).strip()
    inspect = ("inspect", "--type=image", "--format={{.FromImageDigest}}", name)
    digest = run("deploy/image/engine.sh", *inspect, **options)
    return f"{name.rpartition(':')[0]}@{digest}"


@pytest.fixture(scope="module")
def release(clone, store, base):
    return make_release(base, **in_clone(clone, store, TZ="UTC"))


@pytest.fixture(scope="module")
def dist(release):
    return release[0]


def test_a_second_clone_makes_the_same_files(clone, dist, store, base, folder):
    again = link_tree(clone, folder / "another/place", umask=0o077)
    clock = ("faketime", "-f", "+400d")
    other_dist, _ = make_release(
        base, clock, **in_clone(again, store, umask=0o077, TZ="Asia/Tokyo")
    )
    assert (other_dist / "SHA256SUMS").read_text() == (dist / "SHA256SUMS").read_text()
    modes = [
        {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
        for folder in (dist, other_dist)
    ]
    assert modes[0] == modes[1]


def test_every_file_is_in_the_manual(dist):
    page = PAGE.read_text()
    names = [path.name.replace(VERSION, "VERSION") for path in dist.iterdir()]
    assert [name for name in names if f"`{name}`" not in page] == []


def test_every_file_is_listed_with_its_size_and_the_next_step(release):
    dist, (*lines, last) = release
    sizes = {Path(line.split()[-1]).name: float(line.split()[0]) for line in lines[1:]}
    assert sizes.keys() == {path.name for path in dist.iterdir()}
    assert sizes[f"harbourmaster-{VERSION}-image.tar"] > 10
    assert last.startswith(f"{IMAGE}@sha256:")
    assert last.endswith(": sign and publish it with dist: docs/howto/releasing.md")


def test_checksums_and_provenance_are_about_every_file(dist):
    listed = run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=dist)
    names = {line.partition(":")[0] for line in listed.splitlines()}
    assert names == {path.name for path in dist.iterdir()} - {"SHA256SUMS"}
    provenance = f"harbourmaster-{VERSION}.intoto.json"
    subjects = json.loads((dist / provenance).read_text())["subject"]
    assert {subject["name"] for subject in subjects} == names - {provenance} | {IMAGE}


def test_the_sources_build_the_same_wheel(dist, tmp_path):
    with tarfile.open(dist / f"harbourmaster-{VERSION}.tar.gz") as archive:
        assert {member.mode for member in archive} <= {0o644, 0o755}
        assert len({member.mtime for member in archive}) == 1
        epoch = archive.getmembers()[0].mtime
        archive.extractall(tmp_path, filter="data")
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path)
    environment = {**clean(), "SOURCE_DATE_EPOCH": str(int(epoch))}
    run(*build, tmp_path / f"harbourmaster-{VERSION}", env=environment)
    name = f"harbourmaster-{VERSION}-py3-none-any.whl"
    assert (tmp_path / name).read_bytes() == (dist / name).read_bytes()


def test_manifests_and_chart_name_the_image_by_the_digest_that_a_registry_gives_it(dist, tmp_path):
    archive = f"oci-archive:{dist}/harbourmaster-{VERSION}-image.tar"
    digestfile = tmp_path / "digest"
    copy = ("skopeo", "copy", "--preserve-digests", f"--digestfile={digestfile}", archive)
    run(*copy, f"dir:{tmp_path / 'registry'}")
    digest = digestfile.read_text()
    images = set()
    for manifest in parse((dist / "install.yaml").read_text()):
        if manifest["kind"] == "Deployment":
            images |= {
                container["image"]
                for container in manifest["spec"]["template"]["spec"]["containers"]
            }
    assert images == {f"{IMAGE}@{digest}"}
    with tarfile.open(dist / f"harbourmaster-{VERSION}.tgz") as chart:
        values = yaml.safe_load(chart.extractfile("harbourmaster/values.yaml"))
    assert (values["image"]["repository"], values["image"]["digest"]) == (IMAGE, digest)
    assert values["controller"]["settings"] == {
        "lifecycle-python-image": RUNNERS["PYTHON_RUNNER"],
        "lifecycle-deno-image": RUNNERS["DENO_RUNNER"],
    }


@pytest.fixture(scope="module")
def home(dist, folder):
    """The home of a user that follows the manual; what needs only the files of a release."""
    home = folder / "home"
    home.mkdir()
    texts = [block.text for block in blocks(PAGE) if block.what == NEEDS_FILES]
    assert len(texts) == 2
    script = "set -eu\n" + "".join(texts)
    environment = {**clean(), "HOME": str(home), "VERSION": VERSION}
    run("bash", "-c", script, cwd=dist, env=environment)
    return home


@pytest.fixture(scope="module")
def environment(home, dist):
    """The environment of that user, with kubectl."""
    path = f"{home}/.local/bin:{dist}:{Path(sys.executable).parent}:/usr/bin:/bin"
    return {**clean(), "HOME": str(home), "PATH": path}


def test_the_command_of_the_manual_installs_the_command(home, dist, environment):
    program = home / ".local/bin/harbourmaster"
    assert run(program, "--version", env=environment) == f"{VERSION}\n"
    plugin = run("kubectl", "harbourmaster", "completion", "bash", env=environment)
    assert plugin == (dist / "harbourmaster.bash").read_text()
    completed = run("kubectl", "__complete", "harbourmaster", "migr", env=environment)
    assert completed.splitlines() == ["migrate", ":0"]


def test_the_policy_check_of_the_manual_passes_and_fails(dist, tmp_path):
    example = ROOT / "docs/examples/ci/policy-check.yaml"
    (job,) = yaml.safe_load(example.read_text())["jobs"].values()
    repository = tmp_path / "repository"
    shutil.copytree(ROOT / "deploy/samples", repository / "policies")
    shutil.move(repository / "policies/workloads", repository / "manifests")
    (repository / "reviews").mkdir()
    shutil.copy(ROOT / "tests/fixtures/statefulset-create.json", repository / "reviews")
    shutil.copy(ROOT / "tests/fixtures/recorded.jsonl", repository)
    items = [{"apiVersion": "v1", **obj} for obj in DUMP]
    (repository / "dump.json").write_text(json.dumps({"kind": "List", "items": items}))
    environment = {
        **clean(),
        "VERSION": VERSION,
        "RELEASE": dist.as_uri(),
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_PATH": str(tmp_path / "path"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
    }
    assert job["env"].keys() == {"VERSION", "RELEASE"}
    install, *checks = [step["run"] for step in job["steps"] if "run" in step]
    shell = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")
    run(*shell, install, cwd=repository, env=environment)
    environment["PATH"] = f"{(tmp_path / 'path').read_text().strip()}:/usr/bin:/bin"
    assert len(checks) == 4
    for check in checks:
        run(*shell, check, cwd=repository, env=environment)
    assert "None of 1 workload would change" in (tmp_path / "summary").read_text()
    (repository / "policies/broken.yaml").write_text("kind: ClusterPodSchedulingPolicy\n")
    refused = subprocess.run([*shell, checks[0]], cwd=repository, env=environment, check=False)
    assert refused.returncode == 1


@pytest.mark.cluster
def test_an_api_server_takes_the_manifests_and_none_of_the_hardened_ones_without_ranges(
    dist, request, tmp_path_factory
):
    command, upgrade = (
        next(block.text for block in blocks(PAGE) if block.text.startswith(first))
        for first in ("sed ", "mode=")
    )
    with plane_for(request, tmp_path_factory, "release") as plane:

        def apply(script):
            path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
            environment = {**clean(), "PATH": path, "KUBECONFIG": str(plane.kubeconfig)}
            return subprocess.run(
                ["bash", "-c", script],
                cwd=dist,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )

        refused = apply("kubectl apply --server-side -f hardened.yaml")
        assert refused.returncode == 1
        assert refused.stdout == ""
        assert "error parsing hardened.yaml" in refused.stderr
        assert apply("kubectl get namespace harbourmaster-system").returncode == 1
        hardened = apply(command)
        assert hardened.returncode == 0, hardened.stderr
        policies = apply("kubectl -n harbourmaster-system get networkpolicies --output=name").stdout
        assert len(policies.splitlines()) == 4
        usual = apply(upgrade)
        assert usual.returncode == 0, usual.stderr
        read = "kubectl -n harbourmaster-system get deployment harbourmaster-controller -o yaml"
        assert "references=AllNeedConsent" in apply(read).stdout


def test_a_node_runs_what_the_files_alone_install(dist, environment, tmp_path_factory):
    try:
        node = RealNode(tmp_path_factory.mktemp("stranger"))
    except PlaygroundError as error:
        pytest.skip(str(error))
    (text,) = (block.text for block in blocks(PAGE) if block.text.startswith("skopeo copy"))
    _, install = text.split(":$VERSION\n")
    with node:
        environment = {**environment, "KUBECONFIG": str(node.kubeconfig)}
        # In the place of a registry.
        node.load_image(dist / f"harbourmaster-{VERSION}-image.tar", IMAGE)
        said = run("bash", "-euc", install, cwd=dist, env=environment)
        assert "Harbourmaster is healthy" in said
        node.apply(
            objects.policy(),
            objects.namespace("shop"),
            objects.shell_task("shop", "check", "echo the database is not migrated; exit 1"),
            objects.deployment("shop", "till", tasks=["check"]),
        )
        node.wait("jsonpath={.status.status}=Failed", "-n=shop", "keptntask", "--all")
        told = run("harbourmaster", "why", "deployment", "shop/till", env=environment)
        assert "exit code 1: the database is not migrated" in told
