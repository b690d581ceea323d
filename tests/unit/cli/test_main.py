"""Properties of all commands, also as ``kubectl harbourmaster``."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harbourmaster.cli import program
from harbourmaster.cli.main import create_parser, main, parser_of, plugin
from helpers.command import parsers

# They name Secrets, files and a taint, and contain no secret.
NAMES_OF_SECRETS = {
    "--certificates-adopt-secret",
    "--certificates-secret-name",
    "--kubeconfig-secret",
    "--on-unknown-keys",
    "--rescheduling-taint-key",
}


def test_what_programs_read_is_asked_for_as_kubectl_asks():
    result = {
        parser.prog: action.option_strings
        for parser in parsers()
        for action in parser._actions
        if "--output" in action.option_strings
    }
    assert {"harbourmaster gate list", "harbourmaster doctor"} <= result.keys()
    assert [command for command, names in result.items() if "-o" not in names] == []


@pytest.mark.claim("C2")
def test_no_command_takes_a_secret_as_an_argument():
    # Every process of a machine sees the arguments of the others.
    names = {name for parser in parsers() for name in parser._option_string_actions}
    suspect = {name for name in names if re.search(r"token|passw|key|secret|credential", name)}
    assert suspect == NAMES_OF_SECRETS


def test_a_parser_gives_every_call_what_a_new_parser_gives():
    lines = [
        "render --policies=a -f=a -f=b",
        "render --policies=a -f=c",
        "placement new cluster a --metric load 1 --label=a=b -L=a",
        "placement new cluster a",
        "local up --with=dashboard --webhook-args=a",
        "local up",
        "preview --cluster --delete=a --fail-on=changed",
        "preview --dump=a",
        "why -f=a",
        "why pod/a -A -o=json --installed-in=a",
        "why pod a",
    ]
    for words in map(str.split, [*lines, *reversed(lines)]):
        assert parser_of(program.OWN).parse_args(words) == create_parser().parse_args(words)
    assert parser_of(program.PLUGIN).prog == program.PLUGIN


def test_only_the_modules_of_the_command_that_is_called_are_loaded():
    code = (
        "import sys; from harbourmaster.cli.main import create_parser; "
        "create_parser().parse_args(['gate', 'list']); print(*sys.modules, sep='\\n')"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "harbourmaster.cli.cluster_commands" in run.stdout.splitlines()
    unused = r"harbourmaster\.(cli\.(gate|placement|overview)|controller|webhook)|aiohttp"
    assert not re.findall(unused, run.stdout)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["preview", "-f", "a"], "harbourmaster preview: one of the arguments --cluster --dump"),
        (["gate", "release", "a/b"], "harbourmaster gate release: the following arguments are"),
        (["wyh"], 'harbourmaster: argument COMMAND: invalid choice "wyh": did you mean "why"?'),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments, said, capsys):
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(said)
    assert line.endswith(f"; see {said.partition(':')[0]} --help")


ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def name_as_before():
    token = program.name.set(program.OWN)
    yield
    program.name.reset(token)


def test_help_and_errors_name_the_plugin(capsys):
    with pytest.raises(SystemExit):
        plugin(["gate", "--help"])
    text = capsys.readouterr().out
    assert text.startswith("usage: kubectl harbourmaster gate")
    assert "\n  kubectl harbourmaster gate list" in text
    with pytest.raises(SystemExit):
        plugin(["nonsense"])
    assert capsys.readouterr().err.startswith("kubectl harbourmaster: argument COMMAND: ")
    assert plugin(["why", "pod", "a/b", "--kubeconfig", "/nonexistent"]) == 2
    assert capsys.readouterr().err.startswith("kubectl harbourmaster: kubeconfig /nonexistent")


def test_the_command_of_its_own_keeps_its_name(capsys):
    assert main(["why", "pod", "a/b", "--kubeconfig", "/nonexistent"]) == 2
    assert capsys.readouterr().err.startswith("harbourmaster: ")


def test_it_is_installed_under_the_name_that_kubectl_looks_for():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    scripts = config["options.entry_points"]["console_scripts"].split("\n")
    assert "kubectl-harbourmaster = harbourmaster.cli.main:plugin" in scripts


def test_kubectl_finds_it(tmp_path):
    kubectl = shutil.which("kubectl", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert kubectl, "kubectl comes with the development requirements"
    script = tmp_path / "kubectl-harbourmaster"
    script.write_text(
        f"#!{sys.executable}\nimport sys\n"
        "from harbourmaster.cli.main import plugin\nsys.exit(plugin())\n"
    )
    script.chmod(0o755)
    done = subprocess.run(
        [kubectl, "harbourmaster", "why", "--help"],
        env={"PATH": str(tmp_path), "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("usage: kubectl harbourmaster why")
