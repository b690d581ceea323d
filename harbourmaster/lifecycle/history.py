"""Selects the versions of apps and workloads that the history limit removes (keptn-spec 3.13)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.lifecycle.model import is_generated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.lifecycle.model import Version


def surplus_versions(versions: Iterable[Version], limit: int) -> list[Version]:
    """Return the ended versions besides the newest ``limit`` ones, the oldest first.

    Those that a person created stay, and do not count.
    """
    generated = sorted(filter(is_generated, versions), key=_age)
    ended = (version for version in generated[:-limit] if version.status.is_finished)
    return [version for version in ended if not version.metadata.deletion_timestamp]


def _age(version: Version) -> tuple[str, str]:
    # One that was resumed is as new as its last end; a superseded one may have no end.
    metadata = version.metadata
    return max(metadata.creation_timestamp, version.status.end_time), metadata.name
