"""The arguments of ``harbourmaster gate``; what it does stands in ``harbourmaster.cli.gate``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from harbourmaster.cli.connection import add_connection
from harbourmaster.gates.gate import SCHEDULER_NAME

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from harbourmaster.cli.connection import Commands

LONGEST_REASON: Final = 512
"""Characters of a reason: it stands in an annotation and in an event."""
_EXAMPLES: Final = """examples:
  harbourmaster gate list
  harbourmaster gate list -n shop --output json
  harbourmaster gate release shop/cart-5d4f8-x7k2p --reason "incident 4711, checks are down"
  harbourmaster gate clear-nodes shop/shop-cart-3.1
"""


def add_parser(commands: Commands) -> None:
    """Add ``gate`` with its actions, each with the function that does it."""
    gate = commands.add_parser(
        "gate",
        help="show the pods that wait for their checks, or let one go without them",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = gate.add_subparsers(title="actions", required=True, metavar="ACTION")
    show = actions.add_parser("list", help="show who waits, how long, and for what")
    add_connection(show)
    _add_scheduler(show)
    show.add_argument("-n", "--namespace", metavar="NAME", help="only the pods of this namespace")
    show.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="how to print it [text]"
    )
    show.set_defaults(command="harbourmaster.cli.gate.show:show", settings_type=None)
    release = actions.add_parser("release", help="let one pod go, whatever its checks say")
    add_connection(release)
    _add_scheduler(release)
    release.add_argument("pod", type=_pod, metavar="NAMESPACE/POD")
    release.add_argument(
        "--reason",
        type=_reason,
        required=True,
        metavar="TEXT",
        help="why; it is kept on the pod and told by an event, with your name",
    )
    release.set_defaults(command="harbourmaster.cli.gate.show:release", settings_type=None)
    clear = actions.add_parser(
        "clear-nodes", help="have a workload version forget the nodes on which it failed"
    )
    add_connection(clear)
    clear.add_argument("version", type=_version, metavar="NAMESPACE/KEPTNWORKLOADVERSION")
    clear.set_defaults(command="harbourmaster.cli.gate.nodes:clear", settings_type=None)


def _add_scheduler(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--scheduler",
        default=SCHEDULER_NAME,
        metavar="NAME",
        help=f"the one in which pods wait that have no gate [{SCHEDULER_NAME}]",
    )


def _pod(text: str) -> tuple[str, str]:
    return _place(text, "pod", "NAMESPACE/POD")


def _version(text: str) -> tuple[str, str]:
    return _place(text, "KeptnWorkloadVersion", "NAMESPACE/NAME")


def _place(text: str, what: str, form: str) -> tuple[str, str]:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise argparse.ArgumentTypeError(f"{text} is no {what}: give it as {form}")
    return namespace, name


def _reason(text: str) -> str:
    line = " ".join(text.split())
    if not line:
        raise argparse.ArgumentTypeError("it is empty: say why the pod is to go")
    if len(line) > LONGEST_REASON:
        raise argparse.ArgumentTypeError(f"it is longer than {LONGEST_REASON} characters")
    return line
