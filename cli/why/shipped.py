"""The settings with which one of our processes runs in a cluster, as ``doctor`` reads them.

Without the right to read them, the defaults are used, and the report says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import DEPLOYMENTS
from harbourmaster.cli.doctor.settings import UnknownSettingsError, running_settings
from harbourmaster.cli.installed import CONTROLLER, WEBHOOK
from harbourmaster.cli.why.wording import unreadable
from harbourmaster.kube.errors import ApiError

if TYPE_CHECKING:
    from harbourmaster.cli.why.model import WhyContext

T = TypeVar("T", bound=Struct)

NONE_HERE: Final = "there are no Deployments of ours in"
"""With this begins what is told where nothing is installed, as of a plane on one machine."""
_ASSUMED: Final = "the settings are taken to be the defaults"


async def shipped(context: WhyContext, kind: type[T], deployment: str) -> tuple[T, str]:
    """The settings, and why they may be others; the text is empty where they are right."""
    where = f"Deployment {context.installed_in}/{deployment}"
    try:
        found = await running_settings(context.find, context.installed_in, deployment, kind)
        return (kind(), await _absent(context, where)) if found is None else (found, "")
    except ApiError as error:
        return kind(), f"{unreadable(error, where)}; {_ASSUMED}"
    except (UnknownSettingsError, msgspec.MsgspecError) as error:
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
