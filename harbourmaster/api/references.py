"""Whether an object may refer to one of another namespace (decision D17).

The namespace of the object that contains the reference counts, not who uses that object.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from harbourmaster.api.resources import (
    KEPTN_METRICS,
    MAGNUM_CLUSTERS,
    METRICS_PROVIDERS,
    PROJECTS,
    Resource,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

ALLOW_FROM: Final = "harbourmaster.dev/allow-from"
"""Annotation of the object pointed to: namespaces, separated by commas, or ``*`` for all."""
ALL: Final = "*"
ReferenceMode: TypeAlias = Literal["Open", "ProvidersNeedConsent", "AllNeedConsent"]
DEFAULT_MODE: Final[ReferenceMode] = "ProvidersNeedConsent"
"""The mode without the setting; the manifests of new installations set STRICT."""
STRICT: Final[ReferenceMode] = "AllNeedConsent"
_GUARDED: Final = frozenset((METRICS_PROVIDERS, PROJECTS, MAGNUM_CLUSTERS))
"""Kinds that expose credentials or a cloud; the others expose only values."""


class Reference(Struct, frozen=True):
    """A reference to the object ``name`` of ``namespace`` from an object of ``origin``."""

    resource: Resource
    namespace: str
    name: str
    origin: str

    def needs_consent(self, mode: ReferenceMode, shared: Collection[str] = ()) -> bool:
        """Whether the object pointed to has to allow it.

        ``shared`` are namespaces where metrics are looked up anyway, without a namespace.
        """
        if self.namespace == self.origin or mode == "Open":
            return False
        if self.resource == KEPTN_METRICS and self.namespace in shared:
            return False
        return mode == STRICT or self.resource in _GUARDED

    def is_allowed(
        self,
        mode: ReferenceMode,
        annotations: Mapping[str, str] | None,
        shared: Collection[str] = (),
    ) -> bool:
        """Whether it may be followed; ``annotations`` are None if the object does not exist."""
        if not self.needs_consent(mode, shared):
            return True
        return bool({self.origin, ALL} & consenting(annotations))

    @property
    def refusal(self) -> str:
        """Text of a refusal: the same whether or not the object exists."""
        what = f"{self.resource.kind.lower()} {self.namespace}/{self.name}"
        return f'no consent to references from namespace "{self.origin}": {what}: {self.command}'

    @property
    def command(self) -> str:
        """The command by which the other namespace consents."""
        return f"kubectl {shlex.join(consent(self, (self.origin,)))}"


def consenting(annotations: Mapping[str, str] | None) -> frozenset[str]:
    """Return the namespaces that an object allows."""
    text = (annotations or {}).get(ALLOW_FROM, "")
    return frozenset(filter(None, (word.strip() for word in text.split(","))))


def consent(to: Reference, origins: Iterable[str]) -> tuple[str, ...]:
    """Return the arguments of kubectl by which the object pointed to allows these namespaces."""
    allowed = ",".join(dict.fromkeys(origins))
    kind = to.resource.kind.lower()
    return ("annotate", kind, "-n", to.namespace, to.name, f"{ALLOW_FROM}={allowed}")
