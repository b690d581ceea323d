"""A running server's certificates follow the directory and the clock."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import trustme

from certs.reload import CertificateHolder
from certs.store import ensure, load
from certs.watch import keep_current, next_renewal

NAMES = ("localhost",)
START = datetime.now(UTC)


class Log:
    def __init__(self):
        self.changes = asyncio.Queue()
        self.errors = asyncio.Queue()


@asynccontextmanager
async def kept(directory, bundle, *, resync=60.0, clock=lambda: START):
    holder, log = CertificateHolder(bundle), Log()
    task = asyncio.create_task(
        keep_current(
            holder,
            directory,
            NAMES,
            on_change=log.changes.put_nowait,
            on_error=log.errors.put_nowait,
            resync=resync,
            clock=clock,
        )
    )
    # The watch is in place a moment after the task's start.
    await asyncio.sleep(0.1)
    try:
        yield holder, log
    finally:
        task.cancel()
        await asyncio.wait([task])


async def soon(queue):
    async with asyncio.timeout(5):
        return await queue.get()


def put(directory, authority, name="hm.svc"):
    issued = authority.issue_cert(name)
    (directory / "tls.key").write_bytes(issued.private_key_pem.bytes())
    (directory / "tls.crt").write_bytes(b"".join(b.bytes() for b in issued.cert_chain_pems))


async def test_our_own_leaf_is_renewed_when_it_is_due(tmp_path):
    bundle = ensure(tmp_path, NAMES, START)
    due = next_renewal(bundle)
    begun = asyncio.get_running_loop().time()

    def clock():
        return (
            due
            - timedelta(seconds=0.2)
            + timedelta(seconds=asyncio.get_running_loop().time() - begun)
        )

    async with kept(tmp_path, bundle, clock=clock) as (holder, log):
        changed = await soon(log.changes)
    assert changed.not_after > bundle.not_after
    assert holder.bundle == changed == load(tmp_path, due)


async def test_a_foreign_pair_is_served_as_soon_as_it_changes(tmp_path):
    authority = trustme.CA()
    put(tmp_path, authority)
    async with kept(tmp_path, load(tmp_path, START)) as (holder, log):
        put(tmp_path, authority, "new.svc")
        changed = await soon(log.changes)
    assert changed.names == {"new.svc"}
    assert holder.bundle == changed


async def test_a_swapped_mount_is_served(tmp_path):
    authority = trustme.CA()
    for generation, name in (("..1", "one.svc"), ("..2", "two.svc")):
        (tmp_path / generation).mkdir()
        put(tmp_path / generation, authority, name)
    (tmp_path / "..data").symlink_to("..1")
    async with kept(tmp_path, load(tmp_path, START)) as (_, log):
        (tmp_path / "..new").symlink_to("..2")
        (tmp_path / "..new").rename(tmp_path / "..data")
        assert (await soon(log.changes)).names == {"two.svc"}


async def test_s3_a_mismatched_pair_keeps_the_old_one_and_is_told_once(tmp_path):
    authority = trustme.CA()
    put(tmp_path, authority)
    bundle = load(tmp_path, START)
    async with kept(tmp_path, bundle, resync=0.05) as (holder, log):
        (tmp_path / "tls.key").write_bytes(authority.issue_cert("a").private_key_pem.bytes())
        text = await soon(log.errors)
        await asyncio.sleep(0.2)
        assert log.errors.empty()
    assert holder.bundle == bundle
    assert text == (
        f"{tmp_path}: tls.key is not the key of tls.crt; the certificate of before is still served"
    )


async def test_s3_half_a_file_keeps_the_old_one_until_it_is_whole(tmp_path):
    authority = trustme.CA()
    put(tmp_path, authority)
    async with kept(tmp_path, load(tmp_path, START)) as (holder, log):
        before = holder.bundle
        issued = authority.issue_cert("new.svc")
        whole = b"".join(b.bytes() for b in issued.cert_chain_pems)
        (tmp_path / "tls.key").write_bytes(issued.private_key_pem.bytes())
        (tmp_path / "tls.crt").write_bytes(whole[:300])
        await soon(log.errors)
        assert holder.bundle == before
        (tmp_path / "tls.crt").write_bytes(whole)
        assert (await soon(log.changes)).names == {"new.svc"}


async def test_a_foreign_directory_emptied_is_not_filled(tmp_path):
    put(tmp_path, trustme.CA())
    async with kept(tmp_path, load(tmp_path, START)) as (_, log):
        (tmp_path / "tls.key").unlink()
        (tmp_path / "tls.crt").unlink()
        assert "tls.crt is missing" in await soon(log.errors)
    assert not list(tmp_path.iterdir())


async def test_without_events_the_resync_finds_the_change(tmp_path, monkeypatch):
    async def no_events(*_args, **_options):
        await asyncio.Event().wait()
        yield

    monkeypatch.setattr("certs.watch.awatch", no_events)
    authority = trustme.CA()
    put(tmp_path, authority)
    async with kept(tmp_path, load(tmp_path, START), resync=0.05) as (_, log):
        put(tmp_path, authority, "new.svc")
        changed = await soon(log.changes)
        while changed.names != {"new.svc"}:
            changed = await soon(log.changes)


async def test_a_directory_that_vanishes_and_returns_is_found_again(tmp_path):
    authority = trustme.CA()
    directory = tmp_path / "mount"
    directory.mkdir()
    put(directory, authority)
    async with kept(directory, load(directory, START), resync=0.05) as (_, log):
        directory.rename(tmp_path / "away")
        await soon(log.errors)
        directory.mkdir()
        put(directory, authority, "back.svc")
        assert (await soon(log.changes)).names == {"back.svc"}


def test_a_foreign_bundle_has_no_renewal_of_ours(tmp_path):
    put(tmp_path, trustme.CA())
    assert next_renewal(load(tmp_path, START)) is None
