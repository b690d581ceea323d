"""Applications that wait for a person: which, and how one is let go."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.api.resources import APPLICATIONS
from harbourmaster.cli import main as cli
from harbourmaster.placement.confirmation import CONFIRMED
from helpers.commands import kubeconfig
from helpers.fake_api import FakeApi

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
async def api(tmp_path):
    async with FakeApi() as fake_api:
        fake_api.kubeconfig = kubeconfig(tmp_path, fake_api.url)
        for namespace, name, status in (
            ("default", "one", WAITS),
            ("default", "placed", PLACED),
            ("shop", "two", WAITS),
        ):
            metadata = {"name": name, "namespace": namespace}
            fake_api.put(APPLICATIONS, {"metadata": metadata, "status": status})
        yield fake_api


async def confirm(api, *arguments):
    arguments = ["placement", "confirm", f"--kubeconfig={api.kubeconfig}", *arguments]
    return await asyncio.to_thread(cli.main, arguments)


def confirmed_names(api):
    applications = api.objects.all(APPLICATIONS).values()
    return {
        application["metadata"]["name"]
        for application in applications
        if application["metadata"].get("annotations", {}).get(CONFIRMED) == "true"
    }


async def test_without_names_it_lists_what_waits_and_changes_nothing(api, capsys):
    assert await confirm(api) == 1
    line = "default/one: it would be placed on 'two': to have it placed, run that\n"
    assert capsys.readouterr().out == line
    assert await confirm(api, "-A") == 1
    assert capsys.readouterr().out == line + line.replace("default/one", "shop/two")
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
async def test_it_confirms_what_is_named(api, capsys, arguments, names):
    assert await confirm(api, *arguments) == 0
    assert confirmed_names(api) == names
    assert capsys.readouterr().out.count(" confirmed\n") == len(names)


async def test_nothing_waits(api, capsys):
    assert await confirm(api, "-n", "empty") == 0
    assert await confirm(api, "-n", "empty", "--all") == 0
    assert capsys.readouterr().out == ""


async def test_one_that_does_not_exist_and_a_missing_permission_are_told(api, capsys):
    assert await confirm(api, "one", "ona") == 1
    told = capsys.readouterr()
    assert "Application default/ona not found: " in told.err
    assert confirmed_names(api) == {"one"}
    api.forbid("patch", APPLICATIONS)
    assert await confirm(api, "shop/two") == 1
    assert "two" in capsys.readouterr().err
