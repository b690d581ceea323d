"""An API server that only takes events, with the answers that a test wants."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import NamedTuple

from harbourmaster.kube.errors import error_from

HANG = object()


class Sent(NamedTuple):
    time: float
    method: str
    path: str
    body: dict


class Api:
    """Answers each request with the next of ``answers``, None for success."""

    def __init__(self):
        self.sent: list[Sent] = []
        self.answers = deque()
        self.down = None
        self.latency = 0.0

    async def request(self, method, path, *, body, content_type, timeout, retries):  # noqa: ASYNC109 - the client's
        assert (method, content_type) in {
            ("POST", "application/json"),
            ("PATCH", "application/merge-patch+json"),
        }
        assert retries == 0
        assert timeout == 5
        now = asyncio.get_running_loop().time()
        self.sent.append(Sent(now, method, path, json.loads(body)))
        answer = self.answers.popleft() if self.answers else self.down
        await asyncio.sleep(self.latency)
        if answer is HANG:
            await asyncio.sleep(60)
        if answer is not None:
            raise answer
        return b"{}"


def status(code, reason="", headers=None):
    body = {"kind": "Status", "message": "on demand", "reason": reason, "code": code}
    return error_from(code, json.dumps(body).encode(), headers, call="create /events")
