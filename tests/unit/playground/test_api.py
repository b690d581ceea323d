from __future__ import annotations

import json
import socket

import pytest

from harbourmaster.playground import api
from harbourmaster.playground.errors import PlaygroundError
from helpers.stubs import web_server

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
TAINTED = {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}


@pytest.fixture
def server():
    answers, seen = {}, []

    def answer(command, _path, body):
        seen.append((command, json.loads(body or "null")))
        return answers[command]

    with web_server(answer) as port:
        yield port, answers, seen


def events(*nodes):
    return "".join(json.dumps({"type": "MODIFIED", "object": node}) + "\n" for node in nodes)


def node(name, **fields):
    return {"metadata": {"name": name}, **fields}


def test_200_is_ready(server):
    port, answers, _ = server
    answers["GET"] = (200, "ok")
    assert api.why_not_ready(f"http://127.0.0.1:{port}/readyz") is None


def test_any_other_answer_is_not_ready_for_the_reasons_in_it(server):
    port, answers, _ = server
    answers["GET"] = (503, "policies: not synced\nserving: no certificate\n")
    reason = api.why_not_ready(f"http://127.0.0.1:{port}/readyz")
    assert reason == "503: policies: not synced; serving: no certificate"


def test_a_port_that_nobody_listens_on_is_not_ready():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        reason = api.why_not_ready(f"http://127.0.0.1:{bound.getsockname()[1]}/readyz")
    assert reason.startswith("no answer: ")


def test_new_nodes_take_the_free_numbers(server, plain):
    port, answers, seen = server
    answers["GET"] = (200, json.dumps({"items": [node("node-1"), node("other")]}))
    answers["POST"] = (201, "{}")
    assert api.create_nodes(port, None, 2, {"zone": "a"}) == ["node-0", "node-2"]
    created = [body["metadata"] for command, body in seen if command == "POST"]
    assert [metadata["name"] for metadata in created] == ["node-0", "node-2"]
    assert created[0]["labels"]["zone"] == "a"


def test_a_refused_node_is_one_line_with_the_answer(server, plain):
    port, answers, _ = server
    answers["GET"] = (200, '{"items": []}')
    answers["POST"] = (403, "no")
    with pytest.raises(PlaygroundError, match=r"^POST /api/v1/nodes: 403 no$"):
        api.create_nodes(port, None, 1, {})


def test_nodes_are_awaited_until_ready_and_untainted(server, plain):
    port, answers, seen = server
    answers["GET"] = (
        200,
        events(node("a"), node("a", status=READY, spec=TAINTED), node("a", status=READY, spec={})),
    )
    api.await_ready_nodes(port, None, ["a"], 5)
    assert [command for command, _ in seen] == ["GET"]


def test_a_silent_api_server_ends_the_wait(plain):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(PlaygroundError, match=r"the API server fails: timed out$"):
            api.await_ready_nodes(port, None, ["a"], 0.1)


def test_a_tainted_node_is_not_ready(server, plain):
    port, answers, _ = server
    answers["GET"] = (200, events(node("a", status=READY, spec=TAINTED)))
    with pytest.raises(PlaygroundError, match=r"^1 nodes are not ready after 5 s, one is a: see"):
        api.await_ready_nodes(port, None, ["a"], 5)


def test_a_request_gives_the_answer(server, plain):
    port, answers, seen = server
    answers["POST"] = (201, "made")
    assert api.request(port, None, "POST", "/x", {"a": 1}) == b"made"
    assert seen == [("POST", {"a": 1})]


def test_a_watch_gives_its_lines_until_it_ends(server, plain):
    port, answers, _ = server
    answers["GET"] = (200, "one\ntwo\n")
    assert list(api.watch(port, None, "/x", 5)) == [b"one\n", b"two\n"]


def test_a_watch_of_a_silent_api_server_is_an_error(plain):
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(PlaygroundError, match=r"^GET /x: the API server fails: timed out$"),
    ):
        list(api.watch(silent.getsockname()[1], None, "/x", 0.1))
