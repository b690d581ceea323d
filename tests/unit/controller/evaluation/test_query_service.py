"""Queries to KeptnMetricsProviders with their Secrets, on a fake API server."""

from __future__ import annotations

import asyncio
import base64
from types import SimpleNamespace

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import SECRETS
from harbourmaster.controller.evaluation.query_service import (
    QueryService,
    _own_addresses,
    create_query_service,
    question,
    target,
)
from harbourmaster.controller.evaluation.settings import MetricsSettings
from harbourmaster.evaluation.model import (
    KafkaTable,
    MetricRange,
    MetricSpec,
    Provider,
    ProviderSpec,
    SecretKey,
    StaticMetrics,
)
from harbourmaster.kube.connection import Connection
from harbourmaster.providers.errors import (
    BadAnswerError,
    BadCredentialsError,
    ForbiddenAddressError,
    UnauthorizedError,
    UnreachableError,
)
from harbourmaster.providers.model import Answer, Question, Sample, Table

QUESTION = Question("up")
KEY = "login"
ANSWER = Answer("1", (Sample(0.0, 1.0),))


class FakeQueryClient:
    """Takes only the ``right`` token, where one is set."""

    def __init__(self):
        self.targets = []
        self.right = None

    async def ask(self, target, question):
        self.targets.append(target)
        await asyncio.sleep(0)
        if self.right is not None and target.secret["login"] != self.right:
            raise UnauthorizedError("the provider rejected the credentials (HTTP 401)")
        return ANSWER


class ServiceEnvironment:
    def __init__(self, api, client):
        self.api = api
        self.time = 1000.0
        self.query_client = FakeQueryClient()
        self.service = QueryService(client, self.query_client, clock=lambda: self.time)

    def secret(self, **values):
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        self.api.put(SECRETS, {"metadata": {"name": "token", "namespace": "prod"}, "data": data})

    async def ask(self, **spec):
        return await self.service.ask(provider(**spec), QUESTION)

    @property
    def reads(self):
        return len([request for request in self.api.requests if request.verb == "get"])


def provider(kind="dynatrace", *, name="main", named="token", optional=None, **spec):
    reference = None if named is None else SecretKey(name=named, key=KEY, optional=optional)
    return Provider(
        metadata=Metadata(name=name, namespace="prod", uid="8c1f", generation=1),
        spec=ProviderSpec(
            type=kind, target_server="https://example.com", secret_key_ref=reference, **spec
        ),
    )


@pytest.fixture
def env(api, client):
    return ServiceEnvironment(api, client)


async def test_a_provider_without_a_secret_is_asked_at_once(env):
    assert await env.ask(named=None) == ANSWER
    assert env.query_client.targets[0].secret is None
    assert env.reads == 0


async def test_the_secret_is_read_once_a_minute(env):
    env.secret(login="one")
    for _ in range(3):
        await env.ask()
        env.time += 20
    assert env.reads == 1
    await env.ask()
    assert env.reads == 2
    assert {target.secret["login"] for target in env.query_client.targets} == {b"one"}
    assert env.query_client.targets[0].secret_key == KEY


async def test_many_who_ask_at_once_read_it_once(env):
    env.secret(login="one")
    answers = await asyncio.gather(*(env.ask() for _ in range(20)))
    assert answers == [ANSWER] * 20
    assert env.reads == 1


async def test_a_reader_that_is_cancelled_leaves_the_others_theirs(env):
    env.secret(login="one")
    env.api.fail_next("get", "secrets", kind="hang")
    first = asyncio.create_task(env.ask())
    await env.api.until_seen("get", "secrets")
    second = asyncio.create_task(env.ask())
    await asyncio.sleep(0)
    first.cancel()
    assert await second == ANSWER


async def test_credentials_that_were_renewed_are_read_as_soon_as_the_old_ones_are_refused(env):
    env.secret(login="one")
    env.query_client.right = b"one"
    await env.ask()
    env.secret(login="two")
    env.query_client.right = b"two"
    env.time += 10
    assert await asyncio.gather(*(env.ask() for _ in range(5))) == [ANSWER] * 5
    assert env.reads == 2
    assert await env.ask() == ANSWER
    assert env.reads == 2


async def test_wrong_credentials_are_not_read_for_each_who_asks(env):
    env.secret(login="one")
    env.query_client.right = b"two"
    for _ in range(5):
        with pytest.raises(UnauthorizedError):
            await env.ask()
    assert env.reads == 1
    env.time += 10
    with pytest.raises(UnauthorizedError):
        await env.ask()
    assert env.reads == 2
    assert len(env.query_client.targets) == 6


async def test_a_secret_that_is_absent_is_said_and_found_when_it_comes(env):
    for _ in range(3):
        with pytest.raises(BadCredentialsError, match="secret token not found"):
            await env.ask()
    assert env.reads == 1
    env.secret(login="one")
    env.time += 5
    assert await env.ask() == ANSWER


@pytest.mark.parametrize("name", ["", ".", "..", "/", "token/", "x/../../b/secrets/token", "a%2Fb"])
async def test_a_secret_without_a_name_is_said_and_not_asked_for(env, name):
    env.secret(login="one")
    with pytest.raises(BadCredentialsError, match="names no Secret"):
        await env.ask(named=name)
    assert env.reads == 0


async def test_a_secret_that_is_optional_may_be_absent(env):
    assert await env.ask(optional=True) == ANSWER
    assert env.query_client.targets[0].secret is None


@pytest.mark.parametrize(("kind", "expected"), [("elastic", None), ("prometheus", {"user": b"a"})])
async def test_a_key_that_is_optional_may_be_absent(env, kind, expected):
    env.secret(user="a")
    await env.ask(kind=kind, optional=True)
    assert env.query_client.targets[0].secret == expected


async def test_a_secret_without_data_is_empty(env):
    env.api.put(SECRETS, {"metadata": {"name": "token", "namespace": "prod"}})
    await env.ask()
    assert env.query_client.targets[0].secret == {}


@pytest.mark.parametrize(
    ("status", "error", "text"),
    [
        (
            403,
            BadCredentialsError,
            "missing permission to read Secret prod/token: run harbourmaster grant secrets -n prod",
        ),
        (500, UnreachableError, "secret token can't be read: ServerError"),
    ],
)
async def test_a_secret_that_can_not_be_read_is_said(env, status, error, text):
    env.secret(login="one")
    env.api.fail_next("get", "secrets", status=status)
    with pytest.raises(error) as raised:
        await env.ask()
    assert str(raised.value) == text


async def test_what_is_no_secret_is_not_shown(env):
    obj = {"metadata": {"name": "token", "namespace": "prod"}, "data": {"login": "8c1f!"}}
    env.api.put(SECRETS, obj)
    with pytest.raises(BadAnswerError) as raised:
        await env.ask()
    assert "8c1f" not in str(raised.value)


async def test_nothing_shows_a_secret(env):
    env.secret(login="8c1fbad")
    await env.ask()
    (result,) = env.query_client.targets
    for holder in (result, env.service, *env.service._secrets.values()):
        assert "8c1fbad" not in repr(holder)


async def test_secrets_that_nobody_asks_for_are_not_kept(env):
    env.secret(login="one")
    await env.ask()
    env.time += 61
    with pytest.raises(BadCredentialsError):
        await env.ask(named="other")
    assert list(env.service._secrets) == [("prod", "other")]
    assert list(env.service._locks) == [("prod", "other")]


def test_a_provider_without_a_type_has_its_name_for_one():
    assert target(provider("", name="Prometheus"), None).type == "prometheus"
    assert target(provider("Thanos"), None).type == "thanos"


def test_a_target_has_what_the_provider_says():
    kafka = KafkaTable(table="t", comparison_column="c", value_column="v")
    static = StaticMetrics(metrics={"up": 1})
    result = target(provider(insecure_skip_tls_verify=True, kafka=kafka, static=static), None)
    assert result.server == "https://example.com"
    assert result.skip_verify
    assert result.table == Table("t", "c", "v")
    assert result.static == {"up": 1}


@pytest.mark.parametrize(
    ("server", "reference", "expected"),
    [
        ("metrics.shop:9090/a", None, "http://metrics.shop:9090/a"),
        ("metrics.shop:9090", SecretKey(name="login"), "https://metrics.shop:9090"),
        ("http://metrics.shop", SecretKey(name="login"), "http://metrics.shop"),
        ("ftp://metrics.shop", None, "ftp://metrics.shop"),
        ("", None, ""),
    ],
)
def test_a_server_without_a_scheme_gets_credentials_over_tls_only(server, reference, expected):
    spec = ProviderSpec(type="prometheus", target_server=server, secret_key_ref=reference)
    provider = Provider(metadata=Metadata(name="a", namespace="prod"), spec=spec)
    assert target(provider, None).server == expected


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (None, Question("up")),
        (MetricRange(interval="3m"), Question("up", 3820.0, 4000.0)),
        (
            MetricRange(interval="1h", step="1m30s", aggregation="p90"),
            Question("up", 400.0, 4000.0, 90.0),
        ),
    ],
)
def test_a_range_ends_now(span, expected):
    assert question(MetricSpec(query="up", range=span), 4000.0) == expected


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
    [("10.96.0.1", "denied"), ("10.1.2.3", "denied"), ("169.254.169.254", "a link-local address")],
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
