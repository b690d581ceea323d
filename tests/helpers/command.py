"""The command ``harbourmaster``: its process, its parsers, and a demo as a user runs it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys

from harbourmaster.cli.main import create_parser
from harbourmaster.playground.build import ensure_binaries, find_kubectl
from helpers.patience import PATIENCE


def harbourmaster(*words, kubeconfig=None, seconds=PATIENCE):
    """Run the command; no cluster is meant but that of the kubeconfig."""
    kept = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    return subprocess.run(
        [sys.executable, "-m", "harbourmaster.cli.main", *words],
        env=kept if kubeconfig is None else {**kept, "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )


def local(action, directory, *flags):
    """Run ``harbourmaster local`` in a folder."""
    return harbourmaster("local", action, f"--dir={directory}", *flags, seconds=2 * PATIENCE)


def parsers(parser=None):
    """Yield the parser of each command, and of all."""
    parser = parser or create_parser()
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


def kubeconfig(folder, server, **context):
    """Write a kubeconfig for a server; return its path, as arguments have it.

    ``context`` are more fields of its context.
    """
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "it", "cluster": {"server": server}}],
        "users": [{"name": "it", "user": {"token": "secret"}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", **context}}],
        "current-context": "it",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return str(path)


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


def kubectl_of(kubeconfig, *options):
    """Return ``kubectl(*arguments, stdin=None, check=True)`` for a cluster, with these options."""

    def run(*arguments, stdin=None, check=True):
        command = [find_kubectl(ensure_binaries()), f"--kubeconfig={kubeconfig}", *options]
        return subprocess.run(
            [*command, *arguments], input=stdin, capture_output=True, text=True, check=check
        )

    return run
