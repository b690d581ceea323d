"""Generates the tables of alerts and settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from harbourmaster.serving.options import _leaves, _metavar, _shown, flag_of
from manual.markdown import code, definitions, plain

if TYPE_CHECKING:
    from msgspec import Struct

_RULES: Final = Path(__file__).parents[3] / "deploy/components/monitoring/prometheusrule.yaml"


def alerts() -> list[dict[str, Any]]:
    """Return the alerts of all groups, in order."""
    groups = yaml.safe_load(_RULES.read_text(encoding="utf-8"))["spec"]["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def alert_table() -> str:
    """Return a table of alerts: when each fires, its severity, and its section."""
    return definitions(
        (
            f"[{rule['alert']}](../operations/alerts.md#{rule['alert'].lower()})",
            [
                plain(rule["annotations"]["summary"]),
                f"{rule['labels']['severity']}, after {code(rule.get('for', '0s'))} of",
                code(" ".join(rule["expr"].split())),
            ],
        )
        for rule in alerts()
    )


def settings_table(settings: type[Struct]) -> str:
    """Return an entry for each setting."""
    return definitions(
        (
            code(".".join(leaf.path)),
            [
                plain(leaf.description) + f"; {code(_shown(leaf.default))} by default",
                code(f"{flag_of(leaf.path)} {_metavar(leaf.kind)}"),
            ],
        )
        for leaf in _leaves(settings)
    )
