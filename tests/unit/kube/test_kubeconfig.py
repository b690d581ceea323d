"""Kubeconfig files: their settings are used, or refused in one line."""

from __future__ import annotations

import base64
import ssl

import pytest
import yaml
from cryptography.hazmat.primitives import serialization as form

from harbourmaster.kube.client import Client
from harbourmaster.kube.connection_sources import connect
from harbourmaster.kube.errors import ApiError, ConnectionSettingsError, UnreachableError
from helpers.certificates import server_tls
from helpers.fake_api import FakeApi
from helpers.patience import PATIENCE

HIDDEN = "hidden-c2VjcmV0"


@pytest.fixture(scope="module")
def person(authority):
    """A client certificate and its key, both in PEM form."""
    issued = authority.issue_cert("person@example.com")
    return issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()


@pytest.fixture
async def tls_api(authority):
    """An API server with TLS that asks for a client certificate and takes any of ours."""
    context = server_tls(authority)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    async with FakeApi(tls=context) as api:
        yield api


def write(path, *, cluster, user=None, **fields):
    """A kubeconfig of one context."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "one", "cluster": cluster}],
        "users": [{"name": "me", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "one", "user": "me"}}],
        "current-context": "c",
        **fields,
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


def data(pem):
    return base64.b64encode(pem).decode()


def trusting(api, authority):
    return {
        "server": api.url,
        "certificate-authority-data": data(authority.cert_pem.bytes()),
    }


async def request_version(kubeconfig, **options):
    """Ask once; the server's answer."""
    async with Client(connect(kubeconfig, **options), timeout=PATIENCE) as client:
        return await client.request("GET", "/version")


async def test_a_token_and_an_authority_as_data(tls_api, authority, tmp_path):
    path = write(tmp_path / "config", cluster=trusting(tls_api, authority), user={"token": "mine"})
    await request_version(path)
    assert tls_api.requests[0].headers["Authorization"] == "Bearer mine"


async def test_files_are_found_beside_the_kubeconfig(tls_api, authority, tmp_path, person):
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki/ca.crt").write_bytes(authority.cert_pem.bytes())
    (tmp_path / "pki/me.crt").write_bytes(person[0])
    (tmp_path / "pki/me.key").write_bytes(person[1])
    (tmp_path / "token").write_text("in a file, no\n".replace(" ", "-"))
    path = write(
        tmp_path / "config",
        cluster={"server": f"{tls_api.url}/", "certificate-authority": "pki/ca.crt"},
        user={
            "client-certificate": "pki/me.crt",
            "client-key": "pki/me.key",
            "tokenFile": "token",
            # The file counts: it can be renewed.
            "token": "old",
        },
    )
    await request_version(path)
    assert tls_api.requests[0].headers["Authorization"] == "Bearer in-a-file,-no"
    assert tls_api.requests[0].path == "/version"


async def test_a_client_certificate_as_data_is_shown_and_written_nowhere(
    tls_api, authority, tmp_path, person, monkeypatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    tls_api.tls.verify_mode = ssl.CERT_REQUIRED
    user = {"client-certificate-data": data(person[0]), "client-key-data": data(person[1])}
    cluster = trusting(tls_api, authority)
    await request_version(write(tmp_path / "config", cluster=cluster, user=user))
    assert "Authorization" not in tls_api.requests[0].headers
    assert not list((tmp_path / "tmp").iterdir())
    with pytest.raises(ApiError):
        await request_version(write(tmp_path / "config", cluster=cluster, user={}))


async def test_verification_is_left_out_only_where_the_file_says_so(tls_api, tmp_path):
    await request_version(
        write(
            tmp_path / "config",
            cluster={"server": tls_api.url, "insecure-skip-tls-verify": True},
        )
    )
    with pytest.raises(UnreachableError, match="is not trusted"):
        await request_version(write(tmp_path / "config", cluster={"server": tls_api.url}))


async def test_a_server_name_is_what_the_certificate_must_have(tls_api, authority, tmp_path):
    cluster = {**trusting(tls_api, authority), "tls-server-name": "other.example.com"}
    with pytest.raises(UnreachableError, match=r"other\.example\.com"):
        await request_version(write(tmp_path / "config", cluster=cluster))


async def test_the_api_may_be_below_a_path(tls_api, authority, tmp_path):
    cluster = {**trusting(tls_api, authority), "server": f"{tls_api.url}/clusters/one"}
    with pytest.raises(ApiError, match="404"):
        await request_version(write(tmp_path / "config", cluster=cluster))
    assert tls_api.requests[0].path == "/clusters/one/version"


async def test_no_token_goes_over_plain_http(api, tmp_path):
    await request_version(
        write(tmp_path / "config", cluster={"server": api.url}, user={"token": "mine"})
    )
    assert "Authorization" not in api.requests[0].headers


def test_files_are_merged_and_the_first_word_counts(monkeypatch, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "b/token").write_text("from-b")
    first = write(tmp_path / "a/config", cluster={"server": "https://a:1"}, users=[])
    second = write(
        tmp_path / "b/config", cluster={"server": "https://b:1"}, user={"tokenFile": "token"}
    )
    monkeypatch.setenv("KUBECONFIG", f"{first}:{tmp_path}/none:{second}")
    assert connect().server == "https://a:1"


def test_the_context_decides(tmp_path):
    path = write(
        tmp_path / "config",
        cluster={"server": "https://one:1"},
        contexts=[
            {"name": "c", "context": {"cluster": "one", "user": "me"}},
            {"name": "anonymous", "context": {"cluster": "one"}},
        ],
    )
    assert connect(path).user == "me"
    connection = connect(path, context="anonymous")
    assert (connection.user, connection.token) == ("", None)
    assert connection.source == f"kubeconfig {path}, context anonymous"
    with pytest.raises(ConnectionSettingsError, match='has no context "none"'):
        connect(path, context="none")


CLUSTER = {"server": "https://kube.example.com:6443"}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"current-context": ""}, "has no current-context: set a context"),
        ({"current-context": "none"}, 'has no context "none"'),
        ({"clusters": []}, 'has no cluster "one"'),
        ({"users": []}, 'has no user "me"'),
        ({"contexts": None}, 'has no context "c"'),
        ({"contexts": [{"name": "c"}]}, 'context "c" is empty'),
        ({"contexts": "c"}, "a section has the wrong form"),
        ({"clusters": [{"cluster": {}}]}, "a section has the wrong form"),
        ({"cluster": {}}, 'server "" is not like https://host:port'),
        ({"cluster": {"server": "kube.example.com:6443"}}, "is not like https://host:port"),
        ({"cluster": {"server": "https://"}}, "is not like https://host:port"),
        ({"cluster": {"server": "https://a:1?b"}}, "is not like https://host:port"),
        ({"cluster": {"server": "https://a:99999"}}, "is not like https://host:port"),
        ({"cluster": {"server": "ftp://a:1"}}, "is not like https://host:port"),
        ({"cluster": {"server": "https://me:pass@a:1"}}, "is not like https://host:port"),
        ({"cluster": {**CLUSTER, "proxy-url": "http://p"}}, "proxy-url is not supported"),
        (
            {"cluster": {**CLUSTER, "certificate-authority-data": "?"}},
            "certificate-authority-data is not valid base64",
        ),
        (
            {"cluster": {**CLUSTER, "certificate-authority-data": "AAAA"}},
            "certificate-authority has no certificates in PEM form",
        ),
        (
            {"cluster": {**CLUSTER, "certificate-authority": "none.crt"}},
            "none.crt can't be read: No such file or directory",
        ),
        ({"user": {"client-certificate-data": "AAAA"}}, "do not match or are not PEM"),
        ({"user": {"client-certificate": "none.crt"}}, "none.crt can't be read"),
        ({"user": {"tokenFile": "none"}}, "none can't be read: No such file or directory"),
        ({"user": {"token": "a b"}}, "token is not a token: it has spaces"),
        ({"user": {"token": "t", "as": "root"}}, "as of a user is not supported"),
        ({"user": {"username": "u", "password": "p"}}, "username of a user is not supported"),
        ({"user": {"auth-provider": {"name": "gcp"}}}, "auth-provider gcp is not supported"),
        ({"user": {"auth-provider": {"name": "oidc"}}}, "auth-provider oidc: Expected `object`"),
        ({"user": {"exec": {"command": "x"}}}, "exec: invalid section"),
        ({"user": {"exec": "x"}}, "exec: invalid section"),
        ({"user": {"exec": {"command": "x", "apiVersion": "v7"}}}, "apiVersion v7 is not supp"),
        (
            {
                "user": {
                    "exec": {
                        "command": "x",
                        "apiVersion": "client.authentication.k8s.io/v1",
                        "interactiveMode": "Always",
                    }
                }
            },
            "the plugin needs a terminal",
        ),
    ],
)
def test_what_can_t_be_used_is_one_line(tmp_path, changes, text):
    path = write(tmp_path / "config", **{"cluster": CLUSTER, **changes})
    with pytest.raises(ConnectionSettingsError) as caught:
        connect(path)
    assert text in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "is invalid"),
        ("{}", "has no current-context"),
        ("- a", "is invalid"),
        ("text", "is invalid"),
        ("{", "is not valid YAML in line 1"),
        ("a: b\nc: [", "is not valid YAML in line"),
        ("clusters: 7", "is invalid"),
        ("clusters: [7]\ncurrent-context: a", "has no context"),
        (f"users: [{{token: {HIDDEN}}}]\ncontexts: [{{}}]\ncurrent-context: a", "a section has"),
        (f"users:\n- name: a\n  token: {HIDDEN}\n bad", "is not valid YAML in line"),
        ("\x00", "is not valid YAML"),
        ("!!python/object/apply:os.system [id]", "is not valid YAML in line 1"),
    ],
)
def test_what_is_no_kubeconfig_is_one_line_without_its_secrets(tmp_path, content, text):
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ConnectionSettingsError) as caught:
        connect(str(path))
    assert text in str(caught.value)
    assert str(path) in str(caught.value)
    assert HIDDEN not in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_file_that_may_not_be_read_is_one_line(tmp_path):
    with pytest.raises(ConnectionSettingsError, match="can't be read: Is a directory"):
        connect(str(tmp_path))


def test_a_key_with_a_password_is_one_line(authority, tmp_path, person):
    key = form.load_pem_private_key(person[1], None)
    locked = key.private_bytes(
        form.Encoding.PEM, form.PrivateFormat.PKCS8, form.BestAvailableEncryption(b"x")
    )
    user = {"client-certificate-data": data(person[0]), "client-key-data": data(locked)}
    with pytest.raises(ConnectionSettingsError, match="do not match or are not PEM"):
        connect(write(tmp_path / "config", cluster=CLUSTER, user=user))


def test_a_file_in_the_home_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "config", cluster=CLUSTER)
    assert connect("~/config").server == CLUSTER["server"]


@pytest.mark.parametrize("server", ["http://kube.example.com:80", "https://kube.example.com:443"])
def test_the_namespace_is_that_of_the_context(tmp_path, server):
    contexts = [
        {"name": "shop", "context": {"cluster": "one", "namespace": "shop"}},
        {"name": "c", "context": {"cluster": "one"}},
    ]
    path = write(tmp_path / "config", cluster={"server": server}, contexts=contexts)
    assert connect(path).namespace == "default"
    assert connect(path, context="shop").namespace == "shop"
