from __future__ import annotations

import asyncio
import time

from harbourmaster.serving.limits import Heartbeat


async def test_each_beat_tells_how_late_it_was():
    lags, twice = [], asyncio.Event()

    def note(lag):
        lags.append(lag)
        if len(lags) == 2:
            twice.set()

    heartbeat = Heartbeat(0.01, note)
    heartbeat.start()
    time.sleep(0.2)  # noqa: ASYNC251 - the fault itself
    await twice.wait()
    heartbeat.stop()
    assert min(lags) >= 0
    assert max(lags) > 0.15


async def test_after_the_stop_nothing_is_told():
    lags = []
    heartbeat = Heartbeat(0.01, lags.append)
    heartbeat.start()
    heartbeat.stop()
    heartbeat.stop()
    await asyncio.sleep(0.03)
    assert lags == []
