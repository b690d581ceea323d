"""The form of settings: structs whose fields are keys of a file, flags, and lines of the manual."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from harbourmaster.api.names import dns_subdomain

Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
SecondsFromZero: TypeAlias = Annotated[float, Meta(ge=0)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]
CountFromZero: TypeAlias = Annotated[int, Meta(ge=0)]
Percent: TypeAlias = Annotated[int, Meta(ge=0, le=100)]
Port: TypeAlias = Annotated[int, Meta(ge=0, le=65535)]
"""Types of settings with their bounds; those from zero take 0, too."""


class DescribedSettings(
    Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True
):
    """Settings; a string beside the type of each field describes it, a ``Meta`` has its bounds."""


def check_host(field: str, host: str) -> None:
    """Raise ValueError unless the listen address is an IP address or the name of one."""
    try:
        ip_address(host)
    except ValueError:
        if dns_subdomain(host.lower()):
            raise ValueError(
                f'{field}: invalid address "{host}": write an IP address without brackets, such as '
                "::1, or :: for all addresses"
            ) from None
