"""The faults of a simulation: their kinds, rates and times depend on the seed."""

from __future__ import annotations

import asyncio

from simulation.connection import WRITES

_KINDS = ("lost before", "lost after", "hangs before", "hangs after")
_ROUTINE = ("/events", "/leases")
"""Frequent writes, at which no process crashes."""
_CODES = (429, 500, 503)


class Faults:
    """Decides on a fault for each request and each event of a watch."""

    def __init__(self, simulation, chance):
        self._simulation = simulation
        self._chance = chance
        # Some seeds leave out a kind of fault, so that others have an effect.
        self._broken = chance.choice((0.0, 0.01, 0.05))
        self._refused = chance.choice((0.0, 0.01, 0.05))
        self._deadly = chance.choice((0.0, 0.005, 0.02, 0.05))
        self._stalled = chance.choice((0.0, 0.02, 0.1))
        self._slowest = chance.choice((0.02, 0.2, 1.0))
        self._cut_off = {}
        self._stalls = {}
        self.is_over = False
        self._events = (
            (3, self._cut_off_replica),
            (2, self._crash_controller),
            (2, self._stop_controller),
            (2, self._compact),
            (2, self._end_watches),
            (1, self._tear_watches),
            (1, self._crash_webhook),
            (0.5, self._cut_off_all),
        )
        self._severity = chance.choice((0.0, 0.1, 0.5))

    def of(self, replica, seen):
        """Return the fault of a request: None, the code of a refusal, or the kind of a failure."""
        if self.is_over:
            return None
        is_mortal = seen.verb in WRITES and not any(part in seen.path for part in _ROUTINE)
        if is_mortal and self._chance.random() < self._deadly:
            return self._chance.choice(("crash before", "crash after"))
        roll = self._chance.random()
        if roll < self._broken:
            return self._chance.choice(_KINDS[::2] if seen.verb == "watch" else _KINDS)
        if roll < self._broken + self._refused:
            return self._chance.choice(_CODES)
        return None

    def sends_retry_after(self):
        return self._chance.random() < 0.3

    def latency(self):
        return self._chance.uniform(0.001, 0.01 if self.is_over else self._slowest)

    def watch_delay(self, replica, resource):
        """Return the seconds until a process gets events of a kind, at times very many."""
        key, now = (replica.identity, resource), asyncio.get_running_loop().time()
        if not self.is_over and self._chance.random() < self._stalled / 10:
            self._stalls[key] = now + self._chance.uniform(1, 90)
        return max(self._stalls.get(key, 0) - now, 0) + self.latency()

    def is_cut_off(self, replica):
        until = max(self._cut_off.get(replica.name, 0), self._cut_off.get("all", 0))
        return asyncio.get_running_loop().time() < until

    def strike(self):
        """Cause a larger fault, by chance."""
        if self._chance.random() < self._severity:
            weights = [weight for weight, _ in self._events]
            self._chance.choices(self._events, weights)[0][1]()

    def end(self):
        """End all faults."""
        self.is_over = True
        self._cut_off.clear()
        self._stalls.clear()

    def _cut_off_replica(self):
        replica = self._chance.choice(self._simulation.replicas)
        self._cut(replica.name, self._chance.uniform(1, 60))

    def _cut_off_all(self):
        self._cut("all", self._chance.uniform(1, 30))

    def _cut(self, name, seconds):
        self._cut_off[name] = asyncio.get_running_loop().time() + seconds
        self._simulation.note(name, "is cut off", f"{seconds:.0f} s")

    def _crash_controller(self):
        self._chance.choice(self._simulation.controllers).die("at any time")

    def _crash_webhook(self):
        self._simulation.webhook.die("at any time")

    def _stop_controller(self):
        replica = self._chance.choice(self._simulation.controllers)
        if not replica.is_dead and not replica.is_stopping:
            replica.stop()

    def _compact(self):
        self._simulation.server.compact()
        self._simulation.server.close_watches()
        self._simulation.note("server", "compacts")

    def _end_watches(self):
        self._simulation.server.close_watches()
        self._simulation.note("server", "ends all watches")

    def _tear_watches(self):
        self._simulation.server.tear_watches()
        self._simulation.note("server", "tears all watches")
