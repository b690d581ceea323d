"""Helpers for making objects of placement, for ``placement new`` and ``import krake``."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from harbourmaster.api.decoding import describe
from harbourmaster.cli.placement.krake_names import object_name
from harbourmaster.placement.validation import CHECKS


def filled(**fields: object) -> dict[str, Any]:
    """The fields without those that say nothing."""
    return {name: value for name, value in fields.items() if value not in (None, [], {}, "")}


def fault_of(made: dict[str, Any]) -> str:
    """Why the API server or the controller would refuse an object, in one line; empty if not."""
    check = CHECKS[made["kind"]]
    try:
        faults = check.faults(msgspec.convert(made, check.model))
    except msgspec.ValidationError as error:
        return describe(error)
    return "; ".join(map(str, faults))


def kubeconfig_secret(cluster: str, namespace: str, kubeconfig: bytes) -> dict[str, Any]:
    """The Secret for the kubeconfig of a cluster."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": object_name(f"{cluster}-kubeconfig"), "namespace": namespace},
        "type": "Opaque",
        "data": {"kubeconfig": base64.b64encode(kubeconfig).decode()},
    }
