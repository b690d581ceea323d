"""The controller's arguments, and its help, which has many settings: by subject, on request."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import fields

from harbourmaster.cli import program
from harbourmaster.cli.arguments import set_command
from harbourmaster.cli.main import current_words, group_of, parser_of
from harbourmaster.controller.names import CONTROLLERS
from harbourmaster.controller.settings import ControllerSettings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from msgspec import Struct


def add_server_controller(controller: argparse.ArgumentParser) -> None:
    """Add the arguments of ``server controller``."""
    set_command(
        controller,
        run="harbourmaster.controller.process:run",
        description="Run the controllers in a cluster; one replica at a time works.",
        settings=ControllerSettings,
    )
    controller.format_help = partial(overview, controller, ControllerSettings)  # type: ignore[method-assign]


def show_help(arguments: argparse.Namespace) -> int:
    """Print what ``--help`` prints."""
    parser = parser_of(program.name.get())
    words, _ = current_words(arguments.words)
    if text := topic(parser, words):
        print(text, end="")
    else:
        parser.parse_args([*words, "--help"])
    return 0


def overview(parser: argparse.ArgumentParser, settings: type[Struct]) -> str:
    """Return the help: all controllers, the general options, and the subjects of the settings."""
    subjects = [
        (field.encode_name, str(field.type.__doc__).partition("\n")[0])
        for field in fields(settings)
        if hasattr(field.type, "__struct_fields__")
    ]
    command = parser.prog.removeprefix(program.name.get())
    return (
        f"usage: {parser.prog} [OPTIONS] [SETTINGS]\n\n{parser.description}\n"
        f"\ncontrollers:\n{_rows(CONTROLLERS.items())}"
        f"\n{_section(parser, 'options', '')}"
        f"\nsettings by subject, each a key of the file and a flag:\n{_rows(subjects)}"
        f"\n{program.name.get()} help{command} SUBJECT describes those of one subject.\n"
    )


def topic(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """The settings of the command and the subject that the words name; empty for other words."""
    *command, subject = words or ("",)
    for word in command:
        group = group_of(parser)
        if group is None or word not in group.choices:
            return ""
        parser = group.choices[word]
    return _section(parser, subject, subject) if subject else ""


def _section(parser: argparse.ArgumentParser, title: str, subject: str) -> str:
    """The options of one subject, whose keys their destinations have; empty for none."""
    formatter = parser._get_formatter()  # noqa: SLF001 - argparse offers no other way
    formatter.start_section(title)
    for action in parser._actions:  # noqa: SLF001
        first, dot, _ = action.dest.removeprefix("setting ").partition(".")
        if (first if dot else "") == subject:
            formatter.add_argument(action)
    formatter.end_section()
    return formatter.format_help()


def _rows(rows: Iterable[tuple[str, str]]) -> str:
    return "".join(f"  {name:15} {text}\n" for name, text in rows)
