from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from helpers.manifests import ROOT, VERSION

MAKE = shutil.which("make")


def make(*arguments, path=None):
    """Run make without what a make around the tests may have told it."""
    environment = {key: value for key, value in os.environ.items() if "MAKE" not in key}
    if path is not None:
        environment["PATH"] = str(path)
    return subprocess.run(
        [MAKE, "--no-print-directory", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("target", ["docker-build", "docker-push"])
@pytest.mark.parametrize("engine", ["false", ""])
def test_without_an_engine_one_line_says_so(target, engine):
    result = make(target, f"CONTAINER_ENGINE={engine}")
    ours = [line for line in result.stderr.splitlines() if not line.startswith("make")]
    assert result.returncode == 2
    assert not result.stdout
    assert ours == [
        "no container engine: start docker or podman, install buildah, or set CONTAINER_ENGINE="
    ]


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
        engine = tmp_path / name
        info = "exit 0" if name in works else "exit 1"
        engine.write_text(f'#!/bin/sh\n[ "$1" != info ] || {info}\necho {name} "$@"\n')
        engine.chmod(0o700)
    chosen = () if named is None else (f"CONTAINER_ENGINE={named}",)
    storage = f"CONTAINERS_STORAGE_CONF={tmp_path}/storage.conf"
    path = f"{tmp_path}:{os.environ['PATH']}"
    result = make("docker-push", "IMG=registry.example.com/a:1", storage, *chosen, path=path)
    assert result.stdout == f"{used} push registry.example.com/a:1\n"


def test_deploy_puts_the_image_in_place_of_ours():
    commands = make("--dry-run", "deploy", "IMG=registry.example.com/harbourmaster@sha256:1").stdout
    assert "|image: registry.example.com/harbourmaster@sha256:1|" in commands
    assert "deploy/default" in commands


def test_beside_keptn_is_an_installation_of_its_own():
    assert "kustomize deploy/beside-keptn" in make("--dry-run", "deploy-beside-keptn").stdout


def test_the_image_is_of_this_version_unless_told_otherwise():
    assert f"|image: harbourmaster:{VERSION}|" in make("--dry-run", "deploy").stdout


def test_kubectl_of_the_environment_serves_where_there_is_no_other(tmp_path):
    # Of all programs only those that reading the Makefile takes.
    for name in ("sed", "sh"):
        (tmp_path / name).symlink_to(shutil.which(name))
    assert (
        ".venv/bin/kubectl kustomize deploy/default"
        in make("--dry-run", "deploy", path=tmp_path).stdout
    )


@pytest.mark.parametrize("verb", ["deploy", "undeploy"])
def test_the_names_of_kupids_targets_work(verb):
    ours = make("--dry-run", f"{verb}-with-certmanager")
    theirs = make("--dry-run", f"{verb}-using-certmanager")
    assert ours.returncode == theirs.returncode == 0
    assert ours.stdout == theirs.stdout


def test_without_cert_manager_one_line_says_so():
    # A kubectl that finds nothing, and says so by silence.
    result = make("deploy-with-certmanager", "KUBECTL=true")
    ours = [line for line in result.stderr.splitlines() if not line.startswith("make")]
    assert result.returncode == 2
    assert not result.stdout
    assert ours == ["cert-manager not found in this cluster: install it first, or use make deploy"]


def test_a_rollout_that_fails_says_where_to_look(tmp_path):
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\ncase "$*" in *rollout*) exit 1;; esac\n')
    kubectl.chmod(0o700)
    result = make("deploy", f"KUBECTL={kubectl}")
    ours = [line for line in result.stderr.splitlines() if not line.startswith("make")]
    assert result.returncode == 2
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
    kubectl, log = tmp_path / "kubectl", tmp_path / "log"
    kubectl.write_text(
        f'#!/bin/sh\necho "$*" >> {log}\ncase "$1" in get) echo "{served}";; apply) cat;; esac\n'
    )
    kubectl.chmod(0o700)
    result = make("deploy", f"KUBECTL={kubectl}")
    assert result.returncode == 0, result.stderr
    (applied,) = [line for line in log.read_text().splitlines() if line.startswith("apply")]
    selector = "--selector=app.kubernetes.io/component!=custom-metrics"
    assert (selector in applied) == bool(stays)
    told = f"custom.metrics.k8s.io is served by {stays}: HPAs cannot read KeptnMetrics"
    assert (told in result.stdout) == bool(stays)


def test_undeploy_takes_all_away_unless_told_otherwise():
    command = "harbourmaster uninstall --delete-crds"
    assert make("--dry-run", "undeploy").stdout.endswith(f"{command} --yes\n")
    told = make("--dry-run", "undeploy", "UNINSTALL=--dry-run").stdout
    assert told.endswith(f"{command} --dry-run\n")


@pytest.mark.parametrize("demo", ["demo", "demo-evaluation"])
@pytest.mark.parametrize(("given", "flags"), [((), ""), (("KEEP=1",), " --keep")])
def test_a_demo_is_kept_on_demand(demo, given, flags):
    *_, command = make("--dry-run", demo, *given).stdout.splitlines()
    assert command.rstrip() == f"exec .venv/bin/python -m harbourmaster.playground {demo}{flags}"
