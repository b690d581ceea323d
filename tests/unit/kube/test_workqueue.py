"""Keys for workers: each once, by one worker at a time, and none is lost."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from harbourmaster.kube.backoff import Backoff
from harbourmaster.kube.errors import ConflictError
from harbourmaster.kube.workqueue import QueueShutDownError, WorkQueue, work
from helpers.properties import cases
from helpers.tasks import Calls, background
from helpers.virtual_time import run_virtually, virtual

STEADY_BACKOFF = Backoff(first=1.0, limit=8.0, jitter=0.0)


def working(queue, reconcile, **options):
    return background(work(queue, reconcile, **options))


def drain(queue):
    """Return the keys that can be taken without waiting."""
    keys = []
    while queue._ready:
        get = queue.get()
        with pytest.raises(StopIteration) as stopped:
            get.send(None)
        keys.append(stopped.value.value)
    return keys


@virtual
async def test_keys_come_in_their_order_and_each_once():
    queue = WorkQueue()
    for key in ("b", "a", "b", "c", "a"):
        queue.add(key)
    assert len(queue) == 3
    assert drain(queue) == ["b", "a", "c"]
    assert len(queue) == 0


@virtual
async def test_pods_of_the_owners_in_a_namespace_take_turns():
    queue = WorkQueue()
    for name in ("cart", "till"):
        for number in range(100):
            queue.add(f"shop/{name}-7d4b9c-{number}")
    keys = drain(queue)
    assert keys[:4] == [f"shop/{name}-7d4b9c-{n}" for n in (0, 1) for name in ("cart", "till")]
    assert len(keys) == 200


@virtual
@pytest.mark.claim("O25")
async def test_namespaces_take_turns():
    queue = WorkQueue()
    for key in (*(f"loud/{number}" for number in range(1000)), "quiet/a", "node", "quiet/b"):
        queue.add(key)
    keys = drain(queue)
    assert keys[:6] == ["loud/0", "quiet/a", "node", "loud/1", "quiet/b", "loud/2"]
    assert keys[6:] == [f"loud/{number}" for number in range(3, 1000)]


@virtual
@pytest.mark.claim("O25")
@pytest.mark.parametrize(("workers", "most"), [(1, 1), (2, 1), (3, 2), (4, 3), (8, 6), (32, 24)])
async def test_a_namespace_whose_keys_take_long_leaves_workers_to_others(workers, most):
    queue = WorkQueue()
    busy, never = Counter(), asyncio.Event()

    async def reconcile(key):
        namespace = key.partition("/")[0]
        busy[namespace] += 1
        if namespace == "loud":
            await never.wait()

    for number in range(100):
        queue.add(f"loud/{number}")
    async with working(queue, reconcile, workers=workers):
        await asyncio.sleep(1)
        assert busy == {"loud": most}
        for number in range(100):
            queue.add(f"quiet/{number}")
        await asyncio.sleep(1)
        assert busy["quiet"] == (100 if workers > 1 else 0)
        never.set()
        await asyncio.sleep(1)
        assert busy == {"loud": 100, "quiet": 100}


@virtual
@pytest.mark.claim("O25")
@pytest.mark.parametrize("workers", [2, 3, 8, 32])
@pytest.mark.parametrize("seconds", [0.01, 1e6], ids=["quick", "hung"])
async def test_at_most_one_key_of_a_flood_comes_before_each_step_of_a_release(workers, seconds):
    queue, between, released = WorkQueue(), [], asyncio.Event()
    loop = asyncio.get_running_loop()

    async def reconcile(key):
        namespace, _, step = key.partition("/")
        between.append(namespace)
        if namespace == "loud":
            await asyncio.sleep(seconds)
        elif step == "20":
            released.set()
        else:
            queue.add(f"quiet/{int(step) + 1}")

    for number in range(10_000):
        queue.add(f"loud/{number}")
    async with working(queue, reconcile, workers=workers):
        await asyncio.sleep(1)
        between.clear()
        begun = loop.time()
        queue.add("quiet/0")
        await released.wait()
        assert loop.time() == begun
    gaps = "".join("q" if name == "quiet" else "l" for name in between).split("q")
    assert len(gaps) == 22
    assert max(map(len, gaps)) <= 1


@virtual
async def test_a_key_that_waits_for_an_answer_leaves_its_worker_to_others():
    queue = WorkQueue()
    busy, most, answered = set(), 0, asyncio.Event()

    async def reconcile(key):
        nonlocal most
        if key.startswith("slow"):
            with queue.waiting(key):
                await answered.wait()
        busy.add(key)
        most = max(most, len(busy))
        await asyncio.sleep(1)
        busy.discard(key)

    for number in range(20):
        queue.add(f"slow/{number}")
    async with working(queue, reconcile, workers=4):
        for number in range(8):
            queue.add(f"quick/{number}")
        await asyncio.sleep(3.5)
        assert busy == set()
        assert len(queue) == 0
        assert most == 3
        # A key is never with two workers, also while it waits.
        queue.add("slow/0")
        await asyncio.sleep(1)
        assert len(queue) == 1
        answered.set()
        await asyncio.sleep(10)
        assert len(queue) == 0


@virtual
async def test_a_key_added_while_a_worker_has_it_comes_again_afterwards_once():
    queue = WorkQueue()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert len(queue) == 1
    assert drain(queue) == []
    queue.done("a")
    assert drain(queue) == ["a"]
    queue.done("a")
    assert len(queue) == 0


@virtual
async def test_a_worker_waits_for_a_key():
    queue = WorkQueue()
    getting = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(1)
    assert not any(task.done() for task in getting)
    queue.add("a")
    queue.add("b")
    assert sorted([await task for task in getting]) == ["a", "b"]


@virtual
async def test_a_worker_that_gives_up_waiting_takes_no_key_with_it():
    queue = WorkQueue()
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await asyncio.sleep(1)
    queue.add("a")
    first.cancel()
    await asyncio.wait([first])
    assert await second == "a"


@virtual
async def test_giving_back_what_nobody_has_is_an_error():
    queue = WorkQueue()
    queue.add("a")
    with pytest.raises(ValueError, match="no worker has a"):
        queue.done("a")


@virtual
async def test_a_delayed_key_comes_when_it_is_due():
    loop = asyncio.get_running_loop()
    queue = WorkQueue()
    queue.add_after("a", 30)
    assert len(queue) == 0
    assert await queue.get() == "a"
    assert loop.time() == pytest.approx(30)


@virtual
async def test_the_earliest_of_several_delays_is_kept():
    loop = asyncio.get_running_loop()
    queue = WorkQueue()
    for seconds in (30, 10, 20):
        queue.add_after("a", seconds)
    assert await queue.get() == "a"
    assert loop.time() == pytest.approx(10)
    queue.done("a")
    await asyncio.sleep(60)
    assert len(queue) == 0


@virtual
async def test_an_add_does_not_undo_a_delay():
    queue = WorkQueue()
    queue.add_after("a", 10)
    queue.add("a")
    assert drain(queue) == ["a"]
    queue.done("a")
    await asyncio.sleep(11)
    assert drain(queue) == ["a"]


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
@virtual
async def test_a_delay_of_nothing_is_none(seconds):
    queue = WorkQueue()
    queue.add_after("a", seconds)
    assert drain(queue) == ["a"]


@virtual
async def test_there_is_one_timer_for_each_key():
    queue = WorkQueue()
    for seconds in range(1000, 0, -1):
        queue.add_after("a", seconds)
        queue.add_after("b", 1001 - seconds)
    assert len(queue._timers) == 2
    timers = asyncio.get_running_loop()._scheduled
    assert len([timer for timer in timers if not timer.cancelled()]) == 2
    await asyncio.sleep(2000)
    assert queue._timers == {}
    assert sorted(drain(queue)) == ["a", "b"]


@virtual
async def test_retries_come_ever_later_until_the_faults_are_forgotten():
    loop = asyncio.get_running_loop()
    queue = WorkQueue(backoff=STEADY_BACKOFF)
    waits = []
    for attempt in range(7):
        if attempt == 6:
            queue.forget("a")
        before = loop.time()
        queue.retry("a")
        queue.done(await queue.get())
        waits.append(loop.time() - before)
    assert waits == pytest.approx([1, 2, 4, 8, 8, 8, 1])
    queue.forget("never failed")


@virtual
async def test_one_keys_faults_do_not_delay_another():
    loop = asyncio.get_running_loop()
    queue = WorkQueue(backoff=STEADY_BACKOFF)
    for _ in range(5):
        queue.retry("a")
        queue.done(await queue.get())
    before = loop.time()
    queue.retry("b")
    queue.done(await queue.get())
    assert loop.time() - before == pytest.approx(1)


@virtual
async def test_retries_are_spread_from_50_ms_to_a_minute():
    queue = WorkQueue(chance=lambda: 0.0)
    loop = asyncio.get_running_loop()
    queue.retry("a")
    await queue.get()
    assert loop.time() == pytest.approx(0.05)
    queue.done("a")
    queue._failures["a"] = 50
    queue.retry("a")
    await queue.get()
    assert loop.time() == pytest.approx(60.05)


@virtual
async def test_after_a_shutdown_what_waits_is_still_given_and_nothing_new_taken():
    queue = WorkQueue()
    queue.add("a")
    queue.add("b")
    queue.add_after("delayed", 1)
    first = await queue.get()
    queue.add(first)
    queue.shutdown()
    for take in (queue.add, queue.retry, lambda key: queue.add_after(key, 1)):
        take("late")
    assert await queue.get() == "b"
    # One more wait: the first key is to be looked at again when its worker is done.
    last = asyncio.create_task(queue.get())
    await asyncio.sleep(10)
    assert not last.done()
    queue.done(first)
    assert await last == first
    with pytest.raises(QueueShutDownError):
        await queue.get()


@virtual
async def test_a_shutdown_ends_the_waits_of_all_workers():
    queue = WorkQueue()
    getting = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(1)
    queue.shutdown()
    for task in getting:
        with pytest.raises(QueueShutDownError):
            await task


@virtual
async def test_work_ends_when_the_queue_is_shut_down_and_empty():
    seen = []

    async def reconcile(key):
        await asyncio.sleep(1)
        seen.append(key)

    queue = WorkQueue()
    for number in range(10):
        queue.add(str(number))
    async with working(queue, reconcile, workers=3) as task:
        await asyncio.sleep(0.5)
        queue.shutdown()
        await task
    assert sorted(seen) == sorted(str(number) for number in range(10))


@virtual
async def test_what_a_reconcile_raises_is_told_and_the_key_tried_again():
    seen, told = [], []
    loop = asyncio.get_running_loop()

    async def reconcile(key):
        await asyncio.sleep(0)
        seen.append((key, round(loop.time(), 1)))
        if len(seen) < 4:
            raise ValueError(len(seen))

    queue = WorkQueue(backoff=STEADY_BACKOFF)
    async with working(queue, reconcile, on_error=lambda *error: told.append(error)):
        queue.add("a")
        await asyncio.sleep(60)
    assert seen == [("a", 0), ("a", 1), ("a", 3), ("a", 7)]
    assert [(key, error.args) for key, error in told] == [("a", (n,)) for n in (1, 2, 3)]
    # The success made the faults forgotten.
    assert queue._failures == {}


@virtual
async def test_a_reconcile_says_when_to_look_again():
    times = []
    loop = asyncio.get_running_loop()

    async def reconcile(_key):
        times.append(loop.time())
        return 10.0 if len(times) < 3 else None

    queue = WorkQueue()
    async with working(queue, reconcile):
        queue.add("a")
        await asyncio.sleep(600)
    assert times == pytest.approx([0, 10, 20])


@virtual
async def test_faults_go_to_the_log_a_bug_with_its_traceback():
    async def reconcile(key):
        if key == "conflict":
            raise ConflictError("it is not as before", status=409)
        raise ZeroDivisionError

    queue = WorkQueue("things", backoff=STEADY_BACKOFF)
    with capture_logs() as logs:
        async with working(queue, reconcile):
            queue.add("conflict")
            queue.add("bug")
            await asyncio.sleep(0.5)
    expected, bug = logs
    assert (expected["key"], expected["queue"]) == ("conflict", "things")
    assert expected["error"] == "409: it is not as before"
    assert "exc_info" not in expected
    assert bug["key"] == "bug"
    assert isinstance(bug["exc_info"], ZeroDivisionError)


@virtual
async def test_a_key_whose_worker_is_cancelled_is_the_next_ones():
    async def never(_key):
        await asyncio.sleep(1e6)

    queue = WorkQueue()
    queue.add("a")
    async with working(queue, never):
        await asyncio.sleep(1)
        assert len(queue) == 0
    assert drain(queue) == ["a"]


@virtual
async def test_a_reconcile_that_never_waits_keeps_nobody_waiting():
    count = 0

    async def reconcile(key):
        nonlocal count
        count += 1
        queue.add(key)

    queue = WorkQueue()
    queue.add("a")
    async with working(queue, reconcile):
        for _ in range(10):
            await asyncio.sleep(0)
        assert count <= 10


@virtual
async def test_the_queue_tells_its_depth_its_waits_and_its_work():
    counts = Calls()
    queue = WorkQueue("things", metrics=counts, backoff=STEADY_BACKOFF)
    queue.add("a")
    await asyncio.sleep(3)
    await queue.get()
    await asyncio.sleep(2)
    queue.done("a")
    queue.retry("a")
    assert counts.seen == [
        ("set_depth", "things", 1),
        ("observe_wait", "things", 3),
        ("set_depth", "things", 0),
        ("observe_work", "things", 2),
        ("count_retry", "things"),
    ]


KEYS = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), KEYS),
        st.tuples(st.just("add_after"), KEYS, st.sampled_from([0.0, 0.5, 3.0, 20.0])),
        st.tuples(st.just("retry"), KEYS),
        st.tuples(st.just("forget"), KEYS),
        st.tuples(st.just("rest"), st.sampled_from([0.0, 0.3, 1.0, 5.0])),
        st.tuples(st.just("cancel"), st.integers(0, 2)),
    ),
    max_size=40,
)
TIMES = st.lists(st.sampled_from([0.0, 0.1, 1.0, 4.0]), min_size=1, max_size=8)
FAILING = st.lists(st.booleans(), min_size=1, max_size=8)


class Life:
    """A queue and three workers; each step's name is a method's."""

    def __init__(self, durations, failing):
        self.queue = WorkQueue(backoff=Backoff(first=0.5, limit=4.0))
        # Moments in their order, as many happen at the same time.
        self._moment = itertools.count()
        self.begun, self.due = {}, {}
        self._busy, self._runs = set(), 0
        self._durations, self._failing = durations, failing
        self.tasks = [self._start() for _ in range(3)]

    def _start(self):
        return asyncio.create_task(work(self.queue, self._reconcile, on_error=lambda *_: None))

    async def _reconcile(self, key):
        assert key not in self._busy
        self._busy.add(key)
        self.begun[key] = next(self._moment)
        run, self._runs = self._runs, self._runs + 1
        try:
            await asyncio.sleep(self._durations[run % len(self._durations)])
            if run < 20 and self._failing[run % len(self._failing)]:
                raise ValueError("this time")
        finally:
            self._busy.discard(key)

    async def add(self, key):
        self.queue.add(key)
        self.due[key] = next(self._moment)

    async def add_after(self, key, seconds):
        self.queue.add_after(key, seconds)
        self.due[key] = next(self._moment)

    async def retry(self, key):
        self.queue.retry(key)
        self.due[key] = next(self._moment)

    async def forget(self, key):
        self.queue.forget(key)

    async def rest(self, seconds):
        await asyncio.sleep(seconds)

    async def cancel(self, number):
        self.tasks[number].cancel()
        await asyncio.wait([self.tasks[number]])
        self.tasks[number] = self._start()


async def assert_each_add_is_followed(steps, durations, failing):
    """Each add must be followed by the begin of a look."""
    life = Life(durations, failing)
    for name, *arguments in steps:
        await getattr(life, name)(*arguments)
    await asyncio.sleep(500)
    queue = life.queue
    assert (len(queue), queue._timers, queue._active) == (0, {}, {})
    for key, moment in life.due.items():
        assert life.begun[key] > moment
    queue.shutdown()
    await asyncio.wait(life.tasks)
    assert [task.exception() for task in life.tasks] == [None] * 3


@pytest.mark.slow
@settings(max_examples=cases(300))
@given(STEPS, TIMES, FAILING)
def test_never_two_workers_on_one_key_and_nothing_added_is_lost(steps, durations, failing):
    run_virtually(assert_each_add_is_followed(steps, durations, failing))
