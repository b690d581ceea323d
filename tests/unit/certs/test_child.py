"""Certificates are checked and issued outside the processes that live long."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from harbourmaster.certs import child, overlap
from harbourmaster.certs.bundle import parse_bundle
from harbourmaster.certs.directory import read_files
from harbourmaster.certs.errors import CertificateError, KeyMismatchError, UnreadableError
from harbourmaster.certs.model import BundleFiles, Keep, Lifetimes, Write
from harbourmaster.certs.store import ensure, load

NOW = datetime(2026, 3, 1, tzinfo=UTC)
NAMES = ("hm.svc", "127.0.0.1")


async def test_it_gives_what_the_functions_give(tmp_path):
    bundle = await child.ensure(tmp_path, NAMES, NOW)
    files = read_files(tmp_path)
    assert bundle == ensure(tmp_path, NAMES, NOW) == parse_bundle(files)
    assert await child.load(tmp_path, NOW) == load(tmp_path, NOW)
    assert await child.parse_bundle(files) == bundle
    assert await child.end_of(files.tls_crt, "tls.crt") == bundle.not_after


async def test_it_decides_about_a_secret():
    given = (NAMES, None, Lifetimes(serving=timedelta(days=3)), ("other.svc",))
    write = await child.decide(NOW, {"foreign": b"\xff"}, *given)
    assert isinstance(write, Write)
    assert write.data["foreign"] == b"\xff"
    keep = await child.decide(NOW, write.data, *given)
    assert isinstance(keep, Keep)
    assert keep == overlap.decide(NOW, write.data, *given)


async def test_an_error_is_the_one_of_the_function(tmp_path):
    first, second = (ensure(tmp_path / name, NAMES, NOW).files for name in ("one", "two"))
    mixed = BundleFiles(ca_crt=first.ca_crt, tls_crt=first.tls_crt, tls_key=second.tls_key)
    with pytest.raises(KeyMismatchError, match=r"^tls\.key is not the key of tls\.crt$"):
        await child.parse_bundle(mixed)
    with pytest.raises(UnreadableError, match=r"/nothing: tls\.crt is missing$"):
        await child.load(tmp_path / "nothing", NOW)


async def test_no_key_is_in_its_command_or_environment(tmp_path, monkeypatch):
    seen = []
    start = asyncio.create_subprocess_exec

    async def start_and_note(*words, **options):
        seen.append((words, options))
        return await start(*words, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_and_note)
    await child.parse_bundle(ensure(tmp_path, NAMES, NOW).files)
    [(words, options)] = seen
    assert words == (sys.executable, "-P", "-m", "harbourmaster.certs.child", "bundle:parse_bundle")
    assert options.keys() == {"stdin", "stdout"}


@pytest.mark.parametrize("program", ["exit 7", "exec sleep 600"])
async def test_a_process_that_fails_is_an_error_and_ends(tmp_path, monkeypatch, program):
    stand_in = tmp_path / "python"
    stand_in.write_text(f"#!/bin/sh\n{program}\n")
    stand_in.chmod(0o755)
    processes = []
    start = asyncio.create_subprocess_exec

    async def start_and_note(*words, **options):
        processes.append(await start(*words, **options))
        return processes[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_and_note)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    monkeypatch.setattr(child, "SECONDS", 0.2)
    with pytest.raises(CertificateError, match=r"^certificates not checked"):
        await child.end_of(b"", "tls.crt")
    assert all(process.returncode is not None for process in processes)


@pytest.mark.parametrize(
    "module", ["harbourmaster.webhook.process", "harbourmaster.controller.process"]
)
def test_a_process_that_lives_long_loads_no_large_library(module):
    libraries = ("cryptography", "yaml", "jinja2", "kubernetes_asyncio", "importlib.metadata")
    code = f"""
import sys, harbourmaster.cli.main, {module}
print(*(name for name in {libraries} if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.split() == []
