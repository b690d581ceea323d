"""Completion scripts for shells and for kubectl, generated from the parsers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import shtab

from harbourmaster.cli import program
from harbourmaster.cli.arguments import add_shared
from harbourmaster.cli.main import create_parser, group_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

KUBECTL: Final = "kubectl"
_PLUGIN: Final = """#!/usr/bin/env bash
# Save as kubectl_complete-{name} on the PATH: kubectl runs it with the words after its own.
{script}
COMP_WORDS=({name} "$@")
COMP_CWORD=$#
_shtab_{name}
printf '%s\\n' "${{COMPREPLY[@]}}" :0"""


def completion(arguments: argparse.Namespace) -> int:
    """Print the script for one shell."""
    # Also if kubectl calls us: the scripts complete our own command.
    parser = create_parser(program.OWN)
    for action in _actions(parser):
        _hint(action)
    if arguments.shell == KUBECTL:
        print(_PLUGIN.format(name=program.OWN, script=shtab.complete(parser, "bash")))
    else:
        print(shtab.complete(parser, arguments.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    group = group_of(parser)
    if group and "--context" not in parser._option_string_actions:  # noqa: SLF001
        add_shared(parser)
    yield from parser._actions  # noqa: SLF001 - argparse offers no other way
    for below in group.choices.values() if group else ():
        yield from _actions(below)


def _hint(action: argparse.Action) -> None:
    """Complete files and fixed values, which help texts name: ``FILE|-``, ``true|false``."""
    values = str(action.metavar).split("|")
    if {"FILE", "DIR"} & set(values):
        action.complete = shtab.FILE if "FILE" in values else shtab.DIRECTORY  # type: ignore[attr-defined]
    elif len(values) > 1 and action.choices is None:
        action.choices = values
