"""The arguments of ``harbourmaster preview``; what it does is imported when it is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.cli.admission import set_admission
from harbourmaster.cli.arguments import (
    DEFAULT_NAMESPACE,
    add_connection,
    add_flags,
    add_manifests,
    add_output,
    add_path,
    add_several,
)
from harbourmaster.registration.settings import RegistrationSettings

if TYPE_CHECKING:
    from argparse import ArgumentParser

EXCLUDED: Final = (*RegistrationSettings().excluded_namespaces, DEFAULT_NAMESPACE)
KINDS: Final = (
    "pods,nodes,namespaces,deployments,statefulsets,daemonsets,replicasets,"
    "replicationcontrollers,jobs,cronjobs,"
    "clusterpodschedulingpolicies,podschedulingpolicies"
)
"""The kinds that a dump should contain."""
_EXAMPLES: Final = f"""examples:
  harbourmaster preview -f new-policy.yaml --cluster
  harbourmaster preview --delete shop/old-policy --cluster
  kubectl get --all-namespaces -o json {KINDS} > dump.json
  harbourmaster preview -f policies/ --all --dump dump.json --fail-on unschedulable -o markdown
"""


def add_preview(preview: ArgumentParser) -> None:
    """Add the arguments of ``preview``."""
    set_admission(preview, run="preview.run:preview", examples=_EXAMPLES)
    add_manifests(preview, "--filename", "policies", "policies to add, or to replace by name")
    text = "policy to delete; can be repeated"
    add_several(preview, "--delete", metavar="[NAMESPACE/]NAME", help=text)
    add_flags(preview, all="-f contains all policies: delete all others")
    source = preview.add_mutually_exclusive_group(required=True)
    add_flags(source, cluster="compare with a live cluster")
    text = "compare with the output of kubectl get -o json (or yaml)"
    add_path(source, "--dump", "FILE|-", text)
    text = "policies to compare with, instead of those of the cluster or the dump"
    add_path(preview, "--policies-now", "FILE|DIR", text)
    text = "exit with 1 if any workload changes, or if pods would no longer fit any node"
    add_several(preview, "--fail-on", choices=("changed", "unschedulable"), help=text)
    preview.add_argument(
        "--excluded-namespaces",
        default=",".join(EXCLUDED),
        metavar="A,B,...",
        help=f"namespaces that the webhook is not registered for [{','.join(EXCLUDED)}]",
    )
    more = "; use markdown for comments on pull requests"
    add_output(preview, "text", "json", "markdown", more=more)
    add_connection(preview)
