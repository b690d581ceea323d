"""What commands are given."""

from __future__ import annotations

import json


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
