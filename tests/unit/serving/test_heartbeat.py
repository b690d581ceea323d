from __future__ import annotations

import asyncio
import time

from serving.heartbeat import Heartbeat


async def test_each_beat_tells_how_late_it_was():
    lags = []
    heartbeat = Heartbeat(0.01, lags.append)
    heartbeat.start()
    time.sleep(0.2)  # noqa: ASYNC251 - the fault itself
    await asyncio.sleep(0.05)
    heartbeat.stop()
    assert len(lags) >= 2
    assert min(lags) >= 0
    assert 0.15 < max(lags) < 1


async def test_after_the_stop_nothing_is_told():
    lags = []
    heartbeat = Heartbeat(0.01, lags.append)
    heartbeat.start()
    heartbeat.stop()
    heartbeat.stop()
    await asyncio.sleep(0.03)
    assert lags == []
