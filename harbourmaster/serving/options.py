"""Settings from ``--config FILE`` and flags; a flag wins, and every key has one."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

_CAPITAL: Final = re.compile(r"(?=[A-Z])")
_BOOLEANS: Final = {"true": True, "false": False}
_UNPREFIXED: Final = frozenset(("cluster", "server"))
"""Subjects whose keys are clear without them."""
_MAIN: Final = frozenset((("record", "directory"),))
"""Keys for which their subject alone is the flag."""


class SettingsError(Exception):
    """Settings that can't be used; the text is one line for the user."""


def add_settings(parser: argparse.ArgumentParser, settings: type[Struct]) -> None:
    """Add ``--config`` and a flag for each setting, nested ones included."""
    group = parser.add_argument_group("settings")
    group.add_argument("--config", type=Path, metavar="FILE", help="YAML file with settings")
    for leaf in _leaves(settings):
        group.add_argument(
            flag_of(leaf.path),
            dest=_destination(leaf.path),
            metavar=_metavar(leaf.kind),
            help=f"{leaf.description} [{'.'.join(leaf.path)}: {_shown(leaf.default)}]",
        )


def flags_of(settings: type[Struct]) -> dict[str, str]:
    """Return the flags of settings without dashes, with the form of the value of each."""
    return {flag_of(leaf.path)[2:]: _metavar(leaf.kind) for leaf in _leaves(settings)}


def settings_from(
    arguments: argparse.Namespace,
    settings: type[Struct],
    describe: Callable[[msgspec.ValidationError], str],
    of_file: type[Struct] | None = None,
) -> Any:  # noqa: ANN401
    """Build the settings. Raises SettingsError with the key and what is wrong with it.

    ``describe`` turns an error of msgspec into ``key.path: what is wrong``. ``of_file`` are all
    settings that a file may have, if these are a part of them.
    """
    values = _from_file(arguments.config) if arguments.config else {}
    try:
        msgspec.convert(values, of_file or settings)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{arguments.config}: {describe(error)}") from None
    known = {field.encode_name for field in fields(settings)}
    values = {name: value for name, value in values.items() if name in known}
    for leaf in _leaves(settings):
        given = getattr(arguments, _destination(leaf.path))
        if given is not None:
            _put(values, leaf.path, _value(leaf, given))
    try:
        return msgspec.convert(values, settings, strict=False)
    except msgspec.ValidationError as error:
        key, _, text = describe(error).partition(": ")
        leaves = [leaf for leaf in _leaves(settings) if _leads_to(key, leaf.path)]
        if not leaves:
            # The error is about several keys, or its text names the key.
            raise SettingsError(describe(error)) from None
        leaf = leaves[0]
        choices = f", expected {_metavar(leaf.kind)}" if "|" in _metavar(leaf.kind) else ""
        raise SettingsError(f"{flag_of(leaf.path)}: {text}{choices}") from None


def _from_file(path: Path) -> dict[str, Any]:
    # Most processes read no YAML.
    from harbourmaster.serving.documents import read_settings  # noqa: PLC0415

    try:
        return read_settings(path)
    except ValueError as error:
        raise SettingsError(f"{path}: {error}") from None


class _Leaf(Struct, frozen=True):
    path: tuple[str, ...]
    kind: Any
    default: Any
    description: str


@cache
def _leaves(settings: type[Struct], path: tuple[str, ...] = ()) -> tuple[_Leaf, ...]:
    hints = get_type_hints(settings, include_extras=True)
    leaves: list[_Leaf] = []
    for field in fields(settings):
        here = (*path, field.encode_name)
        kind = hints[field.name]
        if isinstance(kind, type) and issubclass(kind, Struct):
            leaves.extend(_leaves(kind, here))
            continue
        plain, *notes = get_args(kind)
        default = field.default if field.default is not NODEFAULT else field.default_factory()
        text = next((note for note in notes if isinstance(note, str)), "")
        leaves.append(_Leaf(here, plain, default, text))
    return tuple(leaves)


def _value(leaf: _Leaf, given: str) -> object:
    """Return the value of a flag as in a settings file: lists by commas, objects as YAML."""
    accepted = _accepted_types(leaf.kind)
    if list in accepted or tuple in accepted:
        return [part.strip() for part in given.split(",") if part.strip()]
    if dict in accepted:
        from harbourmaster.serving.documents import parse_value  # noqa: PLC0415

        try:
            return parse_value(given)
        except ValueError as error:
            raise SettingsError(f"{flag_of(leaf.path)}: {error}") from None
    if bool in accepted:
        return _BOOLEANS.get(given, given)
    return given


def _accepted_types(kind: Any) -> set[Any]:  # noqa: ANN401
    """Return the plain types of a value: each member of a union, without its parameters."""
    members = get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,)
    return {get_origin(member) or member for member in members}


def _leads_to(key: str, path: tuple[str, ...]) -> bool:
    name = ".".join(path)
    return key == name or key.startswith((f"{name}.", f"{name}["))


def _put(values: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    for name in path[:-1]:
        values = values.setdefault(name, {})
    values[path[-1]] = value


def flag_of(path: tuple[str, ...]) -> str:
    """Return the flag of a key, ``--log-level`` for ``log.level``; some subjects are left out."""
    names = path[1:] if path[0] in _UNPREFIXED else path[:1] if path in _MAIN else path
    return "--" + "-".join(part for name in names for part in _CAPITAL.split(name)).lower()


def _destination(path: tuple[str, ...]) -> str:
    return "setting " + ".".join(path)


def _metavar(kind: Any) -> str:  # noqa: ANN401
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if kind is bool:
        return "true|false"
    accepted = _accepted_types(kind)
    if accepted & {list, tuple}:
        return "A,B,..."
    if dict in accepted:
        return "YAML"
    return "N" if accepted & {int, float} else "VALUE"


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple | list):
        return ",".join(map(str, default)) or "none"
    if isinstance(default, dict):
        return msgspec.json.encode(default).decode() if default else "none"
    return "none" if default in (None, "") else str(default)
