"""A real ``harbourmaster serve`` process on policies of its own folder."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from helpers.logged import Logged

QUICKLY = ("--port=0", "--health-port=0", "--drain-seconds=0", "--log-format=json")


class Server(Logged):
    """One server process; it serves when the construction returns.

    ``url`` is the address of reviews, ``bundle`` the CA that vouches for it.
    """

    def __init__(self, directory, *options, policies):
        self._policies = directory / "policies"
        self._policies.mkdir(parents=True)
        self._kinds = Counter()
        self._write(policies)
        self.certificates = directory / "certificates"
        command = [Path(sys.executable).with_name("harbourmaster"), "serve"]
        command += [f"--policies={self._policies}", f"--cert-dir={self.certificates}", *QUICKLY]
        super().__init__([*command, *options], "serving")
        self.url = self.first["reviews"]
        self.bundle = (self.certificates / "ca.crt").read_bytes()

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

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Killed, because draining waits for the API server to give up its idle connections.
        self.kill()
