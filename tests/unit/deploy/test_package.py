"""One import package, ``harbourmaster``, in a checkout and in the wheels."""

from __future__ import annotations

import ast
import configparser
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
import yaml

from harbourmaster.cli.doctor.checks.permissions import required_permissions
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.serving.definitions import kinds
from helpers.manifests import ROOT, VERSION, kustomize, render
from helpers.releases import ADDED, build_wheel, clean, make_wheel

TOP_LEVEL = {"certs", "deploy", "playground", "policies", "webhook"}
PLAYGROUND = "harbourmaster.playground"
PROMETHEUS_RULE = ROOT / "deploy/components/monitoring/prometheusrule.yaml"
FOREIGN = ("policies", "cli", "webhook")


def part(name):
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return config[name]


def options():
    return part("options")


def package_folders():
    """The folder of each package below harbourmaster, by the name of the package."""
    lines = options()["package_dir"].split("\n")
    inner = (path.parent.name for path in ROOT.glob("harbourmaster/*/__init__.py"))
    packages = {f"harbourmaster.{name}": f"harbourmaster/{name}" for name in inner}
    return packages | dict(line.split(" = ") for line in lines if line)


def modules(package, folder):
    """The files of a package and of all below it, as a wheel names them."""
    place = package.replace(".", "/")
    return {
        f"{place}/{file.relative_to(folder)}"
        for file in folder.rglob("*.py")
        if not file.name.startswith(ADDED)
    }


def sources():
    """The Python files of each package but deploy, which has only manifests for a wheel."""
    folders = {
        name: ROOT / folder for name, folder in package_folders().items() if folder != "deploy"
    }
    modules_of = {name: modules(name, folder) for name, folder in folders.items()}
    assert all(modules_of.values())
    return modules_of


def run(*command, cwd=None, **environment):
    return subprocess.run(
        command,
        cwd=cwd,
        env={**clean(), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel") / "here")


@pytest.fixture(scope="module")
def playground_wheel(wheel):
    return make_wheel(wheel.parents[1], "playground")


def install(home, *wheels):
    """The programs of an environment of the wheels and what they need."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    pip = (sys.executable, "-m", "pip", "--python", home / "bin/python", "install", "--quiet")
    subprocess.run([*pip, "--no-deps", "--no-index", "--no-compile", *wheels], check=True)
    (packages,) = home.glob("lib/python3.*/site-packages")
    # A .pth file of a folder named in one is not read, so the checkout stays out of the path.
    (packages / "needed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return home / "bin"


@pytest.fixture(scope="module")
def programs(wheel, tmp_path_factory):
    return install(tmp_path_factory.mktemp("environment"), wheel)


@pytest.fixture
def new_module():
    """The name of a module that was not there when the checkout was installed."""
    file = ROOT / "harbourmaster/gates" / f"{ADDED}{os.getpid()}.py"
    file.write_text("from harbourmaster.gates import version\n\nNAME = version.__name__\n")
    yield f"harbourmaster.gates.{file.stem}"
    file.unlink()


def test_a_new_module_is_imported_without_a_reinstall(new_module, tmp_path):
    code = f"import {new_module} as new; print(new.NAME)"
    result = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONDONTWRITEBYTECODE="1")
    assert (result.stdout, result.stderr) == ("harbourmaster.gates.version\n", "")


def test_a_module_of_the_checkout_is_imported_from_the_checkout(tmp_path):
    code = "from harbourmaster.policies import merge; print(merge.__file__)"
    result = run(sys.executable, "-c", code, cwd=tmp_path)
    assert Path(result.stdout.strip()).resolve() == ROOT / "policies/merge.py"


def test_no_module_is_imported_by_the_name_of_its_folder():
    names = {name.rpartition(".")[2] for name in package_folders()}
    places = (*TOP_LEVEL, "harbourmaster", "docs", "tests")
    files = [file for place in places for file in (ROOT / place).rglob("*.py")]
    assert len(files) > len(names)
    unlisted = []
    for file in files:
        if file.name.startswith(ADDED):
            continue
        text = file.read_text()
        # Most files have none: only what looks like one is parsed.
        if not re.search(rf"^\s*(from|import)\s+({'|'.join(names)})\b", text, re.MULTILINE):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                imported = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported = [node.module]
            else:
                continue
            unlisted += [
                f"{file.relative_to(ROOT)}: import harbourmaster.{name}"
                for name in imported
                if name.partition(".")[0] in names - {"deploy"}
            ]
    assert not unlisted


def test_setup_cfg_lists_each_folder_but_the_playground():
    listed = set(options()["packages"].split())
    folders = {
        file.rpartition("/")[0].replace("/", ".") for files in sources().values() for file in files
    }
    data = {name for name in listed if name.startswith("harbourmaster.deploy.")}
    assert listed - data == {"harbourmaster"} | {
        name for name in folders if not name.startswith(PLAYGROUND)
    }
    assert {folder for folder in package_folders().values() if "/" not in folder} == TOP_LEVEL


def test_only_setup_cfg_the_changelog_and_the_tag_of_the_image_name_the_version():
    folders = ("docs", "deploy", "playground")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.*")]
    files += [ROOT / name for name in ("README.md", "Dockerfile", "Makefile", "pyproject.toml")]
    # Versions of others.
    files = [path for path in files if path.is_file() and "modules" not in path.parts]
    named = rf"harbourmaster\w*([-:]|==)\d+\.\d|(?<![\d.]){re.escape(VERSION)}(?![\d.])"
    matching = [
        path for path in files if re.search(named, path.read_bytes().decode(errors="replace"))
    ]
    assert len(files) > 200
    assert matching == [ROOT / "deploy/base/kustomization.yaml"]
    base = yaml.safe_load(matching[0].read_text())
    assert base["images"] == [{"name": "harbourmaster", "newTag": VERSION}]


def test_three_files_name_the_address_of_the_project_as_setup_cfg_does():
    named = [ROOT / "deploy/chart/Chart.yaml", PROMETHEUS_RULE, ROOT / "playground/pyproject.toml"]
    pages = {PROMETHEUS_RULE: "/operations/alerts.html"}
    for file in named:
        addresses = re.findall(r"https://harbourmaster\.[^\s\"]+", file.read_text())
        assert addresses == [part("metadata")["url"] + pages.get(file, "")]
    manifests = [path for path in (ROOT / "deploy").rglob("*.yaml") if path not in named]
    assert not [path for path in manifests if "https://harbourmaster." in path.read_text()]


@pytest.mark.slow
def test_the_wheel_has_one_package_with_all_modules_but_the_playground(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {
        "harbourmaster",
        f"harbourmaster-{VERSION}.dist-info",
    }
    wanted = modules("harbourmaster", ROOT / "harbourmaster")
    for package, files in sources().items():
        wanted |= files if package != PLAYGROUND else set()
    assert {name for name in names if name.endswith(".py")} == wanted
    assert "harbourmaster/py.typed" in names


def metadata_of(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
    return message_from_bytes(archive.read(name))


@pytest.mark.slow
def test_the_playground_has_the_version_of_the_harbourmaster_that_it_needs(playground_wheel):
    metadata = metadata_of(playground_wheel)
    assert metadata["Version"] == VERSION
    assert metadata.get_all("Requires-Dist") == [f"harbourmaster=={VERSION}"]


@pytest.mark.slow
def test_the_wheels_name_their_author_and_home(wheel, playground_wheel):
    for archive in (wheel, playground_wheel):
        metadata = metadata_of(archive)
        assert metadata["Author"] == "Harbourmaster maintainers"
        home = [metadata["Home-page"], *(metadata.get_all("Project-URL") or [])]
        assert any("https://harbourmaster.example.com" in url for url in home if url)


@pytest.mark.slow
def test_the_wheel_of_the_playground_has_all_manifests_of_the_default(playground_wheel, tmp_path):
    archive = zipfile.ZipFile(playground_wheel)
    archive.extractall(tmp_path)
    default = tmp_path / "harbourmaster/playground/deploy/default"
    assert (default / "kustomization.yaml").is_file()
    assert kustomize(default) == render("default")


@pytest.mark.slow
def test_the_wheels_contain_the_licence(wheel, playground_wheel):
    licence = (ROOT / "LICENSE").read_bytes()
    for path in (wheel, playground_wheel):
        archive = zipfile.ZipFile(path)
        (name,) = [name for name in archive.namelist() if name.endswith("/LICENSE")]
        assert archive.read(name) == licence


@pytest.mark.slow
def test_packages_of_others_beside_the_wheel_are_not_taken_for_ours(programs, tmp_path):
    for name in FOREIGN:
        package = tmp_path / "foreign" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("raise ImportError('of somebody else')\n")
    command = programs / "harbourmaster"
    path = str(tmp_path / "foreign")
    told = run(command, "--version", PYTHONPATH=path)
    assert (told.stdout, told.stderr) == (f"{VERSION}\n", "")
    example = ROOT / "tests/fixtures/deployment-create.json"
    policies = ROOT / "deploy/samples"
    reviewed = run(command, "replay", f"--policies={policies}", example, PYTHONPATH=path)
    assert reviewed.returncode == 0, reviewed.stderr
    assert '"allowed":true' in reviewed.stdout.replace(" ", "")


@pytest.mark.slow
def test_without_the_playground_one_line_says_what_to_install(programs, tmp_path):
    told = run(programs / "harbourmaster", "local", "up", f"--dir={tmp_path / 'x'}")
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == (
        "harbourmaster: package harbourmaster.playground not found: local: "
        f"pip install harbourmaster-playground=={VERSION}\n"
    )


@pytest.mark.slow
def test_with_the_playground_local_works(wheel, playground_wheel, tmp_path):
    python = install(tmp_path / "environment", wheel, playground_wheel) / "python"
    local = (python, "-m", "harbourmaster", "local", "status", f"--dir={tmp_path / 'x'}")
    told = run(*local)
    assert told.returncode == 1
    assert told.stderr == f"harbourmaster is not running in {tmp_path / 'x'}\n"
    code = (
        "from harbourmaster.playground.build import MODULES\n"
        "from harbourmaster.playground.commands import STAGES\n"
        "from harbourmaster.playground.manifests import DEFAULT\n"
        "print(*(sum(1 for each in folder.rglob('*') if each.is_file())\n"
        "        for folder in (MODULES, STAGES, DEFAULT.parent)))"
    )
    numbers = [int(number) for number in run(python, "-c", code).stdout.split()]
    assert len(numbers) == 3
    assert all(numbers)


@pytest.mark.slow
def test_doctor_knows_the_rights_from_the_wheel_as_from_the_checkout(programs):
    code = (
        "from harbourmaster.cli.doctor.checks.permissions import required_permissions\n"
        "from harbourmaster.controller.settings import ControllerSettings\n"
        "print(*sorted(required_permissions(ControllerSettings(), 'x')), sep='\\n')"
    )
    told = run(programs / "python", "-c", code)
    assert told.stdout.splitlines() == list(
        map(str, sorted(required_permissions(ControllerSettings(), "x")))
    )
    assert told.stdout


@pytest.mark.slow
def test_validate_knows_the_fields_of_all_kinds_from_the_wheel(programs, tmp_path):
    file = tmp_path / "task.yaml"
    head = "apiVersion: lifecycle.keptn.sh/v1\nkind: KeptnTaskDefinition\nmetadata: {name: a}\n"
    file.write_text(f"{head}spec: {{contaner: {{}}}}\n")
    told = run(programs / "harbourmaster", "check", "manifests", file)
    assert told.returncode == 1, told.stderr
    text = 'spec.contaner: unknown field: did you mean "container"?'
    assert f"{file}:1: error: KeptnTaskDefinition a: {text}\n" in told.stdout
    code = "from harbourmaster.serving.definitions import kinds; print(len(kinds()))"
    assert run(programs / "python", "-c", code).stdout == f"{len(kinds())}\n"
