"""The arguments of ``harbourmaster why``; what it does is imported when it is run."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api import resources
from harbourmaster.cli.arguments import (
    Subjects,
    add_installation,
    add_namespace,
    add_output,
    add_sources,
    names_of,
    reference,
    set_command,
)

if TYPE_CHECKING:
    from harbourmaster.api.resources import Resource

_FILES: Final = "instead of a cluster"
_UNSET: Final = argparse.SUPPRESS
"""The default that keeps the value of an earlier argument."""
_EXAMPLES: Final = """examples:
  harbourmaster why pod shop/cart-5d4f8-x7k2p
  harbourmaster why deployment/cart
  harbourmaster why application shop/cart
  harbourmaster why namespace shop
  harbourmaster why pods -n shop -l app=cart -o json
  harbourmaster why -f deployment.yaml                            with policies of the cluster
  harbourmaster why -f deployment.yaml --policies deploy/samples  with policies from files
  harbourmaster why review tests/fixtures/pod-create.json --policies deploy/samples
  harbourmaster why review cases.jsonl                            with the policies of each case
"""
_DESCRIPTION: Final = """Explain an object: which policies select it and what each one did, or the
first part of a selector that failed; who set each field; which check a waiting pod waits for, and
its deadline; why an application is on its cluster; which node is reserved for which add-on; which
references to other namespaces are refused. The command uses your own permissions and works without
a running controller or webhook."""
RESOURCES: Final = {
    resources.PODS: "po",
    resources.DEPLOYMENTS: "deploy",
    resources.STATEFUL_SETS: "sts",
    resources.DAEMON_SETS: "ds",
    resources.REPLICA_SETS: "rs",
    resources.JOBS: "",
    resources.CRON_JOBS: "cj",
    resources.ROLLOUTS: "ro",
    resources.REPLICATION_CONTROLLERS: "rc",
}
"""Kinds that have pods, each with its short name or ""."""
_POLICY: Final = "policy policies"
_SHORT: Final = {
    resources.APPLICATIONS: "app apps kapp",
    resources.APPS: "app apps application applications",
    resources.APP_VERSIONS: "appversion kav",
    resources.WORKLOADS: "",
    resources.WORKLOAD_VERSIONS: "workloadversion kwv",
    resources.TASKS: "task",
    resources.EVALUATIONS: "evaluation ke",
    resources.EVALUATION_DEFINITIONS: "evaluationdefinition ked",
    resources.KEPTN_METRICS: "metric",
    resources.POLICIES: _POLICY,
    resources.CLUSTER_POLICIES: _POLICY,
    resources.NAMESPACES: "ns",
    resources.ANALYSES: "",
    resources.ANALYSIS_DEFINITIONS: "",
    resources.ANALYSIS_VALUE_TEMPLATES: "",
    resources.MAGNUM_CLUSTERS: "",
}
"""The other kinds, each with its short names."""
_HELP: Final = {
    "pod": "a pod",
    "deployment": "a workload, by its current pod template",
    "application": "a placed Application, or a KeptnApp: where it is, and what it waits for",
    "appversion": "a version of a KeptnApp or of a workload (workloadversion): its checks",
    "task": "a check: its state, and what it lacks; also evaluation and evaluationdefinition",
    "metric": "a KeptnMetric: its value, why it has none, and what uses it",
    "policy": "a policy: which pods it selects, and what it changes or cannot change",
    "namespace": "a namespace: its gates, policies, definitions, and workloads without pods",
    "analysis": "an analysis: which of its references are refused; also magnumcluster",
}
"""The others work as these do and are not listed."""
KINDS: Final[dict[str, tuple[Resource, ...]]] = {}
"""Resources by every name that people have for them."""
for _resource, _short in (RESOURCES | _SHORT).items():
    for _name in names_of(_resource, *_short.split()):
        KINDS[_name] = (*KINDS.get(_name, ()), _resource)


def add_why(why: argparse.ArgumentParser) -> None:
    """Add the arguments of ``why``."""
    set_command(why, run="why.run:why", description=_DESCRIPTION, examples=_EXAMPLES)
    why.add_argument(
        "-f",
        "--filename",
        dest="manifests",
        type=Path,
        action="append",
        metavar="FILE|DIR|-",
        help="manifests, as if they were created now; can be repeated",
    )
    subjects = why.add_subparsers(
        action=Subjects,
        title="of what",
        metavar="WHAT",
        dest="what",
        description="objects to explain, as TYPE NAME or TYPE/NAME, or -f FILE",
    )
    names: dict[tuple[Resource, ...], list[str]] = {}
    for name in (*_HELP, *(kind for kind in KINDS if kind not in _HELP)):
        names.setdefault(KINDS[name], []).append(name)
    for kind, *aliases in names.values():
        listed: dict[str, Any] = {"help": _HELP[kind]} if kind in _HELP else {}
        fill = partial(_add_kind, kind)
        subjects.add_parser(kind, fill=fill, aliases=aliases, argument_default=_UNSET, **listed)
    workload = subjects.add_parser(
        "workload", help="a workload of the kind KIND", argument_default=_UNSET
    )
    workload.add_argument(
        "kind",
        type=str.lower,
        choices=sorted(KINDS),
        metavar="KIND",
        help=", ".join(resource.kind.lower() for resource in RESOURCES),
    )
    _add_name(workload)
    _add_common(workload)
    review = subjects.add_parser(
        "review",
        help="a recorded AdmissionReview, or cases for replay",
        argument_default=_UNSET,
    )
    review.add_argument("file", metavar="FILE|-")
    _add_common(review)
    add_sources(review.add_argument_group(_FILES), required=False)
    _add_common(why)
    add_sources(why.add_argument_group(_FILES), required=False)


def _add_kind(kind: str, parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.set_defaults(kind=kind)
    _add_common(parser)


def _add_name(parser: argparse.ArgumentParser) -> None:
    """The name of one object, unless labels select them."""
    named = partial(reference, what="name")
    parser.add_argument("name", type=named, nargs="?", default=None, metavar="[NAMESPACE/]NAME")


def _add_common(parser: argparse.ArgumentParser) -> None:
    """Arguments that stand before or after what is asked about."""
    add_namespace(parser, all_too=True)
    add_output(parser)
    text = "list all policies that do not match"
    parser.add_argument("--all", action="store_true", dest="has_all", help=text)
    add_installation(parser)
