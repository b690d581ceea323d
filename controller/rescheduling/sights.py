"""What is known of a pod, its victims and its node at this moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.controller.rescheduling.caches import bare
from harbourmaster.rescheduling.course import Seen, Sight, State, preemption_is_stuck, sight
from harbourmaster.rescheduling.fit import fits, static_reasons

if TYPE_CHECKING:
    from harbourmaster.controller.rescheduling.board import Board
    from harbourmaster.controller.rescheduling.context import Context
    from harbourmaster.rescheduling.course import Course
    from harbourmaster.rescheduling.model import PendingPod


class Sights:
    """Looks into the caches; nothing here waits."""

    def __init__(self, context: Context, board: Board) -> None:
        self._context = context
        self._board = board
        self._nominated: dict[str, tuple[str, float]] = {}

    def of(self, course: Course) -> Sight:
        """What is seen of the pod."""
        caches = self._context.caches
        found = caches.pods.store.get(course.key)
        pod = None if found is None else bare(found)
        return sight(course.uid, pod, caches.pending(course.key))

    def nominated_to(self, node: str) -> list[str]:
        """The keys of the pods for which the scheduler preempts on a node."""
        uids = {uid for uid, (name, _) in self._nominated.items() if name == node}
        return [each.key for each in self._board.courses.values() if each.uid in uids]

    def is_wanted(self, pending: PendingPod) -> bool:
        """Whether a course begins with this pod."""
        if not self._context.caches.is_on or not pending.pod.is_critical:
            return False
        seen = sight(pending.pod.uid, None, pending)
        return seen in {Sight.WAITING, Sight.NOMINATED}

    def look(self, course: Course) -> Seen:
        """All that the course depends on."""
        caches = self._context.caches
        seen = self.of(course)
        staying: set[str] = set()
        leaving: set[str] = set()
        for victim in course.victims:
            pod = caches.pod(victim.key)
            if pod is not None and pod.uid == victim.uid:
                (staying if pod.deletion is None else leaving).add(victim.uid)
        return Seen(
            sight=seen,
            is_on=caches.is_on,
            node_is_there=not course.is_live or caches.cluster.node(course.node) is not None,
            node_is_open=course.state is not State.EVICT or self._is_open(course),
            staying=frozenset(staying),
            leaving=frozenset(leaving),
            has_room=self._has_room(course) if course.state is State.BIND else None,
            is_stuck=self._is_stuck(course, seen),
        )

    def stuck_on(self, course: Course) -> str:
        """The node on which a preemption gets nowhere; empty for none."""
        pending = self._context.caches.pending(course.key)
        if pending is None or not self._is_stuck(course, self.of(course)):
            return ""
        return pending.nominated

    def _is_stuck(self, course: Course, seen: Sight) -> bool:
        pending = self._context.caches.pending(course.key)
        if seen is not Sight.NOMINATED or pending is None:
            self._nominated.pop(course.uid, None)
            return False
        now, node = self._context.clock(), pending.nominated
        known = self._nominated.get(course.uid)
        if known is None or known[0] != node:
            known = self._nominated[course.uid] = (node, now)
        ends = [
            each.deletion
            for each in self._context.caches.cluster.pods_on(node)
            if each.deletion is not None
        ]
        return preemption_is_stuck(ends, now - known[1], self._context.now())

    def _is_open(self, course: Course) -> bool:
        cluster = self._context.caches.cluster
        node, pending = cluster.node(course.node), self._context.caches.pending(course.key)
        if node is None or pending is None:
            return False
        return not static_reasons(pending, node, taint_key=self._context.settings.taint_key)

    def _has_room(self, course: Course) -> bool | None:
        """Whether the pod fits on its node beside all that stay there."""
        cluster = self._context.caches.cluster
        node, pending = cluster.node(course.node), self._context.caches.pending(course.key)
        if node is None or pending is None:
            return None
        beside = [each for each in cluster.pods_on(course.node) if each.deletion is None]
        others = [self._context.caches.pending(each.key) for each in self._board.on(course.node)]
        beside += [each.pod for each in others if each is not None and each.pod.uid != course.uid]
        return fits(pending, node, beside, namespaces=cluster.namespaces).fits
