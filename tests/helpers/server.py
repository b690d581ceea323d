"""A real ``harbourmaster serve`` process on policies of its own folder."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from helpers.patience import PATIENCE


class Server:
    """One server process; it serves when the construction returns.

    ``url`` is the address of reviews, ``bundle`` the CA that vouches for it.
    """

    def __init__(self, directory, *options, policies):
        self._policies = directory / "policies"
        self._policies.mkdir(parents=True)
        self._kinds = Counter()
        self._write(policies)
        certificates = directory / "certificates"
        self._process = subprocess.Popen(
            [
                Path(sys.executable).with_name("harbourmaster"),
                "serve",
                f"--policies={self._policies}",
                f"--cert-dir={certificates}",
                "--port=0",
                "--health-port=0",
                "--drain-seconds=0",
                "--log-format=json",
                *options,
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        try:
            self.url = self.await_event("serving")["reviews"]
        except BaseException:
            self.stop()
            raise
        self.bundle = (certificates / "ca.crt").read_bytes()

    def _read(self):
        for line in self._process.stderr:
            self._lines.put(line)
        self._lines.put(None)

    def await_event(self, event, **fields):
        """Return the next log line of the event that has the fields."""
        deadline = time.monotonic() + PATIENCE
        seen = []
        while True:
            try:
                line = self._lines.get(timeout=max(0, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                raise AssertionError(f"no line {event} {fields} in: {''.join(seen)}")
            seen.append(line)
            # A server that cannot start says why in plain text.
            found = json.loads(line) if line.startswith("{") else {"event": ""}
            if found["event"] == event and fields.items() <= found.items():
                return found

    def add_policies(self, *policies):
        """Put policies beside those that are there; return when they are in force."""
        self._write(policies)
        self.await_event(
            "reloaded",
            cluster_policies=self._kinds["ClusterPodSchedulingPolicy"],
            namespaced_policies=self._kinds["PodSchedulingPolicy"],
        )

    def _write(self, policies):
        self._kinds.update(policy["kind"] for policy in policies)
        # Renamed, so that no reader finds half of it.
        draft = self._policies.with_name("draft")
        draft.write_text("\n---\n".join(map(json.dumps, policies)))
        draft.rename(self._policies / f"{self._kinds.total()}.yaml")

    def stop(self):
        # Killed, because draining waits for the API server to give up its idle connections.
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._process.stderr.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
