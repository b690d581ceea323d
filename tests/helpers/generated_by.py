"""The owner by which an object of Keptn's kinds is one that the controller generated."""

from __future__ import annotations

import msgspec

from harbourmaster.api.metadata import OwnerReference


def owner(kind="KeptnWorkload", uid="w", name="owner"):
    """The reference of the model."""
    return OwnerReference(
        api_version="lifecycle.keptn.sh/v1", kind=kind, name=name, uid=uid, controller=True
    )


def owners(kind="KeptnWorkload", uid="w", name="owner"):
    """The owner references of a generated object, as metadata hold them."""
    return {"ownerReferences": [msgspec.to_builtins(owner(kind, uid, name))]}
