"""The arguments of ``harbourmaster gitops``; what it does is imported when it is run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from harbourmaster.cli.arguments import add_command, add_connection, add_output
from harbourmaster.policies.pods import KINDS

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from harbourmaster.cli.arguments import Commands

_EXAMPLES: Final = """examples:
  harbourmaster gitops argocd
  harbourmaster gitops argocd --policies deploy/samples --for system
  harbourmaster gitops flux --policies deploy/samples -n shop
"""
_TOOLS: Final = (
    ("argocd", "print ignoreDifferences for Argo CD", ("application", "system")),
    ("flux", "print drift rules for Flux", ("kustomization", "helmrelease")),
)


def add_parser(commands: Commands) -> None:
    """Add ``gitops`` with one action for each tool."""
    text = "print rules that make a GitOps tool ignore what policies set"
    gitops = add_command(commands, "gitops", text, examples=_EXAMPLES)
    tools = gitops.add_subparsers(title="tools", required=True, metavar="TOOL")
    for tool, text, forms in _TOOLS:
        action = add_command(tools, tool, text, run="gitops.run:run")
        _add_sources(action)
        action.add_argument(
            "--for",
            dest="form",
            choices=forms,
            default=forms[0],
            help=f"object that the rules are for [{forms[0]}]",
        )
        action.set_defaults(tool=tool, installation=False)
        if tool == "argocd":
            action.add_argument(
                "--installation",
                action="store_true",
                help="also print rules for fields of Harbourmaster's own objects, such as caBundle",
            )


def _add_sources(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--policies",
        type=Path,
        metavar="DIR|FILE",
        help="policies from files [the policies of the cluster]",
    )
    add_connection(parser)
    parser.add_argument(
        "-n", "--namespace", metavar="NAME", help="print only rules for objects of this namespace"
    )
    parser.add_argument(
        "--kind",
        dest="kinds",
        action="append",
        choices=sorted({kind.name for kind in KINDS.values()}),
        metavar="KIND",
        help="print only rules for this kind; can be repeated",
    )
    add_output(parser, "yaml", "json")
