"""Pods may wait for a Secret, but not for what is in it: events quote what is found."""

from __future__ import annotations

import pytest

from harbourmaster.gates.waits import WAIT_FOR_KEY, waits_of


@pytest.mark.parametrize("test", ["field=data.password:c2FpbA==", "condition=Ready"])
@pytest.mark.parametrize("kind", ["secret", "secrets"])
def test_the_content_of_a_secret_cannot_be_waited_for(kind, test):
    waits = waits_of({WAIT_FOR_KEY: f"{kind}/token#{test}, job/migrate"})
    (fault,) = waits.faults
    assert fault.endswith("write secret/NAME")
    assert [item.text for item in waits.items] == ["job/migrate"]
    assert not waits_of({WAIT_FOR_KEY: f"{kind}/token"}).faults
