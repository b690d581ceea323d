"""Applications that wait for a person: which, and how one is let go."""

from __future__ import annotations

from functools import partial

import pytest

from harbourmaster.api.resources import APPLICATIONS
from harbourmaster.placement.confirmation import CONFIRMED

WAITS = {
    "conditions": [
        {
            "type": "Scheduled",
            "status": "False",
            "reason": "NotConfirmed",
            "message": "it would be placed on 'two': to have it placed, run that",
        }
    ]
}
PLACED = {"conditions": [{"type": "Scheduled", "status": "True", "reason": "Scheduled"}]}


@pytest.fixture
def confirm(api, command):
    """Return ``confirm(*words)``, which runs the command beside two applications that wait."""
    for namespace, name, status in (
        ("default", "one", WAITS),
        ("default", "placed", PLACED),
        ("shop", "two", WAITS),
    ):
        api.put(
            APPLICATIONS, {"metadata": {"name": name, "namespace": namespace}, "status": status}
        )
    return partial(command, "placement", "confirm")


def confirmed_names(api):
    applications = api.objects.all(APPLICATIONS).values()
    return {
        application["metadata"]["name"]
        for application in applications
        if application["metadata"].get("annotations", {}).get(CONFIRMED) == "true"
    }


async def test_without_names_it_lists_what_waits_and_changes_nothing(api, confirm):
    line = "default/one: it would be placed on 'two': to have it placed, run that\n"
    assert await confirm() == (1, line, "")
    assert await confirm("-A") == (1, line + line.replace("default/one", "shop/two"), "")
    assert not api.seen("patch")


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("one",), {"one"}),
        (("default/one", "shop/two"), {"one", "two"}),
        (("two", "-n", "shop"), {"two"}),
        (("--all",), {"one"}),
        (("--all", "-A"), {"one", "two"}),
        (("shop/two", "--all"), {"two"}),
    ],
)
async def test_it_confirms_what_is_named(api, confirm, arguments, names):
    code, out, _ = await confirm(*arguments)
    assert code == 0
    assert confirmed_names(api) == names
    assert out.count(" confirmed\n") == len(names)


async def test_nothing_waits(confirm):
    for flags in ((), ("--all",)):
        assert await confirm("-n", "empty", *flags) == (0, "", "")


async def test_one_that_does_not_exist_and_a_missing_permission_are_told(api, confirm):
    code, _, err = await confirm("one", "ona")
    assert code == 1
    assert "Application default/ona not found: " in err
    assert confirmed_names(api) == {"one"}
    api.forbid("patch", APPLICATIONS)
    code, _, err = await confirm("shop/two")
    assert code == 1
    assert "two" in err
