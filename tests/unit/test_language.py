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
    "text",
    [
        '"""Made anew."""',
        "# made anew",
        'fail("made anew")',
        '"""Tried in vain."""',
        '"""Of a pod."""',
        "found = 1",
        "def pods(one): pass",
        "[\n    each for each in pods\n]",
    ],
)
def test_python_is_checked_for_phrases_fragments_and_vague_names(text):
    (fault,) = faults("a.py", text)
    assert fault.startswith("a.py:")


@pytest.mark.parametrize("text", ["pods = [each for each in names]", '"""Office hours."""'])
def test_short_comprehensions_and_sentences_pass(text):
    assert faults("a.py", text) == []


@pytest.mark.parametrize(
    "text", ["there is no list", "There is no list", "it is no longer there", "a map is not a list"]
)
def test_plain_words_pass(text):
    assert faults("a.md", text) == []
