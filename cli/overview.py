"""The help of the controller, which has many settings: by subject, each on request."""

from __future__ import annotations

import argparse
import textwrap
from typing import TYPE_CHECKING, Any

from msgspec.structs import fields

from harbourmaster.cli import program
from harbourmaster.controller.registry import CONTROLLERS
from harbourmaster.telemetry.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from msgspec import Struct


def overview(parser: argparse.ArgumentParser, settings: type[Struct]) -> str:
    """What each controller does, the general options, and each subject of the settings."""
    told = [action for action in parser._actions if not _subject(action)]  # noqa: SLF001
    rows = []
    for name, kind in _subjects(settings):
        count = sum(_subject(action) == name for action in parser._actions)  # noqa: SLF001
        rows.append((name, f"{kind.__doc__ or ''}".partition("\n")[0] + f" {count} settings."))
    command = parser.prog.removeprefix(program.name.get())
    controllers = [(name, each.text) for name, each in CONTROLLERS.items()]
    return (
        f"usage: {parser.prog} [OPTIONS] [SETTINGS]\n\n{parser.description}\n"
        f"\ncontrollers:\n{_rows(controllers)}\n{_section(parser, 'options', told)}\n"
        "settings by subject, each a key of the file and a flag:\n"
        f"{_rows(rows)}\n"
        f"{program.name.get()} help{command} SUBJECT describes those of one subject.\n"
    )


def topic(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """The settings of the command and the subject that the words name; empty for other words."""
    for index, word in enumerate(words):
        below = [each.choices[word] for each in _choices(parser) if word in each.choices]
        if not below:
            chosen = [each for each in parser._actions if _subject(each) == word]  # noqa: SLF001
            return _section(parser, word, chosen) if chosen and index == len(words) - 1 else ""
        parser = below[0]
    return ""


def _choices(parser: argparse.ArgumentParser) -> Iterator[Any]:
    kind = argparse._SubParsersAction  # noqa: SLF001 - it has no other name
    return (each for each in parser._actions if isinstance(each, kind))  # noqa: SLF001


def _subjects(settings: type[Struct]) -> Iterator[tuple[str, type[Struct]]]:
    for field in fields(settings):
        if hasattr(field.type, "__struct_fields__"):
            yield field.encode_name, field.type


def _subject(action: argparse.Action) -> str:
    """The first part of the key of a setting that has several; its destination names it."""
    first, dot, _ = action.dest.removeprefix("setting ").partition(".")
    return first if dot else ""


def _section(
    parser: argparse.ArgumentParser, title: str, actions: Iterable[argparse.Action]
) -> str:
    formatter = parser._get_formatter()  # noqa: SLF001 - argparse offers no other way
    formatter.start_section(title)
    formatter.add_arguments(actions)
    formatter.end_section()
    return formatter.format_help()


def _rows(rows: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows) + 4
    return "".join(
        textwrap.fill(
            clean(text),
            80,
            initial_indent=f"  {name}".ljust(width),
            subsequent_indent=" " * width,
        )
        + "\n"
        for name, text in rows
    )
