"""The arguments of ``harbourmaster config``; what it does is imported when it is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.api.resources import KEPTN_CONFIGS
from harbourmaster.cli.arguments import add_command, add_installation, add_subject

if TYPE_CHECKING:
    from argparse import ArgumentParser

_EXAMPLES: Final = """examples:
  harbourmaster config adopt
  harbourmaster config adopt shop/keptn-config
"""


def add_config(config: ArgumentParser) -> None:
    """Add the actions of ``config``."""
    config.epilog = _EXAMPLES
    actions = config.add_subparsers(title="actions", required=True, metavar="ACTION")
    text = "list KeptnConfigs that have no effect because of their namespace, or let one count"
    adopt = add_command(actions, "adopt", text, run="config.adopt:adopt", examples=_EXAMPLES)
    text = "KeptnConfig that is to configure the whole cluster"
    add_subject(adopt, "config", KEPTN_CONFIGS, nargs="?", help=text)
    add_installation(adopt)
