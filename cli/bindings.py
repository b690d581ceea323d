"""RoleBindings and ClusterRoleBindings, projected: who is given rights."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from harbourmaster.cli.metadata import Metadata


class _Subject(Struct, frozen=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class Binding(Struct, frozen=True):
    """A binding of a role, in a namespace or in the whole cluster."""

    metadata: Metadata
    subjects: tuple[_Subject, ...] | None = None

    @property
    def namespaces(self) -> frozenset[str]:
        """Whence its subjects come; "" among them where one is no ServiceAccount."""
        return frozenset(
            one.namespace if one.kind == "ServiceAccount" else "" for one in self.subjects or ()
        )

    def is_only_for(self, namespace: str, account: str) -> bool:
        """Whether it gives rights to this ServiceAccount and to nobody else."""
        subject = _Subject("ServiceAccount", account, namespace)
        return bool(self.subjects) and set(self.subjects or ()) == {subject}


decode_binding: Final = msgspec.json.Decoder(Binding).decode
