from __future__ import annotations

import asyncio
import json

import pytest

from harbourmaster.api.resources import CLUSTER_POLICIES, PODS, TOKEN_REVIEWS
from harbourmaster.dashboard.visibility import AT_ONCE, ClusterAccess
from harbourmaster.kube import access as deciding
from harbourmaster.kube.access import User
from harbourmaster.kube.errors import ServerError

JANE = {
    "username": "jane",
    "uid": "7",
    "groups": ["crew"],
    "extra": {"scopes": ["a", "b"], "node": ["n"]},
}


class Api:
    """A stand-in for the API server that knows one token, and who may list what."""

    def __init__(self):
        self.asked = []
        self.status = {"authenticated": True, "user": JANE}
        self.allowed = True
        self.fault = None

    async def create(self, resource, obj):
        self.asked.append((resource.plural, obj["spec"]))
        if self.fault is not None:
            raise self.fault
        status = self.status if resource is TOKEN_REVIEWS else {"allowed": self.allowed}
        return json.dumps({"status": status}).encode()


@pytest.fixture
def api():
    return Api()


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def access(api, clock):
    return ClusterAccess(api, clock)


async def test_the_api_server_says_who_somebody_is(access, api):
    user = await access.user("token")
    assert user == User("jane", ("crew",), "7", (("node", ("n",)), ("scopes", ("a", "b"))))
    assert api.asked == [("tokenreviews", {"token": "token"})]


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": False, "user": JANE, "error": "expired"},
        {"authenticated": True},
        {"authenticated": True, "user": {"username": ""}},
    ],
)
async def test_whom_it_does_not_know_is_nobody(access, api, status):
    api.status = status
    assert await access.user("token") is None


async def test_its_word_holds_for_a_moment(access, api, clock):
    await access.user("token")
    api.status = {}
    assert await access.user("token") is not None
    assert await access.user("another") is None
    clock.now += deciding.VALIDITY
    assert await access.user("token") is None


async def test_a_fault_is_no_answer_and_is_not_kept(access, api):
    api.fault = ServerError("away")
    for question in (access.user("token"), access.may_list(User("jane"), PODS, "")):
        with pytest.raises(ServerError):
            await question
    api.fault = None
    assert await access.user("token")
    assert await access.may_list(User("jane"), PODS, "")


async def test_rights_are_asked_about_with_all_that_is_known_of_the_user(access, api):
    user = await access.user("token")
    assert await access.may_list(user, PODS, "shop")
    assert api.asked[-1] == (
        "subjectaccessreviews",
        {
            "user": "jane",
            "uid": "7",
            "groups": ["crew"],
            "extra": {"scopes": ["a", "b"], "node": ["n"]},
            "resourceAttributes": {
                "verb": "list",
                "group": "",
                "version": "v1",
                "resource": "pods",
                "namespace": "shop",
            },
        },
    )
    await access.may_list(user, CLUSTER_POLICIES, "")
    assert "namespace" not in api.asked[-1][1]["resourceAttributes"]
    assert api.asked[-1][1]["resourceAttributes"]["group"] == "kupid.gardener.cloud"


async def test_a_right_is_taken_back_within_moments(access, api, clock):
    jane = User("jane")
    assert await access.may_list(jane, PODS, "shop")
    api.allowed = False
    assert await access.may_list(jane, PODS, "shop")
    assert not await access.may_list(jane, PODS, "mail")
    clock.now += deciding.VALIDITY
    assert not await access.may_list(jane, PODS, "shop")


async def test_no_number_of_pages_asks_more_than_so_much_at_once(access, api):
    asking, most = 0, 0
    create = api.create

    async def slowly(resource, obj):
        nonlocal asking, most
        asking += 1
        most = max(most, asking)
        await asyncio.sleep(0)
        asking -= 1
        return await create(resource, obj)

    api.create = slowly
    users = [User(f"user-{number}") for number in range(AT_ONCE * 3)]
    assert all(await asyncio.gather(*(access.may_list(user, PODS, "") for user in users)))
    assert most == AT_ONCE
