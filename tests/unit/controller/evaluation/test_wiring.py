"""Whom the controller's providers may be, by its settings and by where the API server is."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from harbourmaster.api.metadata import Metadata
from harbourmaster.controller.evaluation.query_service import _own_addresses, create_query_service
from harbourmaster.controller.evaluation.settings import MetricsSettings
from harbourmaster.evaluation.model import Provider, ProviderSpec
from harbourmaster.kube.connection import Connection
from harbourmaster.providers.errors import ForbiddenAddressError
from harbourmaster.providers.model import Question


@pytest.mark.parametrize(
    ("server", "addresses"),
    [
        ("https://10.96.0.1:443", ("10.96.0.1",)),
        ("https://[fd00::1]:6443/base", ("fd00::1",)),
        # A name may have any address; on loopback a playground's providers are, too.
        ("https://kubernetes.default.svc", ()),
        ("https://127.0.0.1:6443", ()),
        ("https://[::1]:6443", ()),
        ("", ()),
    ],
)
def test_the_api_server_is_no_provider(server, addresses):
    assert _own_addresses(server) == addresses


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("10.96.0.1", "denied"),
        ("10.1.2.3", "denied"),
        ("169.254.169.254", "a link-local address"),
    ],
)
async def test_whom_the_controller_does_not_ask(address, why):
    settings = MetricsSettings(denied_addresses=("10.1.0.0/16",), allowed_addresses=("10.0.0.0/8",))
    client = SimpleNamespace(connection=Connection(server="https://10.96.0.1:443"))
    questions, _keep = create_query_service(client, settings, CollectorRegistry())
    spec = ProviderSpec(type="prometheus", target_server=f"https://{address}")
    provider = Provider(metadata=Metadata(name="p", namespace="prod"), spec=spec)
    with pytest.raises(ForbiddenAddressError, match=why):
        await questions.ask(provider, Question("up"))


@pytest.mark.parametrize("key", ["allowedAddresses", "deniedAddresses"])
def test_settings_take_addresses_and_networks_and_nothing_else(key):
    good = msgspec.convert({key: ["10.1.2.3", "10.0.0.0/8", "fd00::/8"]}, MetricsSettings)
    assert good.allowed_addresses or good.denied_addresses
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({key: ["10.0.0.0/8", "prom"]}, MetricsSettings)
    assert str(caught.value) == (
        f"{key}: 'prom' does not appear to be an IPv4 or IPv6 network: write 10.1.2.3 or 10.0.0.0/8"
    )
