"""Member clusters in memory, and a deployer of one application that may die at any moment."""

from __future__ import annotations

from msgspec.structs import replace

from harbourmaster.placement.inventory import ObjectRef
from harbourmaster.placement.rollout import (
    APPLY,
    CHECK,
    DELETE,
    ActionOutcome,
    Apply,
    Check,
    Delete,
    Done,
    Reach,
    Record,
    Rest,
    RolloutLimits,
    SetFinalizer,
    Situation,
    Write,
    next_action,
)

LIMITS = RolloutLimits(delete_timeout=60, ready_timeout=60)
MAX_ACTIONS = 100
"""The most actions of one pass; more are a loop."""


class DiedError(Exception):
    """The process is gone, and what it knew."""


def ref(name, namespace="default", kind="ConfigMap", version="v1"):
    return ObjectRef(api_version=version, kind=kind, name=name, namespace=namespace)


class MemberClusters:
    """``chance()`` decides what goes wrong; without it nothing does."""

    def __init__(self, clusters=("a", "b", "c"), *, order="DeleteFirst", chance=None):
        self.objects = {name: {} for name in clusters}
        self.reach = dict.fromkeys(clusters, Reach.YES)
        self.ready = dict.fromkeys(clusters, True)
        self.stuck = set()
        """The clusters on which no deletion ends."""
        self.desired = (ref("one"), ref("two"))
        self.fault = ""
        self.order = order
        self.record = Record()
        self.released = True
        self.ending = False
        self.finalizer = False
        self.now = 1000.0
        self.log = []
        self._chance = chance
        self._applied = None

    @property
    def holders(self):
        return {name for name, held in self.objects.items() if held}

    def schedule(self, cluster):
        self.record = replace(self.record, scheduled_to=cluster)
        self.released = True

    def update(self, *refs):
        self.desired = refs
        self.released = False

    def die(self):
        self._applied = None

    def situation(self, outcomes):
        cluster = self.record.scheduled_to
        held = self.objects.get(cluster, {})
        is_applied = self._applied == (cluster, self.desired) and all(
            entry.key in held for entry in self.desired
        )
        return Situation(
            record=self.record,
            reach=self.reach,
            now=self.now,
            limits=LIMITS,
            order=self.order,
            is_ending=self.ending,
            is_released=self.released,
            has_finalizer=self.finalizer,
            desired=self.desired,
            fault=self.fault,
            is_applied=is_applied,
            is_ready=is_applied and self.ready.get(cluster, False),
            outcomes=outcomes,
        )

    def run(self):
        """One pass; what it rests with."""
        outcomes = {}
        for _ in range(MAX_ACTIONS):
            self._may_die()
            action = next_action(self.situation(outcomes))
            self.log.append(action)
            if isinstance(action, Rest):
                return action
            self._act(action, outcomes)
            self.check()
        raise AssertionError(f"no end: {self.log[-6:]}")

    def settle(self, passes=50):
        """Passes until nothing is left to do, with the time that they ask for."""
        for _ in range(passes):
            rest = self.run()
            if not rest.reason:
                return
            self.now = max(self.now + 1, rest.until)
        raise AssertionError(f"no rest: {rest}, {self.record}")

    def check(self):
        """Assert that every existing object is recorded."""
        for name, held in self.objects.items():
            if name in self.reach:
                refs = (*self.record.inventory.get(name, ()), *self.record.pending.get(name, ()))
                assert held.keys() <= {ref.key for ref in refs}, name

    def _act(self, action, outcomes):
        match action:
            case Write(record):
                assert record != self.record
                self.record = record
            case SetFinalizer(present):
                assert present or not self.record.clusters
                self.finalizer = present
            case Check(cluster):
                outcomes[CHECK, cluster] = self._outcome(cluster)
            case Apply(cluster, prune):
                outcomes[APPLY, cluster] = self._apply(cluster, prune)
            case Delete(cluster, refs):
                outcomes[DELETE, cluster] = self._delete(cluster, refs)

    def _apply(self, cluster, prune):
        assert self.finalizer
        outcome = self._outcome(cluster)
        if self.reach[cluster] is not Reach.YES:
            return outcome
        for entry in self.desired:
            self._may_die()
            if outcome.done is Done.YES or self._goes_wrong():
                self.objects[cluster][entry.key] = entry
        if outcome.done is not Done.YES:
            return outcome
        if cluster in self.stuck:
            prune = ()
            outcome = ActionOutcome(Done.PARTLY, "Deleting", "it takes its time")
        for entry in prune:
            self._may_die()
            self.objects[cluster].pop(entry.key, None)
        self._may_die()
        self._applied = (cluster, self.desired)
        self.record = self.record.with_applied(cluster, self.desired, prune)
        return outcome

    def _delete(self, cluster, refs):
        outcome = self._outcome(cluster)
        if self.reach[cluster] is not Reach.YES:
            return outcome
        if cluster in self.stuck:
            return ActionOutcome(Done.PARTLY, "Deleting", "it takes its time")
        gone = []
        for ref in refs:
            self._may_die()
            if outcome.done is Done.YES or self._goes_wrong():
                self.objects[cluster].pop(ref.key, None)
                gone.append(ref)
        self._may_die()
        if self._applied is not None and self._applied[0] == cluster:
            self._applied = None
        self.record = self.record.without_deleted(cluster, tuple(gone))
        return outcome

    def _outcome(self, cluster):
        if self.reach[cluster] is not Reach.YES:
            return ActionOutcome(Done.FAILED, "ClusterUnreachable", "no answer")
        if self._goes_wrong():
            return ActionOutcome(
                Done.PARTLY if self._goes_wrong() else Done.FAILED, "Wrong", "wrong"
            )
        return ActionOutcome(Done.YES)

    def _goes_wrong(self):
        return self._chance is not None and self._chance() < 0.2

    def _may_die(self):
        if self._chance is not None and self._chance() < 0.05:
            self.die()
            raise DiedError
