"""Lines for people: colours where they are wanted, folded where they are long, never a control."""

from __future__ import annotations

import io
import json
import os

import pytest

from harbourmaster.cli.terminal import NARROWEST, Terminal, json_text


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def plain(monkeypatch):
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")


def test_a_file_gets_neither_colours_nor_folds(plain):
    terminal = Terminal.of(io.StringIO())
    text = "word " * 100
    assert terminal.line(text.strip(), "bad") == text.strip()


def test_a_terminal_gets_both(plain):
    terminal = Terminal.of(Screen())
    lines = terminal.line("word " * 30, "bad", indent=2, hanging=4).split("\n")
    assert len(lines) > 1
    assert all("\x1b[31m" in line and line.endswith("\x1b[0m") for line in lines)
    assert lines[0].startswith("  \x1b")
    assert lines[1].startswith("      \x1b")


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_switched_off(plain, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert Terminal.of(Screen()).line("text", "bad") == "text"


def test_a_very_narrow_terminal_is_taken_to_be_wider(plain, monkeypatch):
    monkeypatch.setenv("COLUMNS", "10")
    assert os.environ["COLUMNS"] == "10"
    assert Terminal.of(Screen()).width == NARROWEST


@pytest.mark.claim("O9")
def test_controls_of_others_are_escaped_before_ours_are_added():
    shown = Terminal(has_colours=True).line("\x1b]0;owned\x07\u202e\n", "bad")
    assert shown == "\x1b[31m\\x1b]0;owned\\x07\\u202e\\n\x1b[0m"


def test_a_word_longer_than_the_line_stays_whole():
    name = "x" * 100
    assert name in Terminal(width=60).line(f"the pod {name} waits", indent=2)


def test_json_keeps_what_it_says_and_sends_a_terminal_nothing():
    value = {"name": "\x1b[31m\x9b31m\u202e\x7f\U000e0001 ü €", "lines": "a\nb"}
    text = json_text(value)
    assert json.loads(text) == value
    assert text.decode().replace("\n", "").isprintable()
    assert "ü €" in text.decode()
