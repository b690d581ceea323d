from __future__ import annotations

import json
import sys

import pytest

from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.prometheus import Prometheus, Series, configuration_of
from helpers.stubs import write_program

# Stands for Prometheus: notes its flags, is ready at the second question, and answers each query
# by the file of that name.
FAKE = """#!{python} -IS
import http.server, pathlib, sys, urllib.parse
folder = pathlib.Path(__file__).parent
(folder / "flags").write_text("\\n".join(sys.argv[1:]))
(port,) = [each.rpartition(":")[2] for each in sys.argv if each.startswith("--web.listen-address=")]
asked = []

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked.append(self.path)
        status, content = 200, b""
        if self.path == "/-/ready":
            status = 503 if len(asked) == 1 else 200
        else:
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)["query"][0]
            content = (folder / query).read_bytes()
        self.send_response(status)
        self.end_headers()
        self.wfile.write(content)

http.server.HTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()
"""
SCRAPES = {"webhook": "http://127.0.0.1:1/metrics", "other": "https://example.com/own"}


@pytest.fixture
def program(tmp_path):
    return write_program(tmp_path / "bin" / "prometheus", FAKE.format(python=sys.executable))


@pytest.fixture
def server(tmp_path, program):
    with Prometheus(tmp_path / "data", SCRAPES, program=program) as server:
        yield server


def answers(program, query, content):
    (program.parent / query).write_text(
        content if isinstance(content, str) else json.dumps(content)
    )


def vector(*series):
    return {"status": "success", "data": {"resultType": "vector", "result": series}}


def up(job):
    return {"metric": {"__name__": "up", "job": job}, "value": [1700000000.5, "1"]}


def test_each_job_is_one_url_and_the_interval_is_for_all(assert_golden):
    assert_golden(configuration_of(SCRAPES, "2s"))


def test_rules_are_a_file_that_the_configuration_names(tmp_path, program):
    rules = {"groups": []}
    with Prometheus(tmp_path / "data", SCRAPES, rules=rules, program=program) as server:
        content = json.loads((server.directory / "prometheus.yml").read_text())
        assert content == {**configuration_of(SCRAPES, "1s"), "rule_files": ["rules.yml"]}
        assert json.loads((server.directory / "rules.yml").read_text()) == rules


def test_it_is_ready_when_it_says_so_and_listens_on_this_machine_only(server, program):
    flags = (program.parent / "flags").read_text().splitlines()
    assert f"--web.listen-address=127.0.0.1:{server.port}" in flags
    assert f"--config.file={server.directory}/prometheus.yml" in flags
    assert json.loads((server.directory / "prometheus.yml").read_text()) == configuration_of(
        SCRAPES, "1s"
    )


def test_it_starts_again_on_its_port(server):
    port, pid = server.port, server.pid
    server.stop()
    server.start()
    assert server.port == port
    assert server.pid != pid


def test_a_stopped_one_has_no_process_id(server):
    server.stop()
    with pytest.raises(PlaygroundError, match="prometheus is not running"):
        _ = server.pid


def test_a_second_one_in_the_folder_is_refused(server, program):
    with pytest.raises(PlaygroundError, match="an earlier prometheus is still running"):
        Prometheus(server.directory, {}, program=program).start()
    assert server.pid


def test_a_query_has_series_with_their_newest_value(server, program):
    answers(program, "up", vector(up("webhook"), up("other")))
    assert server.query("up") == [
        Series({"__name__": "up", "job": job}, (1700000000.5, "1")) for job in ("webhook", "other")
    ]


def test_targets_are_awaited_until_each_is_up(server, program, monkeypatch):
    monkeypatch.setattr("harbourmaster.playground.prometheus.READY_SECONDS", 0.2)
    answers(program, "up == 1", vector(up("webhook")))
    with pytest.raises(PlaygroundError, match="it has nothing of other"):
        server.await_targets()
    answers(program, "up == 1", vector(up("webhook"), up("other")))
    server.await_targets()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            {"status": "error", "errorType": "bad_data", "error": "no such function"},
            "refuses up: no",
        ),
        ("<html>", "does not answer up: JSON is malformed"),
        ({"status": "success", "data": {"result": [1700000000, "1"]}}, "does not answer up: Exp"),
    ],
)
def test_an_answer_without_series_is_an_error_in_one_line(server, program, content, said):
    answers(program, "up", content)
    with pytest.raises(PlaygroundError, match=said) as raised:
        server.query("up")
    assert "\n" not in str(raised.value)


def test_one_that_is_gone_does_not_answer(server):
    server.kill()
    with pytest.raises(PlaygroundError, match="does not answer up: "):
        server.query("up")


def test_one_that_ends_at_once_leaves_nothing_and_shows_its_log(tmp_path, program):
    program.write_text("#!/bin/sh\necho 'bad flag' >&2\nexit 2\n")
    server = Prometheus(tmp_path / "data", SCRAPES, program=program)
    with pytest.raises(PlaygroundError) as raised:
        server.start()
    assert str(raised.value) == f"prometheus ended with exit code 2: see {server.log}\nbad flag"
    with pytest.raises(PlaygroundError, match="is not running"):
        _ = server.pid
