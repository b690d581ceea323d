"""Connecting, listing and waiting for the commands that work on a live cluster."""

from __future__ import annotations

import argparse
import asyncio
import gc

import pytest

from harbourmaster.api.resources import DEPLOYMENTS, PODS
from harbourmaster.cli.live.changes import Watched, remaining
from harbourmaster.cli.live.cluster import collect, count
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.cli.live.reader import ClusterReader
from harbourmaster.cli.migrate import run as migrate
from harbourmaster.cli.uninstall import run as uninstall
from harbourmaster.kube.errors import GoneError
from helpers.command import kubeconfig

PLACE = "shop"


def put(api, *names):
    for name in names:
        api.put(PODS, {"metadata": {"name": name, "namespace": PLACE}})


def arguments(kubeconfig):
    return argparse.Namespace(
        kubeconfig=kubeconfig,
        context=None,
        installed_in="harbourmaster-system",
        output="text",
        delete_crds=False,
        dry_run=False,
        yes=False,
        scheduler="",
        shadow=False,
        timeout=1.0,
    )


@pytest.mark.parametrize("command", [uninstall, migrate])
@pytest.mark.parametrize("server", ["", "http://127.0.0.1:1"], ids=["no-kubeconfig", "no-server"])
def test_a_cluster_that_cannot_be_reached_is_one_line(command, server, tmp_path, capsys):
    path = kubeconfig(tmp_path, server) if server else str(tmp_path / "none")
    assert command.run(arguments(path)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("harbourmaster: ")
    assert (server or path) in err
    assert err.count("\n") == 1


async def test_a_refused_token_is_one_line(api, tmp_path, capsys):
    api.tokens = {"another"}
    given = arguments(kubeconfig(tmp_path, api.url))
    assert await asyncio.to_thread(migrate.run, given) == 2
    err = capsys.readouterr().err
    assert "401" in err
    assert err.count("\n") == 1


@pytest.mark.claim("C1")
async def test_nothing_is_deleted_without_confirmation(api, tmp_path, capsys):
    put(api, "harbourmaster-webhook")
    given = arguments(kubeconfig(tmp_path, api.url))
    assert await asyncio.to_thread(uninstall.run, given) == 2
    assert "set --yes, or --dry-run" in capsys.readouterr().err
    assert [seen.method for seen in api.requests] == ["GET"]


async def test_a_list_that_expired_is_restarted_without_repeats(api, client, monkeypatch):
    monkeypatch.setattr("harbourmaster.cli.live.cluster._PAGE", 500)
    put(api, *(f"pod-{number:04}" for number in range(1100)))
    listed = client.list
    compacted = []

    async def compacting(*given, **options):
        page = await listed(*given, **options)
        if not compacted and page.continue_token:
            compacted.append(True)
            api.compact()
        return page

    client.list = compacting
    objects = await collect(client, PODS, metadata_in, namespace=PLACE, metadata_only=True)
    assert compacted
    assert [obj.name for obj in objects] == [f"pod-{number:04}" for number in range(1100)]


async def test_a_list_that_always_expires_is_given_up(api, client):
    api.fail_next("list", "pods", None, status=410)
    with pytest.raises(GoneError):
        await collect(client, PODS, metadata_in)
    assert len(api.seen("list")) == 4


async def test_an_unreadable_object_is_named_and_the_others_are_collected(api, client, capsys):
    put(api, *(f"pod-{number:04}" for number in range(600)))
    api.put(PODS, {"metadata": {"name": "pod-0003", "namespace": PLACE, "labels": {"a": 1}}})
    objects = await collect(client, PODS, metadata_in)
    assert len(objects) == 599
    assert "pod-0003" not in {obj.name for obj in objects}
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("harbourmaster: ")
    assert "Pod shop/pod-0003 is skipped, because it cannot be read: " in err
    assert err.endswith(": correct or delete it\n")
    assert err.count("\n") == 1


async def test_counting_takes_one_request(api, client):
    assert await count(client, PODS) == 0
    put(api, *(f"pod-{number}" for number in range(7)))
    assert await count(client, PODS, PLACE) == 7
    assert [seen.query for seen in api.requests] == [{"limit": "1"}] * 2


async def test_waiting_ends_with_the_last_object(api, client):
    put(api, "one", "two")
    waiting = asyncio.create_task(remaining(client, Watched(PODS), 5, PLACE))
    await api.until_watched()
    api.remove(PODS, "one", PLACE)
    api.close_watches()
    await api.until_seen("watch", count=2)
    put(api, "three")
    api.remove(PODS, "two", PLACE)
    api.remove(PODS, "three", PLACE)
    assert await waiting == ()


async def test_waiting_names_what_remains(api, client):
    put(api, "one", "two")
    assert await remaining(client, Watched(PODS), 0, PLACE) == ("one", "two")
    selector = "metadata.name=one"
    assert await remaining(client, Watched(PODS, field_selector=selector), 0, PLACE) == ("one",)
    assert await remaining(client, Watched(DEPLOYMENTS), 0.1) == ()


async def test_an_error_that_nobody_waits_for_any_more_is_not_logged():
    reader, begun, late, logged = ClusterReader(None), asyncio.Event(), asyncio.Event(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))

    async def fails():
        begun.set()
        await late.wait()
        raise RuntimeError

    waiting = asyncio.create_task(reader.once("key", fails))
    await begun.wait()
    waiting.cancel()
    await asyncio.wait([waiting])
    late.set()
    await asyncio.wait(reader._known.values())
    reader._known.clear()
    gc.collect()
    assert logged == []
