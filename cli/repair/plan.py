"""What is done about what pods and templates lack, and what became of it; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harbourmaster.cli.repair.model import LIST, RESTART, TIGHTEN, TOLERATE, RepairItem
from harbourmaster.cli.repair.rollouts import RESTARTED, not_restarted
from harbourmaster.policies.model import TOLERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from harbourmaster.cli.repair.lack import Lack
    from harbourmaster.cli.repair.model import Action, Workload
    from harbourmaster.cli.repair.observed import Observed

_TEMPLATE_ONLY: Final = "its pods get it when they are created, its template when it is changed"


def items_of(seen: Observed) -> list[RepairItem]:
    """What pods and templates of a namespace lack; one item for all pods that are alike."""
    found: dict[RepairItem, list[str]] = {}
    for each in seen.pods:
        if each.lack is not None:
            action, why = decision(each.workload, each.lack)
            found.setdefault(_item(each.workload, each.lack, action, why), []).append(each.pod.name)
    items = [replace(each, pods=tuple(sorted(names))) for each, names in found.items()]
    named = {each.workload for each in items}
    return items + [
        _item(workload, lack, LIST, _TEMPLATE_ONLY)
        for workload, lack in seen.templates
        if workload not in named
    ]


def decision(workload: Workload, lack: Lack) -> tuple[Action, str]:
    """What is done about a pod, and why not more."""
    if lack.refusal:
        return LIST, lack.refusal
    if not lack.rest:
        return (TOLERATE if lack.fields == (TOLERATIONS,) else TIGHTEN), ""
    if (workload.group, workload.kind) in RESTARTED:
        return RESTART, ""
    return LIST, not_restarted(workload.kind, workload.namespace, workload.name)


def _item(workload: Workload, lack: Lack, action: Action, why: str) -> RepairItem:
    return RepairItem(
        group=workload.group,
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        action=action,
        fields=lack.fields,
        policies=lack.policies,
        why=why,
    )


def ended(
    item: RepairItem, patched: Mapping[str, str], restarted: Mapping[Workload, str]
) -> Iterator[RepairItem]:
    """The item as it ended; two where only some of its pods could be changed.

    ``patched`` has by pod, ``restarted`` by workload why it is not right; empty where it is.
    """
    if item.action == RESTART:
        why = restarted.get(item.workload, "")
        yield replace(item, done=not why, why=why)
    elif item.action == LIST:
        yield item
    else:
        by_why: dict[str, list[str]] = {}
        for name in item.pods:
            by_why.setdefault(patched.get(name, ""), []).append(name)
        for why, names in by_why.items():
            yield replace(item, pods=tuple(names), done=not why, why=why)
