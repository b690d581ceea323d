from __future__ import annotations

import itertools

import pytest

from harbourmaster.lifecycle.overall import overall


@pytest.mark.parametrize(
    ("states", "result"),
    [
        ([], "Succeeded"),
        (["Succeeded"], "Succeeded"),
        (["Succeeded", "Succeeded"], "Succeeded"),
        (["Succeeded", "Failed", "Progressing", "Pending", "Unknown"], "Failed"),
        (["Succeeded", "Deprecated"], "Failed"),
        (["Succeeded", "Progressing", "Pending", "Unknown"], "Progressing"),
        (["Succeeded", "Pending", "Unknown"], "Pending"),
        (["Succeeded", "", "Unknown"], "Pending"),
        (["Succeeded", "Unknown"], "Unknown"),
        (["Succeeded", "Warning"], "Warning"),
        (["Warning", "Failed"], "Failed"),
        (["Warning", "Progressing"], "Progressing"),
        (["Succeeded", "Nonsense"], "Pending"),
    ],
)
def test_the_worst_state_counts_whatever_the_order(states, result):
    for order in itertools.permutations(states):
        assert overall(order, len(order)) == result


def test_what_is_not_there_yet_is_waited_for():
    assert overall(["Succeeded"], 2) == "Pending"
    assert overall(["Failed"], 2) == "Failed"
    assert overall(["Progressing"], 2) == "Progressing"
    assert overall([], 1) == "Pending"
