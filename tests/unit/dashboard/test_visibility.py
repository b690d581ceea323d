from __future__ import annotations

from harbourmaster.api.resources import APP_VERSIONS, NODES, PODS
from harbourmaster.dashboard.visibility import MOST_NAMESPACES, find_visibility, namespaces_of
from harbourmaster.kube.access import User
from helpers.dashboard import StubAccess

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
