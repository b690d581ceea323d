"""The arguments of ``harbourmaster placement``; the other modules here do the rest."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.resources import APPLICATIONS
from harbourmaster.cli.arguments import (
    add_command,
    add_connection,
    add_flags,
    add_lines,
    add_manifests,
    add_namespace,
    add_path,
    add_several,
    names_of,
    reference,
)

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Sequence

    from harbourmaster.cli.arguments import Commands

_NAMESPACE: Final = "default"
_NEW_EXAMPLES: Final = """examples:
  harbourmaster placement new application shop -f shop.yaml -L 'location is DE' -M 'load < 5'
  harbourmaster placement new cluster dresden --kubeconfig dresden.yaml --global-metric heat 0.45
  harbourmaster placement new cluster wanted -L 'location in (DE, SK)'
  harbourmaster placement new project halls --template 9c1e --metric heat 3
"""


class _Metric(argparse.Action):
    """Collects NAME WEIGHT, with the scope that the option stands for."""

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        name, text = map(str, values or ("", ""))
        try:
            weight = float(text)
        except ValueError:
            parser.error(f"argument {option_string}: invalid weight {text}: expected NAME WEIGHT")
        # One that is whole is written without a point.
        number = int(weight) if weight.is_integer() else weight
        metrics = [*getattr(namespace, self.dest), (name, number, self.const)]
        setattr(namespace, self.dest, metrics)


def _add_new(actions: Commands) -> None:
    text = "print an object for kubectl apply, with the options of Krake's command line"
    new = add_command(actions, "new", text, examples=_NEW_EXAMPLES)
    kinds = new.add_subparsers(title="kinds", required=True, metavar="KIND")

    application = _kind(
        kinds, "application", "a set of manifests that runs in one cluster at a time"
    )
    text = "manifests of the application"
    add_manifests(application, "--file", "manifests", text, required=True)
    _constraints(application, "cluster", metrics=True)
    text = "custom resource that the cluster must have"
    _resources(application, "--cluster-resource-constraint", "resource_constraints", text)
    add_flags(application, disable_migration="never move the application to another cluster")

    cluster = _kind(
        kinds,
        "cluster",
        "a member cluster; without a kubeconfig, a cluster that is still to be created",
    )
    source = cluster.add_mutually_exclusive_group()
    add_path(source, "--kubeconfig", "FILE", "kubeconfig to print as a Secret with the Cluster")
    source.add_argument(
        "--kubeconfig-secret", metavar="NAME", help="existing Secret that contains the kubeconfig"
    )
    text = "context of the kubeconfig [the current one]"
    cluster.add_argument("--context", metavar="NAME", help=text)
    _constraints(cluster, "cloud", metrics=True)
    _metrics(cluster)
    text = "custom resource that the cluster has"
    _resources(cluster, "--custom-resource", "custom_resources", text)
    add_flags(
        cluster,
        inherit_metrics="inherit the metrics of the cloud",
        inherit_labels="inherit the labels of the cloud",
    )

    magnum = _kind(kinds, "magnumcluster", "a cluster that OpenStack Magnum creates in a project")
    _constraints(magnum, "project", metrics=False)
    _metrics(magnum)
    magnum.add_argument("--master-count", type=int, metavar="NUMBER")
    magnum.add_argument("--node-count", type=int, metavar="NUMBER")

    project = _kind(kinds, "project", "an OpenStack project in which Magnum creates clusters")
    project.add_argument("--template", metavar="ID", help="ID of the Magnum cluster template")
    _metrics(project)


def _add_confirm(actions: Commands) -> None:
    text = "list applications that wait for a confirmation, or confirm them"
    confirm = add_command(actions, "confirm", text, run="placement.confirm:confirm")
    confirm.add_argument(
        "applications",
        nargs="*",
        type=partial(reference, what="Application", types=names_of(APPLICATIONS)),
        metavar="[NAMESPACE/]APPLICATION",
        help="application to confirm",
    )
    add_namespace(confirm, all_too=True)
    add_flags(confirm, all="confirm all that the command would list")
    add_connection(confirm)


def _kind(kinds: Commands, name: str, text: str) -> ArgumentParser:
    parser = add_command(kinds, name, text, run=f"placement.new:{name}")
    parser.add_argument("name", metavar="NAME")
    _namespace(parser, "namespace of the object [%(default)s]")
    form, text = "KEY=VALUE", "label of the object"
    add_several(parser, "-l", "--label", dest="labels", type=_label, metavar=form, help=text)
    unset = ("metrics", "label_constraints", "metric_constraints", "resource_constraints")
    parser.set_defaults(**{field: [] for field in unset})
    return parser


def _resources(parser: ArgumentParser, flag: str, dest: str, text: str) -> None:
    add_several(parser, "-R", flag, dest=dest, metavar="PLURAL.GROUP", help=text)


def _namespace(parser: ArgumentParser, text: str) -> None:
    parser.add_argument("-n", "--namespace", default=_NAMESPACE, metavar="NAME", help=text)


def _constraints(parser: ArgumentParser, of: str, *, metrics: bool) -> None:
    languages = [("-L", "label", "location is DE")]
    if metrics:
        languages.append(("-M", "metric", "load < 5"))
    for letter, language, example in languages:
        add_several(
            parser,
            *(letter, f"--{of}-{language}-constraint"),
            dest=f"{language}_constraints",
            metavar="EXPRESSION",
            help=f"constraint on the {language}s of the {of}, such as '{example}'",
        )


def _metrics(parser: ArgumentParser) -> None:
    for flags, scope, what in (
        (("-m", "--metric"), "Namespaced", "a Metric of the same namespace"),
        (("--global-metric",), "Global", "a GlobalMetric"),
    ):
        parser.add_argument(
            *flags,
            dest="metrics",
            action=_Metric,
            nargs=2,
            const=scope,
            metavar=("NAME", "WEIGHT"),
            default=[],
            help=f"{what} and its weight",
        )


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"invalid label {text}: expected KEY=VALUE")
    return key, value


_EXAMPLES: Final = """examples:
  echo '{"id": 1, "kind": "label", "expression": "location==DE"}' | harbourmaster placement parse
  harbourmaster placement decide cases.jsonl
"""


def add_placement(placement: ArgumentParser) -> None:
    """Add the actions of ``placement``."""
    placement.epilog = _EXAMPLES
    actions = placement.add_subparsers(title="actions", required=True, metavar="ACTION")
    for name, text in (
        ("parse", "parse constraints, one JSON object on each line"),
        ("decide", "decide as the controller does, one JSON object on each line"),
    ):
        add_lines(add_command(actions, name, text, run=f"placement.decide:{name}"))
    _add_confirm(actions)
    _add_new(actions)
