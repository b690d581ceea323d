"""Describes the commands with their arguments, as argparse knows them."""

from __future__ import annotations

import argparse
import inspect
import textwrap
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.cli.main import create_parser
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.webhook.settings import AdmissionSettings, Settings, WebhookSettings
from manual.markdown import block, code, plain, table
from manual.tables import settings_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

WIDTH: Final = 88
_SETTINGS: Final = {
    Settings: "settings.md#server",
    WebhookSettings: "settings.md",
    ControllerSettings: "settings-controller.md",
    AdmissionSettings: "settings.md#offline-commands",
}


def command_sections(*commands: str) -> str:
    """Return a section for each of the commands, and one below it for each of its actions."""
    return "".join(
        f"{part}\n" if part.endswith("\n") else part
        for name, parser, summary in _below(create_parser())
        if name in commands
        for part in _section(name, parser, summary, depth=2)
    )


def _below(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summary = {
                choices_action.dest: choices_action.help or ""
                for choices_action in action._choices_actions
            }
            for name, below in action.choices.items():
                # Aliases, and actions that equal those of another kind, are not listed.
                if name in summary:
                    yield name, below, summary[name]


def _section(name: str, parser: argparse.ArgumentParser, summary: str, depth: int) -> Iterator[str]:
    yield f"{'#' * depth} {name}\n"
    if summary:
        yield f"{plain(summary[:1].upper() + summary[1:])}.\n"
    if parser.description and parser.description != summary:
        yield f"{plain(inspect.cleandoc(parser.description))}\n"
    yield block(_usage(parser))
    rows = [row for action in _arguments(parser) for row in _rows(action, parser)]
    if rows:
        yield table(["argument", "meaning"], rows)
    if settings := parser.get_default("settings_type"):
        yield "Its settings are flags too, and keys of a file given by `--config`"
        if page := _SETTINGS.get(settings):
            yield f"; they are [listed elsewhere]({page}).\n"
        else:
            yield f":\n\n{settings_table(settings)}"
    if parser.epilog:
        _, _, examples = parser.epilog.partition("\n")
        yield block(textwrap.dedent(examples))
    for below, its_parser, its_help in _below(parser):
        yield from _section(f"{name} {below}", its_parser, its_help, min(depth + 1, 4))


def _arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the arguments of a command, without help and those of the page of settings."""
    return [
        action
        for group in parser._action_groups
        if group.title != "settings"
        for action in group._group_actions
        if not isinstance(action, argparse._HelpAction)
    ]


def _usage(parser: argparse.ArgumentParser) -> str:
    formatter = argparse.HelpFormatter(parser.prog, width=WIDTH)
    formatter.add_usage(parser.usage, _arguments(parser), parser._mutually_exclusive_groups, "")
    settings = " [SETTINGS]" if parser.get_default("settings_type") else ""
    return formatter.format_help().rstrip() + settings


def _rows(action: argparse.Action, parser: argparse.ArgumentParser) -> Iterator[list[str]]:
    if isinstance(action, argparse._SubParsersAction) or action.help is argparse.SUPPRESS:
        return
    formatter = argparse.HelpFormatter(parser.prog)
    values = formatter._format_args(action, _metavar(action)) if action.nargs != 0 else ""
    spelled = [f"{flag} {values}".rstrip() for flag in action.option_strings] or [values]
    summary = formatter._expand_help(action) if action.help else ""
    yield [", ".join(map(code, spelled)), plain(summary)]


def _metavar(action: argparse.Action) -> Any:  # noqa: ANN401 - argparse takes a text or several
    if action.metavar is not None:
        return action.metavar
    if action.choices is not None:
        return f"{{{','.join(map(str, action.choices))}}}"
    return action.dest.upper()
