"""S30 on a real server: later changes count in spite of bad documents among the policies."""

from __future__ import annotations

import pytest

from helpers.objects import cluster_policy
from helpers.server import WatchedServer

BAD = {
    "digits": "kind: A\nn: " + "9" * 5000,
    "a tag that lies": "kind: A\nn: !!bool x",
    "no YAML": "kind: [",
    "no text": "\x00",
    "deep": "[" * 5000 + "]" * 5000,
}


@pytest.mark.parametrize("name", BAD)
def test_s30_a_bad_document_is_told_and_the_next_change_counts(tmp_path, name):
    with WatchedServer(tmp_path, cluster_policy("before", nodeName="n0")) as server:
        file = tmp_path / "policies" / "bad.yaml"
        file.write_text(BAD[name])
        server.await_event("bad document")
        file.unlink()
        server.add_policies(cluster_policy("after", nodeName="n1"))
        assert server.lives
