"""The settings of our processes, as their Deployments give them: flags, and files of ConfigMaps."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from harbourmaster.api.decoding import describe
from harbourmaster.api.resources import CONFIG_MAPS, DEPLOYMENTS
from harbourmaster.cli.live.kinds import decode_config_map, decode_workload
from harbourmaster.serving.options import SettingsError, add_settings, settings_from

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from msgspec import Struct

    from harbourmaster.api.resources import Resource

    Find = Callable[[Resource, str, str | None], Awaitable[bytes | None]]
    Settings = TypeVar("Settings", bound=Struct)


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
    parser = _Parser(add_help=False, allow_abbrev=False)
    add_settings(parser, kind)
    arguments = parser.parse_args(deployment.flags)
    path: Path | None = arguments.config
    if path is None:
        return _settings(arguments, kind)
    source = deployment.source_of(str(path))
    if source is None:
        raise UnknownSettingsError(f"{path} is mounted from no ConfigMap that can be read")
    config_map, key = source
    body = await find(CONFIG_MAPS, config_map, namespace)
    if body is None:
        raise UnknownSettingsError(f"there is no ConfigMap {config_map}")
    text = (decode_config_map(body).data or {}).get(key)
    if text is None:
        raise UnknownSettingsError(f"the ConfigMap {config_map} has no key {key}")
    with tempfile.TemporaryDirectory() as folder:
        arguments.config = Path(folder, path.name)
        arguments.config.write_text(text, encoding="utf-8")
        return _settings(arguments, kind)


def _settings(arguments: argparse.Namespace, kind: type[Settings]) -> Settings:
    try:
        settings: Settings = settings_from(arguments, kind, describe)
    except SettingsError as error:
        raise UnknownSettingsError(str(error)) from None
    return settings
