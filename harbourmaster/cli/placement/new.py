"""``harbourmaster placement new``: prints an object, and what it needs beside it, as YAML.

The options are those of Krake's command line; names are made legal, with a note for each change.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from harbourmaster.cli.live.files import manifests_in, read_paths
from harbourmaster.cli.placement.kubeconfigs import check_kubeconfig, read_context
from harbourmaster.cli.placement.objects import (
    fault_of,
    kubeconfig_secret,
    metric_constraint,
    metric_name,
    object_name,
    without_empty,
)
from harbourmaster.kube.errors import ConnectionSettingsError
from harbourmaster.placement.model import API_VERSION
from harbourmaster.serving.documents import Problem
from harbourmaster.serving.kubectl_yaml import dump
from harbourmaster.serving.settings import StartError

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Iterable
    from pathlib import Path


class _New:
    """One object while it is made, with its notes."""

    def __init__(self, arguments: Arguments, kind: str) -> None:
        self.arguments = arguments
        self.kind = kind
        self.notes: list[str] = []

    def legal(self, old: str, new: str, what: str) -> str:
        if not new:
            raise StartError(f"{what} {old}: none of its characters is valid in a name")
        if new != old:
            self.notes.append(f"{what} {old} is {new} here")
        return new

    def metrics(self) -> list[dict[str, Any]]:
        return [
            {
                "name": self.legal(name, metric_name(name), "metric"),
                "weight": weight,
                "scope": scope,
            }
            for name, weight, scope in self.arguments.metrics
        ]

    def constraints(self) -> dict[str, Any]:
        given = self.arguments
        metrics = []
        for text in given.metric_constraints:
            here = metric_constraint(text)
            if here != text:
                self.notes.append(f"constraint '{text}' is '{here}' here")
            metrics.append(here)
        return without_empty(
            labels=given.label_constraints,
            metrics=metrics,
            customResources=given.resource_constraints,
        )

    def print(self, spec: dict[str, Any], before: Iterable[dict[str, Any]] = ()) -> int:
        """Print the object and what it needs. Raises StartError where it could not work."""
        given = self.arguments
        metadata: dict[str, Any] = {
            "name": self.legal(given.name, object_name(given.name), "name"),
            "namespace": given.namespace,
            **without_empty(labels=dict(given.labels)),
        }
        made = {"apiVersion": API_VERSION, "kind": self.kind, "metadata": metadata, "spec": spec}
        if fault := fault_of(made):
            raise StartError(fault)
        for note in self.notes:
            print(note, file=sys.stderr)
        sys.stdout.write("---\n".join(dump(obj) for obj in (*before, made)))
        return 0


def application(arguments: Arguments) -> int:
    """Print an Application."""
    new = _New(arguments, "Application")
    spec = without_empty(
        constraints=without_empty(
            migration=False if arguments.disable_migration else None, cluster=new.constraints()
        ),
        manifests=_manifests(arguments.manifests),
    )
    return new.print(spec)


def cluster(arguments: Arguments) -> int:
    """Print a Cluster, with the Secret for its kubeconfig where that is given."""
    new = _New(arguments, "Cluster")
    secret, before, server = arguments.kubeconfig_secret, [], ""
    if arguments.context and arguments.kubeconfig is None:
        raise StartError("--context is for a kubeconfig: give --kubeconfig too")
    if arguments.kubeconfig is not None:
        try:
            content = read_context(arguments.kubeconfig, arguments.context)
            server, new.notes = check_kubeconfig(content, str(arguments.kubeconfig))
        except ConnectionSettingsError as error:
            raise StartError(str(error)) from None
        made = kubeconfig_secret(arguments.name, arguments.namespace, content)
        secret, before = made["metadata"]["name"], [made]
    spec = without_empty(
        kubeconfigSecretRef=without_empty(name=secret),
        server=server,
        customResources=arguments.custom_resources,
        metrics=new.metrics(),
        inheritMetrics=arguments.inherit_metrics or None,
        inheritLabels=arguments.inherit_labels or None,
        constraints=without_empty(cloud=new.constraints()),
    )
    return new.print(spec, before)


def magnumcluster(arguments: Arguments) -> int:
    """Print a MagnumCluster."""
    new = _New(arguments, "MagnumCluster")
    spec = without_empty(
        masterCount=arguments.master_count,
        nodeCount=arguments.node_count,
        metrics=new.metrics(),
        constraints=without_empty(project=new.constraints()),
    )
    return new.print(spec)


def project(arguments: Arguments) -> int:
    """Print a Project."""
    new = _New(arguments, "Project")
    return new.print(without_empty(template=arguments.template, metrics=new.metrics()))


def _manifests(paths: list[Path]) -> list[dict[str, Any]]:
    manifests = []
    for document in manifests_in(read_paths(paths)):
        if isinstance(document, Problem):
            raise StartError(str(document))
        manifests.append(document.value)
    return manifests
