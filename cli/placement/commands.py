"""The arguments of ``harbourmaster placement``; the other modules here do the rest."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from harbourmaster.cli.connection import Commands

_EXAMPLES: Final = """examples:
  echo '{"id": 1, "kind": "label", "expression": "location==DE"}' | harbourmaster placement parse
  harbourmaster placement decide cases.jsonl
"""


def add_parser(commands: Commands) -> Commands:
    """Add ``placement`` with its offline actions; returns what further ones are added to."""
    placement = commands.add_parser(
        "placement",
        help="read constraints and decide which cluster runs an application, offline",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = placement.add_subparsers(title="actions", required=True, metavar="ACTION")
    for name, text in (
        ("parse", "read constraints, one JSON object a line"),
        ("decide", "decide as the controller would, one JSON object a line"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("file", type=Path, nargs="?", default=Path("-"), metavar="FILE|-")
        action.set_defaults(
            command=f"harbourmaster.cli.placement.decide:{name}", settings_type=None
        )
    return actions
