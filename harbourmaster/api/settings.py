"""The form of settings: structs whose fields are keys of a file, flags, and lines of the manual."""

from __future__ import annotations

from msgspec import Struct


class DescribedSettings(
    Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True
):
    """Settings; a string beside the type of each field describes it, a ``Meta`` has its bounds."""
