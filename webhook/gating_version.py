"""Where pods can wait, by the version of the API server."""

from __future__ import annotations

from typing import Final, Literal

from harbourmaster.kube.server_version import ServerVersion

FIRST_WITH_GATES: Final = ServerVersion(1, 27)
"""Scheduling gates are there without a feature gate from this version on."""


def gating_of(version: ServerVersion) -> Literal["schedulingGates", "schedulerName"]:
    """Where pods can wait on an API server of that version."""
    return "schedulingGates" if version >= FIRST_WITH_GATES else "schedulerName"
