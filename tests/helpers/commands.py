"""Commands, and what they are given."""

from __future__ import annotations

import argparse
import json

from harbourmaster.cli.main import create_parser


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
