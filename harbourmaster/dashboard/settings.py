"""Settings of the dashboard: where it is served, if it is."""

from __future__ import annotations

import ipaddress
from typing import Annotated

from harbourmaster.api.settings import DescribedSettings, Port, check_host
from harbourmaster.providers.addresses import check_networks


class DashboardSettings(DescribedSettings, frozen=True, kw_only=True):
    """Pages for people, read-only. Off by default: nothing of it is loaded then."""

    enabled: Annotated[bool, "serve the dashboard, on every replica"] = False
    host: Annotated[
        str,
        "listen address of the dashboard; a loopback address, for kubectl port-forward, is served "
        "without TLS, any other address only with TLS",
    ] = "127.0.0.1"
    port: Annotated[Port, "port of the dashboard; 0 selects a free port"] = 8088
    service_name: Annotated[str, "Service of the dashboard; its name is in the certificate"] = (
        "harbourmaster-dashboard"
    )

    trusted_proxies: Annotated[
        tuple[str, ...],
        "addresses and networks (CIDR) of proxies, such as ingress controllers, whose "
        "X-Forwarded-For header names the client",
    ] = ()

    def __post_init__(self) -> None:
        check_host("host", self.host)
        check_networks("trustedProxies", self.trusted_proxies)

    @property
    def is_local(self) -> bool:
        """Whether only this machine, or this pod, can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
