"""A process of ours whose log a test reads as it comes."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time

from helpers.patience import PATIENCE


class Logged:
    """One process that logs JSON; it has logged the event ``ready`` when the construction returns.

    ``lines`` has all that it logged until now, ``first`` the line of that event.
    """

    def __init__(self, command, ready):
        self.lines = []
        self._queue = queue.SimpleQueue()
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        try:
            self.first = self.await_event(ready)
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self):
        return self._process.pid

    @property
    def lives(self):
        return self._process.poll() is None

    @property
    def errors(self):
        """The lines that tell of a fault of ours."""
        marks = ('"level":"error"', '"level":"critical"', "Traceback")
        return [line for line in self.lines if any(mark in line for mark in marks)]

    def _read(self):
        for line in self._process.stderr:
            # Recorded first, so that whoever awaits a line finds it here.
            self.lines.append(line)
            self._queue.put(line)
        self._queue.put(None)

    def await_event(self, event, *, patience=PATIENCE, **fields):
        """Return the next log line of the event that has the fields."""
        deadline = time.monotonic() + patience
        while True:
            try:
                line = self._queue.get(timeout=max(0, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                raise AssertionError(f"no line {event} {fields} in: {''.join(self.lines)}")
            # A process that cannot start says why in plain text.
            obj = json.loads(line) if line.startswith("{") else {"event": ""}
            if obj["event"] == event and fields.items() <= obj.items():
                return obj

    def logged(self, event):
        """The lines of the event until now."""
        obj = [json.loads(line) for line in self.lines if line.startswith("{")]
        return [line for line in obj if line["event"] == event]

    def terminate(self):
        """Ask it to stop; the lines until it did are still read."""
        self._process.terminate()

    def stop(self):
        """End it as a cluster does; return the exit code."""
        self.terminate()
        return self.wait()

    def kill(self):
        """End it as a crash does."""
        self._process.kill()
        return self.wait()

    def wait(self):
        """Wait for its end; return the exit code."""
        code = self._process.wait(PATIENCE)
        self._reader.join()
        self._process.stderr.close()
        return code
