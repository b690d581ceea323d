"""KeptnConfigs of other namespaces: which wait for an administrator, and how one is adopted."""

from __future__ import annotations

from functools import partial

import pytest

from harbourmaster.api.resources import KEPTN_CONFIGS
from harbourmaster.lifecycle.keptn_config import ADOPTS

HOME = "harbourmaster-system"


@pytest.fixture
def adopt(api, command):
    """Return ``adopt(*words)``, which runs the command beside a KeptnConfig that may be adopted."""
    put(api, "shop", "config")
    return partial(command, "config", "adopt")


def put(api, namespace, name):
    api.put(KEPTN_CONFIGS, {"metadata": {"name": name, "namespace": namespace}, "spec": {}})


def adopting(api):
    configs = api.objects.all(KEPTN_CONFIGS).values()
    return {
        f"{config['metadata']['namespace']}/{config['metadata']['name']}": annotations[ADOPTS]
        for config in configs
        if (annotations := config["metadata"].get("annotations", {}))
    }


async def test_without_a_name_it_lists_what_waits_and_changes_nothing(api, adopt):
    code, out, _ = await adopt()
    assert code == 1
    assert out.startswith("shop/config: not in force: outside harbourmaster-system ")
    assert adopting(api) == {}


async def test_an_adopted_one_no_longer_waits(api, adopt):
    code, out, _ = await adopt("shop/config")
    assert code == 0
    assert adopting(api) == {f"{HOME}/adopted": "shop/config"}
    assert out.endswith(f"kubectl -n {HOME} delete keptnconfig adopted\n")
    assert await adopt() == (0, "", "")


async def test_the_namespace_may_be_a_flag_and_the_installation_another_one(api, adopt):
    assert (await adopt("config", "-n", "shop", "--installed-in", "harbour"))[0] == 0
    assert adopting(api) == {"harbour/adopted": "shop/config"}


@pytest.mark.parametrize(
    ("before", "asked", "text"),
    [
        ("", "shop/confg", 'KeptnConfig "shop/confg" not found'),
        ("adopts shop/config", "shop/config", "KeptnConfig shop/config is in force already"),
        (f"{HOME}/own", "shop/config", f"KeptnConfig {HOME}/own comes first: first run kubectl"),
        ("keptn-system/own", "shop/config", "delete keptnconfig own"),
        (
            "adopts prod/config",
            "shop/config",
            f"KeptnConfig {HOME}/adopted adopts prod/config: first run",
        ),
    ],
)
async def test_what_cannot_be_adopted_is_refused_in_one_line(api, adopt, before, asked, text):
    namespace, _, name = before.removeprefix("adopts ").partition("/")
    if before:
        put(api, namespace, name)
    if before.startswith("adopts "):
        await adopt(before.removeprefix("adopts "))
    adopted = adopting(api)
    code, out, err = await adopt(asked)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert text in err
    assert adopting(api) == adopted


async def test_a_refusal_of_the_api_server_is_one_line(api, adopt):
    api.fail_next("create", "/keptnconfigs", status=403)
    code, _, err = await adopt("shop/config")
    assert (code, err.count("\n")) == (1, 1)
