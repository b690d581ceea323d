"""Changes of files are seen where the system has no watch left, too."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
import watchfiles
from watchfiles._rust_notify import WatchfilesRustInternalError

from harbourmaster.certs.watch import changes_in
from helpers.patience import PATIENCE


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
