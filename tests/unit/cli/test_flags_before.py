"""Flags before the command and between its words, and the command without any word."""

from __future__ import annotations

import re
import shlex
import sys
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.cli import program
from harbourmaster.cli.main import _REPLACED, create_parser, current_words, main, plugin
from helpers.command import parsers

SHARED = {
    flag: action
    for flag, action in create_parser()._option_string_actions.items()
    if flag not in {"-h", "--help", "--version"}
}
GIVEN = [["--context=a"], ["-n", "shop"], ["-nshop"], ["--kubeconfig", "gate"], ["-A"], ["-o=json"]]
LEAVES = sorted(
    parser.prog.removeprefix("harbourmaster ")
    for parser in parsers()
    if parser.get_default("command") and " why " not in parser.prog
)


@pytest.fixture(autouse=True)
def name_as_before():
    token = program.name.set(program.OWN)
    yield
    program.name.reset(token)


@pytest.mark.parametrize("flag", SHARED)
def test_a_shared_flag_takes_as_many_values_in_every_command(flag):
    known = [parser._option_string_actions.get(flag) for parser in parsers()]
    assert {action.nargs for action in known if action is not None} == {SHARED[flag].nargs}


@given(
    st.sampled_from([*LEAVES, *_REPLACED]),
    st.lists(st.sampled_from(GIVEN), max_size=3),
    st.lists(st.sampled_from(GIVEN), max_size=2),
    st.sampled_from([[], ["cart"], ["--unknown", "-n", "a"]]),
)
def test_flags_before_the_command_are_moved_behind_it(command, before, between, rest):
    first, *others = command.split()
    words = [*chain(*before), first, *chain(*between), *others, *rest]
    new = _REPLACED.get(command, command)
    positional = rest if rest[:1] == ["cart"] else []
    moved = [*chain(*before, *between)]
    result, old = current_words(words)
    assert result == [*new.split(), *positional, *moved, *rest[len(positional) :]]
    assert old == (command if command in _REPLACED else "")


@pytest.mark.parametrize(
    "words",
    [
        "--context prod -n shop gate list -o wide",
        "gate --context=prod -nshop list -o wide",
        "gate list -o wide --context prod -n shop",
        "-o wide --context prod gate -n shop list",
    ],
)
def test_the_place_of_a_flag_does_not_matter(words):
    arguments = create_parser().parse_args(current_words(words.split())[0])
    assert (arguments.context, arguments.namespace, arguments.output) == ("prod", "shop", "wide")
    assert arguments.command.endswith(":show")


def test_the_flag_behind_the_command_wins():
    words, _ = current_words(["-n", "a", "why", "pod", "cart", "-n", "b"])
    assert create_parser().parse_args(words).namespace == "b"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            "--context a render --policies b -f c",
            "harbourmaster render: unknown argument --context",
        ),
        ("-n shop doctor", "harbourmaster doctor: unknown argument -n"),
        ("-n shop local status", "harbourmaster local status: unknown argument -n"),
        ("-n shop gate", "harbourmaster gate: the following arguments are required: ACTION"),
        ("-n shop", "harbourmaster: the following arguments are required: COMMAND"),
        ("gate list --namespce a", 'unknown argument --namespce: did you mean "--namespace"?'),
        ("--kubeconfig a check manifests", "check manifests: unknown argument --kubeconfig; see"),
    ],
)
def test_a_flag_that_a_command_does_not_have_is_refused_in_one_line(words, says, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


def test_help_comes_with_flags_before_it(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["-n", "shop", "gate", "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: harbourmaster gate")


@pytest.mark.parametrize("run", [main, plugin])
def test_a_terminal_without_a_command_gets_five_commands_to_start_with(run, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert run([]) == 0
    *first, last = capsys.readouterr().out.splitlines()
    name = "harbourmaster" if run is main else "kubectl harbourmaster"
    assert len(first) == 5
    assert all(len(line) <= 120 for line in first)
    assert last.split("  ")[0] == f"{name} --help"
    for line in first:
        command = re.sub(r'^eval "\$\((.*)\)"$', r"\1", line.split("  ")[0])
        assert command.startswith(f"{name} ")
        words = shlex.split(command.removeprefix(f"{name} "))
        assert create_parser().parse_args(words).command


def test_what_is_not_a_terminal_gets_a_usage_error(capsys):
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("harbourmaster: the following arguments are required")
