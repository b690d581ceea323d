from __future__ import annotations

import pytest
from language import faults


@pytest.mark.parametrize(
    "text",
    [
        "a map is no list",
        "the value of now",
        "tried in vain",
        "users who may not",
        "whoever asks",
        "nothing is begun",
        "pods are made anew",
    ],
)
def test_a_phrase_that_must_not_return_is_found(text):
    (fault,) = faults("a.md", f"fine\n{text}")
    assert fault.startswith("a.md:2: ")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('"""Made anew."""', []),
        ("# made anew", []),
        ('fail("made anew")', ["1"]),
        ('"""Tried in vain."""', ["1"]),
    ],
)
def test_strings_of_python_are_checked_more_strictly_than_docstrings(text, lines):
    assert [fault.split(":")[1] for fault in faults("a.py", text)] == lines


@pytest.mark.parametrize(
    "text", ["there is no list", "There is no list", "it is no longer there", "a map is not a list"]
)
def test_plain_words_pass(text):
    assert faults("a.md", text) == []
