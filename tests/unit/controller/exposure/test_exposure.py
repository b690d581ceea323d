"""The ports as they come and go: certificates and authorities change under them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import aiohttp
import msgspec
import pytest

from harbourmaster.api.resources import ACCESS_REVIEWS, CONFIG_MAPS
from harbourmaster.api.times import utc_now
from harbourmaster.certs.store import ensure, write_files
from harbourmaster.controller.evaluation.settings import MetricsSettings
from harbourmaster.controller.exposure import exposure as room
from harbourmaster.controller.exposure.exposure import CLIENTS, Exposure
from harbourmaster.playground.ports import free_ports
from harbourmaster.serving.certificates import MountedCertificate, SecretCertificate
from harbourmaster.serving.site import AddressError
from helpers import fronting
from helpers.fronting import Aggregator, headers_of
from helpers.patience import PATIENCE
from helpers.valued import INTERVALS, NOW, metric, mirror

PATH = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/prod/keptnmetrics.metrics.keptn.sh/cpu/cpu"


class Place:
    """An exposure on a fake API server; ``data`` is what the Secret holds."""

    def __init__(self, api, client, background, folder):
        self.api, self.client, self._background, self._folder = api, client, background, folder
        self.aggregator = Aggregator(folder)
        self.data = {}
        self.exposure = None
        self.leaf = SecretCertificate("custom metrics", CLIENTS, lambda: self.data, utc_now)
        self._issued = 0

    def start(self, leaf=None, **settings):
        return self._background(self.made(leaf, **settings).run())

    def made(self, leaf=None, **settings):
        values = {"exposePort": 0, "customMetricsPort": 0, **settings}
        self.exposure = Exposure(
            self.client,
            msgspec.convert(values, MetricsSettings),
            mirror(metric("cpu", "5")),
            host="127.0.0.1",
            intervals=INTERVALS,
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
        return await fronting.get(self.exposure.api, PATH, context, headers_of())

    async def until(self, status, **client):
        """Ask until the answer is that; nobody tells when the ConfigMap was read."""
        while True:
            try:
                found = (await self.get(**client))[0]
            except (aiohttp.ClientError, OSError):
                found = None
            if found == status:
                return
            await asyncio.sleep(0.02)


@pytest.fixture
def place(api, client, background, tmp_path, monkeypatch):
    monkeypatch.setattr(room, "utc_now", lambda: NOW)
    api.fail_next(
        "create", f"/{ACCESS_REVIEWS.plural}", None, status=201, body=b'{"status":{"allowed":true}}'
    )
    return Place(api, client, background, tmp_path)


async def listening(place):
    async with asyncio.timeout(PATIENCE):
        await place.exposure.listening.wait()


async def test_the_api_listens_once_there_is_a_certificate(place):
    place.aggregator.publish(place.api)
    place.start()
    await asyncio.sleep(0)
    assert place.exposure.api is None
    place.issue()
    await listening(place)
    await place.until(200)


async def test_broken_certificates_are_waited_out(place):
    place.aggregator.publish(place.api)
    place.issue()
    good = place.data
    place.data = {**good, "tls.key": b"garbage"}
    place.start()
    await asyncio.sleep(0.05)
    assert not place.exposure.listening.is_set()
    place.data = good
    place.leaf.changed()
    await listening(place)
    place.data = {**good, "tls.crt": b"garbage"}
    place.leaf.changed()
    await place.until(200)


async def presented(place):
    context = place.aggregator.context(place.data["ca.crt"])
    _, writer = await asyncio.open_connection(
        "127.0.0.1", place.exposure.api.port, ssl=context, server_hostname="localhost"
    )
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return found


async def test_a_new_leaf_is_served_without_a_restart(place):
    place.aggregator.publish(place.api)
    first = place.issue()
    place.start()
    await listening(place)
    await place.until(200)
    assert await presented(place) == first.serving_der
    second = place.issue()
    await asyncio.sleep(0.05)
    assert await presented(place) == second.serving_der
    await place.until(200)


async def test_the_aggregator_s_authority_may_change(place):
    place.issue()
    place.start()
    await listening(place)
    await place.until(401, name=None)
    place.aggregator.publish(place.api)
    await place.until(200)
    old = place.aggregator.authority
    place.aggregator = Aggregator(place.aggregator._folder)
    place.aggregator.publish(place.api)
    await place.until(200)
    with pytest.raises((aiohttp.ClientError, OSError)):
        await place.get(authority=old)


async def test_a_config_map_that_cannot_be_read_lets_nobody_in(place):
    place.aggregator.publish(place.api)
    place.issue()
    place.start()
    await listening(place)
    await place.until(200)
    place.aggregator.publish(place.api, **{"requestheader-allowed-names": "all of them"})
    # No name is known by which it could prove itself, and no authority either.
    await place.until(None)
    assert (await place.get(name=None))[0] == 401


async def test_without_an_aggregator_the_rest_goes_on(place):
    place.issue()
    place.api.forbid("list", CONFIG_MAPS)
    task = place.start(expose=True)
    await listening(place)
    await place.until(401, name=None)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{place.exposure.plain.url}/metrics") as answer,
    ):
        assert await answer.text() == "# HELP cpu cpu\n# TYPE cpu gauge\ncpu 5\n"
    assert not task.done()


async def test_by_default_values_are_served_to_whoever_is_authorized_only(place):
    place.issue()
    (port,) = free_ports(1)
    place.start(exposePort=port)
    await listening(place)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    assert not MetricsSettings().expose


@pytest.mark.parametrize("key", ["exposePort", "customMetricsPort"])
async def test_a_port_that_is_taken_is_one_line(place, key):
    place.issue()
    place.start(expose=True)
    await listening(place)
    taken = place.exposure.plain.port
    with pytest.raises(AddressError, match="the port is in use"):
        await place.made(expose=True, **{key: taken}).run()


async def test_a_mounted_certificate_is_read_again_when_it_changes(place, tmp_path):
    place.aggregator.publish(place.api)
    mount = tmp_path / "mount"
    place.start(MountedCertificate("custom metrics", CLIENTS, str(mount)))
    first = place.issue()
    write_files(mount, msgspec.structs.replace(first.files, ca_key=None))
    await listening(place)
    assert await presented(place) == first.serving_der
    second = place.issue()
    write_files(mount, msgspec.structs.replace(second.files, ca_key=None))
    async with asyncio.timeout(PATIENCE):
        while await presented(place) != second.serving_der:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


async def test_a_certificate_of_yesterday_is_not_served(place):
    place.leaf = SecretCertificate(
        "custom metrics", CLIENTS, lambda: place.data, lambda: utc_now() + timedelta(days=30)
    )
    place.issue()
    place.start(place.leaf)
    await asyncio.sleep(0.05)
    assert not place.exposure.listening.is_set()
