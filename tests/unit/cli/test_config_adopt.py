"""KeptnConfigs of other namespaces: which wait for an administrator, and how one is adopted."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.api.resources import KEPTN_CONFIGS
from harbourmaster.cli import main as cli
from harbourmaster.lifecycle.keptn_config import ADOPTS
from helpers.commands import kubeconfig
from helpers.fake_api import FakeApi

HOME = "harbourmaster-system"


@pytest.fixture
async def api(tmp_path):
    async with FakeApi() as fake_api:
        fake_api.kubeconfig = kubeconfig(tmp_path, fake_api.url)
        put(fake_api, "shop", "config")
        yield fake_api


def put(api, namespace, name):
    api.put(KEPTN_CONFIGS, {"metadata": {"name": name, "namespace": namespace}, "spec": {}})


async def adopt(api, *arguments):
    arguments = ["config", "adopt", f"--kubeconfig={api.kubeconfig}", *arguments]
    return await asyncio.to_thread(cli.main, arguments)


def adopting(api):
    configs = api.objects.all(KEPTN_CONFIGS).values()
    return {
        f"{config['metadata']['namespace']}/{config['metadata']['name']}": annotations[ADOPTS]
        for config in configs
        if (annotations := config["metadata"].get("annotations", {}))
    }


async def test_without_a_name_it_lists_what_waits_and_changes_nothing(api, capsys):
    assert await adopt(api) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("shop/config: not in force: outside harbourmaster-system ")
    assert adopting(api) == {}


async def test_an_adopted_one_no_longer_waits(api, capsys):
    assert await adopt(api, "shop/config") == 0
    assert adopting(api) == {f"{HOME}/adopted": "shop/config"}
    undo = f"kubectl -n {HOME} delete keptnconfig adopted"
    assert capsys.readouterr().out.splitlines()[-1].endswith(undo)
    assert await adopt(api) == 0
    assert capsys.readouterr().out == ""


async def test_the_namespace_may_be_a_flag_and_the_installation_another_one(api):
    assert await adopt(api, "config", "-n", "shop", "--installed-in", "harbour") == 0
    assert adopting(api) == {"harbour/adopted": "shop/config"}


async def test_one_that_does_not_exist_is_refused(api, capsys):
    assert await adopt(api, "shop/confg") == 1
    assert 'KeptnConfig "shop/confg" not found' in capsys.readouterr().err


async def test_one_that_is_in_force_is_refused(api, capsys):
    await adopt(api, "shop/config")
    assert await adopt(api, "shop/config") == 1
    assert "KeptnConfig shop/config is in force already" in capsys.readouterr().err


@pytest.mark.parametrize("namespace", [HOME, "keptn-system"])
async def test_another_one_in_force_is_never_replaced(api, capsys, namespace):
    put(api, namespace, "own")
    assert await adopt(api, "shop/config") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(
        f"KeptnConfig {namespace}/own comes first: "
        f"first run kubectl -n {namespace} delete keptnconfig own"
    )
    assert adopting(api) == {}


async def test_an_adoption_is_not_replaced_by_another_one(api, capsys):
    put(api, "prod", "config")
    await adopt(api, "prod/config")
    assert await adopt(api, "shop/config") == 1
    assert f"KeptnConfig {HOME}/adopted adopts prod/config: first run" in capsys.readouterr().err
    assert adopting(api) == {f"{HOME}/adopted": "prod/config"}


async def test_a_refusal_of_the_api_server_is_one_line(api, capsys):
    api.fail_next("create", "/keptnconfigs", status=403)
    assert await adopt(api, "shop/config") == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
