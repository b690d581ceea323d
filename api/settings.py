"""The form of settings: structs whose fields are keys of a file, flags, and lines of the manual."""

from __future__ import annotations

from msgspec import Struct


class DescribedSettings(
    Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True
):
    """Settings; the ``Meta`` of each field describes it, with its unit and its bounds."""
