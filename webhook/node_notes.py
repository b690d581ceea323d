"""Warnings on pods that no node matches: they would stay Pending."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.api.decoding import MalformedError
from harbourmaster.policies.affinity import required_terms
from harbourmaster.policies.merge import DEFAULT_SCHEDULER, merged_fields
from harbourmaster.policies.model import AFFINITY, NODE_SELECTOR, TOLERATIONS
from harbourmaster.policies.notes import Note
from harbourmaster.policies.requirements import SCOPES
from harbourmaster.rescheduling.model import NodeRequirement
from harbourmaster.rescheduling.unmet import unmet
from harbourmaster.rescheduling.wire import decode_pending

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from harbourmaster.policies.compiled import CompiledPolicy
    from harbourmaster.policies.merge import MergeOptions
    from harbourmaster.policies.pods import Kind, PodView
    from harbourmaster.rescheduling.model import PendingPod
    from harbourmaster.rescheduling.unmet import KnownNodes, Unmet

_NEVER: Final = -1
_encode: Final = msgspec.json.Encoder().encode


class NodeCheck:
    """A pod with its policies, and what is said of it; asked again only when the nodes change."""

    __slots__ = ("_kind", "_notes", "_pending", "_pod", "_policies", "_version")

    def __init__(
        self,
        kind: Kind,
        pod: PodView,
        policies: tuple[CompiledPolicy, ...],
        options: MergeOptions,
        scheduler: str,
    ) -> None:
        """``scheduler`` is where pods wait; those of unknown schedulers are not judged."""
        self._kind, self._pod, self._policies = kind, pod, policies
        self._pending = _pending(pod, policies, options, scheduler)
        self._version = _NEVER
        self._notes: tuple[Note, ...] = ()

    def notes(self, nodes: KnownNodes) -> tuple[Note, ...]:
        """The warning, if no node matches."""
        pending = self._pending
        if pending is not None and self._version != nodes.version:
            # Whoever makes a pod for a node may know it before us.
            is_judged = self._kind.is_template or nodes.knows_names(pending)
            found = unmet(pending, nodes) if is_judged else None
            self._notes = () if found is None else (Note("no-node-matches", self._text(found)),)
            self._version = nodes.version
        return self._notes

    def _text(self, found: Unmet) -> str:
        at = self._kind.pointer[1:].replace("/", ".")
        if found.taints:
            return f"{found.text}: pods stay Pending: add a toleration to {at}.{TOLERATIONS}"
        sources = ", ".join(dict.fromkeys(self._sources(found.requirements, at)))
        by = f" ({sources})" if sources else ""
        return f"{found.text}{by}: pods stay Pending: label a node, or change what is required"

    def _sources(self, requirements: Iterable[NodeRequirement], at: str) -> Iterator[str]:
        """Where each requirement comes from: a policy, or a field of the pod."""
        spec = self._pod.spec
        selected = set(_selected((spec and spec.node_selector) or {}))
        own = {*selected, *_required(required_terms(self._pod.affinity))}
        for each in requirements:
            if each in own:
                yield f"{at}.{NODE_SELECTOR if each in selected else AFFINITY}"
                continue
            writers = (one.reference for one in self._policies if each in _asked(one))
            yield from [*writers][:1]


def _pending(
    pod: PodView, policies: tuple[CompiledPolicy, ...], options: MergeOptions, scheduler: str
) -> PendingPod | None:
    """The pod as it becomes; None for one that no scheduler that we know places."""
    try:
        found = decode_pending(_encode({"spec": merged_fields(pod, policies, options)}))
    except MalformedError:
        # The API server says what is wrong.
        return None
    is_placed = found.node_name or found.scheduler not in {DEFAULT_SCHEDULER, scheduler}
    return None if is_placed else found


def _asked(policy: CompiledPolicy) -> Iterator[NodeRequirement]:
    yield from _selected(dict(policy.node_selector))
    for each in (policy.required, policy.node_name_requirement):
        if each is not None:
            yield from _required(each.terms.terms)


def _selected(labels: dict[str, str]) -> Iterator[NodeRequirement]:
    yield from (NodeRequirement(key, "In", (value,)) for key, value in labels.items())


def _required(terms: Sequence[dict[str, Any]]) -> Iterator[NodeRequirement]:
    for term in terms:
        for each in (one for scope in SCOPES for one in term.get(scope) or ()):
            values = tuple(each.get("values") or ())
            yield NodeRequirement(each.get("key") or "", each.get("operator") or "", values)
