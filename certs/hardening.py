"""Keeps private keys out of core dumps."""

from __future__ import annotations

import resource


def disable_core_dumps() -> None:
    """Forbid core dumps of this process, which would hold the private key."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
