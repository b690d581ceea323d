from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from harbourmaster.playground import browser
from harbourmaster.playground.browser import ensure_axe, ensure_browser
from harbourmaster.playground.errors import PlaygroundError
from helpers.stubs import write_program

# Stand for apt-get and dpkg-deb: the one notes its calls and makes two packages, the other unpacks
# a browser that needs its library, or what TREE names instead.
APT = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in
  *update*) exit 0 ;;
  *install*) [ -z "$APT_FAILS" ] || { echo "E: Unable to locate package $APT_FAILS" >&2; exit 100; }
    echo "Reading package lists..."
    echo "Inst libfirst (1.2-3 Debian:12/stable [amd64])"
    echo "Inst chromium [155.0] (156.0-1 Debian-Security:12/stable-security [amd64]) []"
    echo "Conf chromium (156.0-1 Debian-Security:12/stable-security [amd64])" ;;
  *download*)
    case "$STALE:$*" in yes:*Dir::State::Lists*) ;;
      yes:*) echo "E: Failed to fetch chromium  404  Not Found" >&2; exit 100 ;;
    esac
    touch libfirst_1.2-3_amd64.deb chromium_156.0-1_amd64.deb ;;
esac
"""
DPKG = """#!/bin/sh
mkdir -p "$3/usr/lib/chromium" "$3/usr/lib/x86_64-linux-gnu/deep"
touch "$3/usr/lib/x86_64-linux-gnu/deep/libfirst.so.1"
[ -n "$EMPTY" ] || printf '%s\\n' "$BROWSER" > "$3/usr/lib/chromium/chromium"
[ -n "$EMPTY" ] || chmod +x "$3/usr/lib/chromium/chromium"
"""
SAYS = '#!/bin/sh\necho "$1 $LD_LIBRARY_PATH"'
BROKEN = "#!/bin/sh\necho 'chromium: error while loading shared libraries: libx.so' >&2\nexit 127"
NPM = """#!/bin/sh
echo "npm $@ in $(ls)" >> "$CALLS"
[ -z "$NPM_FAILS" ] || { echo "npm warn old" >&2; echo "npm error $NPM_FAILS" >&2; exit 1; }
mkdir -p node_modules/axe-core
touch node_modules/axe-core/axe.min.js
"""


@pytest.fixture
def environment(tmp_path):
    for name, script in (("apt-get", APT), ("dpkg-deb", DPKG), ("npm", NPM)):
        write_program(tmp_path / "bin" / name, script)
    return {
        "PATH": f"{tmp_path / 'bin'}:{system(tmp_path)}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "CALLS": str(tmp_path / "calls"),
        "BROWSER": SAYS,
    }


def system(tmp_path):
    """The few commands that the stand-ins use; this machine's own browser is not among them."""
    folder = tmp_path / "system"
    folder.mkdir()
    for name in ("sh", "mkdir", "touch", "chmod", "ls"):
        (folder / name).symlink_to(shutil.which(name))
    return folder


def find_browser(environment, lines=None):
    progress = (lambda _: None) if lines is None else lines.append
    return ensure_browser(environment=environment, progress=progress)


def calls(environment):
    path = Path(environment["CALLS"])
    return path.read_text().splitlines() if path.exists() else []


def list_left(tmp_path):
    return {path.name for path in (tmp_path / "cache/harbourmaster").iterdir()}


def test_the_users_own_browser_comes_first(environment, tmp_path):
    named = write_program(tmp_path / "own" / "browser")
    write_program(tmp_path / "bin" / "chromium")
    assert find_browser({**environment, "CHROMIUM": str(named)}) == named


def test_a_named_browser_that_is_not_there_is_one_line(environment):
    with pytest.raises(PlaygroundError) as raised:
        find_browser({**environment, "CHROMIUM": "/nowhere/browser"})
    assert str(raised.value) == "CHROMIUM=/nowhere/browser is not a program: correct or unset it"


@pytest.mark.parametrize("name", browser.PROGRAMS)
def test_an_installed_browser_is_taken(environment, tmp_path, name):
    installed = write_program(tmp_path / "bin" / name)
    assert find_browser(environment) == installed
    assert calls(environment) == []


def test_debians_packages_are_unpacked_with_a_launcher(environment):
    lines = []
    launcher = find_browser(environment, lines)
    said = subprocess.run([launcher, "--headless"], capture_output=True, text=True, check=True)
    folder = launcher.parent
    assert said.stdout == f"--headless {folder}/usr/lib/x86_64-linux-gnu/deep\n"
    assert f"<dir>{folder}/usr/share/fonts</dir>" in (folder / "fonts.conf").read_text()
    assert [line.rpartition(" ... ")[0] for line in lines] == [
        "fetching 2 packages of Chromium",
        "unpacking Chromium",
    ]


def test_exactly_what_is_missing_is_downloaded_and_nothing_installed(environment):
    find_browser(environment)
    simulated, downloaded = calls(environment)
    assert simulated.startswith("--simulate ")
    assert downloaded.endswith(" download libfirst=1.2-3 chromium=156.0-1")


def test_two_callers_at_once_fetch_once(environment, twice_at_once):
    first, second = twice_at_once(lambda: find_browser(environment))
    assert first == second
    assert len(calls(environment)) == 2


def test_package_lists_that_are_out_of_date_give_way_to_new_ones_beside_the_systems(environment):
    lines = []
    assert find_browser({**environment, "STALE": "yes"}, lines).is_file()
    assert lines[0].endswith("; trying newer package lists")
    assert "Failed to fetch chromium  404  Not Found" in lines[0]
    for call in calls(environment)[2:]:
        assert "Dir::State::Lists=" in call
        assert "/etc" not in call


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"APT_FAILS": "chromium"},
            (
                r"^apt-get failed: Unable to locate package chromium: "
                "put chromium on PATH, or let CHROMIUM name one$"
            ),
        ),
        ({"BROWSER": BROKEN}, r"loading shared libraries: libx\.so"),
        ({"EMPTY": "yes"}, r"^the package chromium has no usr/lib"),
    ],
    ids=["unknown package", "browser does not start", "package without a browser"],
)
def test_what_cannot_be_fetched_is_one_line_and_leaves_nothing(environment, tmp_path, given, text):
    with pytest.raises(PlaygroundError, match=text):
        find_browser({**environment, **given})
    assert list_left(tmp_path) == {"browser.lock"}


@pytest.mark.parametrize("name", ["apt-get", "dpkg-deb"])
def test_a_system_without_debians_tools_is_one_line(environment, tmp_path, name):
    (tmp_path / "bin" / name).unlink()
    with pytest.raises(PlaygroundError) as raised:
        find_browser(environment)
    assert str(raised.value) == (
        f"neither chromium nor {name} is on PATH: put chromium on PATH, or let CHROMIUM name one"
    )


def test_what_a_killed_fetch_left_is_removed_by_the_next(environment, tmp_path):
    abandoned = tmp_path / "cache/harbourmaster/fetching-x"
    abandoned.mkdir(parents=True)
    find_browser(environment)
    assert not abandoned.exists()


def test_what_another_system_lacked_is_not_taken(environment, monkeypatch):
    before = find_browser(environment)
    monkeypatch.setattr(browser, "PACKAGES", ("chromium", "fonts-other"))
    assert find_browser(environment) != before


def axe(environment):
    return ensure_axe(environment=environment, progress=lambda _: None)


def test_axe_comes_from_the_lock_file_and_runs_nothing_of_its_own(environment):
    script = axe(environment)
    assert script.name == "axe.min.js"
    assert axe(environment) == script
    assert calls(environment) == [
        "npm ci --ignore-scripts --no-audit --no-fund in package-lock.json",
        "package.json",
    ]


def test_a_missing_npm_is_one_line(environment, tmp_path):
    (tmp_path / "bin" / "npm").unlink()
    with pytest.raises(PlaygroundError) as raised:
        axe(environment)
    assert str(raised.value) == ("npm is not on PATH: install Node.js, which brings it, for axe")


def test_an_npm_that_fails_is_one_line_and_leaves_nothing(environment, tmp_path):
    with pytest.raises(PlaygroundError) as raised:
        axe({**environment, "NPM_FAILS": "network timeout"})
    assert str(raised.value) == (
        "npm failed: npm error network timeout: is the npm registry reachable?"
    )
    assert list_left(tmp_path) == {"browser.lock"}


def test_the_lock_file_has_hashes_and_names_no_host():
    lock = (browser.AXE / "package-lock.json").read_text()
    assert '"integrity": "sha512-' in lock
    assert "http" not in lock
    assert "resolved" not in lock
