"""Judges whether recreated pods would fit one of today's nodes, by the rescheduler's rules.

Each pod is judged as if it alone was recreated and all others stayed.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.cli.live.kinds import OF_DAEMONS
from harbourmaster.cli.preview.compare import Fit
from harbourmaster.rescheduling.anti_affinity import Rivals, rivals
from harbourmaster.rescheduling.decoding import decode_pending
from harbourmaster.rescheduling.fit import fits, resource_reasons, static_reasons, sum_requests
from harbourmaster.rescheduling.model import Node, PendingPod, Toleration

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from harbourmaster.cli.preview.compare import Difference
    from harbourmaster.rescheduling.model import FitVerdict, Pod

_REASONS: Final = 5
"""Kinds of reasons that are listed."""
DAEMON_TOLERATIONS: Final = tuple(
    Toleration(key=key, operator="Exists", effect=effect) for key, effect in OF_DAEMONS
)
"""The tolerations that the DaemonSet controller adds to each of its pods."""
_NAMED: Final = Toleration(operator="Exists", effect="NoSchedule")
"""Tolerates every NoSchedule taint, because a pod with ``nodeName`` bypasses the scheduler."""
_encode: Final = msgspec.json.Encoder().encode


_Placed: TypeAlias = "tuple[Pod, Node]"


class _Wish(Struct, frozen=True):
    """A pod to create, the nodes that its static constraints allow, and why not the others.

    ``apart`` are the pods that conflict by anti-affinity, and ``near`` the nodes that they close.
    """

    pod: PendingPod
    nodes: dict[str, Node]
    reasons: dict[str, int]
    apart: list[_Placed]
    near: Rivals


class Places:
    """Judges pods by the nodes and pods of a cluster."""

    def __init__(
        self,
        nodes: Iterable[Node],
        pods: Iterable[Pod],
        namespaces: Mapping[str, Mapping[str, str]],
    ) -> None:
        self.nodes = {node.name: node for node in nodes}
        self._namespaces = namespaces
        self._present: dict[str, list[Pod]] = {name: [] for name in self.nodes}
        for pod in pods:
            if pod.node in self._present and not pod.is_finished:
                self._present[pod.node].append(pod)
        self._used = {name: (sum_requests(pods), len(pods)) for name, pods in self._present.items()}
        self._placed: list[_Placed] = [
            (pod, node) for node in self.nodes.values() for pod in self._present[node.name]
        ]
        self._by_namespace: dict[str, list[_Placed]] = {}
        self._aimed: dict[str, list[_Placed]] = {}
        """Pods by the namespaces that their anti-affinity names, "" for all if it selects them."""
        for placed in self._placed:
            self._by_namespace.setdefault(placed[0].namespace, []).append(placed)
            for name in _aims(placed[0]):
                self._aimed.setdefault(name, []).append(placed)
        self._candidates: dict[Hashable, tuple[dict[str, Node], dict[str, int]]] = {}
        self._kept_apart: dict[Hashable, tuple[list[_Placed], Rivals]] = {}

    def judge(self, difference: Difference, pods: Sequence[Pod], *, is_daemon: bool) -> Fit:
        """Judge the pods of a workload, or one that it would make where it has none.

        Raises MalformedError.
        """
        now, then = (
            self._wish(pod, is_daemon=is_daemon) for pod in (difference.now, difference.then)
        )
        if is_daemon:
            verdicts = [
                (self._fits_at(now, pod), self._fits_at(then, pod))
                for pod in pods
                if pod.node in self.nodes
            ]
        else:
            anywhere = [self._fits(wish, None) for wish in (now, then)]
            verdicts = [
                (self._of(now, pod, anywhere[0]), self._of(then, pod, anywhere[1])) for pod in pods
            ] or [(anywhere[0], anywhere[1])]
        counts = Counter(verdicts)
        lost = counts[True, False] + counts[None, False]
        return Fit(
            pods=len(verdicts),
            lost=lost,
            already=counts[False, False],
            gained=counts[False, True],
            unjudged=sum(count for (_, after), count in counts.items() if after is None),
            reasons=self._why_not(then) if lost else {},
        )

    def _wish(self, pod: dict[str, Any], *, is_daemon: bool) -> _Wish:
        pending = decode_pending(_encode(pod))
        if is_daemon:
            pending = replace(pending, tolerations=(*pending.tolerations, *DAEMON_TOLERATIONS))
        if pending.node_name:
            pending = replace(pending, tolerations=(*pending.tolerations, _NAMED))
        key = (
            pending.node_name,
            pending.node_selector,
            pending.node_terms,
            pending.tolerations,
        )
        known = self._candidates.get(key)
        if known is None:
            known = self._candidates[key] = self._look(pending)
        return _Wish(pending, *known, *self._apart(pending.pod))

    def _look(self, pending: PendingPod) -> tuple[dict[str, Node], dict[str, int]]:
        nodes, reasons = {}, Counter[str]()
        for node in self.nodes.values():
            node_reasons = static_reasons(pending, node, reserving=False)
            reasons.update(node_reasons)
            if not node_reasons:
                nodes[node.name] = node
        return nodes, dict(reasons)

    def _of(self, wish: _Wish, pod: Pod, anywhere: bool | None) -> bool | None:
        """Whether one of the pods fits on any node while all others stay."""
        if anywhere is True:
            return True
        own = self._fits_at(wish, pod)
        if own is True:
            return True
        if any(neighbour.uid == pod.uid for neighbour, _ in wish.apart):
            # Its former self does not keep it away.
            return self._fits(wish, pod)
        return None if None in {own, anywhere} else False

    def _fits_at(self, wish: _Wish, pod: Pod) -> bool | None:
        """Whether a pod fits on its own node if it is recreated."""
        node = wish.nodes.get(pod.node)
        if node is None:
            return False
        beside = [neighbour for neighbour in self._present[node.name] if neighbour.uid != pod.uid]
        return self._verdict(wish, node, beside, self._rivals(wish, pod)).fits

    def _fits(self, wish: _Wish, without: Pod | None) -> bool | None:
        """Whether the pod fits on any node, if ``without`` is gone; None if this is unknown."""
        fits_any: bool | None = False
        near = None
        for node in wish.nodes.values():
            taken, count = self._used[node.name]
            is_own = without is not None and without.node == node.name
            if not is_own and resource_reasons(wish.pod.pod.requests, node, taken, count):
                continue
            if near is None:
                near = self._rivals(wish, without)
            beside: Iterable[Pod] = self._present[node.name]
            if without is not None:
                beside = [neighbour for neighbour in beside if neighbour.uid != without.uid]
            verdict = self._verdict(wish, node, beside, near).fits
            if verdict:
                return True
            if verdict is None:
                fits_any = None
        return fits_any

    def _verdict(self, wish: _Wish, node: Node, beside: Iterable[Pod], near: Rivals) -> FitVerdict:
        return fits(wish.pod, node, beside, rivals=near, namespaces=self._namespaces)

    def _rivals(self, wish: _Wish, without: Pod | None) -> Rivals:
        if without is None:
            return wish.near
        placed = [pair for pair in wish.apart if pair[0].uid != without.uid]
        return rivals(wish.pod.pod, placed, self._namespaces)

    def _apart(self, pod: Pod) -> tuple[list[_Placed], Rivals]:
        """Return the pods that conflict by anti-affinity, and the nodes that they close.

        The answer is cached for pods with the same labels and terms.
        """
        key = (pod.namespace, frozenset(pod.labels.items()), pod.anti_affinity)
        known = self._kept_apart.get(key)
        if known is None:
            pods = self._conflicting_pods(pod)
            near = rivals(pod, pods, self._namespaces)
            known = self._kept_apart[key] = pods, near
        return known

    def _conflicting_pods(self, pod: Pod) -> list[_Placed]:
        """Return the pods that can conflict with this one by anti-affinity of either."""
        aims = _aims(pod)
        asked = (
            self._placed
            if "" in aims
            else chain(
                self._aimed.get("", ()),
                self._aimed.get(pod.namespace, ()),
                *(self._by_namespace.get(name, ()) for name in aims),
            )
        )
        repelled = {
            neighbour.uid: (neighbour, node)
            for neighbour, node in asked
            if (near := rivals(pod, ((neighbour, node),), self._namespaces)).certain
            or near.doubtful
        }
        return list(repelled.values())

    def _why_not(self, wish: _Wish) -> dict[str, int]:
        """Count the nodes by the reason why the pod does not fit; the most frequent come first."""
        reasons = Counter(wish.reasons)
        near = self._rivals(wish, None)
        for node in wish.nodes.values():
            taken, count = self._used[node.name]
            why = resource_reasons(wish.pod.pod.requests, node, taken, count)
            reasons.update(why or self._verdict(wish, node, self._present[node.name], near).reasons)
        return dict(reasons.most_common(_REASONS))


def _aims(pod: Pod) -> frozenset[str]:
    """Return the namespaces that its anti-affinity names; "" if it selects them by label."""
    terms = pod.anti_affinity
    if any(term.namespace_selector is not None for term in terms):
        return frozenset(("",))
    return frozenset().union(*(term.namespaces for term in terms))
