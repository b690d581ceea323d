from __future__ import annotations

import asyncio

import pytest

from harbourmaster.serving.background import running
from harbourmaster.serving.settings import StartError


async def fails(error):
    raise error


async def test_the_work_ends_with_the_block():
    ended = asyncio.Event()

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with running(work()):
        await asyncio.sleep(0)
    assert ended.is_set()


async def test_a_failure_ends_the_block_and_comes_out_as_it_is():
    with pytest.raises(StartError, match=r"^the port is in use$"):
        async with running(asyncio.Event().wait(), fails(StartError("the port is in use"))):
            await asyncio.Event().wait()


async def test_so_does_one_of_the_block():
    with pytest.raises(StartError, match=r"^no$"):
        async with running(asyncio.Event().wait()):
            raise StartError("no")


async def test_of_several_failures_none_is_lost():
    with pytest.raises(ExceptionGroup) as raised:
        async with running(fails(OSError("a")), fails(StartError("b"))):
            await asyncio.Event().wait()
    assert {str(exception) for exception in raised.value.exceptions} == {"a", "b"}


async def test_a_cancellation_of_the_block_stays_one():
    async def block():
        async with running(asyncio.Event().wait()):
            await asyncio.Event().wait()

    task = asyncio.create_task(block())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
