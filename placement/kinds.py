"""The kinds that an application's manifests need, against those that a cluster serves.

A kind is written ``<apiVersion>/<kind>``, such as ``example.com/v1/Shirt``. Kinds of groups without
a dot are part of Kubernetes and always count as served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from harbourmaster.placement.model import ManifestSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from harbourmaster.placement.model import Manifest


class KindConstraint(Struct, frozen=True, gc=False):
    """A cluster must serve a kind."""

    api_version: str
    kind: str

    @property
    def canonical(self) -> str:
        """The kind as in the status of a cluster."""
        return f"{self.api_version}/{self.kind}"

    def holds(self, served: Collection[str]) -> bool:
        """Whether a cluster serves it, or may do so: nothing is known of one without kinds."""
        return not served or self.canonical in served or f"{self.api_version}/*" in served

    def mismatch(self, served: Collection[str]) -> str:
        """Why it does not hold; empty if it does."""
        if self.holds(served):
            return ""
        return f"the cluster does not serve kind {self.kind} in {self.api_version}"


def needed_kinds(manifests: Iterable[Manifest]) -> tuple[KindConstraint, ...]:
    """The kinds that manifests need, except those of groups that they define themselves."""
    found, defined = set(), set()
    for each in manifests:
        version, kind, spec = each.api_version, each.kind, each.spec
        if not (isinstance(version, str) and isinstance(kind, str) and kind):
            continue
        if kind == "CustomResourceDefinition" and isinstance(spec, ManifestSpec):
            defined.add(str(spec.group))
        if "." in version.rpartition("/")[0]:
            found.add((version, kind))
    return tuple(
        KindConstraint(version, kind)
        for version, kind in sorted(found)
        if version.rpartition("/")[0] not in defined
    )
