"""The kinds that an application's manifests need, against those that a cluster serves.

A kind is written ``<apiVersion>/<kind>``, such as ``example.com/v1/Shirt``. Kinds of groups without
a dot are part of Kubernetes and always count as served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.placement.custom_resources import CustomResourceConstraint
from harbourmaster.placement.model import ManifestSpec

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from harbourmaster.placement.model import Manifest


class KindConstraint(CustomResourceConstraint, frozen=True, gc=False):
    """A cluster must serve a kind."""

    def holds(self, known: Container[str]) -> bool:
        """Whether a cluster serves it, or may do so: ``*`` is what is not known."""
        version = self.name.rpartition("/")[0]
        return any(each in known for each in (self.name, f"{version}/*", "*"))

    def mismatch(self, known: Container[str]) -> str:
        """Why it does not hold; empty if it does."""
        version, _, kind = self.name.rpartition("/")
        return "" if self.holds(known) else f"the cluster does not serve kind {kind} in {version}"


def needed_kinds(manifests: Iterable[Manifest]) -> tuple[KindConstraint, ...]:
    """The kinds that manifests need, except those of groups that they define themselves."""
    found, defined = set(), set()
    for manifest in manifests:
        group = str(manifest.api_version).rpartition("/")[0]
        if manifest.kind == "CustomResourceDefinition" and isinstance(manifest.spec, ManifestSpec):
            defined.add(str(manifest.spec.group))
        elif "." in group and isinstance(manifest.kind, str):
            found.add((group, f"{manifest.api_version}/{manifest.kind}"))
    return tuple(KindConstraint(name) for group, name in sorted(found) if group not in defined)
