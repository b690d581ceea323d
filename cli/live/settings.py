"""The settings of our processes, as their Deployments give them: flags, and files of ConfigMaps."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from harbourmaster.api.decoding import describe
from harbourmaster.api.resources import CONFIG_MAPS, DEPLOYMENTS
from harbourmaster.cli.live.kinds import decode_config_map, decode_workload
from harbourmaster.serving.options import SettingsError, add_settings, settings_from

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from msgspec import Struct

    from harbourmaster.api.resources import Resource

    Find = Callable[[Resource, str, str | None], Awaitable[bytes | None]]
    Settings = TypeVar("Settings", bound=Struct)

_CONFIG: Final = "--config"


class UnknownSettingsError(Exception):
    """Settings that can't be made out; the text is one line."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UnknownSettingsError(message)


async def running_settings(
    find: Find, namespace: str, name: str, kind: type[Settings]
) -> Settings | None:
    """The settings that the Deployment of this name gives its process; None where there is none.

    ``find`` gives the JSON of an object, or None. Raises UnknownSettingsError, ApiError.
    """
    body = await find(DEPLOYMENTS, name, namespace)
    if body is None:
        return None
    deployment = decode_workload(body)
    path = config_path(deployment.flags)
    if path is None:
        return _parsed(deployment.flags, kind)
    source = deployment.source_of(path)
    if source is None:
        raise UnknownSettingsError(f"{path} is mounted from no ConfigMap that can be read")
    config_map, key = source
    body = await find(CONFIG_MAPS, config_map, namespace)
    if body is None:
        raise UnknownSettingsError(f"there is no ConfigMap {config_map}")
    text = (decode_config_map(body).data or {}).get(key)
    if text is None:
        raise UnknownSettingsError(f"the ConfigMap {config_map} has no key {key}")
    return _with_file(deployment.flags, Path(path).name, text, kind)


def _with_file(flags: Sequence[str], name: str, text: str, kind: type[Settings]) -> Settings:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, name)
        file.write_text(text, encoding="utf-8")
        return _parsed([*_without_config(flags), f"{_CONFIG}={file}"], kind)


def config_path(flags: Sequence[str]) -> str | None:
    """The file that the flags name, if any."""
    found = None
    for at, flag in enumerate(flags):
        if flag.startswith(f"{_CONFIG}="):
            found = flag.partition("=")[2]
        elif flag == _CONFIG and at + 1 < len(flags):
            found = flags[at + 1]
    return found


def _without_config(flags: Sequence[str]) -> list[str]:
    kept = []
    skip = False
    for flag in flags:
        if skip:
            skip = False
        elif flag == _CONFIG:
            skip = True
        elif not flag.startswith(f"{_CONFIG}="):
            kept.append(flag)
    return kept


def _parsed(flags: Sequence[str], kind: type[Settings]) -> Settings:
    parser = _Parser(add_help=False, allow_abbrev=False)
    add_settings(parser, kind)
    try:
        found: Settings = settings_from(parser.parse_args(flags), kind, describe)
    except SettingsError as error:
        raise UnknownSettingsError(str(error)) from None
    return found
