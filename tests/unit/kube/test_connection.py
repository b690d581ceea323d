"""The sources of the connection, and the credentials of a pod."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from harbourmaster.kube.client import Client
from harbourmaster.kube.connection import TOKEN_SECONDS, TokenFile
from harbourmaster.kube.connection_sources import connect, in_cluster, own_namespace
from harbourmaster.kube.errors import ConnectionSettingsError, UnauthorizedError
from helpers.certificates import server_tls
from helpers.fake_api import FakeApi

ROOT = Path(__file__).parents[3]
IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


class Clock:
    def __init__(self):
        self.now = 5.0

    def __call__(self):
        return self.now


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """An environment that leads nowhere."""
    for name in ("KUBECONFIG", "POD_NAMESPACE", *IN_A_POD):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return monkeypatch


@pytest.fixture
def in_a_pod(environment):
    """The environment of a pod."""
    for name, value in IN_A_POD.items():
        environment.setenv(name, value)
    return environment


@pytest.fixture
def account(tmp_path, authority):
    """The directory of a ServiceAccount."""
    directory = tmp_path / "serviceaccount"
    directory.mkdir()
    (directory / "token").write_text("first\n")
    (directory / "ca.crt").write_bytes(authority.cert_pem.bytes())
    (directory / "namespace").write_text("harbour")
    return directory


def write_kubeconfig(path, server="https://kube.example.com:6443"):
    path.parent.mkdir(parents=True, exist_ok=True)
    config = {
        "clusters": [{"name": "one", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": {"token": "mine"}}],
        "contexts": [
            {"name": name, "context": {"cluster": "one", "user": "me"}} for name in ("a", "b")
        ],
        "current-context": "a",
    }
    path.write_text(json.dumps(config))
    return str(path)


def jwt(**claims):
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{payload}.signature"


def test_a_given_kubeconfig_comes_first(in_a_pod, tmp_path, account):
    in_a_pod.setenv("KUBECONFIG", write_kubeconfig(tmp_path / "other", "https://other:1"))
    given = write_kubeconfig(tmp_path / "given")
    connection = connect(given, service_account_dir=account)
    assert connection.server == "https://kube.example.com:6443"
    assert connection.source == f"kubeconfig {given}, context a"
    assert connection.user == "me"
    assert connect(given, context="b").source == f"kubeconfig {given}, context b"


def test_then_the_one_of_the_environment(in_a_pod, tmp_path, account):
    in_a_pod.setenv("KUBECONFIG", write_kubeconfig(tmp_path / "other", "https://other:1"))
    assert connect(service_account_dir=account).server == "https://other:1"
    in_a_pod.setenv("KUBECONFIG", f"{tmp_path}/none:{tmp_path}/other")
    assert connect(service_account_dir=account).server == "https://other:1"


@pytest.mark.usefixtures("in_a_pod")
def test_then_the_pods(account):
    write_kubeconfig(Path("~/.kube/config").expanduser())
    connection = connect(service_account_dir=account)
    assert (connection.server, connection.source) == ("https://10.0.0.1:443", str(account))
    (account / "namespace").unlink(missing_ok=True)
    assert connect(service_account_dir=account).namespace == "default"
    (account / "namespace").write_text("shop\n")
    assert connect(service_account_dir=account).namespace == "shop"
    # A context is one of a kubeconfig's.
    assert connect(context="b", service_account_dir=account).source.endswith("context b")


def test_then_the_one_at_home(environment, account):
    write_kubeconfig(Path("~/.kube/config").expanduser())
    assert connect(service_account_dir=account).server == "https://kube.example.com:6443"
    environment.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    (account / "token").unlink()
    assert connect(service_account_dir=account).server == "https://kube.example.com:6443"


def test_nothing_at_all_is_one_line_with_all_that_was_looked_for(environment, tmp_path):
    with pytest.raises(ConnectionSettingsError) as caught:
        connect(service_account_dir=tmp_path)
    assert str(caught.value) == (
        "no API server: no kubeconfig is given, $KUBECONFIG is not set, $KUBERNETES_SERVICE_HOST "
        f"is not set, and {tmp_path}/home/.kube/config does not exist: set a kubeconfig"
    )
    environment.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(ConnectionSettingsError, match=f"{tmp_path}/token is not there"):
        connect(service_account_dir=tmp_path)


@pytest.mark.parametrize("way", ["argument", "environment"])
def test_a_kubeconfig_that_is_not_there_is_no_reason_to_take_another(in_a_pod, account, way):
    in_a_pod.setenv("KUBECONFIG", "/none" if way == "environment" else "")
    with pytest.raises(ConnectionSettingsError, match=r"^kubeconfig /none is not there$"):
        connect("/none" if way == "argument" else None, service_account_dir=account)


def test_the_server_of_a_pod_may_have_an_ipv6_address(account):
    connection = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1"}, account)
    assert connection.server == "https://[fd00::1]:443"


def test_a_pods_user_is_read_from_its_token(account):
    (account / "token").write_text(jwt(sub="system:serviceaccount:harbour:app"))
    assert in_cluster(IN_A_POD, account).user == "system:serviceaccount:harbour:app"
    for odd in ("opaque", "a.b.c", jwt(sub=7), jwt()):
        (account / "token").write_text(odd)
        assert in_cluster(IN_A_POD, account).user == ""


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("token", b"", "is not a token: it is empty"),
        ("token", b"a\nb", "spaces or control characters"),
        ("token", b"\xff", "is not text"),
        ("ca.crt", b"no PEM", "no certificates in PEM form"),
        ("ca.crt", b"", "no certificates in PEM form"),
        ("ca.crt", bytes(1024 * 1024 + 1), "is larger than"),
        ("ca.crt", None, "can't be read: No such file or directory"),
    ],
)
def test_a_broken_account_is_one_line(account, name, content, text):
    path = account / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConnectionSettingsError) as caught:
        in_cluster(IN_A_POD, account)
    assert str(path) in str(caught.value)
    assert text in str(caught.value)
    assert str(caught.value).isprintable()


async def test_a_token_file_is_read_again_after_a_minute(account):
    clock = Clock()
    token = TokenFile(account / "token", clock=clock)
    assert await token.get() == "first"
    (account / "token").write_text("second")
    clock.now += TOKEN_SECONDS - 1
    assert await token.get() == "first"
    clock.now += 1
    assert await token.get() == "second"


async def test_a_refused_token_is_read_again_at_once(account):
    token = TokenFile(account / "token", clock=Clock())
    await token.get()
    (account / "token").write_text("second")
    token.expire()
    assert await token.get() == "second"


async def test_a_token_file_that_is_gone_leaves_the_last_token(account):
    clock = Clock()
    token = TokenFile(account / "token", clock=clock)
    await token.get()
    (account / "token").unlink()
    clock.now += TOKEN_SECONDS
    assert await token.get() == "first"
    (account / "token").write_text("second")
    assert await token.get() == "second"


def pod_environment(api):
    return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)}


async def test_a_pod_outlives_its_tokens(authority, account):
    async with FakeApi(tls=server_tls(authority)) as api:
        api.tokens = {"first"}
        async with Client(in_cluster(pod_environment(api), account, clock=Clock())) as client:
            await client.request("GET", "/version")
            (account / "token").write_text("second")
            api.tokens = {"second"}
            await client.request("GET", "/version")
            api.tokens = {"third"}
            with pytest.raises(UnauthorizedError):
                await client.request("GET", "/version")
    assert [seen.headers["Authorization"] for seen in api.requests] == [
        "Bearer first", "Bearer first", "Bearer second", "Bearer second", "Bearer second"
    ]  # fmt: skip


async def test_a_pod_outlives_the_clusters_authority(authority, account):
    new = trustme.CA()
    clock = Clock()
    api = FakeApi(tls=server_tls(authority))
    await api.start()
    connection = in_cluster(pod_environment(api), account, clock=clock)
    async with Client(connection) as client:
        await client.request("GET", "/version")
        await api.stop()
        (account / "ca.crt").write_bytes(new.cert_pem.bytes())
        clock.now += TOKEN_SECONDS
        api.tls = server_tls(new)
        await api.start()
        await client.request("GET", "/version")
        (account / "ca.crt").write_text("half a certif")
        clock.now += TOKEN_SECONDS
        await client.request("GET", "/version")
    await api.stop()
    assert len(api.requests) == 3


def test_our_namespace(environment, account, tmp_path):
    assert own_namespace(account) == "harbour"
    environment.setenv("POD_NAMESPACE", "given")
    assert own_namespace(account) == "given"
    environment.setenv("POD_NAMESPACE", "")
    assert own_namespace(tmp_path) is None
    (account / "namespace").write_text("\n")
    assert own_namespace(account) is None


async def test_a_pod_does_not_load_the_library_for_kubeconfigs(authority, account):
    program = """
import asyncio, sys
from pathlib import Path
from harbourmaster.kube.client import Client
from harbourmaster.kube.connection_sources import connect

async def main():
    async with Client(connect(service_account_dir=Path(sys.argv[1]))) as client:
        await client.request("GET", "/version")

asyncio.run(main())
print([name for name in sys.modules if name.split(".")[0] in {"kubernetes_asyncio", "yaml"}])
"""
    async with FakeApi(tls=server_tls(authority)) as api:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, str(account),
            env={**os.environ, **pod_environment(api)}, cwd=ROOT,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        output, _ = await process.communicate()
    assert (process.returncode, output) == (0, b"[]\n")
    assert api.requests[0].headers["Authorization"] == "Bearer first"
