from __future__ import annotations

import asyncio
import json
import sys

import pytest

from harbourmaster.api.resources import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, Resource
from harbourmaster.kube import discovery
from harbourmaster.kube.discovery import Discovery, UnknownKindError
from harbourmaster.kube.errors import BadAnswerError, ServerError
from harbourmaster.kube.peer_bounds import MAX_HELD, PeerBounds, PeerBudget

BOATS = Resource("example.com", "v1", "boats", "Boat")


@pytest.fixture
async def known(api):
    async with api.client(retries=0) as client:
        yield Discovery(client)


async def test_kinds_are_found_where_they_are_served(known):
    assert await known.resource("v1", "ConfigMap") == CONFIG_MAPS
    assert await known.resource("apps/v1", "Deployment") == DEPLOYMENTS
    assert await known.resource("v1", "Namespace") == NAMESPACES


async def test_a_version_is_asked_for_once(api, known):
    await asyncio.gather(*(known.resource("v1", "ConfigMap") for _ in range(5)))
    await known.resource("v1", "Namespace")
    assert [request.path for request in api.requests] == ["/api/v1"]


async def test_a_kind_that_comes_is_found_when_it_was_forgotten(api, known, monkeypatch):
    with pytest.raises(UnknownKindError, match=r"does not serve kind Boat in example\.com/v1"):
        await known.resource("example.com/v1", "Boat")
    api.define(BOATS)
    with pytest.raises(UnknownKindError):
        await known.resource("example.com/v1", "Boat")
    known.forget("example.com/v1")
    assert await known.resource("example.com/v1", "Boat") == BOATS
    api.undefine(BOATS)
    assert await known.resource("example.com/v1", "Boat") == BOATS
    monkeypatch.setattr(discovery, "KNOWN_SECONDS", 0.0)
    with pytest.raises(UnknownKindError):
        await known.resource("example.com/v1", "Boat")


async def test_a_missing_kind_is_asked_for_again_soon(api, known, monkeypatch):
    monkeypatch.setattr(discovery, "MISSING_SECONDS", 0.0)
    with pytest.raises(UnknownKindError):
        await known.resource("example.com/v1", "Boat")
    api.define(BOATS)
    assert await known.resource("example.com/v1", "Boat") == BOATS


async def test_a_part_of_a_kind_is_none(known):
    resource = await known.resource("apps/v1", "Deployment")
    assert resource.plural == "deployments"


@pytest.mark.parametrize("version", ["", "/", "..", "a/..", "a/b/c", "x y", "../../api/v1"])
async def test_versions_that_are_none_lead_nowhere_else(api, known, version):
    with pytest.raises(UnknownKindError):
        await known.resource(version, "ConfigMap")
    assert all(request.path.count("/") <= 3 for request in api.requests)


async def test_faults_are_no_answers(api, known):
    api.fail_next(status=500)
    with pytest.raises(ServerError):
        await known.resource("v1", "ConfigMap")
    api.fail_next(kind="garbage", body=b'{"resources": 7}')
    with pytest.raises(BadAnswerError):
        await known.resource("v1", "ConfigMap")
    assert await known.resource("v1", "ConfigMap") == CONFIG_MAPS


async def test_everything_that_can_be_listed_is_told_once(api, known):
    api.define(BOATS)
    api.define(Resource("example.com", "v1beta1", "boats", "Boat"))
    listable = await known.listable()
    assert {CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, BOATS} <= set(listable)
    places = [(resource.group, resource.plural) for resource in listable]
    assert len(set(places)) == len(places)


async def test_a_group_that_does_not_answer_leaves_nothing_out(api, known):
    api.fail_next("get", "/apis/apps/v1$", status=503)
    with pytest.raises(ServerError):
        await known.listable()
    api.fail_next("get", "/apis$", kind="garbage")
    with pytest.raises(BadAnswerError):
        await known.listable()


async def test_kinds_are_those_of_groups_with_a_dot(api, known):
    api.define(BOATS)
    kinds = await known.kinds()
    assert "example.com/v1/Boat" in kinds
    assert not [kind for kind in kinds if kind.startswith(("v1/", "apps/"))]
    assert list(kinds) == sorted(kinds)


async def test_kinds_that_come_are_asked_for_when_they_were_forgotten(api, known):
    api.define(BOATS)
    await known.kinds()
    asked = len(api.requests)
    await known.kinds()
    # What is known of the versions is cached.
    assert [request.path for request in api.requests[asked:]] == ["/apis"]
    api.undefine(BOATS)
    known.forget()
    assert "example.com/v1/Boat" not in await known.kinds()


async def test_a_version_that_is_down_may_have_any_kind(api, known):
    api.define(BOATS)
    api.fail_next("get", "/apis/example.com/v1$", status=503)
    assert "example.com/v1/*" in await known.kinds()
    api.fail_next("get", "/apis$", status=503)
    with pytest.raises(ServerError):
        await known.kinds()


class Renaming:
    """Serves other versions of API groups with each answer, each with so many kinds."""

    def __init__(self, kinds):
        self.answers = 0
        self.resources = [{"name": f"k{n}", "kind": f"K{n}"} for n in range(kinds)]

    async def request(self, _method, path):
        if path != "/apis":
            return json.dumps({"resources": self.resources}).encode()
        self.answers += 1
        names = [f"{'g' * 5000}.x{n}.{self.answers}/v1" for n in range(100)]
        return json.dumps({"groups": [{"versions": [{"groupVersion": v} for v in names]}]}).encode()


@pytest.mark.parametrize("kinds", [0, 50])
async def test_the_names_of_versions_count_for_the_limit_of_a_server(kinds):
    bounds = PeerBounds(PeerBudget(asyncio.get_running_loop().time), lambda: None)
    discovery = Discovery(Renaming(kinds), bounds)
    for _ in range(3):
        served = await discovery.kinds()
    size = sum(map(sys.getsizeof, served)) + sum(map(sys.getsizeof, discovery._answers))
    assert size <= bounds._share.size <= MAX_HELD
    assert not discovery._locks
