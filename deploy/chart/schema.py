"""Makes the schema of the values: from their defaults, schema.yaml, and the settings."""  # noqa: INP001 -- for the script beside it
# ruff: noqa: ANN401 -- values of any kind

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.serving.options import flags_of
from harbourmaster.webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from msgspec import Struct

SPECIAL: Final = {
    name: rule
    for names, rule in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text()).items()
    for name in names.split(", ")
}
SETTINGS: Final[dict[str, type[Struct]]] = {
    "webhook.settings": WebhookSettings,
    "controller.settings": ControllerSettings,
}
TYPES: Final = {bool: "boolean", str: "string", dict: "object"}
OF_VALUES: Final = {"health-port", "port", "metrics-custom-metrics-port"}
"""Flags that the Deployment must know, so that they are values of their own."""


def schema(value: Any, path: str = "") -> dict[str, Any]:
    """Return the JSON schema of a value, or of all of them."""
    if special := SPECIAL.get(path) or SPECIAL.get(path.rpartition(".")[2]):
        return dict(special)
    if path in SETTINGS:
        flags = flags_of(SETTINGS[path])
        return _closed({name: _setting(flags[name]) for name in flags if name not in OF_VALUES})
    if value and isinstance(value, dict):
        return _closed({key: schema(value[key], f"{path}.{key}".lstrip(".")) for key in value})
    return {"type": TYPES[type(value)]}


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _setting(form: str) -> dict[str, Any]:
    """Return the schema of a setting: one of the words that ``--help`` lists, or anything."""
    words = form.split("|") if "|" in form else []
    # YAML may read a word as something else, such as 1.2.
    values = dict.fromkeys((*words, *map(yaml.safe_load, words), None))
    return {"enum": list(values)} if words else {}
