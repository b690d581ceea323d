"""The arguments of ``harbourmaster compile``; what it does is imported when it is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.cli.admission import set_admission
from harbourmaster.cli.arguments import add_flags, add_installation, add_manifests

if TYPE_CHECKING:
    from argparse import ArgumentParser

STEPS: Final = ("policies", "probe", "final")
_EXAMPLES: Final = """examples:
  harbourmaster compile --cluster --step policies | kubectl apply -f -
  harbourmaster compile --cluster --step probe | kubectl apply -f -
  harbourmaster compile --cluster --try
  harbourmaster compile --cluster --step final | kubectl apply -f -
  harbourmaster compile -f policies/ > compiled.yaml
"""


def add_compile(parser: ArgumentParser) -> None:
    """Add the arguments of ``compile``."""
    set_admission(parser, run="compile.run:compile_policies", examples=_EXAMPLES)
    add_manifests(parser, "--filename", "policies", "all policies of a cluster")
    add_flags(parser, cluster="compile the policies of a live cluster, with its settings")
    parser.add_argument("--step", choices=STEPS, help="print the objects of one step [all]")
    text = "namespaces whose PodSchedulingPolicies may be compiled, too"
    parser.add_argument("--policy-namespaces", default="", metavar="A,B,...", help=f"{text} [none]")
    text = (
        "create objects by dry run in the namespace of the step probe, and compare them with ours"
    )
    parser.add_argument("--try", dest="tries", action="store_true", help=text)
    add_installation(parser)
