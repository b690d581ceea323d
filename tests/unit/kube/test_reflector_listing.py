"""The first list and every later one: pages, deletions found, what can't be read.

These tests prove platform-spec 1.5.
"""

from __future__ import annotations

import asyncio
import weakref

import msgspec
import pytest
from msgspec import Struct
from structlog.testing import capture_logs

from harbourmaster.kube.client import ListPage
from harbourmaster.kube.errors import GoneError, ServerError
from harbourmaster.kube.store import Store
from helpers.scripted_api import END, ScriptedApi, Thing, event, follow
from helpers.tasks import Calls
from helpers.virtual_time import lines, run_virtually, virtual


@pytest.fixture
def api():
    return ScriptedApi()


def fill(api, count):
    for number in range(count):
        api.put(f"thing-{number}", value=number)


async def lose(api, count):
    """Remove objects while nothing can be watched."""
    api.down = ServerError("no", status=500)
    api.send(END)
    await asyncio.sleep(1)
    for number in range(count):
        api.remove(f"thing-{number}")
    api.compact()
    api.down = None
    await asyncio.sleep(60)


async def relist(api):
    """Have the follower list again, which 410 causes."""
    api.compact()
    api.send(GoneError("too old resource version", status=410))
    await asyncio.sleep(2)


@virtual
async def test_a_list_is_taken_and_told_page_by_page(api):
    fill(api, 25)
    async with follow(api, page_size=10) as follower:
        assert follower.objects == follower.server_state
        assert [len(keys) for keys in follower.changes] == [10, 10, 5]
        assert frozenset().union(*follower.changes) == set(follower.server_state)
        assert api.verbs() == ["list", "list", "list", "watch"]
        assert [call.options["limit"] for call in api.calls[:3]] == [10, 10, 10]
        assert api.calls[-1].options["resource_version"] == str(api.version)


@virtual
async def test_an_empty_list_syncs_and_tells_nothing(api):
    async with follow(api) as follower:
        assert follower.objects == {}
        assert follower.changes == []
        assert follower.states == [(None, False, True)]


@virtual
async def test_what_is_to_be_watched_is_asked_for_in_both_verbs(api):
    chosen = {"label_selector": "a=b", "field_selector": "metadata.name=c", "metadata_only": True}
    async with follow(api, **chosen):
        assert api.verbs() == ["list", "watch"]
        for call in api.calls:
            assert chosen.items() <= call.options.items()


@virtual
async def test_changes_between_two_pages_are_watched_from_the_first_pages_version(api):
    fill(api, 15)
    before = str(api.version)

    class Changing(ScriptedApi):
        async def list(self, *args, **options):
            page = await ScriptedApi.list(api, *args, **options)
            if page.continue_token:
                api.put("late", value=1)
                api.remove("thing-14")
            # A server may tell a newer version with the last page.
            return msgspec.structs.replace(
                page, resource_version=str(api.version) if not page.continue_token else before
            )

        def watch(self, *args, **options):
            return api.watch(*args, **options)

    async with follow(Changing(), page_size=10) as follower:
        assert api.calls[-1].options["resource_version"] == before
        follower.api = api
        assert follower.objects == follower.server_state


@virtual
async def test_a_continue_token_that_expires_starts_the_list_again(api):
    fill(api, 25)
    api.faults.extend([None, GoneError("token too old", status=410, reason="Expired")])
    async with follow(api, page_size=10) as follower:
        assert follower.objects == follower.server_state
        tokens = [bool(call.options["continue_token"]) for call in api.calls]
        assert tokens == [False, True, False, True, True]
        assert follower.states == [(None, False, True)]


@virtual
async def test_a_list_that_expires_always_is_not_tried_in_a_loop(api):
    api.down = GoneError("too old", status=410)
    async with follow(api, synced=False) as follower:
        await asyncio.sleep(600)
        assert len(api.calls) < 60
        assert "410: too old" in follower.reflector.error


@virtual
async def test_a_page_fault_restarts_the_list_and_what_came_is_told_once(api):
    fill(api, 25)
    api.faults.extend([None, None, ServerError("no", status=500)])
    async with follow(api, page_size=10) as follower:
        assert follower.objects == follower.server_state
        assert [len(keys) for keys in follower.changes] == [10, 10, 5]
        assert follower.states[-1] == (None, False, True)


@virtual
async def test_objects_deleted_while_disconnected_are_found_by_the_next_list(api):
    fill(api, 5)
    async with follow(api) as follower:
        api.down = ServerError("no", status=500)
        api.send(END)
        await asyncio.sleep(1)
        api.remove("thing-1")
        api.remove("thing-3")
        api.put("thing-2", value=20)
        api.put("new", value=7)
        api.compact()
        api.down = None
        await asyncio.sleep(60)
        assert follower.objects == follower.server_state
        changed = {"prod/thing-2", "prod/new"}
        gone = {"prod/thing-1", "prod/thing-3"}
        assert follower.changes[1:] == [frozenset(changed), frozenset(gone)]


class TurnStore(Store):
    """Counts the objects that are stored and removed in one turn of the loop."""

    def __init__(self):
        super().__init__()
        self._turn = 0
        self.most = 0

    def _count(self):
        if not self._turn:
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._turn += 1
        self.most = max(self.most, self._turn)

    def _end_turn(self):
        self._turn = 0

    def put(self, key, obj):
        self._count()
        return super().put(key, obj)

    def remove(self, key):
        self._count()
        return super().remove(key)


@virtual
async def test_no_turn_of_the_loop_takes_more_objects_than_a_page(api):
    fill(api, 95)
    store = TurnStore()
    async with follow(api, page_size=10, store=store) as follower:
        assert follower.objects == follower.server_state
        await lose(api, 90)
        assert len(follower.objects) == 5
        assert max(map(len, follower.changes)) == 10
    assert store.most == 10


@virtual
async def test_a_list_that_ends_while_objects_are_removed_is_asked_for_again(api):
    fill(api, 30)
    async with follow(api, page_size=10) as follower:
        task = follower.task
        follower.reflector.subscribe(lambda _keys: task.cancel())
        await lose(api, 30)
        assert task.cancelled()
        assert len(follower.objects) == 20
        follower.task = asyncio.create_task(follower.reflector.run())
        await asyncio.sleep(2)
        assert follower.objects == {}


@virtual
async def test_a_list_that_changes_nothing_tells_nothing_and_keeps_the_very_objects(api):
    fill(api, 3)
    async with follow(api) as follower:
        before = {key: id(obj) for key, obj in follower.objects.items()}
        await relist(api)
        assert api.verbs().count("list") == 2
        assert len(follower.changes) == 1
        assert {key: id(obj) for key, obj in follower.objects.items()} == before


@virtual
async def test_a_list_that_changes_nothing_holds_nothing_twice(api):
    """The objects and pages in memory are counted at the request of each page."""

    class Counted(Struct, frozen=True, weakref=True):
        value: int

    class CountedPage:
        def __init__(self, page):
            self.items = page.items
            self.resource_version = page.resource_version
            self.continue_token = page.continue_token

    def decode(raw):
        counted = Counted(msgspec.json.decode(raw)["value"])
        objects.append(weakref.ref(counted))
        return counted

    class Counting(ScriptedApi):
        async def list(self, *args, **options):
            held.append(
                [sum(reference() is not None for reference in made) for made in (objects, pages)]
            )
            page = CountedPage(await super().list(*args, **options))
            pages.append(weakref.ref(page))
            return page

    held, objects, pages = [], [], []
    counting = Counting()
    fill(counting, 100)
    async with follow(counting, decode=decode, page_size=10):
        await relist(counting)
    assert held == [[count, 0] for count in (*range(0, 100, 10), *[100] * 10)]


def test_four_times_as_many_objects_are_listed_by_four_times_the_work():
    async def list_objects(count):
        api = ScriptedApi()
        fill(api, count)
        async with follow(api) as follower:
            assert len(follower.objects) == count
        assert sum(map(len, follower.changes)) == count

    few, many = (
        lines(lambda count=count: run_virtually(list_objects(count))) for count in (500, 2000)
    )
    assert many < 5 * few


@virtual
async def test_the_stores_indexes_follow(api):
    fill(api, 4)
    store = Store({"parity": lambda thing: [thing.value % 2]})
    async with follow(api, store=store) as follower:
        assert follower.reflector.store is store
        assert {thing.value for thing in store.by_index("parity", 1)} == {1, 3}
        api.put("thing-1", value=2)
        await asyncio.sleep(1)
        assert {thing.value for thing in store.by_index("parity", 1)} == {3}


@virtual
async def test_an_object_that_can_not_be_read_is_left_out_with_one_line(api):
    fill(api, 3)
    api.put("bad", value="no number")
    with capture_logs() as logs:
        async with follow(api) as follower:
            assert set(follower.objects) == {"prod/thing-0", "prod/thing-1", "prod/thing-2"}
            await relist(api)
            await relist(api)
            lines = [line for line in logs if line["log_level"] == "error"]
            assert len(lines) == 1
            assert lines[0]["key"] == "prod/bad"
            assert "Expected `int`" in lines[0]["error"]
            # Deleted during a gap, and back with the same fault.
            del api.objects["prod/bad"]
            await relist(api)
            api.put("bad", value="no number")
            await asyncio.sleep(1)
            assert len([line for line in logs if line["log_level"] == "error"]) == 2


@pytest.mark.parametrize(
    "obj", [{}, {"metadata": None}, {"metadata": {"name": 1}}, {"metadata": {"namespace": "a"}}, 1]
)
@virtual
async def test_an_object_without_a_usable_name_is_left_out(api, obj):
    fill(api, 2)
    api.objects["nameless"] = obj
    async with follow(api) as follower:
        assert set(follower.objects) == {"prod/thing-0", "prod/thing-1"}


@virtual
async def test_a_decoder_that_breaks_in_any_way_harms_one_object(api):
    fill(api, 3)

    def decode(raw):
        if b'"value":1' in bytes(raw):
            raise RecursionError
        return Thing(5)

    async with follow(api, decode=decode) as follower:
        assert follower.objects == {"prod/thing-0": Thing(5), "prod/thing-2": Thing(5)}


@virtual
async def test_a_fallback_may_stand_in_for_what_can_not_be_read(api):
    asked = []

    def undecodable(key, raw, error):
        asked.append((key, bytes(raw), str(error)))
        if key == "prod/worse":
            raise ValueError("the fallback breaks too")
        return Thing(-1) if key == "prod/bad" else None

    fill(api, 1)
    for name in ("bad", "worse", "worst"):
        api.put(name, value="no number")
    with capture_logs() as logs:
        async with follow(api, undecodable=undecodable) as follower:
            assert follower.objects == {"prod/thing-0": Thing(0), "prod/bad": Thing(-1)}
    assert [key for key, _, _ in asked] == ["prod/bad", "prod/worse", "prod/worst"]
    assert b"no number" in asked[0][1]
    dropped = [line["key"] for line in logs if "object dropped" in line["event"]]
    assert dropped == ["prod/worse", "prod/worst"]


@virtual
async def test_a_list_without_a_version_is_a_fault(api):
    class Versionless(ScriptedApi):
        async def list(self, *args, **options):
            page = await super().list(*args, **options)
            return msgspec.structs.replace(page, resource_version="")

    async with follow(Versionless(), synced=False) as follower:
        await asyncio.sleep(60)
        assert "the list has no resourceVersion" in follower.reflector.error
        assert not follower.reflector.synced.is_set()


@virtual
async def test_a_list_that_goes_round_in_circles_is_a_fault(api):
    class Circling(ScriptedApi):
        async def list(self, *_args, **_options):
            self.calls.append(None)
            return ListPage((), "1", "again")

    circling = Circling()
    async with follow(circling, synced=False) as follower:
        await asyncio.sleep(60)
        assert "continues where it was" in follower.reflector.error
        assert len(circling.calls) < 60


@virtual
async def test_the_wait_between_lists_is_the_mirrors_and_within_a_list_the_clients(api):
    fill(api, 15)
    async with follow(api, page_size=10):
        assert [call.options["retries"] for call in api.calls[:2]] == [0, None]


@virtual
async def test_a_listener_that_raises_does_not_end_the_mirror(api):
    def raise_error(_keys):
        raise ValueError("a bug of the listener")

    with capture_logs() as logs:
        async with follow(api, on_change=raise_error) as follower:
            fill(api, 2)
            await asyncio.sleep(1)
            assert follower.objects == follower.server_state
    assert [line["event"] for line in logs] == ["change handler failed"]


@virtual
async def test_lists_events_and_faults_are_counted(api):
    counts = Calls()
    fill(api, 2)
    async with follow(api, metrics=counts, name="things"):
        api.put("bad", value="x")
        api.send(event("BOOKMARK", {"metadata": {"resourceVersion": str(api.version)}}))
        await asyncio.sleep(1)
        api.send(GoneError("too old", status=410))
        await asyncio.sleep(1)
    kinds = [(name, *args[:2]) for name, *args in counts.seen]
    assert kinds == [
        ("count_list", "things", 2),
        ("count_undecodable", "things"),
        ("count_events", "things", 2),
        ("count_failure", "things", "GoneError"),
        ("count_undecodable", "things"),
        ("count_list", "things", 2),
    ]
