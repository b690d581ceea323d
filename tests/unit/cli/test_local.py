from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from harbourmaster.cli.local import add_parser


@pytest.fixture
def parse():
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers(required=True))
    return lambda *arguments: parser.parse_args(["local", *arguments])


def test_up_plays_two_nodes_and_keeps_no_audit_log_unless_told(parse):
    given = parse("up", "--dir", "x")
    assert (given.action, given.dir, given.nodes, given.audit) == ("up", Path("x"), 2, False)
    assert (given.webhook_args, given.controller_args) == ([], [])
    assert given.command == "harbourmaster.cli.local:run"


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


def test_flags_with_an_open_quote_are_refused(parse, capsys):
    with pytest.raises(SystemExit):
        parse("up", "--dir=x", "--webhook-args='--port")
    assert "--webhook-args: '--port: No closing quotation" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["up", "down", "status"])
def test_each_action_needs_a_folder(parse, capsys, action):
    with pytest.raises(SystemExit) as raised:
        parse(action)
    assert raised.value.code == 2
    assert "--dir" in capsys.readouterr().err


def test_an_action_is_needed(parse, capsys):
    with pytest.raises(SystemExit):
        parse()
    assert "ACTION" in capsys.readouterr().err


def test_the_number_of_nodes_is_not_negative(parse, capsys):
    with pytest.raises(SystemExit):
        parse("up", "--dir=x", "--nodes=-1")
    assert "-1 is negative" in capsys.readouterr().err


def test_down_takes_no_flags_of_up(parse, capsys):
    with pytest.raises(SystemExit):
        parse("down", "--dir=x", "--audit")
    assert "--audit" in capsys.readouterr().err
