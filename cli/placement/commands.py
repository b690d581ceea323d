"""The arguments of ``harbourmaster placement``; the other modules here do the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.api.resources import APPLICATIONS
from harbourmaster.cli.arguments import (
    add_command,
    add_connection,
    add_lines,
    add_output,
    add_subject,
)
from harbourmaster.cli.placement.new_commands import add_import, add_new

if TYPE_CHECKING:
    from harbourmaster.cli.arguments import Commands

_EXAMPLES: Final = """examples:
  echo '{"id": 1, "kind": "label", "expression": "location==DE"}' | harbourmaster placement parse
  harbourmaster placement decide cases.jsonl
"""


def add_parser(commands: Commands) -> None:
    """Add ``placement`` with its actions, and ``import``."""
    text = "parse constraints, select clusters offline, explain decisions"
    placement = add_command(commands, "placement", text, examples=_EXAMPLES)
    actions = placement.add_subparsers(title="actions", required=True, metavar="ACTION")
    for name, text in (
        ("parse", "parse constraints, one JSON object on each line"),
        ("decide", "decide as the controller does, one JSON object on each line"),
    ):
        add_lines(add_command(actions, name, text, run=f"placement.decide:{name}"))
    text = "explain why an application is on its cluster, from the recorded decision"
    why = add_command(actions, "why", text, run="placement.why:why")
    add_subject(why, "application", APPLICATIONS)
    add_connection(why)
    add_output(why)
    add_new(actions)
    add_import(commands)
