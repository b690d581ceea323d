"""The settings with which one of our processes runs in a cluster: its Deployment's arguments.

``--config`` is read from the ConfigMap that is mounted there. Who may read neither goes by the
defaults, and is told.
"""

from __future__ import annotations

import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import msgspec
from msgspec import Struct

from cli.installed import CONTROLLER, WEBHOOK
from cli.why.wording import unreadable
from kube.errors import ApiError
from kube.resources import CONFIG_MAPS, DEPLOYMENTS
from policies.decoding import describe
from serving.options import SettingsError, add_settings, settings_from
from serving.process import Parser

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from cli.why.model import WhyContext

T = TypeVar("T", bound=Struct)

NONE_HERE: Final = "there are no Deployments of ours in"
"""With this begins what is told where nothing is installed, as of a plane on one machine."""
_ASSUMED: Final = "the settings are taken to be the defaults"
_CONFIG: Final = "--config"


class _Mount(Struct, frozen=True, rename="camel"):
    name: str = ""
    mount_path: str = ""
    sub_path: str = ""


class _Container(Struct, frozen=True, rename="camel"):
    args: tuple[str, ...] = ()
    volume_mounts: tuple[_Mount, ...] = ()


class _ConfigMapSource(Struct, frozen=True):
    name: str = ""


class _Volume(Struct, frozen=True, rename="camel"):
    name: str = ""
    config_map: _ConfigMapSource | None = None


class _PodSpec(Struct, frozen=True):
    containers: tuple[_Container, ...] = ()
    volumes: tuple[_Volume, ...] = ()


class _Template(Struct, frozen=True):
    spec: _PodSpec = _PodSpec()


class _Spec(Struct, frozen=True):
    template: _Template = _Template()


class _Deployment(Struct, frozen=True):
    spec: _Spec = _Spec()


class _ConfigMap(Struct, frozen=True):
    data: dict[str, str] = {}


class _FlagsError(Exception):
    """Arguments that this version does not know."""


class _Quiet(Parser):
    def error(self, message: str) -> NoReturn:
        raise _FlagsError(message)


async def shipped(
    context: WhyContext, command: str, kind: type[T], deployment: str
) -> tuple[T, str]:
    """The settings, and why they may be others; the text is empty where they are right."""
    where = f"Deployment {context.installed_in}/{deployment}"
    try:
        raw = await context.find(DEPLOYMENTS, deployment, context.installed_in)
        if raw is None:
            return kind(), await _absent(context, where)
        pod = msgspec.json.decode(raw, type=_Deployment).spec.template.spec
        found = [each for each in pod.containers if command in each.args[:1]]
        if not found:
            return kind(), f"{where}: no container runs {command}: {_ASSUMED}"
        arguments, path = _split(found[0].args[1:])
        text = await _config(context, pod, found[0], path) if path else ""
        return _settings(arguments, text, kind), ""
    except ApiError as error:
        return kind(), f"{unreadable(error, where)}; {_ASSUMED}"
    except (_FlagsError, SettingsError, msgspec.MsgspecError, LookupError) as error:
        return kind(), f"{where}: {error}: {_ASSUMED}"


async def _absent(context: WhyContext, where: str) -> str:
    """What is said of a Deployment that is not there; the same of both where neither is."""
    found = [
        await context.find(DEPLOYMENTS, name, context.installed_in)
        for name in (WEBHOOK, CONTROLLER)
    ]
    if any(each is not None for each in found):
        return f"there is no {where} (--installed-in says where to look): {_ASSUMED}"
    return f"{NONE_HERE} {context.installed_in} (--installed-in): {_ASSUMED}"


def _split(arguments: Sequence[str]) -> tuple[list[str], str]:
    """The arguments without ``--config``, and its value."""
    others, path = [], ""
    found = iter(arguments)
    for each in found:
        if each == _CONFIG:
            path = next(found, "")
        elif each.startswith(f"{_CONFIG}="):
            path = each.partition("=")[2]
        else:
            others.append(each)
    return others, path


async def _config(context: WhyContext, pod: _PodSpec, container: _Container, path: str) -> str:
    """The text of a mounted file. Raises LookupError where no ConfigMap is mounted there."""
    sources = {each.name: each.config_map for each in pod.volumes}
    for mount in container.volume_mounts:
        source = sources.get(mount.name)
        if source is None:
            continue
        if path == mount.mount_path:
            key = mount.sub_path
        elif PurePosixPath(path).parent == PurePosixPath(mount.mount_path):
            key = PurePosixPath(path).name
        else:
            continue
        raw = await context.find(CONFIG_MAPS, source.name, context.installed_in)
        if raw is None:
            raise LookupError(f"there is no ConfigMap {source.name}")
        return msgspec.json.decode(raw, type=_ConfigMap).data[key]
    raise LookupError(f"{path} is not of a ConfigMap")


def _settings(arguments: list[str], text: str, kind: type[T]) -> T:
    parser = _Quiet(prog="shipped", add_help=False)
    add_settings(parser, kind)
    parsed: argparse.Namespace = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        if text:
            parsed.config = Path(folder) / "config.yaml"
            parsed.config.write_text(text, encoding="utf-8")
        found: Any = settings_from(parsed, kind, describe)
    settings: T = found
    return settings
