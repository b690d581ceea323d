"""The arguments of ``harbourmaster reschedule``; what it does is imported when it is run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.cli.connection import add_connection
from harbourmaster.controller.rescheduling.settings import ReschedulingSettings
from harbourmaster.serving.options import add_settings

if TYPE_CHECKING:
    from harbourmaster.cli.connection import Commands

_EXAMPLES: Final = """examples:
  harbourmaster reschedule plan --pod kube-system/coredns-5d4f8-x7k2p
  kubectl get pods,nodes,pdb,namespaces --all-namespaces -o json > dump.json
  harbourmaster reschedule plan --pod kube-system/coredns-5d4f8-x7k2p --dump dump.json
  harbourmaster reschedule fit cases.jsonl
"""


class PlanSettings(Struct, frozen=True):
    """The part of the controller's settings that a plan depends on, by the controller's names."""

    rescheduling: ReschedulingSettings = ReschedulingSettings()


def add_parser(commands: Commands) -> None:
    """Add ``reschedule`` with its actions."""
    reschedule = commands.add_parser(
        "reschedule",
        help="show how room would be made for a critical add-on, without changing anything",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = reschedule.add_subparsers(title="actions", required=True, metavar="ACTION")
    plan = actions.add_parser(
        "plan", help="show which node a waiting pod would get and which pods would be evicted"
    )
    plan.add_argument("--pod", type=_pod, required=True, metavar="NAMESPACE/POD")
    add_connection(plan)
    plan.add_argument(
        "--dump",
        type=Path,
        metavar="FILE|-",
        help="read this output of kubectl get pods,nodes,pdb,namespaces --all-namespaces "
        "-o json (or yaml) instead of a cluster",
    )
    plan.add_argument(
        "-o",
        "--output",
        choices=("text", "json"),
        default="text",
        help="output format [text]",
    )
    add_settings(plan, PlanSettings)
    plan.set_defaults(command="harbourmaster.cli.reschedule.plan:plan", settings_type=PlanSettings)
    fit = actions.add_parser(
        "fit", help="check whether pods fit on nodes, one JSON object per line, without a cluster"
    )
    fit.add_argument("file", type=Path, nargs="?", default=Path("-"), metavar="FILE|-")
    fit.set_defaults(command="harbourmaster.cli.reschedule.fit:fit", settings_type=None)


def _pod(text: str) -> tuple[str, str]:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise argparse.ArgumentTypeError(f'invalid pod "{text}": expected NAMESPACE/NAME')
    return namespace, name
