"""Finds Chromium, or unpacks Debian's into the user's cache; and packages of npm.

axe-core checks pages; Deno runs functions in an image.

Nothing is installed into the system: its package lists say which packages are missing, and apt
checks each by its hash.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harbourmaster.playground.build import MODULES, cache_directory, hold_lock
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.processes import run_captured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
# DejaVu has Latin, Hebrew and Arabic letters: a page without a font is a page of boxes.
PACKAGES: Final = ("chromium", "fonts-dejavu-core")
AXE: Final = MODULES / "axe"
DENO: Final = MODULES / "deno"
_BINARY: Final = "usr/lib/chromium/chromium"
_ADVICE: Final = "put chromium on PATH, or let CHROMIUM name one"
_FONTS: Final = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{folder}/usr/share/fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir>{folder}/fontcache</cachedir>
  <alias><family>sans-serif</family><prefer><family>DejaVu Sans</family></prefer></alias>
  <alias><family>system-ui</family><prefer><family>DejaVu Sans</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
"""


def ensure_browser(
    *,
    environment: Mapping[str, str] = os.environ,
    progress: Callable[[str], None] = print,
) -> Path:
    """Return a Chromium: ``CHROMIUM``, from PATH, or Debian's in the cache (half a minute)."""
    named = environment.get("CHROMIUM")
    if named:
        path = shutil.which(named, path=environment.get("PATH", ""))
        if path is None:
            raise PlaygroundError(f"CHROMIUM={named} is not a program: correct or unset it")
        return Path(path)
    for program in PROGRAMS:
        path = shutil.which(program, path=environment.get("PATH", ""))
        if path is not None:
            return Path(path)
    folder = cache_directory(environment) / f"chromium-{_system()}"
    _ensure(folder, lambda made: _fetch_browser(made, folder, environment, progress), progress)
    return folder / "chromium"


def ensure_axe(
    *,
    environment: Mapping[str, str] = os.environ,
    progress: Callable[[str], None] = print,
) -> Path:
    """Return axe-core's script."""
    return _ensure_package(AXE, environment, progress) / "axe-core/axe.min.js"


def ensure_deno(
    *,
    environment: Mapping[str, str] = os.environ,
    progress: Callable[[str], None] = print,
) -> Path:
    """Return Deno's program, for Linux on x86-64."""
    return _ensure_package(DENO, environment, progress) / "@deno/linux-x64-glibc/deno"


def _ensure_package(
    module: Path, environment: Mapping[str, str], progress: Callable[[str], None]
) -> Path:
    """Return the packages that npm fetches in the version and with the hash locked here."""
    lock = (module / "package-lock.json").read_bytes()
    name = f"{module.name}-{hashlib.sha256(lock).hexdigest()[:16]}"
    folder = cache_directory(environment) / name
    _ensure(folder, lambda made: _fetch_package(module, made, environment, progress), progress)
    return folder / "node_modules"


def _ensure(folder: Path, make: Callable[[Path], None], progress: Callable[[str], None]) -> None:
    """Let ``make`` fill a folder that then takes its place; complete, or not at all."""
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(folder.parent / "browser.lock", progress):
        if folder.is_dir():
            return
        for abandoned in folder.parent.glob("fetching-*"):
            shutil.rmtree(abandoned)
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=folder.parent) as temporary:
            made = Path(temporary, "made")
            made.mkdir()
            make(made)
            made.rename(folder)


def _system() -> str:
    """The missing packages, which differ between systems."""
    try:
        release = Path("/etc/os-release").read_text()
    except OSError:
        release = ""
    return hashlib.sha256(f"{release}\n{PACKAGES}\n{_FONTS}".encode()).hexdigest()[:16]


def _fetch_browser(
    made: Path,
    folder: Path,
    environment: Mapping[str, str],
    progress: Callable[[str], None],
) -> None:
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program, path=environment.get("PATH", "")) is None:
            raise PlaygroundError(f"neither chromium nor {program} is on PATH: {_ADVICE}")
    archives = made.with_name("archives")
    archives.mkdir()
    start = time.monotonic()
    names = _download(archives, environment, progress)
    progress(f"fetching {len(names)} packages of Chromium ... {time.monotonic() - start:.0f} s")
    start = time.monotonic()
    for archive in sorted(archives.glob("*.deb")):
        _run(["dpkg-deb", "--extract", str(archive), str(made)], environment)
    _write_launcher(made, folder)
    progress(f"unpacking Chromium ... {time.monotonic() - start:.0f} s")
    # A library that is missing shows here, and not in the first test of a page.
    libraries = ":".join(str(path) for path in _libraries(made))
    _run([str(made / _BINARY), "--version"], {**environment, "LD_LIBRARY_PATH": libraries})


def _download(
    archives: Path, environment: Mapping[str, str], progress: Callable[[str], None]
) -> list[str]:
    """Fetch what the system's lists say, or, where these are out of date, what new ones say."""
    try:
        return _download_by(archives, [], environment)
    except PlaygroundError as error:
        progress(f"{error}; trying newer package lists")
    state = archives.with_name("apt")
    (state / "lists/partial").mkdir(parents=True)
    own = [f"--option=Dir::State::Lists={state}/lists", f"--option=Dir::Cache={state}"]
    _run(["apt-get", *own, "--option=APT::Sandbox::User=", "--quiet", "update"], environment)
    return _download_by(archives, own, environment)


def _download_by(
    archives: Path, options: Sequence[str], environment: Mapping[str, str]
) -> list[str]:
    # Simulated, as only root may install; a download is anyone's.
    simulated = _run(
        ["apt-get", *options, "--simulate", "--no-install-recommends", "install", *PACKAGES],
        environment,
    )
    names = [
        f"{name}={version}"
        for name, version in re.findall(
            r"^Inst (\S+) (?:\[[^]]*\] )?\((\S+)", simulated, re.MULTILINE
        )
    ]
    _run(
        ["apt-get", *options, "--option=APT::Sandbox::User=", "--quiet", "download", *names],
        environment,
        archives,
    )
    return names


def _write_launcher(made: Path, folder: Path) -> None:
    """Write ``chromium``, which starts the browser with its own libraries and fonts."""
    if not (made / _BINARY).is_file():
        raise PlaygroundError(f"the package chromium has no {_BINARY}: {_ADVICE}")
    libraries = ":".join(str(folder / path.relative_to(made)) for path in _libraries(made))
    (made / "fonts.conf").write_text(_FONTS.format(folder=folder))
    launcher = made / "chromium"
    launcher.write_text(
        "#!/bin/sh\n"
        f"export LD_LIBRARY_PATH={shlex.quote(libraries)}\n"
        f"export FONTCONFIG_FILE={shlex.quote(str(folder / 'fonts.conf'))}\n"
        f'exec {shlex.quote(str(folder / _BINARY))} "$@"\n'
    )
    launcher.chmod(0o755)


def _libraries(made: Path) -> Iterator[Path]:
    """Folders with libraries; some, such as PulseAudio's, lie deeper than the linker looks."""
    for top in ("lib", "usr/lib"):
        yield from sorted({path.parent for path in (made / top).rglob("lib*.so*")})


def _fetch_package(
    module: Path,
    made: Path,
    environment: Mapping[str, str],
    progress: Callable[[str], None],
) -> None:
    if shutil.which("npm", path=environment.get("PATH", "")) is None:
        raise PlaygroundError(
            f"npm is not on PATH: install Node.js, which brings it, for {module.name}"
        )
    start = time.monotonic()
    for path in module.iterdir():
        shutil.copy(path, made)
    _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], environment, made)
    progress(f"fetching {module.name} ... {time.monotonic() - start:.0f} s")


def _run(command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None) -> str:
    # Words are read out of what apt says.
    environment = {**environment, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    result = run_captured(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, errors="replace"
    )
    if result.returncode != 0:
        said = [line for line in result.stderr.splitlines() if line.strip()]
        faults = [line for line in said if line.startswith(("E:", "npm error"))] or said
        reason = faults[0].removeprefix("E: ") if faults else f"exit code {result.returncode}"
        raise PlaygroundError(f"{Path(command[0]).name} failed: {reason}: {_advice(command[0])}")
    return result.stdout


def _advice(program: str) -> str:
    return "is the npm registry reachable?" if program == "npm" else _ADVICE
