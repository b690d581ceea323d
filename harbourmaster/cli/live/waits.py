"""Reports on the objects for which pods wait, from a cluster or from files."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from harbourmaster.api.resources import PODS, SERVICES, SLICES, STATEFUL_SETS, of_kind
from harbourmaster.cli.installed import CONTROLLER
from harbourmaster.cli.live.reader import is_kind_missing, read_error, run_together
from harbourmaster.cli.offline import kind_of, namespace_of
from harbourmaster.controller.lifecycle.owners import decode_rollout, has_other_revision
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.gates.owners import STATEFUL_SET, shown_owner, supported_owner, workload_above
from harbourmaster.gates.waits import KINDS
from harbourmaster.kube.discovery import Discovery
from harbourmaster.kube.errors import ApiError, NotFoundError
from harbourmaster.lifecycle.gated_pods import decode_pod
from harbourmaster.lifecycle.wait_cycles import wait_cycles, workload_of_pod
from harbourmaster.lifecycle.wait_items import MISSING, ItemReport, report_on
from harbourmaster.lifecycle.wait_targets import SERVICE_LABEL, Target, target_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.gates.waits import WaitItem
    from harbourmaster.lifecycle.check_facts import Facts
    from harbourmaster.lifecycle.gated_pods import Pod


_ABSENT: Final = "is of a kind that the API server does not have"


class Objects:
    """Objects of one namespace that are known: the ``Targets`` of reports."""

    def __init__(self, manifests: Iterable[dict[str, Any]] = (), namespace: str = "") -> None:
        self._found: defaultdict[Resource, dict[str, Target]] = defaultdict(dict)
        self.kinds = dict(KINDS)
        """Resources by the names that items use, with those of the manifests."""
        names = {(known.group, known.kind): name for name, known in KINDS.items()}
        for manifest in manifests:
            group, version, kind = kind_of(manifest)
            made = of_kind(group, kind, version)
            name = names.get((group, kind), made.name)
            resource = self.kinds.setdefault(name, made)
            if not resource.namespaced or namespace_of(manifest) == namespace:
                name = manifest["metadata"].get("name", "")
                encoded = msgspec.json.encode(manifest)
                self.take(resource, target_of(resource, encoded, whole=(name,)))

    def take(self, resource: Resource, target: Target) -> None:
        """Have an object among them."""
        self._found[resource][target.name] = target

    def find(self, resource: Resource, name: str) -> Target | None:
        """The object of that name."""
        return self._found[resource].get(name)

    def all(self, resource: Resource) -> Collection[Target]:
        """All of a kind that are known."""
        return self._found[resource].values()

    def find_by_label(self, resource: Resource, key: str, value: str) -> Collection[Target]:
        """Those of a kind with that label."""
        return [target for target in self.all(resource) if target.labels.get(key) == value]

    def obstacle(self, _resource: Resource) -> None:
        """Return None: objects that cannot be read get no report."""


class WaitFacts(NamedTuple):
    """The reports on the waits of a namespace's pods."""

    items: dict[WaitItem, ItemReport]
    cycles: dict[tuple[str, str], str]
    superseded: frozenset[str] = frozenset()
    """The keys of pods for which their StatefulSet has another revision."""

    def of(self, pod: Pod, facts: Facts) -> Facts:
        """The facts about one of the pods with these."""
        cycle, is_superseded = self.cycles.get(workload_of_pod(pod), ""), pod.key in self.superseded
        return replace(facts, items=self.items, cycle=cycle, is_superseded=is_superseded)


def waits_in_files(pods: Collection[Pod], objects: Objects) -> WaitFacts:
    """Return the waits of pods that files make, judged by the objects in these files."""
    for pod in pods:
        objects.take(PODS, Target(name=pod.name, labels=pod.labels, is_ready=False))
    reports = {}
    for item in _items(pods):
        objects.kinds.setdefault(item.kind, of_kind("", item.kind))
        report = report_on(item, objects.kinds, objects, suggests=True)
        text = report.text.replace(MISSING, "is not in these files", 1)
        reports[item] = replace(report, text=text)
    return WaitFacts(reports, wait_cycles(pods, reports, objects))


def waiting_pod(scheduler: str, raw: msgspec.Raw) -> Pod | None:
    """The pod if it waits for us, or did and has no node yet."""
    pod = decode_pod(raw, scheduler)
    return pod if pod.is_ours else None


def pod_of_workload(scheduler: str, workload: tuple[str, str], raw: msgspec.Raw) -> Pod | None:
    """The waiting pod, if it is of the workload with this kind and name."""
    pod = waiting_pod(scheduler, raw)
    return pod if pod is not None and is_of_workload(pod, workload) else None


def is_of_workload(pod: Pod, workload: tuple[str, str]) -> bool:
    """Whether a pod belongs to the workload with this kind and name."""
    owner = shown_owner(pod.owner_references)
    if owner is None:
        return False
    return workload in {(owner.kind, owner.name), workload_above(owner, pod.labels)}


async def _is_superseded(live: Installation, pod: Pod) -> bool:
    owner = supported_owner(pod.owner_references)
    if owner is None or owner.kind != STATEFUL_SET:
        return False
    reading = live.read(STATEFUL_SETS, owner.name, decode_rollout, pod.namespace)
    return has_other_revision(pod, await live.attempt(reading, None))


async def live_waits(
    live: Installation, namespace: str, pods: Iterable[Pod], files: Objects | None = None
) -> WaitFacts:
    """Return the waits of pods, judged by the cluster and by ``files`` created with them.

    ``pods`` are all that wait there, and may be others. What cannot be read is among the faults of
    ``live``. Raises the ApiError by which no cluster can be read at all.
    """
    pods = [pod for pod in pods if pod.namespace == namespace]
    superseded = frozenset([pod.key for pod in pods if await _is_superseded(live, pod)])
    pods = [pod for pod in pods if not pod.has_waited]
    items, objects = _items(pods), files or Objects()
    settings, unknown = await live.assumed_settings(CONTROLLER, ControllerSettings)
    kinds = objects.kinds if unknown else settings.lifecycle.kinds_to_wait_for
    if unknown and any(item.kind not in kinds for item in items):
        served = await live.attempt(Discovery(live.client).listable(), ())
        kinds |= {kind.name: kind for kind in served if kind.namespaced}

    async def report(item: WaitItem) -> ItemReport:
        text = _ABSENT if unknown and item.kind not in kinds else ""
        if item.kind in kinds:
            text = await _read(live, namespace, item, kinds[item.kind], objects)
        known = report_on(item, kinds, objects, suggests=True)
        return ItemReport(item.text, "Pending", text) if text else known

    reports = dict(zip(items, await run_together(*map(report, items)), strict=True))
    return WaitFacts(reports, wait_cycles(pods, reports, objects), superseded)


def _items(pods: Iterable[Pod]) -> list[WaitItem]:
    return list(
        dict.fromkeys(
            item for pod in pods if pod.wait_conditions for item in pod.wait_conditions.items
        )
    )


async def _read(
    live: Installation, namespace: str, item: WaitItem, resource: Resource, objects: Objects
) -> str:
    """Put what an item is about among the objects; returns why that cannot be read."""
    place = namespace if resource.namespaced else None
    kind, selector = PODS, "=".join(item.label or ())
    if resource == SERVICES and not item.test:
        kind, selector = SLICES, f"{SERVICE_LABEL}={item.name}"
    try:
        if selector:
            pick = partial(target_of, kind)
            for target in await live.list_all(kind, pick, place, label_selector=selector):
                objects.take(kind, target)
        if item.name:
            raw = await live.get(resource, item.name, place)
            objects.take(resource, target_of(resource, raw, whole=(item.name,)))
    except NotFoundError as error:
        if is_kind_missing(error):
            return _ABSENT
        # Without permission to list there is no suggestion.
        with suppress(ApiError):
            for near in await live.metadata(resource, place):
                objects.take(resource, objects.find(resource, near.name) or Target(name=near.name))
    except ApiError as error:
        live.faults.append(read_error(error, item.text))
        return live.faults[-1].removeprefix(f"{item.text} ")
    return ""
