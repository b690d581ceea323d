"""Exec plugins: small shell scripts here."""

from __future__ import annotations

import asyncio
import json
import os
import select
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from harbourmaster.kube import plugins
from harbourmaster.kube.client import Client
from harbourmaster.kube.connection_sources import connect
from harbourmaster.kube.errors import ConnectionSettingsError, UnauthorizedError
from harbourmaster.kube.plugins import PluginCommand, PluginToken
from helpers.certificates import server_tls
from helpers.fake_api import FakeApi

VERSION = "client.authentication.k8s.io/v1"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def answer(**status):
    return {"apiVersion": VERSION, "kind": "ExecCredential", "status": status}


@pytest.fixture
def plugin(tmp_path):
    """Make a plugin: ``plugin(body, ...)``; each run leaves a line in ``runs``."""

    def make(body, *, now=lambda: NOW, context=None, cluster=None):
        script = tmp_path / "plugin"
        script.write_text(f"#!/bin/sh\necho run >> {tmp_path}/runs\n{body}\n")
        script.chmod(0o755)
        command = PluginCommand(
            (str(script),), {"PATH": "/bin:/usr/bin"}, VERSION, cluster, "config /k"
        )
        return PluginToken(command, context, now=now)

    (tmp_path / "runs").touch()
    return make


def process_of(file):
    return Path("/proc") / file.read_text().strip()


def runs(tmp_path):
    return (tmp_path / "runs").read_text().count("run")


def says(value):
    return f"cat <<'END'\n{json.dumps(value)}\nEND"


async def test_a_token_is_kept_until_it_ends(plugin, tmp_path):
    now = NOW
    end = (NOW + timedelta(minutes=1)).isoformat()
    token = plugin(says(answer(token="t", expirationTimestamp=end)), now=lambda: now)  # noqa: S106
    assert [await token.get(), await token.get()] == ["t", "t"]
    assert runs(tmp_path) == 1
    now = NOW + timedelta(seconds=51)
    await token.get()
    assert runs(tmp_path) == 2


async def test_a_token_without_an_end_is_kept_until_it_is_refused(plugin, tmp_path):
    now = NOW
    token = plugin(says(answer(token="t")), now=lambda: now)  # noqa: S106
    await token.get()
    now += timedelta(days=300)
    await token.get()
    assert runs(tmp_path) == 1
    token.expire()
    await token.get()
    assert runs(tmp_path) == 2


async def test_many_askers_run_it_once(plugin, tmp_path):
    token = plugin(says(answer(token="t")))  # noqa: S106
    assert await asyncio.gather(*(token.get() for _ in range(5))) == ["t"] * 5
    assert runs(tmp_path) == 1


async def test_the_plugin_is_told_what_it_needs(plugin, tmp_path):
    told = tmp_path / "told"
    body = f'echo "$KUBERNETES_EXEC_INFO" > {told}; {says(answer(token="t"))}'  # noqa: S106
    await plugin(body).get()
    info = {"apiVersion": VERSION, "kind": "ExecCredential", "spec": {"interactive": False}}
    assert json.loads(told.read_text()) == info
    await plugin(body, cluster={"server": "https://a:1"}).get()
    info["spec"]["cluster"] = {"server": "https://a:1"}
    assert json.loads(told.read_text()) == info


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("exit 3", "ended with exit code 3: "),
        ("echo 'no login' >&2; exit 1", "ended with exit code 1: no login"),
        ("printf 'a\\033[2J\\nb' >&2; exit 1", "ended with exit code 1: a\\x1b[2J b"),
        ("echo hidden", "did not print a valid ExecCredential: "),
        (says(answer()), "returned neither a token nor a certificate"),
        (says({**answer(), "kind": "Pod"}), f"answers with Pod of {VERSION}, expected Exec"),
        (says({**answer(), "apiVersion": "v2"}), "answers with ExecCredential of v2, expected"),
        (says(answer(token=7)), "did not print a valid ExecCredential: Expected `str`"),
        (says(answer(token="a\nb")), "is not a token: it has spaces"),  # noqa: S106
    ],
)
async def test_a_bad_plugin_is_one_line(plugin, tmp_path, body, text):
    with pytest.raises(ConnectionSettingsError) as caught:
        await plugin(body).get()
    assert text in str(caught.value)
    assert str(caught.value).startswith("config /k: ")
    assert str(tmp_path / "plugin") in str(caught.value)
    assert str(caught.value).isprintable()
    assert "hidden" not in str(caught.value)


async def test_a_plugin_that_is_not_there_is_one_line(tmp_path):
    command = PluginCommand((str(tmp_path / "none"),), {}, VERSION, None, "config /k")
    with pytest.raises(ConnectionSettingsError, match=r"can't be run: .*No such file"):
        await PluginToken(command, None).get()


async def test_a_plugin_that_does_not_end_is_killed(plugin, tmp_path, monkeypatch):
    monkeypatch.setattr(plugins, "PLUGIN_SECONDS", 0.2)
    token = plugin(f"echo $$ > {tmp_path}/pid; exec sleep 60")
    with pytest.raises(ConnectionSettingsError, match=r"does not end within 0\.2 s"):
        await token.get()
    # Waited for, so that nothing of it is left.
    assert not process_of(tmp_path / "pid").exists()


async def test_a_plugin_and_its_children_die_with_who_asked(plugin, tmp_path):
    os.mkfifo(tmp_path / "pid")
    task = asyncio.create_task(plugin(f"sleep 60 & echo $! > {tmp_path}/pid; wait").get())
    child = os.pidfd_open(int(await asyncio.to_thread((tmp_path / "pid").read_text)))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # Readable once the process has ended.
    ended, _, _ = await asyncio.to_thread(select.select, [child], [], [], 5)
    os.close(child)
    assert ended == [child]


async def test_a_plugin_dies_with_who_asked_while_it_starts(plugin, tmp_path, monkeypatch):
    start = asyncio.create_subprocess_exec
    started, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(*arguments, **options):
        process = await start(*arguments, **options)
        started.set()
        await go_on.wait()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slowly)
    os.mkfifo(tmp_path / "pid")
    task = asyncio.create_task(plugin(f"echo $$ > {tmp_path}/pid; exec sleep 60").get())
    pid = await asyncio.to_thread((tmp_path / "pid").read_text)
    await started.wait()
    task.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


async def test_much_noise_does_not_block_it(plugin):
    noise = "head -c 300000 /dev/zero >&2"
    assert await plugin(f"{noise}; {says(answer(token='t'))}").get() == "t"  # noqa: S106


def kubeconfig(directory, api, authority, **plugin):
    """A kubeconfig whose user logs in by ``bin/plugin`` beside it."""
    config = {
        "clusters": [
            {
                "name": "one",
                "cluster": {"server": api.url, "certificate-authority": "ca.crt"},
            }
        ],
        "users": [
            {
                "name": "me",
                "user": {"exec": {"apiVersion": VERSION, "command": "./bin/plugin", **plugin}},
            }
        ],
        "contexts": [{"name": "c", "context": {"cluster": "one", "user": "me"}}],
        "current-context": "c",
    }
    (directory / "ca.crt").write_bytes(authority.cert_pem.bytes())
    (directory / "bin").mkdir()
    path = directory / "config"
    path.write_text(yaml.safe_dump(config))
    return str(path)


def server(authority):
    context = server_tls(authority)
    authority.configure_trust(context)
    return context


def write_plugin(directory, body):
    script = directory / "bin/plugin"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)


async def test_a_kubeconfigs_plugin_gives_the_token_of_each_request(authority, tmp_path):
    async with FakeApi(tls=server(authority)) as api:
        path = kubeconfig(
            tmp_path, api, authority,
            args=["first"], env=[{"name": "SUFFIX", "value": "!"}], provideClusterInfo=True,
        )  # fmt: skip
        write_plugin(
            tmp_path,
            f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/told\n'
            f"echo '{json.dumps(answer(token='TOKEN'))}' | sed \"s/TOKEN/$1$SUFFIX/\"",  # noqa: S106
        )
        api.tokens = {"first!"}
        async with Client(connect(path)) as client:
            await client.request("GET", "/version")
            write_plugin(tmp_path, says(answer(token="second")))  # noqa: S106
            api.tokens = {"second"}
            await client.request("GET", "/version")
            write_plugin(tmp_path, "echo 'logged out' >&2; exit 1")
            api.tokens = set()
            with pytest.raises(UnauthorizedError) as caught:
                await client.request("GET", "/version")
    cluster = json.loads((tmp_path / "told").read_text())["spec"]["cluster"]
    assert cluster["server"] == api.url
    assert str(caught.value) == (
        f"get /version: no credentials: kubeconfig {path}, context c: the exec plugin "
        f"{tmp_path}/bin/plugin ended with exit code 1: logged out"
    )


async def test_a_kubeconfigs_plugin_may_give_a_certificate(authority, tmp_path):
    tls = server(authority)
    tls.verify_mode = ssl.CERT_REQUIRED
    person = authority.issue_cert("person@example.com")
    given = answer(
        clientCertificateData=person.cert_chain_pems[0].bytes().decode(),
        clientKeyData=person.private_key_pem.bytes().decode(),
    )
    async with FakeApi(tls=tls) as api:
        path = kubeconfig(tmp_path, api, authority)
        write_plugin(tmp_path, says(given))
        async with Client(connect(path)) as client:
            await client.request("GET", "/version")
        given["status"]["clientKeyData"] = "no key"
        write_plugin(tmp_path, says(given))
        async with Client(connect(path)) as client:
            with pytest.raises(UnauthorizedError, match="do not match or are not PEM"):
                await client.request("GET", "/version")
    assert "Authorization" not in api.requests[0].headers
