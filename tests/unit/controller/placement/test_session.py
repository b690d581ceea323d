"""A session observes a member cluster that answers, hangs, refuses, or is full."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime

import msgspec
import pytest

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import DEFINITIONS, NODES, Resource
from harbourmaster.controller.placement.members import Members
from harbourmaster.controller.placement.session import BusyError, Session
from harbourmaster.controller.placement.settings import MemberSettings
from harbourmaster.kube.untrusted_kubeconfig import Access
from harbourmaster.kube.workqueue import WorkQueue
from harbourmaster.placement.deployed import MemberCluster, MemberSpec
from harbourmaster.placement.model import KubeconfigKey
from harbourmaster.placement.rollout import Reach
from harbourmaster.serving.background import running
from helpers.fake_api import FakeApi
from helpers.patience import PATIENCE

BOATS = Resource("example.com", "v1", "boats", "Boat")
QUICK = MemberSettings(probe_interval_seconds=0.05, request_timeout_seconds=PATIENCE, concurrency=2)
HURRIED = msgspec.structs.replace(QUICK, request_timeout_seconds=0.3)


class Woken(WorkQueue):
    """A queue that records which keys are added."""

    def __init__(self):
        super().__init__()
        self.keys = []

    def add(self, key):
        self.keys.append(key)


class Watched:
    """A session that runs, and can be waited for."""

    def __init__(self, api, settings=QUICK, *, discover=True):
        self._moved = asyncio.Event()
        self.session = Session(
            "team/one",
            Access(connection=api.connection, namespace="", expires=None),
            settings,
            discover=discover,
            on_change=self._moved.set,
            on_objects=lambda _uids: self._moved.set(),
            on_crash=lambda _name: None,
            chance=lambda: 0.5,
        )

    async def until(self, condition):
        async with asyncio.timeout(PATIENCE):
            while not condition(self.session):
                self._moved.clear()
                await self._moved.wait()

    @contextlib.asynccontextmanager
    async def running(self):
        async with running(self.session.run()):
            yield self


@pytest.fixture
async def member():
    async with FakeApi() as api:
        yield api


def node(name, ready="True"):
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    return {"metadata": {"name": name}, "status": status}


def definition(name):
    return {"metadata": {"name": name}, "spec": {"group": "example.com"}}


async def test_nothing_is_known_before_the_first_answer(member):
    watched = Watched(member)
    assert watched.session.reach is Reach.UNKNOWN
    assert watched.session.observation.answers is None
    assert watched.session.custom_resources is None


async def test_nodes_and_definitions_are_seen_as_they_come(member):
    member.put(NODES, node("b"))
    member.put(DEFINITIONS, definition("boats.example.com"))
    async with Watched(member).running() as watched:
        await watched.until(lambda session: session.observation.answers)
        await watched.until(lambda session: session.custom_resources is not None)
        assert watched.session.custom_resources == ("boats.example.com",)
        member.put(NODES, node("a", "False"))
        await watched.until(lambda session: len(session.observation.nodes) == 2)
        names = [
            (observed.name, observed.conditions[0].status)
            for observed in watched.session.observation.nodes
        ]
        assert names == [("a", "False"), ("b", "True")]
        member.put(DEFINITIONS, definition("a.example.com"))
        await watched.until(lambda session: len(session.custom_resources) == 2)


async def test_kinds_are_known_with_the_first_answer_and_when_definitions_change(member):
    async with Watched(member).running() as watched:
        await watched.until(lambda session: session.observation.answers)
        assert watched.session.kinds
        assert "example.com/v1/Boat" not in watched.session.kinds
        await watched.until(lambda session: session.custom_resources is not None)
        member.define(BOATS)
        member.put(DEFINITIONS, definition("boats.example.com"))
        await watched.until(lambda session: "example.com/v1/Boat" in session.kinds)


async def test_a_kind_that_comes_before_definitions_are_watched_is_not_missed(member):
    member.fail_next("list", "customresourcedefinitions", kind="hang")
    async with Watched(member).running() as watched:
        await watched.until(lambda session: session.kinds)
        member.define(BOATS)
        member.put(DEFINITIONS, definition("boats.example.com"))
        member.release()
        await watched.until(lambda session: "example.com/v1/Boat" in session.kinds)


async def test_kinds_that_cannot_be_listed_keep_no_cluster_from_being_used(member):
    member.fail_next("get", "/apis$", None, status=503)
    async with Watched(member).running() as watched:
        await watched.until(lambda session: session.observation.answers)
        assert watched.session.kinds == ()


async def test_definitions_are_not_looked_at_where_nobody_wants_it(member):
    async with Watched(member, discover=False).running() as watched:
        await watched.until(lambda session: session.is_steady)
        assert watched.session.custom_resources is None
        assert watched.session.kinds is None
        assert member.seen("list", "customresourcedefinitions") == []
        assert member.seen("get", "/apis") == []


@pytest.mark.parametrize(
    ("fault", "text", "denied"),
    [
        ({"kind": "hang"}, "did not answer in time", False),
        ({"kind": "reset"}, "Connection reset by peer", False),
        ({"status": 500}, "on demand", False),
        ({"kind": "html", "status": 502}, "no answer of an API server", False),
        ({"status": 401}, "refuses the credentials of its kubeconfig", True),
    ],
)
async def test_what_is_no_answer_is_said_after_some_and_gone_when_it_answers(
    member, fault, text, denied
):
    settings = HURRIED if fault == {"kind": "hang"} else QUICK
    async with Watched(member, settings).running() as watched:
        await watched.until(lambda session: session.is_steady)
        member.fail_next("list", "nodes", None, **fault)
        await watched.until(lambda session: session.reach is Reach.NO)
        assert text in watched.session.observation.fault
        assert watched.session.observation.is_denied is denied
        assert not watched.session.is_steady
        member.heal()
        await watched.until(lambda session: session.reach is Reach.YES)
        await watched.until(lambda session: session.is_steady)


async def test_one_question_that_fails_changes_nothing(member):
    async with Watched(member).running() as watched:
        await watched.until(lambda session: session.is_steady)
        member.fail_next("list", "nodes", status=500)
        watched.session.doubt()
        await watched.until(lambda session: not session.is_steady)
        assert watched.session.reach is Reach.YES
        await watched.until(lambda session: session.is_steady)
        assert watched.session.reach is Reach.YES


async def test_nodes_that_may_not_be_seen_are_said_so(member):
    member.forbid("list", NODES)
    async with Watched(member).running() as watched:
        await watched.until(lambda session: session.observation.answers)
        assert watched.session.reach is Reach.YES
        assert "forbidden" in watched.session.observation.nodes_fault


async def test_so_many_are_let_in_and_the_others_are_woken(member):
    session = Watched(member).session
    woken = Woken()

    async def enter(stack, name):
        await stack.enter_async_context(session.use(name, woken))

    async with contextlib.AsyncExitStack() as first:
        async with contextlib.AsyncExitStack() as second:
            await enter(first, "a")
            await enter(second, "b")
            for name in ("c", "d", "c"):
                with pytest.raises(BusyError):
                    await enter(first, name)
            assert woken.keys == []
        assert woken.keys == ["c"]
        async with contextlib.AsyncExitStack() as third:
            await enter(third, "c")
        assert woken.keys == ["c", "d"]


async def test_who_came_without_being_woken_takes_no_wake_of_another(member):
    session, woken = Watched(member).session, Woken()
    session._turns.places = 1
    async with session.use("a", woken):
        for name in ("b", "c", "d"):
            with pytest.raises(BusyError):
                async with session.use(name, woken):
                    pass
    assert woken.keys == ["b"]
    # Its own retry is due, and "b" has nothing to do there any more.
    async with session.use("c", woken):
        pass
    assert woken.keys == ["b", "d"]


@pytest.mark.claim("O25")
async def test_applications_of_one_namespace_leave_a_cluster_to_those_of_another(member):
    session, woken = Watched(member).session, Woken()
    assert session._turns.places == 2
    session._turns.places = 8
    async with contextlib.AsyncExitStack() as stack:
        async with contextlib.AsyncExitStack() as loud:
            for number in range(1000):
                with contextlib.suppress(BusyError):
                    await loud.enter_async_context(session.use(f"loud/{number}", woken))
            assert session._turns.taken == 6
            for name in ("quiet/a", "quiet/b"):
                with contextlib.suppress(BusyError):
                    await stack.enter_async_context(session.use(name, woken))
            assert session._turns.taken == 7
        # The second of the quiet ones is woken with the first that may come.
        assert woken.keys[:2] == ["loud/6", "quiet/b"]
    assert session._turns.taken == 0


async def test_who_is_inside_may_finish_and_nobody_else_comes(member):
    session = Watched(member).session
    woken = Woken()
    stack = contextlib.AsyncExitStack()
    await stack.enter_async_context(session.use("a", woken))
    leaving = asyncio.create_task(session.leave())
    await asyncio.sleep(0)
    with pytest.raises(BusyError):
        await stack.enter_async_context(session.use("b", woken))
    assert not leaving.done()
    await stack.aclose()
    await leaving
    assert woken.keys == ["b"]


@pytest.fixture
async def members():
    async with FakeApi() as api, api.client() as client:
        cluster_members = Members(
            client,
            MemberSettings(),
            now=lambda: datetime.now(UTC),
            on_change=lambda _key: None,
            on_objects=lambda _uids: None,
        )
        yield cluster_members
        await cluster_members.close()


def cluster(*, secret=""):
    reference = KubeconfigKey(name=secret) if secret else None
    metadata = Metadata(name="one", namespace="team")
    return MemberCluster(metadata=metadata, spec=MemberSpec(kubeconfig_secret_ref=reference))


async def test_nobody_is_lost_who_was_not_looked_for(members):
    assert members.reach("team/one") is Reach.UNKNOWN
    members.follow(cluster(secret="one"))  # noqa: S106 - a name
    assert members.reach("team/one") is Reach.UNKNOWN
    assert members.fault("team/one") == ""


async def test_a_cluster_without_a_kubeconfig_answers_nobody(members):
    members.follow(cluster())
    assert members.reach("team/one") is Reach.NO
    assert members.fault("team/one") == "kubeconfigSecretRef is missing"
    members.drop("team/one")
    assert members.reach("team/one") is Reach.UNKNOWN
