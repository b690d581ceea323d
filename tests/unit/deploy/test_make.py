from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

from helpers.manifests import ROOT, VERSION
from helpers.stubs import write_program

MAKE = shutil.which("make")
DEPENDENCIES = ("requirements-dev.txt", "requirements-go.txt")


def make(*arguments, path=None, cwd=ROOT):
    """Run make without what a make around the tests may have told it."""
    environment = {key: value for key, value in os.environ.items() if "MAKE" not in key}
    if path is not None:
        environment["PATH"] = str(path)
    return subprocess.run(
        [MAKE, "--no-print-directory", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def refusal_of(result):
    """Return what make printed about a target that was refused, without its own lines."""
    assert (result.returncode, result.stdout) == (2, "")
    return [line for line in result.stderr.splitlines() if not line.startswith("make")]


@pytest.fixture
def tree(tmp_path):
    """A copy of the Makefile, where ``python`` only makes what it is given a path of."""
    for name in ("Makefile", "setup.cfg", "pyproject.toml", *DEPENDENCIES):
        shutil.copyfile(ROOT / name, tmp_path / name)
    write_program(
        tmp_path / ".venv/bin/python",
        'for each; do case "$each" in dist/*) : > "$each";; build/*) mkdir "$each"; esac; done',
    )
    (tmp_path / ".venv/installed").touch()
    (tmp_path / "dist").mkdir()
    return tmp_path


@pytest.mark.parametrize("target", ["docker-build", "docker-push"])
def test_without_an_engine_that_works_one_line_says_what_was_tried(target, tmp_path):
    for name in ("sed", "sh", "git", "realpath", "mkdir", "rm"):
        (tmp_path / name).symlink_to(shutil.which(name))
    write_program(tmp_path / "docker", "exit 1")
    result = make(target, "CONTAINER_ENGINE=", path=tmp_path)
    ours = refusal_of(result)
    tried = 'docker (found, but "info" fails), podman (not found), buildah (not found)'
    action = "start or install one of them, or name another in CONTAINER_ENGINE"
    assert ours == [f"no container engine works: {tried}: {action}"]


def test_pip_settings_reach_a_build_as_a_secret_that_no_file_keeps(tmp_path):
    engine = tmp_path / "deploy/image/engine.sh"
    engine.parent.mkdir(parents=True)
    shutil.copy(ROOT / "deploy/image/engine.sh", engine)
    write_program(tmp_path / "bin/docker", 'echo "$@"; echo "$PIP_CONF"')
    url = "https://user:password@example.com/simple"
    environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "PIP_INDEX_URL": url}
    told = subprocess.run(
        [engine, "build", "."], env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines() == [
        "build --secret id=pip.conf,env=PIP_CONF .",
        "[global]",
        f"index-url = {url}",
    ]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if url in path.read_text()] == []


@pytest.mark.parametrize(
    ("target", "made", "kept"),
    [
        ("sbom", f"harbourmaster-{VERSION}.cdx.json", "harbourmaster-0.0.1-image.cdx.json"),
        ("chart", f"harbourmaster-{VERSION}.tgz", f"harbourmaster-{VERSION}.tar.gz"),
        ("image", f"harbourmaster-{VERSION}-image.tar", "harbourmaster-0.0.1.cdx.json"),
    ],
)
def test_a_file_in_dist_replaces_that_of_an_older_version_and_no_other(tree, target, made, kept):
    for name in (made, kept):
        (tree / "dist" / name.replace(VERSION, "0.0.1")).touch()
    engine = write_program(
        tree / "engine", "mkdir -p build/image/blobs; cd build/image; touch index.json oci-layout"
    )
    result = make(target, "--old-file=docker-build", f"ENGINE={engine}", cwd=tree)
    assert result.returncode == 0, result.stderr
    assert {path.name for path in (tree / "dist").iterdir()} == {
        made,
        kept.replace(VERSION, "0.0.1"),
    }


@pytest.mark.parametrize("platforms", ["", "linux/amd64,linux/arm64"])
def test_an_image_of_several_platforms_is_one_archive(tree, platforms):
    lines = 'echo "$*" >> commands; mkdir -p build/image; cd build/image; mkdir -p blobs; '
    engine = write_program(tree / "engine", f"{lines} touch index.json oci-layout")
    given = (f"PLATFORMS={platforms}", f"ENGINE={engine}", "IMG=a:1")
    options = ("--old-file=engine", "--old-file=webhook", "--old-file=sbom")
    result = make("image", *given, *options, cwd=tree)
    assert result.returncode == 0, result.stderr
    commands = (tree / "commands").read_text().splitlines()
    url = "https://harbourmaster.example.com"
    build, push = (line for line in commands if not line.startswith("manifest rm"))
    expected = f"--platform {platforms} --manifest a:1" if platforms else "--tag a:1"
    assert build.startswith(f"build {expected} ")
    assert f" --build-arg SOURCE={url} " in build
    assert push.startswith("manifest push --all --quiet a:1 " if platforms else "push --quiet a:1 ")


def test_no_image_of_a_node_is_built_without_deno(tree):
    write_program(tree / ".venv/bin/python", "exit 1")
    write_program(tree / "deploy/image/node.sh", "touch built")
    engine = write_program(tree / "engine", "touch saved")
    given = ("PYTHON_IMAGE=python", f"ENGINE={engine}", "MAKE=true")
    assert make("node-images", *given, "--old-file=engine", cwd=tree).returncode == 2
    assert not (tree / "built").exists()
    assert not (tree / "saved").exists()


@pytest.mark.parametrize(
    ("works", "named", "used"),
    [
        (("docker", "podman", "buildah"), None, "docker"),
        (("podman", "buildah"), None, "podman"),
        (("buildah",), None, "buildah"),
        (("docker", "buildah"), "buildah", "buildah"),
    ],
)
def test_the_first_engine_that_runs_is_used(tmp_path, works, named, used):
    for name in ("docker", "podman", "buildah"):
        info = "exit 0" if name in works else "exit 1"
        write_program(tmp_path / name, f'[ "$1" != info ] || {info}\necho {name} "$@"')
    chosen = () if named is None else (f"CONTAINER_ENGINE={named}",)
    storage = f"CONTAINERS_STORAGE_CONF={tmp_path}/storage.conf"
    path = f"{tmp_path}:{os.environ['PATH']}"
    result = make("docker-push", "IMG=registry.example.com/a:1", storage, *chosen, path=path)
    assert result.stdout == f"{used} push registry.example.com/a:1\n"


def test_shadow_mode_does_not_replace_a_working_installation(tmp_path):
    kubectl = write_program(tmp_path / "kubectl", 'echo "$@"')
    result = make("deploy-shadow", f"KUBECTL={kubectl}")
    ours = refusal_of(result)
    (line,) = ours
    assert line.startswith("Harbourmaster works in this cluster")


def test_kubectl_of_the_environment_serves_where_there_is_no_other(tmp_path):
    # Of all programs only those that reading the Makefile takes.
    for name in ("sed", "sh"):
        (tmp_path / name).symlink_to(shutil.which(name))
    assert (
        ".venv/bin/kubectl kustomize deploy/default"
        in make("--dry-run", "deploy", path=tmp_path).stdout
    )


UPGRADE = re.search(
    r"^mode=\$\(kubectl .+?(?=^```)",
    (ROOT / "docs/howto/installing.md").read_text(),
    re.MULTILINE | re.DOTALL,
)[0]
FLAG = "--cross-namespace-references="
KEPT = (
    ([], "Open"),
    (["Open"], "Open"),
    (["ProvidersNeedConsent"], "ProvidersNeedConsent"),
    (["ProvidersNeedConsent", "AllNeedConsent"], "AllNeedConsent"),
    (["AllNeedConsent", "Open"], "Open"),
)
"""The flags of an installation, and the mode that it has."""


@pytest.mark.parametrize(
    ("by", "live", "mode"),
    [
        ("make", None, "AllNeedConsent"),
        *((by, *case) for case in KEPT for by in ("make", "manual")),
    ],
    ids=str,
)
@pytest.mark.claim("O14")
def test_an_upgrade_keeps_the_mode_of_references_that_an_installation_has(tmp_path, by, live, mode):
    # As make asks, and as the manual does.
    flags = ["controller", *(f"{FLAG}{value}" for value in live or ())]
    answer = "" if live is None else f"{FLAG}Open {' '.join(flags)}"
    (tmp_path / "answer").write_text(answer if by == "make" else str(flags).replace("'", '"'))
    rendered = ROOT / "deploy/controller/deployment.yaml"
    shutil.copyfile(rendered, tmp_path / "install.yaml")
    kubectl = write_program(
        tmp_path / "kubectl",
        f"""case "$*" in
            *"get deployment"*) cat {tmp_path}/answer;;
            kustomize*) cat {rendered};;
            apply*) cat > {tmp_path}/applied;;
        esac""",
    )
    if by == "make":
        result = make("deploy", f"KUBECTL={kubectl}")
    else:
        result = subprocess.run(
            ["bash", "-c", UPGRADE],
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert result.returncode == 0, result.stderr
    assert re.findall(f"{FLAG}(.*)", (tmp_path / "applied").read_text()) == [mode]


@pytest.mark.parametrize("verb", ["deploy", "undeploy"])
def test_the_names_of_kupids_targets_work(verb):
    ours = make("--dry-run", f"{verb}-with-certmanager")
    theirs = make("--dry-run", f"{verb}-using-certmanager")
    assert ours.returncode == theirs.returncode == 0
    assert ours.stdout == theirs.stdout


def test_without_cert_manager_one_line_says_so():
    # A kubectl that finds nothing, and says so by silence.
    result = make("deploy-with-certmanager", "KUBECTL=true")
    ours = refusal_of(result)
    assert ours == ["cert-manager not found in this cluster: install it first, or use make deploy"]


def test_a_rollout_that_fails_says_where_to_look(tmp_path):
    kubectl = write_program(tmp_path / "kubectl", 'case "$*" in *rollout*) exit 1;; esac')
    result = make("deploy", f"KUBECTL={kubectl}")
    ours = refusal_of(result)
    where = "see: kubectl --namespace=harbourmaster-system describe pods"
    assert ours == [f"harbourmaster-controller is not ready; {where}"]


@pytest.mark.parametrize(
    ("served", "stays"),
    [
        ("", ""),
        ("harbourmaster-system/harbourmaster-metrics", ""),
        ("keptn-system/metrics-operator-service", ""),
        ("monitoring/prometheus-adapter", "monitoring/prometheus-adapter"),
    ],
)
def test_a_custom_metrics_api_of_somebody_else_stays_theirs(tmp_path, served, stays):
    log = tmp_path / "log"
    answers = f'case "$1" in get) echo "{served}";; apply) cat;; esac'
    kubectl = write_program(tmp_path / "kubectl", f'echo "$*" >> {log}\n{answers}')
    result = make("deploy", f"KUBECTL={kubectl}")
    assert result.returncode == 0, result.stderr
    (applied,) = [line for line in log.read_text().splitlines() if line.startswith("apply")]
    selector = "--selector=app.kubernetes.io/component!=custom-metrics"
    assert (selector in applied) == bool(stays)
    told = f"custom.metrics.k8s.io is served by {stays}: HPAs cannot read KeptnMetrics"
    assert (told in result.stdout) == bool(stays)


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ("deploy", f"|image: harbourmaster:{VERSION}|"),
        ("deploy", "kustomize deploy/default"),
        ("deploy IMG=registry.example.com/a@sha256:1", "|image: registry.example.com/a@sha256:1|"),
        ("deploy-beside-keptn", "kustomize deploy/beside-keptn"),
        ("deploy-shadow", "kustomize deploy/shadow"),
        ("undeploy", "harbourmaster uninstall --delete-crds --yes\n"),
        ("undeploy UNINSTALL=--dry-run", "harbourmaster uninstall --delete-crds --dry-run\n"),
        ("demo", "-m harbourmaster.playground demo \n"),
        ("demo KEEP=1", "-m harbourmaster.playground demo --keep\n"),
        ("demo-evaluation KEEP=1", "-m harbourmaster.playground demo-evaluation --keep\n"),
    ],
)
def test_a_target_runs_its_command(arguments, command):
    assert command in make("--dry-run", *arguments.split()).stdout
