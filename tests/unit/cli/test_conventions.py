"""Every command follows kubectl in namespaces, versions, help and colours."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys

import pytest

from harbourmaster.api.resources import DEPLOYMENTS, PODS
from harbourmaster.cli import program
from harbourmaster.cli.main import create_parser, main, plugin
from harbourmaster.cli.terminal import print_out
from harbourmaster.controller.names import CONTROLLERS
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.serving.options import _leaves
from harbourmaster.serving.process import MOST_CHOICES
from helpers.command import parsers
from helpers.gated import PROD, pod, put

HOME = "harbourmaster-system"
IMAGE = "registry.example.com/harbourmaster:0.1.0"


def test_a_namespace_is_the_objects_and_the_installations_has_one_name():
    meanings = {}
    for parser in parsers():
        if parser.get_default("settings_type"):
            continue  # The processes' own settings.
        for action in parser._actions:
            if action.help is not argparse.SUPPRESS and "--namespace" in action.option_strings:
                meanings[parser.prog] = action.dest
        result = {
            name
            for action in parser._actions
            if action.dest == "installed_in" and action.help is not argparse.SUPPRESS
            for name in action.option_strings
        }
        assert result <= {"--installed-in"}
    assert set(meanings.values()) == {"namespace"}
    assert {"harbourmaster gate list", "harbourmaster why pod"} <= meanings.keys()


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["doctor"], "--namespace"),
        (["migrate"], "--namespace"),
        (["uninstall"], "--namespace"),
        (["grant", "secrets", "-n", "shop"], "--installation"),
    ],
)
def test_the_flags_of_0_1_0_still_name_the_installation_and_say_what_replaces_them(
    words, flag, capsys
):
    command = f"harbourmaster {' '.join(words[:2] if words[0] == 'grant' else words)}"
    assert create_parser().parse_args(words).installed_in == HOME
    assert create_parser().parse_args([*words, "--installed-in=a"]).installed_in == "a"
    assert capsys.readouterr().err == ""
    assert create_parser().parse_args([*words, f"{flag}=a"]).installed_in == "a"
    assert capsys.readouterr().err == f"{command}: {flag} is deprecated: use --installed-in\n"
    with pytest.raises(SystemExit):
        main([*words[:2], "--help"] if words[0] == "grant" else [*words, "--help"])
    assert f"{flag} " not in capsys.readouterr().out.replace("-n NAME, --namespace NAME", "")


async def test_the_version_of_the_installation_is_that_of_its_images(api, command):
    container = {"name": "manager", "image": IMAGE, "args": ["controller"]}
    spec = {"template": {"spec": {"containers": [container]}}}
    metadata = {"name": "harbourmaster-controller", "namespace": HOME}
    api.put(DEPLOYMENTS, {"metadata": metadata, "spec": spec})
    labels = {"app.kubernetes.io/version": "0.1.0"}
    metadata = {"name": "harbourmaster-webhook", "namespace": HOME, "labels": labels}
    api.put(DEPLOYMENTS, {"metadata": metadata, "spec": spec})
    code, out, err = await command("version")
    client, *lines = out.splitlines()
    assert (code, err) == (0, "")
    assert client.startswith("client: ")
    assert lines[:2] == [f"controller: {IMAGE}", f"webhook: 0.1.0 ({IMAGE})"]
    assert lines[2].startswith("kubernetes: 1.")
    code, out, _ = await command("version", "-o", "json")
    assert (code, json.loads(out)["controller"]) == (0, IMAGE)


async def test_a_version_that_cannot_be_asked_for_says_why(api, command):
    api.forbid("get", DEPLOYMENTS)
    code, out, _ = await command("version", "--installed-in", "elsewhere")
    assert code == 0
    assert "controller: unknown: missing permission to get deployments" in out
    api.heal()
    code, out, _ = await command("version", "--installed-in", "elsewhere")
    assert "webhook: not found in namespace elsewhere" in out


def test_the_version_of_the_command_needs_no_cluster(tmp_path, capsys):
    assert main(["version", "--kubeconfig", str(tmp_path / "absent")]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("client: ")
    assert printed.err.startswith("harbourmaster: kubeconfig ")
    assert main(["version", "--client"]) == 0
    assert capsys.readouterr() == (printed.out, "")


@pytest.mark.parametrize("words", [[], ["why"], ["gate", "list"]])
def test_help_prints_what_the_option_prints(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["help", *words])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    assert printed == capsys.readouterr().out


def helped(capsys, *words):
    with contextlib.suppress(SystemExit):
        main([*words])
    return capsys.readouterr().out


def test_the_help_of_the_controller_names_each_controller_and_each_subject(capsys):
    text = helped(capsys, "server", "controller", "--help")
    shown = {line.split()[0] for line in text.splitlines() if re.match(r"  [a-z]", line)}
    subjects = {leaf.path[0] for leaf in _leaves(ControllerSettings) if len(leaf.path) > 1}
    assert shown == subjects | set(CONTROLLERS)
    assert len(text.splitlines()) < 80
    assert all(description.split()[0] in text for description in CONTROLLERS.values())


def test_each_setting_of_the_controller_is_in_the_help_of_one_subject(capsys):
    subjects = {leaf.path[0] for leaf in _leaves(ControllerSettings) if len(leaf.path) > 1}
    texts = [helped(capsys, "server", "controller", "--help")]
    texts += [
        helped(capsys, "help", "server", "controller", subject) for subject in sorted(subjects)
    ]
    keys = re.findall(r"\[([a-zA-Z.]+): ", " ".join(" ".join(texts).split()))
    assert sorted(keys) == sorted(".".join(leaf.path) for leaf in _leaves(ControllerSettings))


@pytest.mark.parametrize(
    "words", [["server", "controller", "lifecycl"], ["server", "controller", "log", "x"]]
)
def test_help_of_no_subject_is_the_help_of_the_command(words, capsys):
    assert helped(capsys, "help", *words).startswith("usage: harbourmaster server controller")


def test_help_of_the_plugin_names_the_plugin(capsys):
    token = program.name.set(program.OWN)
    try:
        with pytest.raises(SystemExit):
            plugin(["help", "doctor"])
    finally:
        program.name.reset(token)
    assert capsys.readouterr().out.startswith("usage: kubectl harbourmaster doctor")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["docter"], "doctor"),
        (["gate", "lst"], "list"),
        (["gate", "list", "-o", "jsn"], "json"),
        (["completion", "bsh"], "bash"),
    ],
)
def test_a_mistyped_command_or_value_is_answered_with_the_one_that_is_meant(words, meant, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert f'invalid choice "{words[-1]}": did you mean "{meant}"?' in capsys.readouterr().err


def test_a_name_without_a_type_is_answered_with_examples_and_not_with_all_types(capsys):
    with pytest.raises(SystemExit):
        main(["why", "m9/till"])
    err = capsys.readouterr().err
    assert 'invalid choice "m9": expected TYPE NAME, such as pod m9/till or deployment m9' in err
    with pytest.raises(SystemExit):
        main(["why", "workload", "qqqq"])
    err = capsys.readouterr().err
    assert err.count(", ") == MOST_CHOICES
    assert ", ...; see harbourmaster why workload --help" in err


def test_a_name_like_no_other_is_answered_with_all_choices(capsys):
    with pytest.raises(SystemExit):
        main(["completion", "qqqq"])
    assert 'invalid choice "qqqq": choose from bash, zsh, fish, kubectl' in capsys.readouterr().err


@pytest.fixture(params=["gate list", "doctor", "why pod/orphan-1"])
def colourful(api, command, monkeypatch, request):
    """Return a function that gives what a command prints that has something to complain about."""
    monkeypatch.setattr("harbourmaster.cli.gate.PENDING_PODS", "")
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    put(api, PODS, pod("orphan-1", {"a": "b"}))
    words = request.param.split()
    place = [] if words == ["doctor"] else ["-n", PROD]

    async def colourful(*, is_terminal=True):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal, raising=False)
        return (await command(*words, *place))[1]

    return colourful


async def test_a_terminal_gets_colours(colourful):
    assert "\x1b[" in await colourful()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
async def test_a_terminal_that_wants_no_colours_gets_none(colourful, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert "\x1b" not in await colourful()


async def test_what_is_not_a_terminal_gets_no_colours(colourful):
    assert "\x1b" not in await colourful(is_terminal=False)


def test_columns_stay_columns_on_a_narrow_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    print_out(argparse.Namespace(output="text"), None, ["column  " * 20])
    assert capsys.readouterr().out.count("\n") == 1
