"""Kubeconfigs of strangers: used as they are, or refused in one line (S37)."""

from __future__ import annotations

import base64
import copy
import json
import ssl
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.kube.client import Client
from harbourmaster.kube.errors import ConnectionSettingsError
from harbourmaster.kube.untrusted_kubeconfig import MAX_BYTES, access_from
from helpers.certificates import server_tls
from helpers.fake_api import FakeApi
from helpers.properties import cases

SOURCE = "Secret team/one, key kubeconfig"
HIDDEN = "hidden-c2VjcmV0"
HERE = "config-that-must-not-be-read"


# Each line is twice as much as the one before.
BOMB = "\n".join(
    ["a0: &a0 {k: v}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 40))]
).encode()


def data(pem):
    return base64.b64encode(pem).decode()


@pytest.fixture(scope="module")
def person(authority):
    ends = datetime.now(UTC).replace(tzinfo=None) + timedelta(days=1)
    issued = authority.issue_cert("person@example.com", not_after=ends)
    return {
        "client-certificate-data": data(issued.cert_chain_pems[0].bytes()),
        "client-key-data": data(issued.private_key_pem.bytes()),
    }


def config(server="https://127.0.0.1:6443", user=None, **cluster):
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "one", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "me", "user": user or {"token": HIDDEN}}],
        "contexts": [{"name": "c", "context": {"cluster": "one", "user": "me"}}],
        "current-context": "c",
    }


def read(content):
    return access_from(yaml.safe_dump(content).encode(), SOURCE)


def refusal(content):
    text = content if isinstance(content, bytes) else yaml.safe_dump(content).encode()
    with pytest.raises(ConnectionSettingsError) as error:
        access_from(text, SOURCE)
    line = str(error.value)
    assert line.startswith(SOURCE)
    assert "\n" not in line
    assert HIDDEN not in line
    return line.removeprefix(f"{SOURCE}: ")


async def test_token_certificate_and_authority_are_used(authority, person):
    context = server_tls(authority)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    async with FakeApi(tls=context) as api:
        trust = {"certificate-authority-data": data(authority.cert_pem.bytes())}
        access = read(config(api.url, {"token": "mine", **person}, **trust))
        async with Client(access.connection) as client:
            await client.request("GET", "/version")
        assert api.requests[0].headers["Authorization"] == "Bearer mine"
    assert access.namespace == ""
    left = access.expires - datetime.now(UTC)
    assert timedelta(hours=23) < left < timedelta(hours=25)


def test_the_namespace_of_the_context():
    content = config()
    content["contexts"][0]["context"]["namespace"] = "team"
    del content["current-context"]
    access = read(content)
    assert access.namespace == "team"
    assert access.connection.user == "me"
    assert access.expires is None


def test_a_token_says_when_it_ends():
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 1_800_000_000}).encode()).decode()
    access = read(config(user={"token": f"a.{claims.rstrip('=')}.c"}))
    assert access.expires == datetime.fromtimestamp(1_800_000_000, UTC)


def with_user(**user):
    return config(user={"token": HIDDEN, **user})


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (with_user(exec={"command": "touch"}), "exec of its user plugins are not run"),
        (with_user(**{"auth-provider": {"name": "oidc"}}), "auth-provider of its user is refused"),
        (with_user(tokenFile=HERE), "tokenFile of its user names a file: give a token"),
        (with_user(**{"client-certificate": HERE}), "client-certificate of its user names a file"),
        (with_user(**{"client-key": HERE}), "client-key of its user names a file"),
        (with_user(username="a"), "username of its user and password are refused"),
        (with_user(password=HIDDEN), "password of its user and username are refused"),
        (with_user(**{"as": "admin"}), "as of its user is refused"),
        (with_user(**{"as-groups": ["system:masters"]}), "as-groups of its user is refused"),
        (
            config(**{"certificate-authority": HERE}),
            "certificate-authority of its cluster names a file",
        ),
        (
            config(**{"insecure-skip-tls-verify": True}),
            "insecure-skip-tls-verify of its cluster is refused",
        ),
        (config(**{"proxy-url": "http://x"}), "proxy-url of its cluster is refused"),
        (config("http://127.0.0.1:8080"), 'server "http://127.0.0.1:8080" is not like https://'),
        (config("https://me:you@x"), "is not like https://host:port"),
        (config("https://x/?a=b"), "is not like https://host:port"),
        (config(""), 'server "" is not like'),
        (config("https://[x"), "is not like https://host:port"),
        (
            config(**{"certificate-authority-data": "?"}),
            "certificate-authority-data is not valid base64",
        ),
        (config(**{"certificate-authority-data": "eA=="}), "has no certificates in PEM form"),
        (config(**{"certificate-authority-data": 7}), "certificate-authority-data is not text"),
        (config(user={"client-key-data": "eA=="}), "neither a token nor client-certificate-data"),
        (config(user={"client-certificate-data": "eA=="}), "do not match or are not PEM"),
        (config(user={"token": "a b"}), "token is not a token: it has spaces"),
    ],
)
@pytest.mark.claim("P5")
def test_what_reaches_beyond_its_text_is_refused(content, text):
    assert text in refusal(content).replace(f"{SOURCE}: ", "")


@pytest.mark.parametrize("kind", ["contexts", "clusters", "users"])
def test_there_is_exactly_one_of_each(kind):
    content = config()
    content[kind] = [*content[kind], copy.deepcopy(content[kind][0])]
    assert refusal(content) == f"has 2 {kind}, and must have exactly one"
    content[kind] = []
    assert refusal(content) == f"has 0 {kind}, and must have exactly one"
    content[kind] = "x"
    assert refusal(content) == f"has 0 {kind}, and must have exactly one"
    for strange in (1, {}, {"name": "x"}, {"name": 1, kind[:-1]: {}}, {"name": "x", kind[:-1]: 1}):
        content[kind] = [strange]
        assert "is invalid: expected" in refusal(content)


@pytest.mark.parametrize("field", ["cluster", "user"])
def test_the_context_names_what_is_there(field):
    content = config()
    content["contexts"][0]["context"][field] = "other"
    assert refusal(content) == f'its context names the {field} "other", which does not exist'


def test_the_current_context_is_the_one():
    text = 'its current-context is "x", which does not exist'
    assert refusal({**config(), "current-context": "x"}) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "is empty"),
        (b"[]", "is empty"),
        (b"- a", "is invalid"),
        (b"hidden-c2VjcmV0", "is invalid"),
        (b"a: [hidden-c2VjcmV0", "is not valid YAML in line 1"),
        (b"\xff\xfe\x00", "is not valid YAML"),
        (b"a: !!python/object/apply:os.system [hidden-c2VjcmV0]", "is not valid YAML in line 1"),
        (BOMB, "has YAML aliases, which are not supported"),
        (b"[" * 5000, "is not valid YAML"),
        (b"a: !!bool x", "is not valid YAML"),
        (b"a: !!int ''", "is not valid YAML"),
        (b"a: " + b"1:" * 9000 + b"1.0", "is not valid YAML"),
        (b"#" * (MAX_BYTES + 1), "is larger than"),
    ],
)
def test_what_is_no_kubeconfig(text, reason):
    if text == b"[]":
        reason = "is invalid"
    assert refusal(text).startswith(reason)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["name", "user", "cluster", "server", "token"]), inner)
    ),
    max_leaves=6,
)


@settings(max_examples=cases(300))
@given(st.sampled_from(["clusters", "users", "contexts", "current-context"]), values)
def test_whatever_stands_there_is_read_or_refused_in_a_line(field, value):
    line = SOURCE
    try:
        read({**config(), field: value})
    except ConnectionSettingsError as error:
        line = str(error)
    assert line.startswith(SOURCE)
    assert "\n" not in line
