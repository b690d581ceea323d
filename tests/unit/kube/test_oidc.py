"""ID tokens, and an identity provider that renews them."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import pytest
import trustme
import yaml
from aiohttp import web

from harbourmaster.kube.client import Client
from harbourmaster.kube.connection_sources import connect
from harbourmaster.kube.errors import UnauthorizedError
from helpers.certificates import server_tls
from helpers.fake_api import FakeApi


def jwt(name, seconds):
    claims = json.dumps({"sub": name, "exp": time.time() + seconds}).encode()
    return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.{name}"


class Provider:
    """An identity provider; ``endpoint`` may lie."""

    def __init__(self):
        self.url = ""
        self.endpoint = "{}/token"
        self.tokens = {}
        self.status = 200
        self.asked = []

    async def discovery(self, _request):
        return web.json_response({"token_endpoint": self.endpoint.format(self.url)})

    async def token(self, request):
        form = dict(await request.post())
        self.asked.append((request.headers.get("Authorization"), form))
        return web.json_response(self.tokens, status=self.status)


@pytest.fixture
async def provider(authority):
    provider = Provider()
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", provider.discovery)
    app.router.add_post("/token", provider.token)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_tls(authority)).start()
    provider.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    yield provider
    await runner.cleanup()


@pytest.fixture
async def api(authority):
    async with FakeApi(tls=server_tls(authority)) as fake_api:
        yield fake_api


@pytest.fixture
def config(tmp_path, authority, api, provider):
    """Write a kubeconfig: ``config(**fields of the provider)``."""

    def write(**fields):
        pem = base64.b64encode(authority.cert_pem.bytes()).decode()
        settings = {
            "idp-issuer-url": provider.url,
            "client-id": "id",
            "client-secret": "s3",
            "idp-certificate-authority-data": pem,
            **fields,
        }
        user = {"auth-provider": {"name": "oidc", "config": settings}}
        cluster = {"server": api.url, "certificate-authority-data": pem}
        path = tmp_path / "config"
        path.write_text(
            yaml.safe_dump(
                {
                    "clusters": [{"name": "one", "cluster": cluster}],
                    "users": [{"name": "me", "user": user}],
                    "contexts": [{"name": "c", "context": {"cluster": "one", "user": "me"}}],
                    "current-context": "c",
                }
            )
        )
        return str(path)

    return write


async def request_version(path, times=1):
    async with Client(connect(path)) as client:
        for _ in range(times):
            await client.request("GET", "/version")


def content(path):
    return Path(path).read_bytes()


def sent_tokens(api):
    return [seen.headers["Authorization"].rpartition(".")[2] for seen in api.requests]


async def test_a_token_is_used_while_it_lasts(config, api, provider):
    await request_version(config(**{"id-token": jwt("first", 600), "refresh-token": "r1"}), times=2)
    assert sent_tokens(api) == ["first", "first"]
    assert not provider.asked


@pytest.mark.parametrize("fields", [{"id-token": jwt("old", -1)}, {}])
async def test_a_token_that_has_ended_is_renewed(config, api, provider, fields):
    provider.tokens = {"id_token": jwt("new", 5), "refresh_token": "r2"}
    path = config(**fields, **{"refresh-token": "r1"})
    before = content(path)
    await request_version(path, times=2)
    assert sent_tokens(api) == ["new", "new"]
    # The new one ends within the margin, so the second request renews it again.
    login = "Basic " + base64.b64encode(b"id:s3").decode()
    assert provider.asked == [
        (login, {"grant_type": "refresh_token", "refresh_token": token}) for token in ("r1", "r2")
    ]
    assert content(path) == before


async def test_a_client_without_a_secret_names_itself_in_the_form(config, provider):
    provider.tokens = {"id_token": jwt("new", 600)}
    await request_version(config(**{"refresh-token": "r1", "client-secret": ""}))
    ((login, form),) = provider.asked
    assert (login, form["client_id"]) == (None, "id")


async def test_a_refused_token_is_renewed(config, api, provider):
    new = jwt("new", 600)
    api.tokens, provider.tokens = {new}, {"id_token": new}
    await request_version(config(**{"id-token": jwt("first", 600), "refresh-token": "r1"}))
    assert sent_tokens(api) == ["first", "new"]


async def failure(path):
    with pytest.raises(UnauthorizedError) as caught:
        await request_version(path)
    assert str(caught.value).isprintable()
    return str(caught.value)


async def test_no_renewal_is_one_line(config, provider, tmp_path):
    assert "there is no refresh-token: log in again" in await failure(config())
    path = config(**{"refresh-token": "r1"})
    provider.status = 400
    assert (
        f"{provider.url} rejected the renewal of the id-token: HTTP 400: log in"
        in await failure(path)
    )
    provider.status, provider.tokens = 200, {"access_token": "x"}
    assert "sent an invalid answer: " in await failure(path)
    provider.tokens = {"id_token": "a\nb"}
    assert "is not a token" in await failure(path)
    provider.endpoint = "http://127.0.0.1:9/token"
    assert "has no https URL" in await failure(path)
    path = config(**{"refresh-token": "r1", "idp-issuer-url": "https://127.0.0.1:9"})
    assert "renewing the id-token failed: cannot connect to https://127.0.0.1:9" in await failure(
        path
    )


async def test_a_provider_with_a_strangers_certificate_is_told_nothing(config, provider):
    foreign = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
    for authorities in (foreign, ""):
        fields = {"idp-certificate-authority-data": authorities, "refresh-token": "r1"}
        text = await failure(config(**fields))
        assert f"the certificate of {provider.url} is not trusted" in text
    assert not provider.asked
