"""Settings from ``--config FILE`` and flags; a flag wins, and every key has one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from policies.decoding import describe
from webhook.documents import DocumentError, read_settings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

_CAPITAL: Final = re.compile(r"(?=[A-Z])")
_BOOLEANS: Final = {"true": True, "false": False}


class SettingsError(Exception):
    """Settings that can't be used; the text is one line for the user."""


def add_settings(parser: argparse.ArgumentParser, settings: type[Struct]) -> None:
    """Add ``--config`` and a flag for each setting, nested ones included."""
    group = parser.add_argument_group("settings")
    group.add_argument("--config", type=Path, metavar="FILE", help="YAML file with settings")
    for leaf in _leaves(settings):
        group.add_argument(
            _flag(leaf.path),
            dest=_destination(leaf.path),
            metavar=_metavar(leaf.kind),
            help=f"{leaf.description} [{'.'.join(leaf.path)}: {_shown(leaf.default)}]",
        )


def settings_from(arguments: argparse.Namespace, settings: type[Struct]) -> Any:  # noqa: ANN401
    """Build the settings. Raises SettingsError with the key and what is wrong with it."""
    values = _from_file(arguments.config) if arguments.config else {}
    flags: dict[str, Any] = {}
    for leaf in _leaves(settings):
        given = getattr(arguments, _destination(leaf.path))
        if given is not None:
            _put(flags, leaf.path, _BOOLEANS.get(given, given))
    try:
        msgspec.convert(values, settings)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{arguments.config}: {describe(error)}") from None
    try:
        return msgspec.convert(_merged(values, flags), settings, strict=False)
    except msgspec.ValidationError as error:
        key, _, text = describe(error).partition(": ")
        path = tuple(key.split("."))
        kind = next(leaf.kind for leaf in _leaves(settings) if leaf.path == path)
        choices = f", expected {_metavar(kind)}" if "|" in _metavar(kind) else ""
        raise SettingsError(f"{_flag(path)}: {text}{choices}") from None


def _from_file(path: Path) -> dict[str, Any]:
    try:
        return read_settings(path)
    except DocumentError as error:
        raise SettingsError(f"{path}: {error}") from None


class _Leaf(Struct, frozen=True):
    path: tuple[str, ...]
    kind: Any
    default: Any
    description: str


def _leaves(settings: type[Struct], path: tuple[str, ...] = ()) -> Iterator[_Leaf]:
    hints = get_type_hints(settings, include_extras=True)
    for field in fields(settings):
        here = (*path, field.encode_name)
        kind = hints[field.name]
        if isinstance(kind, type) and issubclass(kind, Struct):
            yield from _leaves(kind, here)
            continue
        plain, *notes = get_args(kind)
        description = next((note.description for note in notes if note.description), "")
        yield _Leaf(here, plain, field.default, description)


def _put(values: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    for name in path[:-1]:
        values = values.setdefault(name, {})
    values[path[-1]] = value


def _merged(values: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(values)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _merged(below or {}, value) if isinstance(value, dict) else value
    return merged


def _flag(path: tuple[str, ...]) -> str:
    """``--log-level`` for ``log.level``; keys of ``server`` go without their prefix."""
    names = path[1:] if path[0] == "server" else path
    return "--" + "-".join(part for name in names for part in _CAPITAL.split(name)).lower()


def _destination(path: tuple[str, ...]) -> str:
    return "setting " + ".".join(path)


def _metavar(kind: Any) -> str:  # noqa: ANN401
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if kind is bool:
        return "true|false"
    return "N" if kind in {int, float} else "VALUE"


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return "none" if default is None else str(default)
