"""The ports as they come and go: certificates and authorities change under them."""

from __future__ import annotations

import asyncio
import ssl
from datetime import timedelta

import aiohttp
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from harbourmaster.api.resources import ACCESS_REVIEWS, CONFIG_MAPS
from harbourmaster.api.times import utc_now
from harbourmaster.certs.directory import write_files
from harbourmaster.certs.store import ensure
from harbourmaster.controller.evaluation.settings import MetricsSettings
from harbourmaster.controller.exposure import exposure as room
from harbourmaster.controller.exposure.exposure import CLIENTS, Exposure
from harbourmaster.playground.ports import free_ports
from harbourmaster.serving.certificates import MountedCertificate, SecretCertificate
from harbourmaster.serving.site import AddressError
from helpers import exposure
from helpers.exposure import INTERVALS, NOW, Aggregator, headers_of, metric, mirror
from helpers.patience import PATIENCE

PATH = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/prod/keptnmetrics.metrics.keptn.sh/cpu/cpu"


class RunningExposure:
    """An exposure on a fake API server; ``data`` is what the Secret holds."""

    def __init__(self, api, client, background, folder):
        self.api, self.client, self._background, self._folder = api, client, background, folder
        self.aggregator = Aggregator(folder)
        self.data = {}
        self.exposure = None
        self.leaf = SecretCertificate("custom metrics", CLIENTS, lambda: self.data, utc_now)
        self._issued = 0

    def start(self, leaf=None, **settings):
        return self._background(self.make(leaf, **settings).run())

    def make(self, leaf=None, **settings):
        values = {"exposePort": 0, "customMetricsPort": 0, **settings}
        self.exposure = Exposure(
            self.client,
            msgspec.convert(values, MetricsSettings),
            mirror(metric("cpu", "5")),
            host="127.0.0.1",
            intervals=INTERVALS,
            results=CollectorRegistry(),
            certificate=leaf or self.leaf,
        )
        return self.exposure

    def issue(self, folder="certs"):
        """A new leaf of the same authority, as the Secret would hold it."""
        directory = self._folder / folder
        directory.mkdir(exist_ok=True)
        self._issued += 1
        bundle = ensure(directory, ("localhost", f"n{self._issued}"), utc_now())
        self.data = {
            "ca.crt": bundle.files.ca_crt,
            "tls.crt": bundle.files.tls_crt,
            "tls.key": bundle.files.tls_key,
        }
        self.leaf.changed()
        return bundle

    async def get(self, **client):
        context = self.aggregator.context(self.data["ca.crt"], **client)
        return await exposure.get(self.exposure.api, PATH, context, headers_of())

    async def until(self, status, **client):
        """Ask until the answer is that; there is no event for the ConfigMap."""
        while True:
            try:
                answered = (await self.get(**client))[0]
            except (aiohttp.ClientError, OSError):
                answered = None
            if answered == status:
                return
            await asyncio.sleep(0.02)


@pytest.fixture
def site(api, client, background, tmp_path, monkeypatch):
    monkeypatch.setattr(room, "utc_now", lambda: NOW)
    api.fail_next(
        "create", f"/{ACCESS_REVIEWS.plural}", None, status=201, body=b'{"status":{"allowed":true}}'
    )
    return RunningExposure(api, client, background, tmp_path)


async def listening(site):
    async with asyncio.timeout(PATIENCE):
        await site.exposure.listening.wait()


async def test_the_api_listens_once_there_is_a_certificate(site):
    site.aggregator.publish(site.api)
    site.start()
    await asyncio.sleep(0)
    assert site.exposure.api is None
    site.issue()
    await listening(site)
    await site.until(200)


async def test_broken_certificates_are_waited_out(site):
    site.aggregator.publish(site.api)
    site.issue()
    good = site.data
    site.data = {**good, "tls.key": b"garbage"}
    site.start()
    await asyncio.sleep(0.05)
    assert not site.exposure.listening.is_set()
    site.data = good
    site.leaf.changed()
    await listening(site)
    site.data = {**good, "tls.crt": b"garbage"}
    site.leaf.changed()
    await site.until(200)


async def presented_certificate(site):
    context = site.aggregator.context(site.data["ca.crt"])
    try:
        _, writer = await asyncio.open_connection(
            "127.0.0.1", site.exposure.api.port, ssl=context, server_hostname="localhost"
        )
    except ssl.SSLCertVerificationError:
        return None  # It is the one before, of another authority.
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return certificate


async def test_a_new_leaf_is_served_without_a_restart(site):
    site.aggregator.publish(site.api)
    first = site.issue()
    site.start()
    await listening(site)
    await site.until(200)
    assert await presented_certificate(site) == first.serving_der
    second = site.issue()
    await asyncio.sleep(0.05)
    assert await presented_certificate(site) == second.serving_der
    await site.until(200)


async def test_the_aggregator_s_authority_may_change(site):
    site.issue()
    site.start()
    await listening(site)
    await site.until(401, name=None)
    site.aggregator.publish(site.api)
    await site.until(200)
    old = site.aggregator.authority
    site.aggregator = Aggregator(site.aggregator._folder)
    site.aggregator.publish(site.api)
    await site.until(200)
    with pytest.raises((aiohttp.ClientError, OSError)):
        await site.get(authority=old)


async def test_a_config_map_that_cannot_be_read_lets_nobody_in(site):
    site.aggregator.publish(site.api)
    site.issue()
    site.start()
    await listening(site)
    await site.until(200)
    site.aggregator.publish(site.api, **{"requestheader-allowed-names": "all of them"})
    # No name is known by which it could prove itself, and no authority either.
    await site.until(None)
    assert (await site.get(name=None))[0] == 401


async def test_without_an_aggregator_the_rest_goes_on(site):
    site.issue()
    site.api.forbid("list", CONFIG_MAPS)
    task = site.start(expose=True)
    await listening(site)
    await site.until(401, name=None)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{site.exposure.plain.url}/metrics") as answer,
    ):
        assert await answer.text() == "# HELP cpu cpu\n# TYPE cpu gauge\ncpu 5\n"
    assert not task.done()


@pytest.mark.claim("M2")
async def test_by_default_values_are_served_to_whoever_is_authorized_only(site):
    site.issue()
    (port,) = free_ports(1)
    site.start(exposePort=port)
    await listening(site)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    assert not MetricsSettings().expose


@pytest.mark.parametrize("key", ["exposePort", "customMetricsPort"])
async def test_a_port_that_is_taken_is_one_line(site, key):
    site.issue()
    site.start(expose=True)
    await listening(site)
    taken = site.exposure.plain.port
    with pytest.raises(AddressError, match="the port is in use"):
        await site.make(expose=True, **{key: taken}).run()


async def test_a_mounted_certificate_is_read_again_when_it_changes(site, tmp_path):
    site.aggregator.publish(site.api)
    mount = tmp_path / "mount"
    site.start(MountedCertificate("custom metrics", CLIENTS, str(mount)))
    first = site.issue()
    write_files(mount, msgspec.structs.replace(first.files, ca_key=None))
    await listening(site)
    assert await presented_certificate(site) == first.serving_der
    second = site.issue()
    write_files(mount, msgspec.structs.replace(second.files, ca_key=None))
    async with asyncio.timeout(PATIENCE):
        while await presented_certificate(site) != second.serving_der:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.05)


async def test_a_certificate_of_yesterday_is_not_served(site):
    site.leaf = SecretCertificate(
        "custom metrics", CLIENTS, lambda: site.data, lambda: utc_now() + timedelta(days=30)
    )
    site.issue()
    site.start(site.leaf)
    await asyncio.sleep(0.05)
    assert not site.exposure.listening.is_set()
