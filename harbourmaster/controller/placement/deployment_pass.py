"""One pass over one application: carries out and records what the rollout says next."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harbourmaster.controller.placement.applying import (
    RELEASED,
    apply,
    check,
    delete,
    prepared_for,
)
from harbourmaster.controller.placement.context import (
    GATE_SECONDS,
    RESYNC,
    AppliedManifests,
)
from harbourmaster.controller.placement.secret_reads import read_copies
from harbourmaster.controller.placement.sending import Claim
from harbourmaster.controller.placement.session import BusyError
from harbourmaster.controller.placement.status_writer import StatusWriter
from harbourmaster.kube.errors import ApiError, UnreachableError
from harbourmaster.placement.deployed import (
    FORCE,
    MALFORMED,
    READY,
    Copies,
    describe_cleanup,
    record_of,
)
from harbourmaster.placement.manifests import ManifestOwner, Prepared
from harbourmaster.placement.model import AT_GATE, NO_ANSWER, condition
from harbourmaster.placement.readiness import NOT_READY, READY_REASON
from harbourmaster.placement.rollout import (
    APPLY,
    CHECK,
    CLUSTER_UNKNOWN,
    DELETE,
    ActionOutcome,
    Apply,
    Check,
    Delete,
    Done,
    Reach,
    Rest,
    RolloutLimits,
    SetFinalizer,
    Situation,
    Write,
    next_action,
)
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from harbourmaster.controller.placement.context import DeploymentContext, DeploymentMemory
    from harbourmaster.controller.placement.refusals import RefusedObject
    from harbourmaster.controller.placement.session import Session
    from harbourmaster.kube.workqueue import WorkQueue
    from harbourmaster.placement.deployed import DeployedApplication
    from harbourmaster.placement.rollout import Action, MigrationOrder

MAX_ACTIONS: Final = 200
"""Maximum number of actions in a pass; more would be a circle."""
SHORTEST: Final = 0.1
"""Seconds until a look that time alone asks for."""
_DRIFT: Final = "drift detected"


class DeploymentPass:
    """One pass; ``run`` once."""

    def __init__(
        self,
        context: DeploymentContext,
        application: DeployedApplication,
        memory: DeploymentMemory,
        queue: WorkQueue,
    ) -> None:
        self.writer = StatusWriter(context, application)
        self._record = record_of(application.status)
        self.is_unfinished = False
        """Something failed or takes its time, and is to be tried again."""
        self.now = context.now().timestamp()
        self.copies_until = 0.0
        """The time to read the copied Secrets again; 0 if this pass did not need them."""
        self.gate_until = 0.0
        """The time to look at pods at a gate again; 0 if no pod waits at a gate."""
        self._context = context
        self._application = application
        self._memory = memory
        self._queue = queue
        metadata = application.metadata
        self._owner = ManifestOwner(
            metadata.uid, metadata.namespace, metadata.name, metadata.creation_timestamp
        )
        self._is_ending = bool(application.metadata.deletion_timestamp)
        self._outcomes: dict[tuple[str, str], ActionOutcome] = {}
        self._silent: set[str] = set()
        self._target: Session | None = None
        """The cluster that ``_prepared`` is for; None where nothing is prepared."""
        self._prepared = Prepared()
        self._fault = self._fault_reason = ""
        self._drifted: AppliedManifests | None = None
        self._log = get_logger("deployer").bind(application=application.metadata.key)

    async def run(self) -> Rest:
        """Do all that can be done now. Raises ApiError, and BusyError where a cluster is full."""
        await self._prepare()
        for _ in range(MAX_ACTIONS):
            self.now = self._context.now().timestamp()
            self._detect_drift()
            action = next_action(self._situation())
            if isinstance(action, Rest):
                await self._close(action)
                return action
            before = self._record.scheduled_to
            await self._act(action)
            if self._record.scheduled_to != before:
                await self._prepare()
        raise RuntimeError(f"{self._application.metadata.key}: no end of actions")

    # What is the case

    def _situation(self) -> Situation:
        settings = self._context.settings
        known = self._find_applied()
        is_applied = known is not None and known.is_complete and self._drifted is not known
        return Situation(
            record=self._record,
            reach=self._reach(),
            now=self.now,
            limits=RolloutLimits(settings.delete_timeout_seconds, settings.ready_timeout_seconds),
            order=self._order(),
            is_ending=self._is_ending,
            is_released=self.writer.is_released,
            has_finalizer=self.writer.has_finalizer,
            desired=self._prepared.refs,
            fault=self._fault,
            fault_reason=self._fault_reason,
            is_applied=is_applied,
            is_ready=is_applied and known is not None and not self._is_unready(known),
            outcomes=self._outcomes,
        )

    def _is_unready(self, applied: AppliedManifests) -> bool:
        """Whether an application is not ready to leave its old cluster for this one."""
        return bool(applied.unready) or applied.has_unseen_data(self._context.stateless_kinds)

    def _order(self) -> MigrationOrder:
        """Nothing on a cluster is worth keeping meanwhile if the application failed there."""
        failed = {cluster.name for cluster in self._application.status.failed_clusters}
        is_failed = self._record.running_on in failed
        return "DeleteFirst" if is_failed else self._application.spec.migration_order

    def _reach(self) -> dict[str, Reach]:
        record, clusters = self._record, self._context.caches.clusters.store
        names = {record.scheduled_to, record.running_on, *record.clusters} - {""}
        reaches = {
            name: self._context.members.reach(self._key(name))
            for name in names
            if self._key(name) in clusters
        }
        doubtful = set(self._silent)
        # Nothing may be concluded from manifests that were not prepared for it.
        session = self._session(record.scheduled_to)
        if not self._is_ending and (self._target is None or self._target is not session):
            doubtful.add(record.scheduled_to)
        for name in doubtful:
            if reaches.get(name) is Reach.YES and not (self._fault and name == record.scheduled_to):
                reaches[name] = Reach.UNKNOWN
        return reaches

    def _find_applied(self) -> AppliedManifests | None:
        """Return what was applied, if it is these manifests on this cluster."""
        known = self._memory.applied
        if known is None or self._target is None or known.session is not self._target:
            return None
        if known.prepared is not self._prepared or self.now >= known.at + RESYNC:
            return None
        return known

    def _detect_drift(self) -> None:
        """Find out whether to apply again what others changed; endless changes are limited."""
        applied = self._find_applied()
        if applied is None or not applied.is_complete or self._drifted is applied:
            return
        applied.read_watches()
        cluster, known = self._record.scheduled_to, self._record.observations
        self._record = replace(self._record, observations=applied.observe(known, cluster))
        drift, limiter = applied.drift, self._memory.limiter
        if not drift:
            return
        if limiter.delay(_DRIFT, drift, self.now):
            self.is_unfinished = True
            return
        self._drifted = applied
        self._log.info("drift detected", what=drift)
        if limiter.record(_DRIFT, drift, self.now):
            text = f"{drift} repeatedly: another client writes it too"
            self.writer.report("Drift", text, "Warning")

    async def _prepare(self) -> None:
        """Have the manifests as the cluster takes them, or what is wrong with them."""
        self._target, self._prepared, self._fault = None, Prepared(), ""
        application, name = self._application, self._record.scheduled_to
        session = self._session(name)
        if self._is_ending or not self.writer.is_released:
            return
        if session is None or session.reach is not Reach.YES:
            return
        copies = await self._copies()
        if copies.fault:
            self._refuse("SecretNotCopied", copies.fault)
            return
        cluster = self._context.caches.clusters.store.get(self._key(name))
        allows = cluster is not None and cluster.spec.allow_cluster_scoped
        state = (session, application.metadata.generation, allows, copies.manifests)
        kept = self._memory.prepared
        if kept is None or kept[0] != state or kept[1].awaited:
            try:
                # Also this is at work there, and may hang.
                async with session.use(application.metadata.key, self._queue):
                    prepared = await prepared_for(
                        session,
                        application.spec.manifests,
                        self._owner,
                        allow_cluster_scoped=allows,
                        secrets=copies.manifests,
                    )
            except UnreachableError as error:
                self._note_silence(name, error)
                return
            except ApiError as error:
                # It may pass, so the cluster has refused nothing.
                self._refuse("CheckFailed", str(error))
                return
            if prepared.faults:
                # A kind may come.
                reason = MALFORMED if prepared.is_malformed else "InvalidManifests"
                self._refuse(reason, "; ".join(prepared.faults))
                return
            if kept != (state, prepared):
                kept = self._memory.prepared = (state, prepared)
        self._target, self._prepared = session, kept[1]
        known = self._find_applied()
        if known is not None:
            # The write of uids and origins may have met a conflict.
            record = self._record
            held = {ref.key for ref in record.inventory.get(name, ())}
            refs = tuple(ref for ref in known.refs if ref.key in held)
            self._record = record.with_applied(name, refs, ())

    def _refuse(self, reason: str, fault: str) -> None:
        """Note why the manifests cannot be applied now; they are tried again."""
        self.is_unfinished, self._fault, self._fault_reason = True, fault, reason

    async def _copies(self) -> Copies:
        """The Secrets that it takes along, which are read now and then. Raises ApiError."""
        kept, application = self._memory.copies, self._application
        is_old = kept.generation != application.metadata.generation or self.now >= kept.until
        if not application.spec.secrets:
            self._memory.copies = Copies()
        elif is_old or kept.fault:
            self._memory.copies = await read_copies(self._context, application)
        self.copies_until = self._memory.copies.until
        return self._memory.copies

    # What is done

    async def _act(self, action: Action) -> None:
        match action:
            case Write(record, reason):
                await self.writer.write_step(self._record, record, reason)
                self._record = record
            case SetFinalizer(present):
                await self.writer.set_finalizer(present=present)
            case Check(cluster):
                await self._do(CHECK, cluster, self._target, partial(self._check, cluster))
            case Apply(cluster=cluster):
                # A TTL may remove what finished as soon as it is applied.
                await self.writer.write(self._record)
                await self._do(APPLY, cluster, self._target, partial(self._apply, action))
            case Delete(cluster=cluster):
                session = self._session(cluster)
                if self._is_ending and cluster not in self._memory.announced:
                    self._memory.announced.add(cluster)
                    self.writer.report(
                        "Deleting", f"on cluster {cluster}: {describe_cleanup(action.refs)}"
                    )
                await self._do(DELETE, cluster, session, partial(self._delete, action))

    async def _do(
        self,
        kind: str,
        cluster: str,
        session: Session | None,
        work: Callable[[Session], Awaitable[ActionOutcome]],
    ) -> None:
        """Do something on a cluster, which can be unreachable, and note the outcome."""
        text = f"cluster {cluster} is unreachable"
        outcome = ActionOutcome(Done.FAILED, CLUSTER_UNKNOWN, text)
        if session is not None:
            try:
                async with session.use(self._application.metadata.key, self._queue):
                    outcome = await work(session)
            except UnreachableError as error:
                text = self._note_silence(cluster, error)
                outcome = ActionOutcome(Done.FAILED, CLUSTER_UNKNOWN, text)
            else:
                if kind != CHECK:
                    self._memory.unanswered.pop(cluster, None)
        self._outcomes[kind, cluster] = outcome
        if outcome.done is not Done.YES:
            self.is_unfinished = True

    async def _check(self, cluster: str, target: Session) -> ActionOutcome:
        try:
            return await check(target, self._prepared, self._claim(cluster))
        except UnreachableError:
            raise
        except ApiError as error:
            return ActionOutcome(Done.FAILED, "CheckFailed", str(error))

    async def _apply(self, action: Apply, target: Session) -> ActionOutcome:
        cluster = action.cluster
        claim, before = self._claim(cluster), self._find_applied()
        since = self.now
        if before is not None and not before.is_complete:
            before.read_watches()
            claim, since = replace(claim, intact=before.intact), before.at
        known = AppliedManifests(target, self._prepared, since)
        target.watches.set_tests(self._owner.uid, self._application.spec.readiness)
        report = await apply(target, self._prepared, claim, action.prune)
        self._tell_left(cluster, report.left)
        refs = tuple(obj.ref for obj in report.applied)
        self._record = self._record.with_applied(cluster, refs, report.pruned)
        known.record(report.applied)
        self._memory.applied = known
        return report.outcome

    async def _delete(self, action: Delete, session: Session) -> ActionOutcome:
        cluster = action.cluster
        cleared = await delete(session, action.refs, self._owner, self._uids_elsewhere(cluster))
        self._tell_left(cluster, cleared.left)
        self._record = self._record.without_deleted(cluster, cleared.gone)
        if not self._record.objects(cluster):
            session.watches.set_tests(self._owner.uid, ())
        known = self._memory.applied
        if known is not None and known.session is session:
            self._memory.applied = None
        return cleared.outcome

    def _claim(self, cluster: str) -> Claim:
        refs = self._record.objects(cluster)
        force = self._application.spec.conflict_policy == FORCE
        recreates = self._application.spec.migration_volumes == "Recreate"
        return Claim(
            self._owner,
            {ref.key: ref for ref in refs},
            force,
            cluster,
            self._record.observations,
            self._application.spec.ignore_fields,
            stateless=None if recreates else self._context.stateless_kinds,
            report=self.writer.report,
        )

    def _tell_left(self, cluster: str, left: Iterable[RefusedObject]) -> None:
        for obj in left:
            text = f"{obj.ref.text} stays on cluster {cluster}: {obj.text}"
            self.writer.report(obj.reason, text, "Normal" if obj.reason == RELEASED else "Warning")

    def _uids_elsewhere(self, cluster: str) -> frozenset[str]:
        """The uids of what the application has on its other clusters, and is to keep there."""
        if self._is_ending:
            return frozenset()
        others = [
            inventory for name, inventory in self._record.inventory.items() if name != cluster
        ]
        return frozenset(ref.uid for inventory in others for ref in inventory if ref.uid)

    def _note_silence(self, cluster: str, error: UnreachableError) -> str:
        """A call had no answer: until that is looked into, nothing more is asked there.

        Returns a text, which stays the same while attempts fail at one object or another.
        """
        self.is_unfinished = True
        self._silent.add(cluster)
        self._log.warning("cluster did not answer", cluster=cluster, error=str(error))
        session = self._session(cluster)
        if session is not None:
            session.doubt()
        text = f"no answer from cluster {cluster}, trying again: {error}"
        return self._memory.unanswered.setdefault(cluster, text)

    async def _close(self, rest: Rest) -> None:
        """Record the results."""
        if self._is_ending and not self.writer.has_finalizer:
            return
        if self._silent and rest.reason in {CLUSTER_UNKNOWN, "Deleting"}:
            reason = NO_ANSWER if rest.reason == CLUSTER_UNKNOWN else rest.reason
            text = "; ".join(self._memory.unanswered[name] for name in sorted(self._silent))
            rest = replace(rest, reason=reason, text=text)
        if rest.reason == CLUSTER_UNKNOWN:
            # It will be known in a moment, and nothing is to be said before.
            await self.writer.write(self._record)
            return
        if rest.text and self.is_unfinished and rest.text != self._memory.reported:
            self.writer.report(rest.reason, rest.text, "Warning")
        self._memory.reported = rest.text if self.is_unfinished else ""
        record, known = self._record, self._find_applied()
        is_here = record.running_on == record.scheduled_to
        unready, reason = None, READY_REASON
        if known is not None and known.is_complete:
            if known.is_blind and (known.unready or (not is_here and self._is_unready(known))):
                # Without the right to watch, it applies again to see the state.
                self.is_unfinished = True
                self._memory.applied = None
            unready = known.unready if is_here else None
        if known is not None and unready:
            unready, reason = await self._describe_unready(known, unready)
        await self.writer.close(record, rest, unready, reason)

    async def _describe_unready(
        self, known: AppliedManifests, unready: str
    ) -> tuple[str | None, str]:
        """Return the text and the reason of the condition Ready; None for the text to keep it."""
        if known.unready_reason != NOT_READY:
            return unready, known.unready_reason
        text: str | None = None
        try:
            # A cluster that hangs delays no other.
            async with known.session.use(self._application.metadata.key, self._queue):
                gate = await known.find_gate()
        except (ApiError, BusyError):
            before = condition(self._application.status.conditions, READY)
            if before is None or before.reason != AT_GATE:
                return unready, NOT_READY
            # The pods may still be held there: another reason could move the application.
        else:
            if not gate:
                return unready, NOT_READY
            text = f"{gate}; {unready}"
        self.gate_until = self.now + GATE_SECONDS
        return text, AT_GATE

    def _session(self, name: str) -> Session | None:
        return self._context.members.session(self._key(name)) if name else None

    def _key(self, name: str) -> str:
        return f"{self._application.metadata.namespace}/{name}"
