"""Helpers for making objects of placement, for ``placement new`` and ``migrate krake``."""

from __future__ import annotations

import base64
import re
from hashlib import sha256
from typing import Any, Final

import msgspec

from harbourmaster.api.decoding import describe
from harbourmaster.api.names import MAX_LABEL, MAX_SUBDOMAIN
from harbourmaster.placement.constraints import parse_metric
from harbourmaster.placement.lexer import LONGEST_NAME, ConstraintError
from harbourmaster.placement.validation import CHECKS

_ILLEGAL: Final = re.compile(r"[^a-z0-9.]")
_ILLEGAL_IN_LABEL: Final = re.compile(r"[^a-z0-9]")
_DIGEST_LENGTH: Final = 8


def object_name(old: str, longest: int = MAX_SUBDOMAIN) -> str:
    """The name as a DNS subdomain, the same one where it is one; empty where nothing is left."""
    parts = (word.strip("-") for word in _ILLEGAL.sub("-", old.lower()).split("."))
    return _cut(".".join(filter(None, parts)), old, longest)


def metric_name(old: str) -> str:
    """The name of a metric, which is also used in constraints."""
    return object_name(old, LONGEST_NAME)


def namespace_name(old: str) -> str:
    """The name of a namespace: a DNS label."""
    return _cut(_ILLEGAL_IN_LABEL.sub("-", old.lower()).strip("-"), old, MAX_LABEL)


def metric_constraint(text: str) -> str:
    """The constraint with its metric's name made legal, otherwise as it was written.

    What is not a constraint stays as it is, and validation reports it.
    """
    try:
        key = parse_metric(text).key
    except ConstraintError:
        return text
    legal = metric_name(key)
    return text.replace(key, legal, 1) if legal else text


def _cut(name: str, old: str, longest: int) -> str:
    """Names that are cut must differ where the whole ones did."""
    if len(name) <= longest:
        return name
    digest = sha256(old.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: longest - _DIGEST_LENGTH - 1].rstrip('-.')}-{digest}"


def without_empty(**fields: object) -> dict[str, Any]:
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
