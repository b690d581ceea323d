from __future__ import annotations

import pytest
from language import faults


@pytest.mark.parametrize(
    "text",
    ["a map is no list", "the value of now", "tried in vain", "who may not", "whoever asks"],
)
def test_a_phrase_that_must_not_return_is_found(text):
    (fault,) = faults("a.md", f"fine\n{text}")
    assert fault.startswith("a.md:2: ")


@pytest.mark.parametrize(
    "text", ["there is no list", "There is no list", "it is no longer there", "a map is not a list"]
)
def test_plain_words_pass(text):
    assert faults("a.md", text) == []
