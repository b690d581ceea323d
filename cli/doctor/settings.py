"""The settings of our processes, as their Deployments give them: flags, and files of ConfigMaps."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from policies.decoding import describe
from serving.options import SettingsError, add_settings, settings_from

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from msgspec import Struct

    from cli.doctor.objects import Deployment

    Settings = TypeVar("Settings", bound=Struct)

_CONFIG: Final = "--config"


class UnknownSettingsError(Exception):
    """Settings that can't be made out; the text is one line."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UnknownSettingsError(message)


def read_settings(
    deployment: Deployment, kind: type[Settings], files: Mapping[str, Mapping[str, str]]
) -> Settings:
    """The settings that a Deployment gives its process; ``files`` are ConfigMaps by name.

    Raises UnknownSettingsError.
    """
    flags = deployment.flags
    path = config_path(flags)
    if path is None:
        return _parsed(flags, kind)
    text = deployment.mounted(path, files)
    if text is None:
        raise UnknownSettingsError(f"{path} is mounted from no ConfigMap that can be read")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, Path(path).name)
        file.write_text(text)
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
