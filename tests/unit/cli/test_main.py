"""What all commands have in common."""

from __future__ import annotations

import argparse

import pytest

from harbourmaster.cli.main import _parser, main


def outputs(parser):
    """Each --output below a parser, with the command that has it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from outputs(child)
        elif "--output" in action.option_strings:
            yield parser.prog, action.option_strings


def test_what_programs_read_is_asked_for_as_kubectl_asks():
    found = dict(outputs(_parser()))
    assert {"harbourmaster gate list", "harbourmaster doctor"} <= found.keys()
    assert [command for command, options in found.items() if "-o" not in options] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["preview", "-f", "a"], "harbourmaster preview: one of the arguments --cluster --dump"),
        (["gate", "release", "a/b"], "harbourmaster gate release: the following arguments are"),
        (["wyh"], "harbourmaster: argument COMMAND: invalid choice: 'wyh'"),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments, said, capsys):
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(said)
    assert line.endswith(f"; see {said.partition(':')[0]} --help")
