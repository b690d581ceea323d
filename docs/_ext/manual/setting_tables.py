"""The settings of each process, as its Struct says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.serving.options import _leaves, _metavar, _shown, flag_of
from harbourmaster.webhook.settings import AdmissionSettings, Settings, WebhookSettings
from manual.markdown import code, definitions, plain

if TYPE_CHECKING:
    from collections.abc import Collection

    from msgspec import Struct

SETTINGS: Final[dict[str, type[Struct]]] = {
    "serve": Settings,
    "webhook": WebhookSettings,
    "controller": ControllerSettings,
    "offline": AdmissionSettings,
}


def settings_table(name: str) -> str:
    """What that process may be told; of the webhook what ``serve`` has not."""
    told = {leaf.path for leaf in _leaves(Settings)} if name == "webhook" else set()
    return table_of(SETTINGS[name], told)


def table_of(settings: type[Struct], told: Collection[tuple[str, ...]] = ()) -> str:
    """An entry for each setting that is not told elsewhere."""
    return definitions(
        (
            code(".".join(leaf.path)),
            [
                plain(leaf.description) + f"; {code(_shown(leaf.default))} by default",
                code(f"{flag_of(leaf.path)} {_metavar(leaf.kind)}"),
            ],
        )
        for leaf in _leaves(settings)
        if leaf.path not in told
    )
