"""A rescheduler that dies before and after every write evicts no pod twice, and leaves no taint."""

from __future__ import annotations

import asyncio
import json
import os
import time
from functools import partial

import pytest

from helpers.faults.crashing import LEASE, Plan, Undisturbed, live
from helpers.patience import PATIENCE
from helpers.rescheduling.case_cluster import CaseCluster
from helpers.rescheduling.cases import HOME, SETTINGS, Case, Plane, ready_field
from helpers.rescheduling.objects import (
    ANNOTATION,
    BUSINESS,
    TAINT,
    beside,
    budget,
    is_clean,
    removable,
    spread,
    volume_of,
)
from helpers.rescheduling.toy_kubelet import NODES, SLOW

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

IS_LONG = bool(os.environ.get("HARBOURMASTER_CHAOS_LONG"))
LONGEST = 700.0
"""Seconds for all lives together."""
LAST = 60.0
"""Seconds that the last leader has for what the others left."""
FOREIGN = {"key": TAINT, "value": "true", "effect": "NoSchedule"}
OTHERS = [{"key": f"example.com/{name}", "effect": "PreferNoSchedule"} for name in "ab"]
APP = {"app": "a"}
FLAGS = {"controllers": ["rescheduling"], "rescheduling": {**SETTINGS, "attemptsPerPod": 200}}


class Scene:
    """Nodes that need room in different ways, and the expected results."""

    def __init__(self, field, name):
        self._field = field
        self._name = name
        self.places = []
        self.wanted = {}
        """The expected place, node and evicted pods of each critical pod, by its UID."""

    async def build(self):
        """Create all objects, before the rescheduler starts."""
        plain = await self._place("plain")
        on = await plain.node("n1", 2, taints=OTHERS)
        await plain.full(on, "v0", "v1")
        await self._want(plain, on, {"v0", "v1"}, cpu=2)
        slow = await self._place("slow")
        on = await slow.node("n1", 3)
        await slow.full(on, "v0", "v1", "v2", labels=SLOW, grace=2)
        await self._want(slow, on, {"v2", "v1"}, cpu=2)
        kept = await self._place("kept")
        on = await kept.node("n1", 1, taints=[FOREIGN])
        await kept.full(on, "v0")
        await self._want(kept, on, {"v0"})
        guarded = await self._place("guarded")
        on = await guarded.node("n1", 1)
        await guarded.full(on, "v0", labels=APP)
        await guarded.budget(budget("of-a", 1, APP), 0)
        await self._want(guarded, on, {"v0"})
        near = await self._place("near")
        on = await near.node("n1", 2)
        await near.full(on, "v0")
        await near.full(on, "v1", labels=APP)
        await self._want(near, on, {"v0"}, affinity=beside(APP, near.namespace))
        spreads = await self._place("spreads")
        on = await self._second(spreads)
        mark = {"app": self._name}
        addon = removable(f"other-{self._name}", spreads.nodes[0], None, labels=mark)
        addon["metadata"]["annotations"] = {ANNOTATION: ""}
        await spreads.pods(addon, namespace="kube-system")
        constraints = [spread(mark)]
        await self._want(spreads, on, {"v1"}, labels=mark, topologySpreadConstraints=constraints)
        outranked = await self._place("outranked")
        first, second = await outranked.node("n1", 1), await outranked.node("n2", 1)
        here = {"kubernetes.io/hostname": first}
        await outranked.full(first, "v0", priorityClassName=BUSINESS, nodeSelector=here)
        await outranked.full(second, "v1", grace=60)
        await self._want(outranked, second, {"v1"})
        grouped = await self._place("grouped")
        first, second = await grouped.node("n1", 1), await grouped.node("n2", 1)
        await grouped.full(first, "v0", labels={"ray.io/cluster": "g"})
        await grouped.full(second, "v1")
        await self._want(grouped, second, {"v1"})
        stored = await self._place("stored")
        on = await self._second(stored)
        volumes = [volume_of(await stored.claim(on))]
        await self._want(stored, on, {"v1"}, volumes=volumes)

    async def _second(self, place):
        """Two nodes of which the first is better, and is not to be used; the second."""
        first, second = await place.node("n1", 1), await place.node("n2", 1)
        await place.full(first, "v0")
        await place.full(second, "v1", grace=60)
        return second

    async def _place(self, name):
        case = Case(f"{name}-{self._name}", None, {})
        place = CaseCluster(self._field, case, asyncio.Event())
        await place.open()
        self.places.append(place)
        return place

    async def _want(self, place, on, victims, **options):
        self.wanted[await place.critical(**options)] = (place, on, victims)

    def is_over(self):
        """Whether all have their place, and nothing of ours is left."""
        return all(
            place.is_bound(uid, on) and not place.marked_nodes()
            for uid, (place, on, _) in self.wanted.items()
        )

    async def over(self):
        """Wait for that."""
        await self._field.cluster.until(self.is_over, LONGEST, self.why)

    def why(self):
        return "\n".join(place.why() for place in self.places)

    def assert_right(self):
        """Exactly those went who had to, and nothing of others was touched at any time."""
        for place, on, victims in self.wanted.values():
            assert place.taken_pods() == victims
            place.assert_untouched()
            history = [entry.object for entry in place.cluster.history(place.uid_of_node(on))]
            assert any(not is_clean(node) for node in history)
            before = history[0]["spec"].get("taints", [])
            for obj in history:
                others = [taint for taint in obj["spec"].get("taints", []) if is_foreign(taint)]
                assert others == before


def is_foreign(taint):
    return not (taint["key"] == TAINT and taint.get("value", "").startswith("resched."))


async def test_a_rescheduler_that_dies_at_every_write_does_the_same(tmp_path):
    with Plane(tmp_path / "plane") as plane:
        async with ready_field(plane, fillers=120) as field:
            calm = Scene(field, "calm")
            await calm.build()
            undisturbed = Undisturbed()
            await live(plane.kubeconfig, HOME, undisturbed, calm.over, **FLAGS)
            calm.assert_right()
            stormy = Scene(field, "stormy")
            await stormy.build()
            plan = Plan(events=IS_LONG)
            started = time.monotonic()
            lives = await live(
                plane.kubeconfig,
                HOME,
                plan,
                stormy.over,
                patience=PATIENCE,
                lease=LEASE if IS_LONG else None,
                **FLAGS,
            )
            seconds = time.monotonic() - started
            stormy.assert_right()
            # Another leader finds nothing to do.
            nodes = {node["metadata"]["name"]: node for node in field.cluster.all(NODES)}
            assert all(map(is_clean, nodes.values()))
    assert kinds(plan.sent) == kinds(undisturbed.sent)
    before, after = (len(plan.deaths[moment]) for moment in ("before", "after"))
    assert lives > before
    assert before >= len(kinds(undisturbed.sent))
    print(  # noqa: T201 - figures to note
        f"\n{lives} lives in {seconds:.0f} s: {before} deaths before a write, {after} after one"
    )


def kinds(writes):
    """Return the distinct writes as verb, resource and subresource, with dry runs apart."""
    distinct = set()
    for write in writes:
        verb, path, body = write.split(" ", 2)
        if "/leases" in path or "/events" in path:
            continue
        is_dry = (
            bool((json.loads(body) or {}).get("deleteOptions", {}).get("dryRun"))
            if (body.startswith("{"))
            else False
        )
        parts = path.split("/namespaces/")[-1].split("/")
        resource = ("nodes",) if "/nodes/" in path else tuple(parts[1::2])
        distinct.add((verb, resource, is_dry))
    return distinct


async def test_what_a_dead_one_left_is_gone_within_a_minute_of_the_next(tmp_path):
    with Plane(tmp_path / "plane") as plane:
        async with ready_field(plane, fillers=60) as field:
            scene = Scene(field, "left")
            await scene.build()
            cluster = field.cluster
            # It keeps a node, evicts, and is never heard of again.
            plan = DiesOnce("eviction")
            kept = partial(cluster.until, lambda: any(p.marked_nodes() for p in scene.places))
            await asyncio.gather(
                live(plane.kubeconfig, HOME, plan, partial(_until_death, plan), **FLAGS), kept()
            )
            marked = [place for place in scene.places if place.marked_nodes()]
            assert marked
            # Nobody wants them any more.
            for place in scene.places:
                await place.leave()
            begun = time.monotonic()
            over = partial(
                cluster.until,
                lambda: not any(p.marked_nodes() for p in scene.places),
                LAST,
                scene.why,
            )
            await live(plane.kubeconfig, HOME, Undisturbed(), over, **FLAGS)
            assert time.monotonic() - begun < LAST


class DiesOnce:
    """Dies right after the first write of this kind; ``died`` tells."""

    def __init__(self, what):
        self.died = asyncio.Event()
        self._what = what

    def dies_before(self, _write):
        return self.died.is_set()

    def dies_after(self, write):
        if self._what in write and '"dryRun"' not in write:
            self.died.set()
        return self.died.is_set()


async def _until_death(plan):
    await plan.died.wait()
