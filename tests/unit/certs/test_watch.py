"""A running server's certificates follow the directory and the clock."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
import trustme
import watchfiles
from watchfiles._rust_notify import WatchfilesRustInternalError

from harbourmaster.certs.authority import create_authority, issue_serving_certificate
from harbourmaster.certs.directory import read_files
from harbourmaster.certs.errors import UnreadableError
from harbourmaster.certs.reload import CertificateHolder
from harbourmaster.certs.store import ensure, load
from harbourmaster.certs.watch import changes_in, keep_current, next_renewal, wait_for
from helpers.patience import PATIENCE
from helpers.tasks import background

NAMES = ("localhost",)
START = datetime.now(UTC)


class Log:
    def __init__(self):
        self.changes = asyncio.Queue()
        self.errors = asyncio.Queue()


@asynccontextmanager
async def keep(directory, bundle, *, names=NAMES, resync=60.0, clock=lambda: START):
    holder, log = CertificateHolder(bundle), Log()
    keeping = keep_current(
        holder,
        directory,
        names,
        on_change=log.changes.put_nowait,
        on_error=log.errors.put_nowait,
        resync=resync,
        clock=clock,
    )
    async with background(keeping):
        # The watch is in place a moment after the task's start.
        await asyncio.sleep(0.1)
        yield holder, log


async def soon(queue):
    async with asyncio.timeout(PATIENCE):
        return await queue.get()


def put(directory, authority, name="hm.svc"):
    issued = authority.issue_cert(name)
    (directory / "tls.key").write_bytes(issued.private_key_pem.bytes())
    (directory / "tls.crt").write_bytes(b"".join(b.bytes() for b in issued.cert_chain_pems))


class Mount:
    """A Secret mounted by a kubelet: what changes is one link."""

    def __init__(self, directory):
        self.directory = directory
        self._generation = 0

    def show(self, files):
        self._generation += 1
        generation = self.directory / f"..{self._generation}"
        generation.mkdir(parents=True)
        for name, content in files.items():
            (generation / name).write_bytes(content)
            if not (self.directory / name).is_symlink():
                (self.directory / name).symlink_to(f"..data/{name}")
        new = self.directory / "..data_tmp"
        new.symlink_to(generation.name)
        new.rename(self.directory / "..data")


def data_of(authority, *older, name="hm.svc", made=START, **options):
    """Return the directory of a Secret as replicas see it."""
    leaf = issue_serving_certificate(made, authority, (name,), **options)
    bundle = b"".join(signer.certificate for signer in (authority, *older))
    return {"ca.crt": bundle, "tls.crt": leaf.certificate, "tls.key": leaf.key}


@asynccontextmanager
async def await_bundle(directory, *, resync=60.0, clock=lambda: START):
    log = Log()
    waiting = wait_for(directory, on_error=log.errors.put_nowait, resync=resync, clock=clock)
    async with background(waiting) as task:
        yield task, log


async def result_of(task):
    async with asyncio.timeout(PATIENCE):
        return await task


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

    async with keep(tmp_path, bundle, clock=clock) as (holder, log):
        changed = await soon(log.changes)
    assert changed.not_after > bundle.not_after
    assert holder.bundle == changed == load(tmp_path, due)


async def test_a_foreign_pair_is_served_as_soon_as_it_changes(tmp_path):
    authority = trustme.CA()
    put(tmp_path, authority)
    async with keep(tmp_path, load(tmp_path, START)) as (holder, log):
        put(tmp_path, authority, "new.svc")
        changed = await soon(log.changes)
    assert changed.names == {"new.svc"}
    assert holder.bundle == changed


async def test_s3_a_mismatched_pair_keeps_the_old_one_and_is_told_once(tmp_path):
    authority = trustme.CA()
    put(tmp_path, authority)
    bundle = load(tmp_path, START)
    async with keep(tmp_path, bundle, resync=0.05) as (holder, log):
        (tmp_path / "tls.key").write_bytes(authority.issue_cert("a").private_key_pem.bytes())
        text = await soon(log.errors)
        await asyncio.sleep(0.2)
        assert log.errors.empty()
    assert holder.bundle == bundle
    assert text == (
        f"{tmp_path}: tls.key is not the key of tls.crt; the previous certificate is still served"
    )


async def test_a_foreign_directory_emptied_is_not_filled(tmp_path):
    put(tmp_path, trustme.CA())
    async with keep(tmp_path, load(tmp_path, START)) as (_, log):
        (tmp_path / "tls.key").unlink()
        (tmp_path / "tls.crt").unlink()
        assert "tls.crt is missing" in await soon(log.errors)
    assert not list(tmp_path.iterdir())


async def test_without_events_the_resync_finds_the_change(tmp_path, monkeypatch):
    async def no_events(*_args, **_options):
        await asyncio.Event().wait()
        yield

    monkeypatch.setattr("harbourmaster.certs.watch.awatch", no_events)
    authority = trustme.CA()
    put(tmp_path, authority)
    async with keep(tmp_path, load(tmp_path, START), resync=0.05) as (_, log):
        put(tmp_path, authority, "new.svc")
        changed = await soon(log.changes)
        while changed.names != {"new.svc"}:
            changed = await soon(log.changes)
        assert log.changes.empty()
        assert log.errors.empty()


def test_a_foreign_bundle_has_no_renewal_time(tmp_path):
    put(tmp_path, trustme.CA())
    assert next_renewal(load(tmp_path, START)) is None


async def test_a_leaf_of_the_next_authority_is_served_with_both_in_ca_crt(tmp_path):
    old, new = create_authority(START), create_authority(START)
    mount = Mount(tmp_path)
    mount.show(data_of(old))
    async with keep(tmp_path, load(tmp_path, START)) as (holder, log):
        mount.show(data_of(new, old, name="new.svc"))
        assert (await soon(log.changes)).names == {"new.svc"}
    assert log.errors.empty()
    assert holder.bundle.files.ca_crt == new.certificate + old.certificate


async def test_s3_a_mount_with_half_a_pair_keeps_the_old_one_and_is_told_once(tmp_path):
    authority = create_authority(START)
    mount = Mount(tmp_path)
    mount.show(data_of(authority))
    async with keep(tmp_path, load(tmp_path, START), resync=0.05) as (holder, log):
        before = holder.bundle
        half = data_of(authority)
        mount.show({**half, "tls.crt": half["tls.crt"][:300]})
        assert "tls.crt holds no certificate" in await soon(log.errors)
        await asyncio.sleep(0.2)
        assert log.errors.empty()
        assert holder.bundle == before
        mount.show(half)
        await soon(log.changes)
    assert holder.bundle.files.tls_crt == half["tls.crt"]


async def test_a_mount_with_an_expired_authority_keeps_the_old_one(tmp_path):
    mount = Mount(tmp_path)
    mount.show(data_of(create_authority(START)))
    made = START - timedelta(days=366)
    async with keep(tmp_path, load(tmp_path, START)) as (holder, log):
        before = holder.bundle
        mount.show(data_of(create_authority(made), made=made))
        assert "expired at" in await soon(log.errors)
    assert holder.bundle == before


async def test_alternating_faults_are_reported_once_each(tmp_path):
    authority = create_authority(START)
    mount = Mount(tmp_path)
    good = data_of(authority)
    mount.show(good)
    async with keep(tmp_path, load(tmp_path, START), resync=0.02) as (_, log):
        for key in (b"", authority.key):
            mount.show({**good, "tls.key": key})
            await soon(log.errors)
        for key in (b"", authority.key):
            mount.show({**good, "tls.key": key})
            await asyncio.sleep(0.1)
        assert log.errors.empty()


async def test_a_fault_after_a_good_pair_is_reported_again(tmp_path):
    good = data_of(create_authority(START))
    mount = Mount(tmp_path)
    mount.show(good)
    async with keep(tmp_path, load(tmp_path, START)) as (_, log):
        told = []
        for name in ("one.svc", "two.svc"):
            mount.show({**good, "tls.key": b""})
            told.append(await soon(log.errors))
            mount.show(data_of(create_authority(START), name=name))
            await soon(log.changes)
    assert told[0] == told[1]


async def test_a_change_between_the_first_look_and_the_watch_is_seen(tmp_path, monkeypatch):
    authority = create_authority(START)
    mount = Mount(tmp_path)
    mount.show(data_of(authority))
    bundle = load(tmp_path, START)

    def read_and_change(directory):
        monkeypatch.undo()
        before = read_files(directory)
        mount.show(data_of(authority, name="new.svc"))
        return before

    monkeypatch.setattr("harbourmaster.certs.watch.read_files", read_and_change)
    async with keep(tmp_path, bundle) as (_, log):
        assert (await soon(log.changes)).names == {"new.svc"}


async def test_a_directory_replaced_is_followed_by_events(tmp_path):
    authority = create_authority(START)
    directory = tmp_path / "mount"
    Mount(directory).show(data_of(authority))
    async with keep(directory, load(directory, START)) as (_, log):
        directory.rename(tmp_path / "away")
        assert "tls.crt is missing" in await soon(log.errors)
        Mount(directory).show(data_of(authority, name="back.svc"))
        assert (await soon(log.changes)).names == {"back.svc"}


async def test_a_renewal_that_can_t_be_written_is_not_tried_without_pause(tmp_path, monkeypatch):
    bundle = ensure(tmp_path, NAMES, START)
    looks = []

    def fail(*_):
        looks.append(1)
        raise UnreadableError("disk full")

    monkeypatch.setattr("harbourmaster.certs.watch.ensure", fail)
    async with keep(tmp_path, bundle, clock=lambda: next_renewal(bundle)) as (_, log):
        assert "disk full" in await soon(log.errors)
        await asyncio.sleep(0.1)
    assert len(looks) <= 2


async def test_an_existing_pair_is_found_at_once(tmp_path):
    Mount(tmp_path).show(data_of(create_authority(START)))
    async with await_bundle(tmp_path) as (task, log):
        assert await result_of(task) == load(tmp_path, START)
    assert log.errors.empty()


async def test_a_directory_that_comes_later_is_found_by_events(tmp_path):
    directory = tmp_path / "run" / "certs"
    async with await_bundle(directory) as (task, log):
        assert await soon(log.errors) == f"{directory}: tls.crt is missing"
        directory.parent.mkdir()
        await asyncio.sleep(0.3)
        Mount(directory).show(data_of(create_authority(START)))
        assert (await result_of(task)).names == {"hm.svc"}
    assert log.errors.empty()


async def test_each_kind_of_fault_is_reported_once_while_waiting(tmp_path):
    authority = create_authority(START)
    good = data_of(authority)
    mount = Mount(tmp_path)
    faulty = {
        "holds no certificate": {**good, "tls.crt": good["tls.crt"][:300]},
        "not the key": {**good, "tls.key": authority.key},
        "was not issued by": {**good, "ca.crt": create_authority(START).certificate},
        "expired at": data_of(authority, lifetime=timedelta(0)),
    }
    async with await_bundle(tmp_path, resync=0.02) as (task, log):
        assert "tls.crt is missing" in await soon(log.errors)
        for text, files in faulty.items():
            mount.show(files)
            assert text in await soon(log.errors)
        mount.show(faulty["not the key"])
        await asyncio.sleep(0.1)
        assert not task.done()
        mount.show(good)
        await result_of(task)
    assert log.errors.empty()


async def test_a_pair_that_openssl_refuses_is_not_found(tmp_path, monkeypatch):
    def refuse(_):
        monkeypatch.undo()
        raise UnreadableError("OpenSSL rejects tls.crt and tls.key")

    monkeypatch.setattr("harbourmaster.certs.watch.CertificateHolder", refuse)
    Mount(tmp_path).show(data_of(create_authority(START)))
    async with await_bundle(tmp_path) as (task, log):
        assert "OpenSSL rejects" in await soon(log.errors)
        await result_of(task)


async def test_waiting_creates_no_file_and_leaves_no_task(tmp_path):
    before = asyncio.all_tasks()
    async with await_bundle(tmp_path) as (_, log):
        await soon(log.errors)
    assert asyncio.all_tasks() == before
    assert not list(tmp_path.iterdir())


async def test_a_directory_with_all_of_a_secret_is_only_read(tmp_path):
    bundle = ensure(tmp_path, NAMES, START)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    late = START + timedelta(days=6)
    async with keep(tmp_path, bundle, names=None, resync=0.01, clock=lambda: late) as (holder, log):
        await asyncio.sleep(0.05)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
        assert log.errors.empty()
        # A certificate that another issuer renews is served too.
        ensure(tmp_path, NAMES, late)
        assert (await soon(log.changes)).not_after > bundle.not_after
        assert holder.bundle.names == frozenset(NAMES)


@pytest.fixture(params=["watches", "none left"])
def _watches(request, monkeypatch):
    async def awatch(*folders, force_polling, **options):
        if request.param == "none left" and not force_polling:
            raise WatchfilesRustInternalError("Too many open files (os error 24)")
        async for change in watchfiles.awatch(*folders, force_polling=force_polling, **options):
            yield change

    monkeypatch.setattr("harbourmaster.certs.watch.awatch", awatch)


@pytest.mark.usefixtures("_watches")
async def test_a_change_is_seen(tmp_path):
    async with aclosing(changes_in(tmp_path, debounce=10)) as changes, asyncio.timeout(PATIENCE):
        change = asyncio.ensure_future(anext(changes))
        # The watch begins with the first step.
        await asyncio.sleep(0)
        (tmp_path / "new").write_text("a")
        assert {path for _, path in await change} == {str(tmp_path / "new")}
