from __future__ import annotations

import asyncio
import json

import aiohttp
import msgspec
import pytest
import trustme
from yarl import URL

from harbourmaster.api.times import utc_now
from harbourmaster.certs.reload import CertificateHolder
from harbourmaster.certs.store import ensure
from harbourmaster.controller.exposure.exposure import CLIENTS
from harbourmaster.controller.exposure.metrics_api import (
    MAX_LENGTH,
    MetricsApiHandler,
    decode_front_proxy,
    parse_selector,
)
from harbourmaster.kube import access
from harbourmaster.kube.access import Attributes, Decisions, User
from harbourmaster.kube.errors import ServerError
from harbourmaster.serving.site import Site
from helpers import exposure
from helpers.exposure import Aggregator, headers_of, metric, values

GROUP = "custom.metrics.k8s.io"
BASE = f"/apis/{GROUP}"
KIND = "keptnmetrics.metrics.keptn.sh"
CPU = f"{BASE}/v1beta2/namespaces/prod/{KIND}/cpu/cpu"
VALUES = (
    metric("cpu", "0.5", age=3, labels={"app": "web"}),
    metric("disk", "1000", labels={"app": "db"}),
    metric("none"),
    metric("old", "7", age=3600),
    metric("cpu", "9", namespace="dev"),
)


class Reviews:
    """A stand-in for the API server that decides about access, and remembers the reviews."""

    def __init__(self):
        self.specs = []
        self.allowed = True
        self.fault = None
        self.held = None

    async def create(self, _resource, obj):
        self.specs.append(obj["spec"])
        if self.held is not None:
            await self.held.wait()
        if self.fault is not None:
            raise self.fault
        return json.dumps({"status": {"allowed": self.allowed}}).encode()


class ServedMetrics:
    """A served API and its callers."""

    def __init__(self, aggregator, bundle):
        self.aggregator = aggregator
        self.reviews = Reviews()
        self.now = 0.0
        self.config = aggregator.config_map()
        self.holder = CertificateHolder(bundle, CLIENTS)
        self.trusted = bundle.files.ca_crt
        handler = MetricsApiHandler(
            values(*VALUES), Decisions(self.reviews, lambda: self.now), self.front_proxy
        )
        self.site = Site(handler, host="127.0.0.1", port=0, tls=self.holder.context)

    def front_proxy(self):
        return decode_front_proxy(json.dumps(self.config).encode()) if self.config else None

    async def get(self, path, headers=None, method="GET", **client):
        context = self.aggregator.context(self.trusted, **client)
        headers = headers_of() if headers is None else headers
        return await exposure.get(self.site, path, context, headers, method)

    async def items(self, path):
        status, body = await self.get(path)
        assert status == 200, body
        return msgspec.json.decode(body)["items"]


@pytest.fixture
async def site(tmp_path):
    aggregator = Aggregator(tmp_path)
    (tmp_path / "certs").mkdir()
    metrics = ServedMetrics(aggregator, ensure(tmp_path / "certs", ("localhost",), utc_now()))
    metrics.holder.trust(aggregator.authority.cert_pem.bytes())
    await metrics.site.start()
    yield metrics
    await metrics.site.stop()


def status_of(body):
    status = msgspec.json.decode(body)
    assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
    assert "\n" not in status["message"]
    return status["code"], status["reason"]


async def documents(site, *paths):
    """Return the documents at these paths, decoded."""
    answers = {path: await site.get(path) for path in paths}
    assert {status for status, _ in answers.values()} == {200}
    return {path: msgspec.json.decode(body) for path, (_, body) in answers.items()}


async def test_one_value_in_both_versions(site, assert_golden):
    assert_golden(await documents(site, CPU.replace("v1beta2", "v1beta1"), CPU))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("*/*", {"cpu": "500m", "disk": "1k"}),
        ("%2A/%2A", {"cpu": "500m", "disk": "1k"}),
        ("*/cpu", {"cpu": "500m"}),
        ("cpu/*", {"cpu": "500m"}),
        ("*/other", {}),
        ("*/*?labelSelector=app%3Dweb", {"cpu": "500m"}),
        ("*/*?labelSelector=app+in+(db,x)", {"disk": "1k"}),
        ("*/*?metricLabelSelector=app%3Ddb", {"disk": "1k"}),
        ("*/*?labelSelector=app%3Dweb&metricLabelSelector=app%3Ddb", {}),
        ("cpu/cpu?metricLabelSelector=app%3Dweb", {"cpu": "500m"}),
        ("cpu/cpu/", {"cpu": "500m"}),
    ],
)
async def test_stars_and_selectors(site, path, expected):
    items = await site.items(f"{BASE}/v1beta2/namespaces/prod/{KIND}/{path}")
    assert {item["describedObject"]["name"]: item["value"] for item in items} == expected


@pytest.mark.parametrize(
    "path", ["none/none", "old/old", "absent/absent", "cpu/disk", "cpu/cpu?metricLabelSelector=x"]
)
async def test_what_has_no_value_that_counts_is_not_found(site, path):
    status, body = await site.get(f"{BASE}/v1beta2/namespaces/prod/{KIND}/{path}")
    assert status == 404
    assert status_of(body) == (404, "NotFound")


async def test_discovery_needs_no_review(site, assert_golden):
    assert_golden(await documents(site, "/apis", BASE, f"{BASE}/v1beta1", f"{BASE}/v1beta2"))
    assert site.reviews.specs == []


async def test_openapi_is_valid_and_adds_nothing_to_the_cluster_s(site, assert_golden):
    index = await documents(site, "/openapi/v2", "/openapi/v3")
    entries = index["/openapi/v3"]["paths"].values()
    schemas = await documents(site, *(entry["serverRelativeURL"] for entry in entries))
    assert_golden(index | schemas)


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_health_needs_no_name(site, path):
    assert await site.get(path, (), name=None) == (200, b"ok")


@pytest.mark.parametrize("path", [CPU, "/apis", BASE, "/openapi/v2", "/other"])
async def test_without_a_certificate_nobody_is_anybody(site, path):
    status, body = await site.get(path, name=None)
    assert status == 401
    assert status_of(body) == (401, "Unauthorized")
    assert site.reviews.specs == []


async def test_a_certificate_of_another_authority_ends_the_handshake(site):
    with pytest.raises((aiohttp.ClientError, OSError)):
        await site.get(CPU, authority=trustme.CA())
    assert site.reviews.specs == []


async def test_a_certificate_of_another_name_is_nobody_s(site):
    status, _ = await site.get(CPU, name="kubelet")
    assert status == 401
    site.config = site.aggregator.config_map(**{"requestheader-allowed-names": "[]"})
    assert (await site.get(CPU, name="kubelet"))[0] == 200
    assert (await site.get(CPU, name=None))[0] == 401


@pytest.mark.parametrize("headers", [[], headers_of(user=""), [("X-Remote-User", "")]])
async def test_a_request_for_nobody_is_refused(site, headers):
    assert (await site.get(CPU, headers))[0] == 401
    assert (await site.get(BASE, headers))[0] == 401


async def test_the_unauthenticated_learn_nothing(site):
    anonymous = headers_of("system:anonymous", ["system:unauthenticated"])
    for path in (BASE, CPU):
        status, body = await site.get(path, anonymous)
        assert status_of(body) == (403, "Forbidden")
        assert status == 403


async def test_before_it_is_known_who_the_aggregator_is_nobody_gets_in(site):
    site.config = None
    assert (await site.get(CPU))[0] == 401


async def test_the_api_server_decides_for_whom_it_asks(site):
    extra = {"X-Remote-Extra-Example.com%2fScopes": "read", "X-Remote-Uid": "7"}
    await site.get(CPU, headers_of(**extra))
    assert site.reviews.specs == [
        {
            "user": "jane",
            "groups": ["team", "system:authenticated"],
            "uid": "7",
            "extra": {"example.com/scopes": ["read"]},
            "resourceAttributes": {
                "namespace": "prod",
                "verb": "get",
                "group": GROUP,
                "version": "v1beta2",
                "resource": KIND,
                "subresource": "cpu",
                "name": "cpu",
            },
        }
    ]


async def test_the_alias_is_answered_and_authorized_as_the_resource_itself(site):
    alias = CPU.replace(KIND, "keptnmetrics.metrics.sh")
    assert alias != CPU
    assert await site.get(alias) == await site.get(CPU)
    assert {spec["resourceAttributes"]["resource"] for spec in site.reviews.specs} == {KIND}
    site.reviews.allowed = False
    status, body = await site.get(alias.replace("cpu/cpu", "*/*"))
    assert status == 403
    assert f"{KIND}/*" in body.decode()
    assert (await site.get(CPU.replace(KIND, "keptnmetrics.metrics.example.com")))[0] == 404


async def test_who_may_not_is_forbidden_whether_there_is_a_value_or_not(site):
    site.reviews.allowed = False
    for path in (CPU, CPU.replace("cpu", "absent")):
        status, body = await site.get(path)
        assert status == 403
        assert status_of(body) == (403, "Forbidden")
        assert 'user "jane" cannot get resource' in body.decode().replace("\\", "")


async def test_a_decision_holds_for_a_moment_and_for_this_wish_only(site):
    for path in (CPU, CPU, CPU.replace("cpu/cpu", "disk/disk"), CPU):
        await site.get(path)
    assert len(site.reviews.specs) == 2
    await site.get(CPU, headers_of("john"))
    await site.get(CPU, headers_of("jane", ["other"]))
    assert len(site.reviews.specs) == 4
    site.now += access.VALIDITY
    site.reviews.allowed = False
    assert (await site.get(CPU))[0] == 403


async def test_decisions_do_not_pile_up(site, monkeypatch):
    monkeypatch.setattr(access, "LIMIT", 3)
    for name in "abcdef":
        await site.get(CPU.replace("cpu/cpu", f"{name}/{name}"))
    await site.get(CPU.replace("cpu/cpu", "f/f"))
    assert len(site.reviews.specs) == 6
    await site.get(CPU.replace("cpu/cpu", "a/a"))
    assert len(site.reviews.specs) == 7


async def test_one_who_goes_away_takes_no_decision_from_the_others(site):
    site.reviews.held = asyncio.Event()
    asked = Decisions(site.reviews, lambda: 0.0)
    wish = Attributes("get", GROUP, "v1beta2", KIND, "prod", "cpu", "cpu")
    first, second = (asyncio.create_task(asked.is_allowed(User("jane"), wish)) for _ in range(2))
    while not site.reviews.specs:  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    site.reviews.held.set()
    assert await second
    assert len(site.reviews.specs) == 1


@pytest.mark.parametrize("fault", [TimeoutError(), ServerError("gone", status=500)])
async def test_without_a_decision_nothing_is_told(site, fault):
    site.reviews.fault = fault
    status, body = await site.get(CPU)
    assert status == 503
    assert status_of(body) == (503, "ServiceUnavailable")
    site.reviews.fault = None
    assert (await site.get(CPU))[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api",
        "/apis/apps",
        f"{BASE}/v1",
        f"{BASE}/v1/namespaces/prod/{KIND}/cpu/cpu",
        f"{BASE}/v1beta2/namespaces/prod/pods/cpu/cpu",
        f"{BASE}/v1beta2/namespaces/prod/{KIND}",
        f"{BASE}/v1beta2/namespaces/prod/{KIND}/cpu",
        f"{BASE}/v1beta2/namespaces/prod/{KIND}/cpu%2Fcpu",
        f"{BASE}/v1beta2/namespaces/prod/{KIND}/cpu/cpu/x",
        f"{BASE}/v1beta2/{KIND}/cpu/cpu",
        f"/{BASE}/v1beta2",
        f"{BASE}/v1beta2/../v1beta2",
        "/%ff%fe",
    ],
)
async def test_other_paths_are_not_there(site, path):
    context = site.aggregator.context(site.trusted)
    connector = aiohttp.TCPConnector(ssl=context, force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(URL(f"{site.site.url}{path}", encoded=True), headers=headers_of()) as answer,
    ):
        assert answer.status == 404
        assert status_of(await answer.read()) == (404, "NotFound")
    assert site.reviews.specs == []


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", [CPU, BASE, "/healthz"])
async def test_other_methods_are_refused(site, path, method):
    status, body = await site.get(path, method=method)
    assert status == 405
    assert status_of(body) == (405, "MethodNotAllowed")


@pytest.mark.parametrize(
    "query", ["labelSelector=a%20b", "metricLabelSelector=%3D", "&".join(["a=b"] * 40)]
)
async def test_a_query_that_cannot_be_read_is_a_bad_request(site, query):
    status, body = await site.get(f"{BASE}/v1beta2/namespaces/prod/{KIND}/*/*?{query}")
    assert status == 400
    assert status_of(body) == (400, "BadRequest")


WEB = {"app": "web", "tier": "front", "example.com/weight": "5"}


@pytest.mark.parametrize(
    "text",
    [
        *("", "  ", "app=web", "app == web", "app!=db", "app=web,tier=front"),
        *(" app = web , tier in (front, back) ", "tier notin (back)", "absent notin (a)"),
        *("absent!=a", "app", "!absent", "! absent", "example.com/weight>4"),
        *("example.com/weight<6", "app in (web)", "app in (web,)"),
    ],
)
def test_these_select(text):
    assert parse_selector(text).matches(WEB)


@pytest.mark.parametrize(
    "text",
    [
        *("app=db", "app!=web", "app=", "app=web,tier=back", "tier in (back)"),
        *("tier notin (front)", "absent", "!app", "absent=a", "example.com/weight>5"),
        *("example.com/weight<5", "app>1", "absent<1"),
    ],
)
def test_these_do_not(text):
    assert not parse_selector(text).matches(WEB)


@pytest.mark.parametrize(
    "text",
    [
        "=",
        "app=web,",
        ",app=web",
        "app=web tier=front",
        "app in web",
        "app in (web",
        "app in (we b)",
        "app in (a,-)",
        "app>x",
        "app=a=b",
        "app=~web",
        "-app",
        "a/b/c",
        "app=web;drop",
        f"app={'a' * 64}",
        f"{'a' * 64}=b",
        "app=\N{LATIN SMALL LETTER E WITH ACUTE}",
        " " * (MAX_LENGTH + 1),
        "(" * 4000,
        "a in (" + "," * 4000,
    ],
)
def test_what_is_no_selector_is_refused_in_one_line(text):
    with pytest.raises(ValueError, match=r"select|label") as error:
        parse_selector(text)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 100
