"""The user of a token, the namespaces in which users may list a kind, and notes on the rest."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from harbourmaster.api.resources import APP_VERSIONS, CLUSTER_POLICIES, NODES, PODS, TOKEN_REVIEWS
from harbourmaster.dashboard.visibility import (
    AT_ONCE,
    MOST_NAMESPACES,
    ClusterAccess,
    find_visibility,
    namespaces_of,
)
from harbourmaster.kube import access as deciding
from harbourmaster.kube.access import User
from harbourmaster.kube.errors import ServerError
from helpers.dashboard import StubAccess
from helpers.dashboard_stores import StaticSource

SAILOR = User("sailor")


async def test_who_may_list_everywhere_is_asked_about_once():
    access = StubAccess()
    visible = await find_visibility(access, User("captain"), {PODS: {"a", "b"}}, {"c"})
    assert visible.of(PODS).everywhere
    assert visible.sees(PODS, "whatever")
    assert access.asked == [("captain", "pods", "")]


async def test_others_see_the_namespaces_in_which_they_may_list():
    access = StubAccess(sailor=["a"])
    visible = await find_visibility(
        access, SAILOR, {PODS: {"a", "b"}, APP_VERSIONS: {"b"}}, {"a", "b", "c"}
    )
    assert visible.sees(PODS, "a")
    assert not visible.sees(PODS, "b")
    assert not visible.sees(PODS, "")
    # Nothing is there where it may be listed, which is no refusal.
    assert not visible.of(APP_VERSIONS).is_empty


async def test_a_kind_that_was_not_asked_about_is_not_seen():
    visible = await find_visibility(StubAccess(), User("captain"), {PODS: ()})
    assert not visible.sees(APP_VERSIONS, "a")


async def test_what_has_no_namespace_may_be_listed_whole_or_not_at_all():
    access = StubAccess(sailor=["a", "b"])
    visible = await find_visibility(access, SAILOR, {NODES: {""}}, {"a", "b"})
    assert visible.of(NODES).is_empty
    assert access.asked == [("sailor", "nodes", "")]


async def test_one_namespace_is_asked_about_alone():
    access = StubAccess(sailor=["a"])
    visible = await find_visibility(access, SAILOR, {PODS: {"a", "b", "c"}}, {"d"}, "a")
    assert visible.sees(PODS, "a")
    assert [question[2] for question in access.asked] == ["", "a"]
    assert (await find_visibility(access, SAILOR, {PODS: {"a", "b"}}, (), "b")).of(PODS).is_empty


async def test_no_page_asks_about_any_number_of_namespaces():
    names = {f"ns-{number:05}" for number in range(1000)}
    access = StubAccess(sailor=names)
    scope = (await find_visibility(access, SAILOR, {PODS: names}, names)).of(PODS)
    assert len(scope.namespaces) == MOST_NAMESPACES
    assert scope.unchecked_namespaces == 1000 - MOST_NAMESPACES
    assert len(access.asked) == MOST_NAMESPACES + 1


async def test_whether_anything_may_be_listed_is_found_out_with_as_few_questions():
    names = {f"ns-{number:05}" for number in range(1000)}
    access = StubAccess(sailor=["ns-00040"])
    assert not (await find_visibility(access, SAILOR, {PODS: ()}, names)).of(PODS).is_empty
    assert len(access.asked) < 100


def test_namespaces_of_keys():
    assert namespaces_of(["a/x", "a/y", "b/x", "node"]) == {"a", "b", ""}


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


@pytest.fixture
def reviewed_access(api, clock):
    return ClusterAccess(api, clock)


async def test_the_api_server_says_who_somebody_is(reviewed_access, api):
    user = await reviewed_access.user("token")
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
async def test_whom_it_does_not_know_is_nobody(reviewed_access, api, status):
    api.status = status
    assert await reviewed_access.user("token") is None


async def test_its_word_holds_for_a_moment(reviewed_access, api, clock):
    await reviewed_access.user("token")
    api.status = {}
    assert await reviewed_access.user("token") is not None
    assert await reviewed_access.user("another") is None
    clock.now += deciding.VALIDITY
    assert await reviewed_access.user("token") is None


async def test_a_fault_is_no_answer_and_is_not_kept(reviewed_access, api):
    api.fault = ServerError("away")
    for question in (
        reviewed_access.user("token"),
        reviewed_access.may_list(User("jane"), PODS, ""),
    ):
        with pytest.raises(ServerError):
            await question
    api.fault = None
    assert await reviewed_access.user("token")
    assert await reviewed_access.may_list(User("jane"), PODS, "")


async def test_rights_are_asked_about_with_all_that_is_known_of_the_user(reviewed_access, api):
    user = await reviewed_access.user("token")
    assert await reviewed_access.may_list(user, PODS, "shop")
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
    await reviewed_access.may_list(user, CLUSTER_POLICIES, "")
    assert "namespace" not in api.asked[-1][1]["resourceAttributes"]
    assert api.asked[-1][1]["resourceAttributes"]["group"] == "kupid.gardener.cloud"


async def test_a_right_is_taken_back_within_moments(reviewed_access, api, clock):
    jane = User("jane")
    assert await reviewed_access.may_list(jane, PODS, "shop")
    api.allowed = False
    assert await reviewed_access.may_list(jane, PODS, "shop")
    assert not await reviewed_access.may_list(jane, PODS, "mail")
    clock.now += deciding.VALIDITY
    assert not await reviewed_access.may_list(jane, PODS, "shop")


async def test_no_number_of_pages_asks_more_than_so_much_at_once(reviewed_access, api):
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
    assert all(await asyncio.gather(*(reviewed_access.may_list(user, PODS, "") for user in users)))
    assert most == AT_ONCE


HOME = "harbour"


async def test_pods_are_counted_where_none_waits(place):
    filled = place.filled
    for namespace in ("shop", "payments"):
        filled.namespace(namespace)
        filled.policy(namespace, "keep-all", 0, podSelector={}, schedulerName="other")
        filled.pod(namespace, {"app": "cart"})
    filled.app("payments", "checkout", 1)
    filled.gated("payments", "checkout")
    place.access.namespaces["sailor"] = frozenset(("shop", "payments"))
    text = await place.page("/policies", "sailor")
    assert "in the namespaces in which you can list them: 2 in all" in text
    assert len(re.findall(r'href="/policies/pods\?state=[^"]+">1<', text)) == 2
    assert "2 in all" in await place.page("/policies")


async def test_a_pod_is_seen_that_waits_where_nothing_else_is_yet(place):
    filled = place.filled
    for namespace in ("shop", "payments"):
        filled.namespace(namespace)
    filled.app("payments", "checkout", 1)
    filled.gated("payments", "checkout")
    filled.gated("shop", "newcomer")
    place.access.namespaces["sailor"] = frozenset(("shop", "payments"))
    assert "newcomer" in await place.page("/gates", "sailor")
    assert "2</b> <span>pods wait" in await place.page("/", "sailor")


async def test_what_is_missing_is_told_to_who_may_list_it_and_to_nobody_else(place, monkeypatch):
    filled = place.filled
    filled.app("shop", "cart", 1)
    filled.gated("shop", "cart")
    definitions = filled.sources["evaluation_definitions"]
    definition = definitions.store.get("shop/latency")
    for name in ("latency", "errors"):
        filled.remove("evaluation_definitions", f"shop/{name}")
    missing = "KeptnEvaluationDefinition latency not found"
    assert missing in await place.page("/gates")
    assert missing in await place.page("/gates", "sailor")
    # It may be in the namespace for all, which the sailor can't see.
    world = filled.world

    async def at_home(**settings):
        made = await world(**settings)
        object.__setattr__(made, "definition_namespaces", (HOME,))
        return made

    monkeypatch.setattr(place.filled.dashboard, "_read_sources", at_home)
    definitions.store.put(f"{HOME}/latency", definition)
    for path in ("/gates", "/gates?namespace=shop"):
        assert missing not in await place.page(path, "sailor")
        assert "&lt;200" not in await place.page(path, "sailor")
    place.access.namespaces["sailor"] = frozenset(("shop", HOME))
    for path in ("/gates", "/gates?namespace=shop"):
        assert "&lt;200" in await place.page(path, "sailor"), path


async def test_a_refusal_says_that_not_all_namespaces_were_asked_about(place):
    for number in range(MOST_NAMESPACES + 5):
        place.filled.namespace(f"ns-{number:05}")
    place.access.namespaces["sailor"] = frozenset((f"ns-{MOST_NAMESPACES + 2:05}",))
    text = await place.page("/policies", "sailor", status=403)
    assert "5 were too many" in text
    assert "/policies?namespace=NAME" in text
    await place.page(f"/policies?namespace=ns-{MOST_NAMESPACES + 2:05}", "sailor")
    assert "in the whole cluster" in await place.page("/reservations", "sailor", status=403)


async def test_pods_that_are_not_all_here_are_not_counted(place, monkeypatch):
    filled = place.filled
    filled.namespace("shop")
    filled.policy("shop", "keep-all", 0, podSelector={})
    labels = StaticSource(filled.pods)
    labels.synced.clear()
    filled.counter._is_whole = labels.synced.is_set
    filled.sources["labels"] = labels
    text = await place.page("/policies")
    assert "The pods are being listed" in text
    assert "not counted yet" in text
    assert "without a pod" not in text
    assert "without a pod" not in await place.page("/")
    labels.synced.set()
    text = await place.page("/policies")
    assert "being read" not in text
    assert "without a pod" in text


async def test_a_kind_that_is_not_there_or_switched_off_is_told(place):
    place.filled.sources["cluster_policies"].absent = True
    for path in ("/", "/policies"):
        text = await place.page(path)
        assert "The kind ClusterPodSchedulingPolicy is not installed" in text
    place.filled.sources["app_versions"] = None
    assert "their controller is switched off" in await place.page("/applications")
    assert "Off in this controller" in await place.page("/")
