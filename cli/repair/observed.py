"""One look at the pods of a namespace: what they lack, their workloads, and disruption budgets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api import resources
from harbourmaster.cli.live.cluster import collect
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.cli.repair.lack import Lack, lack_of
from harbourmaster.cli.repair.model import Workload
from harbourmaster.cli.why.asking import inputs_of
from harbourmaster.policies.index import policy_set
from harbourmaster.policies.pods import KINDS
from harbourmaster.rescheduling.model import Budget, Pod
from harbourmaster.rescheduling.wire import decode_budget, decode_present
from harbourmaster.webhook.engine import Engine

if TYPE_CHECKING:
    import msgspec

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.policies.pods import Kind

POD: Final = KINDS["", "v1", "Pod"]
TEMPLATES: Final = tuple(
    (KINDS[each.group, each.version, each.kind], each)
    for each in (
        resources.DEPLOYMENTS,
        resources.STATEFUL_SETS,
        resources.DAEMON_SETS,
        resources.REPLICATION_CONTROLLERS,
        resources.CRON_JOBS,
    )
)


class StoredPod(Struct, frozen=True):
    """A pod, whose controller's pod it is, and what it lacks."""

    pod: Pod
    workload: Workload
    version: str
    lack: Lack | None = None


class Observed(Struct, frozen=True):
    """What is known of a namespace; ``problems`` say what could not be read of policies."""

    engine: Engine
    pods: tuple[StoredPod, ...]
    templates: tuple[tuple[Workload, Lack], ...]
    """Those that lack something."""
    budgets: tuple[Budget, ...]
    problems: tuple[str, ...]
    doubt: str = ""

    def lacking(self, workload: Workload) -> list[StoredPod]:
        """The pods of a workload that lack something that can't be added to them."""
        return [
            each
            for each in self.pods
            if each.workload == workload and each.lack and (each.lack.rest or each.lack.refusal)
        ]


async def observe(live: Installation, space: Metadata, *, templates: bool = False) -> Observed:
    """Read a namespace; budgets before pods, so that no pod is older than what counts it.

    Raises an ApiError.
    """
    configuration = await live.configuration(resources.MUTATING_WEBHOOKS)
    entries = [
        each for each in (configuration.entries if configuration else ()) if each.selects(space)
    ]
    inputs = await inputs_of(live, space.name)
    enforced = (each.compiled for each in inputs.policies if not each.compiled.is_audited)
    engine = Engine(replace(inputs.snapshot, policies=policy_set(enforced)), inputs.settings)
    owners = {
        each.uid: each.controller
        for each in await live.metadata(resources.REPLICA_SETS, space.name)
    }

    def lack(kind: Kind, resource: Resource, raw: msgspec.Raw) -> Lack | None:
        labels = metadata_in(raw).labels
        is_reviewed = any(
            each.covers(resource.group, resource.plural) and each.selects_labels(labels)
            for each in entries
        )
        return lack_of(kind, raw, space.name, engine) if is_reviewed else None

    def template(kind: Kind, resource: Resource, raw: msgspec.Raw) -> tuple[Workload, Lack] | None:
        found = lack(kind, resource, raw)
        workload = Workload(kind.group, kind.name, space.name, metadata_in(raw).name)
        return (workload, found) if found else None

    def stored(raw: msgspec.Raw) -> StoredPod | None:
        pod, own = decode_present(raw), metadata_in(raw)
        if pod.is_finished:
            return None
        owner = own.controller
        if owner is not None and owner.kind == resources.REPLICA_SETS.kind:
            owner = owners.get(owner.uid) or owner
        top = (owner.group, owner.kind, space.name, owner.name) if owner else None
        workload = Workload(*(top or ("", resources.PODS.kind, space.name, own.name)))
        return StoredPod(pod, workload, own.resource_version, lack(POD, resources.PODS, raw))

    templates_ = [
        await live.items(resource, partial(template, kind, resource), space.name)
        for kind, resource in (TEMPLATES if templates else ())
    ]
    budgets = await live.items(resources.DISRUPTION_BUDGETS, decode_budget, space.name)
    return Observed(
        engine,
        tuple(await collect(live.client, resources.PODS, stored, namespace=space.name)),
        tuple(each for some in templates_ for each in some),
        tuple(budgets),
        inputs.problems,
        inputs.doubt,
    )
