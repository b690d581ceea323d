"""What a plan is made from: a live cluster, or what kubectl printed of one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw, Struct

from harbourmaster.api.decoding import MalformedError, decode
from harbourmaster.api.resources import DISRUPTION_BUDGETS, NAMESPACES, NODES, PODS
from harbourmaster.cli.live.cluster import collect
from harbourmaster.rescheduling import reservation
from harbourmaster.rescheduling.cluster import Cluster
from harbourmaster.rescheduling.model import PendingPod
from harbourmaster.rescheduling.plans import Circumstances
from harbourmaster.rescheduling.wire import decode_budget, decode_namespace, decode_node, decode_pod
from harbourmaster.serving.documents import Problem, parse_documents
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from harbourmaster.kube.client import Client
    from harbourmaster.rescheduling.model import Criteria, Pod


class UnreadableError(Exception):
    """An invalid dump; the text is one line with the file and what is wrong with it."""


class _Object(Struct, frozen=True):
    kind: str = ""


class _List(Struct, frozen=True):
    kind: str = ""
    items: tuple[Raw, ...] | None = None


_kind_of: Final = msgspec.json.Decoder(_Object)
_decode_list: Final = msgspec.json.Decoder(_List).decode
_READ: Final = (NODES, NAMESPACES, DISRUPTION_BUDGETS, PODS)
_STANDARD_INPUT: Final = "-"


class State:
    """A cluster as it was read; ``asked`` is the pod that was asked about, if it is there."""

    def __init__(self, criteria: Criteria, namespace: str, name: str) -> None:
        self.cluster = Cluster()
        self.asked: Pod | PendingPod | None = None
        self._criteria = criteria
        self._key = f"{namespace}/{name}"
        self._readers: dict[str, Callable[[Raw], None]] = {
            NODES.kind: self._node,
            NAMESPACES.kind: self._namespace,
            DISRUPTION_BUDGETS.kind: self._budget,
            PODS.kind: self._pod,
        }

    def read(self, raw: Raw, kind: str) -> None:
        """Add an object; other kinds are ignored. Raises MalformedError."""
        reader = self._readers.get(kind)
        if reader is not None:
            reader(raw)

    def around(self) -> Circumstances:
        """The reservations for other pods, as the annotations of nodes say."""
        reserved: dict[str, list[Pod]] = {}
        departing: set[str] = set()
        asked = self.asked.pod.uid if isinstance(self.asked, PendingPod) else ""
        for node in self.cluster.nodes():
            for each in reservation.parse(node.reservations):
                waiting = self.cluster.pending.get(each.uid)
                if each.uid == asked or waiting is None:
                    continue
                reserved.setdefault(node.name, []).append(waiting.pod)
                departing.update(victim.uid for victim in each.victims)
        return Circumstances(reserved=reserved, departing=frozenset(departing))

    def _node(self, raw: Raw) -> None:
        self.cluster.put_node(decode_node(raw))

    def _namespace(self, raw: Raw) -> None:
        self.cluster.put_namespace(*decode_namespace(raw))

    def _budget(self, raw: Raw) -> None:
        self.cluster.put_budget(decode_budget(raw))

    def _pod(self, raw: Raw) -> None:
        found = decode_pod(raw, self._criteria)
        key = found.pod.key if isinstance(found, PendingPod) else found.key
        if key == self._key:
            self.asked = found
        self.cluster.put_pod(found)


async def survey(client: Client, state: State) -> None:
    """Read a live cluster. Raises an ApiError."""
    for resource in _READ:

        def take(raw: Raw, kind: str = resource.kind) -> None:
            state.read(raw, kind)

        await collect(client, resource, take)


def load(file: Path, state: State) -> None:
    """Read what kubectl printed. Raises UnreadableError."""
    seen: set[str] = set()
    for index, raw in enumerate(objects_in(file)):
        try:
            kind = decode(_kind_of, raw, "").kind
            seen.add(kind)
            state.read(raw, kind)
        except MalformedError as error:
            raise UnreadableError(f"{file}: items[{index}]: {error}") from None
    missing = [each.plural for each in (NODES, PODS) if each.kind not in seen]
    if missing:
        raise UnreadableError(
            f"{file}: contains no {' and no '.join(missing)}: create it with kubectl get "
            "pods,nodes,pdb,namespaces --all-namespaces -o json"
        )


def objects_in(file: Path) -> Iterator[Raw]:
    """Each object of a dump, JSON or YAML. Raises UnreadableError."""
    try:
        is_input = str(file) == _STANDARD_INPUT
        text = sys.stdin.buffer.read() if is_input else file.read_bytes()
    except OSError as error:
        raise UnreadableError(f"{file}: cannot be read: {reason(error)}") from None
    try:
        found = _decode_list(text)
    except (msgspec.DecodeError, RecursionError):
        yield from _from_yaml(text, file)
        return
    if found.items is None:
        yield Raw(text)
        return
    yield from found.items


def _from_yaml(text: bytes, file: Path) -> Iterator[Raw]:
    for document in parse_documents(text, str(file)):
        if isinstance(document, Problem):
            raise UnreadableError(str(document))
        yield Raw(msgspec.json.encode(document.value))
