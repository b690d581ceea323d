"""The arguments of ``harbourmaster gate``; what it does is imported when it is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.api.resources import CRON_JOBS, PODS, WORKLOAD_VERSIONS
from harbourmaster.cli.arguments import (
    add_command,
    add_connection,
    add_installation,
    add_namespace,
    add_output,
    add_subject,
    reason,
    reference,
)
from harbourmaster.cli.why.commands import KINDS, RESOURCES
from harbourmaster.gates.gate import SCHEDULER_NAME

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from harbourmaster.api.resources import Resource

_EXAMPLES: Final = """examples:
  harbourmaster gate list
  harbourmaster gate list -A
  harbourmaster gate list -n shop -l app=cart -o wide
  harbourmaster gate release shop/cart-5d4f8-x7k2p --reason "incident 4711, checks are down"
  harbourmaster gate release deployment/cart -n shop --reason "incident 4711, checks are down"
  harbourmaster gate clear-nodes shop/shop-cart-3.1
"""
RELEASED: Final = {
    name: resource for name, resource in KINDS.items() if resource in {*RESOURCES} - {CRON_JOBS}
}
"""Types whose pods can be released, by every name."""


def add_gate(gate: ArgumentParser) -> None:
    """Add the actions of ``gate``, each with the function that does it."""
    gate.epilog = _EXAMPLES
    actions = gate.add_subparsers(title="actions", required=True, metavar="ACTION")
    text = "list waiting pods with their age and reason"
    show = add_command(actions, "list", text, run="gate.show:show")
    add_installation(show)
    _add_scheduler(show)
    add_namespace(show, all_too=True)
    add_output(show, "text", "wide", "json", "yaml", "name")
    text = "release a pod, or all waiting pods of a workload, whatever the state of their checks"
    release = add_command(actions, "release", text, run="gate.show:release")
    add_connection(release)
    _add_scheduler(release)
    types = ", ".join(resource.kind.lower() for resource in dict.fromkeys(RELEASED.values()))
    release.add_argument(
        "subject",
        type=_release_subject,
        metavar="[NAMESPACE/]POD|TYPE/NAME",
        help=f"a pod, or a workload by TYPE/NAME; TYPE is one of {types}",
    )
    add_namespace(release)
    text = "reason for the release; recorded with your name on the pod and in an event"
    release.add_argument("--reason", type=reason, required=True, metavar="TEXT", help=text)
    text = "clear the list of nodes on which a workload version failed"
    clear = add_command(actions, "clear-nodes", text, run="gate.show:clear")
    add_connection(clear)
    add_subject(clear, "version", WORKLOAD_VERSIONS)


def _release_subject(text: str) -> tuple[Resource, tuple[str, str]]:
    """The type, by default a pod, and what ``reference`` gives."""
    kind, slash, _ = text.partition("/")
    resource = RELEASED.get(kind.partition(".")[0].lower(), PODS) if slash else PODS
    return resource, reference(text, PODS.kind, RELEASED)


def _add_scheduler(parser: ArgumentParser) -> None:
    text = f"scheduler in which pods without a gate wait [{SCHEDULER_NAME}]"
    parser.add_argument("--scheduler", default=SCHEDULER_NAME, metavar="NAME", help=text)
