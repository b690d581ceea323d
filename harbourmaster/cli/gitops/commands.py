"""The arguments of ``harbourmaster gitops``; what it does is imported when it is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.cli.arguments import (
    add_command,
    add_connection,
    add_flags,
    add_output,
    add_path,
    add_several,
)
from harbourmaster.policies.pods import KINDS

if TYPE_CHECKING:
    from argparse import ArgumentParser

_EXAMPLES: Final = """examples:
  harbourmaster gitops argocd
  harbourmaster gitops argocd --policies deploy/samples --for system
  harbourmaster gitops flux --policies deploy/samples -n shop
"""
_NAMES: Final = {kind.name for kind in KINDS.values()}
_TOOLS: Final = (
    ("argocd", "print ignoreDifferences for Argo CD", ("application", "system")),
    ("flux", "print drift rules for Flux", ("kustomization", "helmrelease")),
)


def add_gitops(gitops: ArgumentParser) -> None:
    """Add one action of ``gitops`` for each tool."""
    gitops.epilog = _EXAMPLES
    tools = gitops.add_subparsers(title="tools", required=True, metavar="TOOL")
    for tool, what, forms in _TOOLS:
        action = add_command(tools, tool, what, run="gitops.run:run")
        text = "policies from files [the policies of the cluster]"
        add_path(action, "--policies", "DIR|FILE", text)
        add_connection(action)
        text = "print only rules for objects of this namespace"
        action.add_argument("-n", "--namespace", metavar="NAME", help=text)
        text, names = "print only rules for this kind; can be repeated", sorted(_NAMES)
        add_several(action, "--kind", dest="kinds", choices=names, metavar="KIND", help=text)
        add_output(action, "yaml", "json")
        text = f"object that the rules are for [{forms[0]}]"
        action.add_argument("--for", dest="form", choices=forms, default=forms[0], help=text)
        action.set_defaults(tool=tool, installation=False)
        if tool == "argocd":
            text = "also print rules for fields of Harbourmaster's own objects, such as caBundle"
            add_flags(action, installation=text)
