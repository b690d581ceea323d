"""Recorded requests to the fake API server, and the faults to inject."""

from __future__ import annotations

import asyncio
import re
from typing import Any, NamedTuple

from helpers.fake_store import encode, status

HTML = b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n</html>\r\n"


class Seen(NamedTuple):
    """A request; ``time`` is the loop's."""

    time: float
    verb: str
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


class Fault(NamedTuple):
    """A fault to inject, and the requests that it hits."""

    method: str
    pattern: re.Pattern
    kind: str
    answer: dict[str, Any]

    def fits(self, seen):
        return self.method in {"*", seen.method, seen.verb} and self.pattern.search(seen.path)


class Planned:
    """The requests so far, and the faults that wait for theirs."""

    def __init__(self):
        self.requests: list[Seen] = []
        self._faults: list[Fault] = []
        self._forever: list[Fault] = []
        self._arrived = asyncio.Condition()

    def fail_next(  # noqa: PLR0913 - each fault uses some
        self,
        method="*",
        path_pattern="",
        count=1,
        *,
        status=503,
        headers=None,
        body=None,
        kind="status",
    ):
        """Let the next ``count`` requests fail that fit; None for all until ``heal``.

        ``method`` is GET, POST ... or a verb (get, list, watch, create, update, patch, delete).
        Kinds: ``status`` (a Status, or ``body``), ``html`` (a proxy's page), ``garbage`` (200 and
        no JSON), ``redirect``, ``reset`` (no answer), ``torn`` (half of the right answer), ``hang``
        (no answer before ``release``; then the right one).
        """
        answer = {"status": status, "headers": headers or {}, "body": body}
        fault = Fault(method, re.compile(path_pattern), kind, answer)
        if count is None:
            self._forever.append(fault)
        else:
            self._faults += [fault] * count

    def forbid(self, verb, resource, user="system:serviceaccount:default:app"):
        """Refuse a verb as an API server does without a role for it, until ``heal``."""
        plural, group = resource.plural, resource.group
        message = (
            f'{plural} is forbidden: User "{user}" cannot {verb} resource "{plural}" '
            f'in API group "{group}" at the cluster scope'
        )
        pattern = f"/{re.escape(group or 'api')}/.*{plural}(/[^/]+)?$"
        forbidden = encode(status(403, message))
        self.fail_next(verb, pattern, None, status=403, body=forbidden)

    def forget(self):
        """Let nothing fail any more."""
        self._faults.clear()
        self._forever.clear()

    def fault_for(self, seen):
        """The fault that a request meets, or None."""
        for fault in self._faults:
            if fault.fits(seen):
                self._faults.remove(fault)
                return fault
        return next((fault for fault in self._forever if fault.fits(seen)), None)

    async def note(self, seen):
        self.requests.append(seen)
        async with self._arrived:
            self._arrived.notify_all()

    def seen(self, verb="*", path_pattern=""):
        """The requests so far of a verb or method, by path."""
        fault = Fault(verb, re.compile(path_pattern), "", {})
        return [request for request in self.requests if fault.fits(request)]

    async def until_seen(self, verb="*", path_pattern="", count=1):
        """Wait for the ``count``th such request to arrive; returns it."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.seen(verb, path_pattern)) >= count)
        return self.seen(verb, path_pattern)[count - 1]
