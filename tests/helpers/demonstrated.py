"""A demo as a user runs it, read line by line, and ended as a user ends it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys


class Demonstration:
    """The output of a demo until ``last`` matched, and the folder in which all of it runs on."""

    def __init__(self, directory, child, last):
        self.directory = directory
        self.lines = []
        self.matched = None
        self._child = child
        for line in child.stdout:
            self.lines.append(line)
            self.matched = re.match(last, line)
            if self.matched:
                break

    @property
    def text(self):
        return "".join(self.lines)

    def rows(self, command):
        """The tables that follow a command, by its words; each row split into words."""
        tables, table = [], None
        for line in self.lines:
            if line.startswith("$ "):
                table = [] if command in line else None
                if table is not None:
                    tables.append(table)
            elif table is not None and line.startswith("  "):
                table.append(line.split())
        return tables

    def end(self):
        """Press Ctrl-C; returns the exit code."""
        self._child.send_signal(signal.SIGINT)
        return self._child.wait(120)


@contextlib.contextmanager
def demonstrating(directory, command, last):
    """Run a demo in the folder until it prints a line that matches ``last``."""
    child = subprocess.Popen(
        [sys.executable, "-m", "harbourmaster.playground", command, "--keep", f"--dir={directory}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A test's own cluster must not be meant.
        env={name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
    )
    with child:
        try:
            yield Demonstration(directory, child, last)
        finally:
            child.kill()
