from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from harbourmaster.cli.local import add_local


@pytest.fixture
def parse():
    parser = argparse.ArgumentParser()
    add_local(parser)
    return lambda *arguments: parser.parse_args(arguments)


def test_up_simulates_nodes_and_keeps_no_audit_log_by_default(parse):
    given = parse("up", "--dir", "x")
    assert (given.action, given.dir, given.node, given.audit) == ("up", Path("x"), False, False)
    assert given.nodes is None
    assert given.gating == "schedulingGates"
    assert (given.webhook_args, given.controller_args) == ([], [])
    assert given.command == "harbourmaster.cli.local:run"


@pytest.mark.parametrize("action", ["up", "down", "status"])
@pytest.mark.parametrize(
    ("state", "home"), [("/s", "/s"), ("", "/h/.local/state"), (None, "/h/.local/state")]
)
def test_the_directory_by_default_is_below_that_of_states(monkeypatch, action, state, home):
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    if state is not None:
        monkeypatch.setenv("XDG_STATE_HOME", state)
    parser = argparse.ArgumentParser()
    add_local(parser)
    assert parser.parse_args([action]).dir == Path(home, "harbourmaster/local")


def test_flags_of_the_processes_add_up_and_may_hold_spaces(parse):
    given = parse(
        *("up", "--dir=x", "--webhook-args=--log-level=debug --host='a b'"),
        *("--webhook-args=--port=1", "--controller-args=--host=x"),
    )
    assert given.webhook_args == ["--log-level=debug", "--host=a b", "--port=1"]
    assert given.controller_args == ["--host=x"]


def test_flags_of_one_call_are_not_those_of_the_next(parse):
    parse("up", "--dir=x", "--webhook-args=--port=1")
    assert parse("up", "--dir=x").webhook_args == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "ACTION"),
        (["up", "--dir=x", "--nodes=-1"], "-1 is negative"),
        (["up", "--dir=x", "--webhook-args='--port"], "'--port: No closing quotation"),
        (["up", "--dir=x", "--gating=auto"], "schedulerName"),
        (["down", "--dir=x", "--audit"], "--audit"),
    ],
)
def test_a_wrong_command_line_is_refused(parse, capsys, arguments, text):
    with pytest.raises(SystemExit) as raised:
        parse(*arguments)
    assert raised.value.code == 2
    assert text in capsys.readouterr().err
