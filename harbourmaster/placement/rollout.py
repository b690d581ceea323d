"""The next action for one application: a pure function of record, state and outcomes (7.5).

Objects are recorded before they are created on a cluster, so that after a crash at any point the
next process knows everything that exists, asks here again and continues. At rest, only the cluster
that the application is scheduled to has its objects.

Times are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.placement.inventory import (
    Inventory,
    Key,
    Observation,
    merge,
    with_objects,
    without,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

MigrationOrder: TypeAlias = Literal["DeleteFirst", "CreateFirst"]


class Reach(Enum):
    """Whether a cluster responds; UNKNOWN before the first request."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Migration(Struct, frozen=True, gc=False):
    """A move in progress, and the number of failed moves since the last success."""

    to: str = ""
    since: float = 0.0
    failures: int = 0
    suspended_until: float = 0.0
    """No other cluster is chosen before this time."""


class Record(Struct, frozen=True):
    """The record in an application's status, by cluster name. Every change is written at once."""

    scheduled_to: str = ""
    running_on: str = ""
    inventory: Mapping[str, Inventory] = {}
    pending: Mapping[str, Inventory] = {}
    """Objects on unreachable clusters, to be deleted when these are reachable again."""
    migration: Migration = Migration()
    observations: Mapping[Key, Observation] = {}

    @property
    def clusters(self) -> tuple[str, ...]:
        """All clusters that may have objects."""
        return tuple(dict.fromkeys((*self.inventory, *self.pending)))

    def objects(self, cluster: str) -> Inventory:
        """All that may be on a cluster."""
        return merge(self.pending.get(cluster, ()), self.inventory.get(cluster, ()))

    def without_deleted(self, cluster: str, gone: Inventory) -> Record:
        """The record after these objects were deleted from a cluster."""
        left = without(self.inventory.get(cluster, ()), gone)
        pending = without(self.pending.get(cluster, ()), gone)
        return replace(
            self,
            inventory=with_objects(self.inventory, cluster, left),
            pending=with_objects(self.pending, cluster, pending),
            running_on="" if cluster == self.running_on and not left else self.running_on,
        )

    def with_applied(self, cluster: str, applied: Inventory, pruned: Inventory) -> Record:
        """The record after objects were applied and others were pruned."""
        left = merge(without(self.inventory.get(cluster, ()), pruned), applied)
        return replace(self, inventory=with_objects(self.inventory, cluster, left))


class RolloutLimits(Struct, frozen=True, gc=False):
    """Seconds that a move waits for deletion on the old cluster, or readiness on the new one."""

    delete_timeout: float = 60.0
    ready_timeout: float = 60.0
    """Each failed move adds this to the time until the next one."""


class Done(Enum):
    """The result of an action in this pass."""

    YES = "yes"
    PARTLY = "partly"
    """It depends on something that takes time; it is retried soon, or on a change."""
    FAILED = "failed"


class ActionOutcome(Struct, frozen=True):
    """The result of an action in this pass; ``reason`` is a CamelCase word for a condition."""

    done: Done
    reason: str = ""
    text: str = ""


class Situation(Struct, frozen=True, kw_only=True):
    """The inputs. ``desired`` are the objects that the manifests give on ``scheduled_to``.

    ``is_applied``: exactly these exist there, as far as is known. ``outcomes`` are those of this
    pass, by action and cluster.
    """

    record: Record
    reach: Mapping[str, Reach] = {}
    """Whether each existing cluster answers, by name; a missing one has been deleted."""
    now: float = 0.0
    limits: RolloutLimits = RolloutLimits()
    order: MigrationOrder = "DeleteFirst"
    is_ending: bool = False
    is_released: bool = True
    """The scheduler has approved this generation."""
    has_finalizer: bool = False
    desired: Inventory = ()
    fault: str = ""
    """Why the manifests cannot be applied there; empty if they can."""
    fault_reason: str = "InvalidManifests"
    is_applied: bool = False
    is_ready: bool = False
    outcomes: Mapping[tuple[str, str], ActionOutcome] = {}


class Write(Struct, frozen=True):
    """Write the record before anything else is done."""

    record: Record
    reason: str = ""


class Check(Struct, frozen=True):
    """Check whether the cluster accepts the manifests, without a change."""

    cluster: str


class Apply(Struct, frozen=True):
    """Apply everything to a cluster, then delete ``prune`` there."""

    cluster: str
    prune: Inventory = ()


class Delete(Struct, frozen=True):
    """Delete objects of ours from a cluster."""

    cluster: str
    refs: Inventory


class SetFinalizer(Struct, frozen=True):
    """Add our finalizer to the application, or remove it."""

    present: bool


class Rest(Struct, frozen=True):
    """Nothing to do now; ``reason`` is empty if everything is as desired.

    ``until``: when to check again without a change; 0 for never.
    """

    reason: str = ""
    text: str = ""
    until: float = 0.0


Action: TypeAlias = Write | Check | Apply | Delete | SetFinalizer | Rest
CHECK: Final = "check"
APPLY: Final = "apply"
DELETE: Final = "delete"

ROLLED_BACK: Final = "RolledBack"
CLUSTER_UNKNOWN: Final = "ClusterUnknown"
"""The reason of a pass that reports nothing yet."""


def next_action(seen: Situation) -> Action:
    """The next action; call again with its outcome when it is done."""
    if seen.is_ending:
        return _end(seen)
    main = _deploy(seen)
    if not isinstance(main, Rest):
        return main
    return next(_clean(seen), main)


def _end(seen: Situation) -> Action:
    action = next(_clean(seen, everything=True), None)
    if action is not None:
        return action
    left = seen.record.clusters
    if not left:
        return SetFinalizer(present=False) if seen.has_finalizer else Rest()
    return Rest("Deleting", f"objects are still on {', '.join(left)}")


def _deploy(seen: Situation) -> Action:
    record, cluster = seen.record, seen.record.scheduled_to
    if not cluster:
        return Rest("NotScheduled", "no cluster is chosen yet")
    if not seen.is_released:
        return Rest("NotScheduled", "the scheduler has not seen the latest change yet")
    hindrance = _rollback(seen) or _hindrance(seen, cluster)
    if hindrance is not None:
        return hindrance
    if not seen.has_finalizer:
        return SetFinalizer(present=True)
    others = [name for name in record.inventory if name != cluster]
    if record.running_on == cluster or not others:
        return _settle(seen, runs_here=True)
    if record.migration.to != cluster:
        begun = replace(record.migration, to=cluster, since=seen.now)
        return Write(replace(record, migration=begun), "Migrating")
    if _creates_first(seen):
        return _create_first(seen)
    return _delete_first(seen, others)


def _hindrance(seen: Situation, cluster: str) -> Rest | None:
    """Why nothing can be applied there now; None if it can."""
    reach = seen.reach.get(cluster)
    if reach is None:
        return Rest("ClusterNotFound", f"Cluster {cluster} not found", _deadline(seen))
    if reach is not Reach.YES:
        reason = "ClusterUnreachable" if reach is Reach.NO else CLUSTER_UNKNOWN
        return Rest(reason, f"cluster {cluster} does not answer", _deadline(seen))
    if seen.fault:
        return Rest(seen.fault_reason, seen.fault, _deadline(seen))
    return None


def _creates_first(seen: Situation) -> bool:
    """Whether the old cluster should and can keep the application meanwhile."""
    record = seen.record
    return (
        seen.order == "CreateFirst"
        and record.running_on in record.inventory
        and seen.reach.get(record.running_on) in {Reach.YES, Reach.UNKNOWN}
    )


def _delete_first(seen: Situation, others: list[str]) -> Action:
    record = seen.record
    checked = seen.outcomes.get((CHECK, record.scheduled_to))
    if checked is None:
        # Objects that the new cluster rejects must not be deleted from the old one.
        return Check(record.scheduled_to)
    if checked.done is not Done.YES:
        return Rest(checked.reason, checked.text)
    is_late = seen.now >= record.migration.since + seen.limits.delete_timeout
    for name in others:
        reach, outcome = seen.reach.get(name), seen.outcomes.get((DELETE, name))
        if reach is None:
            return Write(_leave(record, name), "ClusterNotFound")
        if reach is Reach.YES and outcome is None:
            return Delete(name, record.inventory[name])
        if reach is Reach.NO or (reach is Reach.YES and is_late):
            return Write(_leave(record, name, record.objects(name)), "CleanupPending")
    told = (seen.outcomes.get((DELETE, name)) for name in others)
    text = "; ".join(outcome.text for outcome in told if outcome is not None and outcome.text)
    until = record.migration.since + seen.limits.delete_timeout
    return Rest("Migrating", text or f"{', '.join(others)} must be left first", until)


def _create_first(seen: Situation) -> Action:
    record = seen.record
    action = _settle(seen, runs_here=False)
    if not isinstance(action, Rest):
        return action
    if not action.reason and seen.is_ready:
        return Write(
            replace(record, running_on=record.scheduled_to, migration=Migration()), "Migrated"
        )
    reason, text = action.reason or "Migrating", action.text or "waiting for it to be ready"
    until = _deadline(seen)
    return Rest(reason, text, min(action.until, until) if action.until else until)


def _rollback(seen: Situation) -> Action | None:
    """Return to the old cluster if the new one did not become ready in time."""
    record, timeout = seen.record, seen.limits.ready_timeout
    if not _is_moving(seen) or not _creates_first(seen):
        return None
    if seen.now < record.migration.since + timeout or (seen.is_applied and seen.is_ready):
        return None
    failures = record.migration.failures + 1
    migration = Migration(failures=failures, suspended_until=seen.now + timeout * failures)
    back = replace(record, scheduled_to=record.running_on, migration=migration)
    return Write(back, ROLLED_BACK)


def _is_moving(seen: Situation) -> bool:
    record = seen.record
    return (
        bool(record.migration.to)
        and record.migration.to == record.scheduled_to
        and record.running_on not in {"", record.scheduled_to}
    )


def _deadline(seen: Situation) -> float:
    """Return the time at which a move is cancelled; 0 for never."""
    if not (_is_moving(seen) and _creates_first(seen)):
        return 0.0
    return seen.record.migration.since + seen.limits.ready_timeout


def _settle(seen: Situation, *, runs_here: bool) -> Action:
    """Make the cluster have exactly the desired objects; they are recorded first."""
    record, cluster = seen.record, seen.record.scheduled_to
    known = record.inventory.get(cluster, ())
    # Objects left here earlier are kept or pruned like all others.
    everything = merge(record.objects(cluster), seen.desired)
    intended = replace(
        record,
        inventory=with_objects(record.inventory, cluster, everything),
        pending=with_objects(record.pending, cluster, ()),
        running_on=cluster if runs_here else record.running_on,
        migration=_after(record.migration, cluster) if runs_here else record.migration,
    )
    if not _same(intended, record):
        return Write(intended, "Deploying")
    if seen.is_applied and not without(known, seen.desired):
        return Rest()
    outcome = seen.outcomes.get((APPLY, cluster))
    if outcome is None:
        return Apply(cluster, without(known, seen.desired))
    return Rest(outcome.reason, outcome.text) if outcome.done is not Done.YES else Rest()


def _after(migration: Migration, cluster: str) -> Migration:
    """The migration when the application stays: a cancelled move is not a success."""
    return Migration() if migration.to == cluster else replace(migration, to="", since=0.0)


def _same(intended: Record, record: Record) -> bool:
    """Whether nothing new would be recorded; uids alone are not worth a write."""
    return (
        intended.running_on == record.running_on
        and intended.migration == record.migration
        and intended.pending == record.pending
        and _keys(intended.inventory) == _keys(record.inventory)
    )


def _keys(inventories: Mapping[str, Inventory]) -> dict[str, set[tuple[str, ...]]]:
    return {name: {(*ref.key, ref.api_version) for ref in inventories[name]}
            for name in inventories}  # fmt: skip


def _clean(seen: Situation, *, everything: bool = False) -> Iterator[Action]:
    """The next actions for clusters that should not have the application."""
    record = seen.record
    kept = set() if everything else {record.scheduled_to, record.running_on}
    for name in record.clusters:
        if name in kept:
            continue
        reach = seen.reach.get(name)
        if reach is None:
            yield Write(_leave(record, name), "ClusterNotFound")
        elif reach is Reach.NO and name in record.inventory and not everything:
            yield Write(_leave(record, name, record.objects(name)), "CleanupPending")
        elif reach is Reach.YES and (DELETE, name) not in seen.outcomes:
            yield Delete(name, record.objects(name))


def _leave(record: Record, cluster: str, pending: Inventory = ()) -> Record:
    """The record after a cluster was given up; ``pending`` there is deleted later."""
    return replace(
        record,
        inventory=with_objects(record.inventory, cluster, ()),
        pending=with_objects(record.pending, cluster, pending),
        running_on="" if record.running_on == cluster else record.running_on,
    )
