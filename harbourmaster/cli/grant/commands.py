"""The arguments of ``harbourmaster grant``; what it does is imported when it is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.cli.arguments import add_command, add_flags, add_installation, add_several

if TYPE_CHECKING:
    from argparse import ArgumentParser

_EXAMPLES: Final = """examples:
  harbourmaster grant secrets -n shop --name prometheus-login
  harbourmaster grant secrets -n shop --output yaml
  harbourmaster grant secrets -n shop --revoke
"""


def add_grant(grant: ArgumentParser) -> None:
    """Add what ``grant`` can grant."""
    grant.epilog = _EXAMPLES
    kinds = grant.add_subparsers(title="permissions", required=True, metavar="PERMISSION")
    text = "let the controller read Secrets of a namespace, each by its name"
    secrets = add_command(kinds, "secrets", text, run="grant.secrets:run", examples=_EXAMPLES)
    add_installation(secrets, "--installation")
    text = "namespace whose Secrets the controller can read"
    secrets.add_argument("-n", "--namespace", required=True, metavar="NAME", help=text)
    text = "only this Secret; can be repeated; a further grant replaces the list [all]"
    add_several(secrets, "--name", metavar="SECRET", help=text)
    add_flags(
        secrets,
        revoke="delete the Role and RoleBinding",
        dry_run="send the requests as dry runs, so that nothing is stored",
    )
    text = "text, or yaml, which prints the manifests and asks no cluster [text]"
    secrets.add_argument("-o", "--output", choices=("text", "yaml"), default="text", help=text)
