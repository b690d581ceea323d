"""The alerts, as the PrometheusRule of the component ``monitoring`` has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from manual.markdown import code, definitions, plain

_RULES: Final = Path(__file__).parents[3] / "deploy/components/monitoring/prometheusrule.yaml"


def alerts() -> list[dict[str, Any]]:
    """The alerts of all groups, in order."""
    groups = yaml.safe_load(_RULES.read_text(encoding="utf-8"))["spec"]["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def alert_table() -> str:
    """What fires, when, how urgent it is, and where it says what to do."""
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
