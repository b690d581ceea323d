"""The kinds that a policy leaves out, by its annotations, and the creators of pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.policies.pods import KINDS, PODS_OF

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TARGETS_KEY: Final = "harbourmaster.dev/targets"
"""Annotation of a policy: whether it changes templates, too; one of TARGETS."""
PODS_ONLY: Final = "Pods"
TARGETS: Final = (PODS_ONLY, "PodsAndTemplates")
EXCLUDED_KEY: Final = "harbourmaster.dev/exclude-kinds"
"""Annotation of a policy: kinds that it leaves out, separated by commas."""
KIND_NAMES: Final = tuple(sorted({kind.name for kind in KINDS.values()}))
TEMPLATES: Final = frozenset(kind.name for kind in KINDS.values() if kind.is_template)
_INCLUDED: Final = {"CronJob": "Job", "Deployment": "ReplicaSet"}
"""Left out with the kind that makes them: their pods cannot be told apart, and the controller of
Deployments would replace a changed ReplicaSet again and again."""

ALL_CONTROLLERS: Final = "system:kube-controller-manager"
"""The user of all controllers where they have no accounts of their own."""
CREATORS: Final = {
    f"system:serviceaccount:kube-system:{name}-controller": kind
    for name, kind in (
        ("daemon-set", "DaemonSet"),
        ("job", "Job"),
        ("replicaset", "ReplicaSet"),
        ("replication", "ReplicationController"),
        ("statefulset", "StatefulSet"),
    )
}
"""The kinds whose pods are created by these users."""


def excluded_names(annotations: Mapping[str, str]) -> Iterator[str]:
    """Yield the names in the annotation, of kinds or not."""
    names = annotations.get(EXCLUDED_KEY, "").split(",")
    return filter(None, map(str.strip, names))


def excluded_kinds(annotations: Mapping[str, str]) -> frozenset[str]:
    """Return what a policy leaves out, as in ``PodView.kinds``; unsupported names are ignored."""
    names = set(excluded_names(annotations)).intersection(KIND_NAMES)
    names.update(_INCLUDED[name] for name in _INCLUDED if name in names)
    names.update(PODS_OF + name for name in tuple(names))
    return frozenset(names | TEMPLATES if annotations.get(TARGETS_KEY) == PODS_ONLY else names)
