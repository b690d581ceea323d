"""The arguments of ``harbourmaster reschedule``; what it does is imported when it is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.resources import PODS
from harbourmaster.cli.arguments import (
    add_command,
    add_connection,
    add_lines,
    add_output,
    add_path,
    add_subject,
)
from harbourmaster.controller.rescheduling.settings import ReschedulingSettings
from harbourmaster.controller.settings import ControllerSettings

if TYPE_CHECKING:
    from argparse import ArgumentParser

_EXAMPLES: Final = """examples:
  harbourmaster reschedule plan --pod kube-system/coredns-5d4f8-x7k2p
  kubectl get pods,nodes,pdb,namespaces --all-namespaces -o json > dump.json
  harbourmaster reschedule plan --pod kube-system/coredns-5d4f8-x7k2p --dump dump.json
  harbourmaster reschedule fit cases.jsonl
"""


class PlanSettings(Struct, frozen=True):
    """The part of the controller's settings that a plan depends on, by the controller's names."""

    rescheduling: ReschedulingSettings = ReschedulingSettings()


def add_reschedule(reschedule: ArgumentParser) -> None:
    """Add the actions of ``reschedule``."""
    reschedule.epilog = _EXAMPLES
    actions = reschedule.add_subparsers(title="actions", required=True, metavar="ACTION")
    text = "show which node a waiting pod would get and which pods would be evicted"
    plan = add_command(
        actions,
        "plan",
        text,
        run="reschedule.plan:plan",
        settings=PlanSettings,
        of_file=ControllerSettings,
    )
    add_subject(plan, "--pod", PODS, required=True)
    add_connection(plan)
    text = "read the output of kubectl get pods,nodes,pdb,namespaces --all-namespaces -o json (or "
    add_path(plan, "--dump", "FILE|-", f"{text}yaml) instead of a cluster")
    add_output(plan)
    text = "check whether pods fit on nodes, one JSON object per line, without a cluster"
    add_lines(add_command(actions, "fit", text, run="reschedule.fit:fit"))
