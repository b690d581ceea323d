"""Reads a scheduler's questions to its extender, and writes answers (kube-scheduler's extender/v1).

The scheduler sends the names of the nodes that fit so far or, if it is not configured for names,
the whole nodes. Nodes that pass are returned unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from harbourmaster.api.metadata import OwnerReference
from harbourmaster.lifecycle.scheduling import CandidatePod

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harbourmaster.lifecycle.scheduling import Permission

Node = TypeVar("Node")

MOST_NODES: Final = 50_000
"""Maximum nodes of a question, because the answer has a reason for each: ten times Kubernetes'
limit."""
_NULL_TEXT: Final = b"null"
_NULL: Final = Raw(_NULL_TEXT)
_EMPTY: Final = Raw(b"[]")


class ArgumentsError(Exception):
    """The scheduler's request is invalid. The text is one line."""


class _Metadata(Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class _Spec(Struct, frozen=True, gc=False, rename="camel"):
    scheduler_name: str = ""


class _Pod(Struct, frozen=True, gc=False):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


class _Object(Struct, frozen=True, gc=False):
    metadata: _Metadata = _Metadata()


class _Nodes(Struct, frozen=True, gc=False):
    items: list[Raw] | None = None


class _FilterArguments(Struct, frozen=True, gc=False, rename="pascal"):
    pod: _Pod | None = None
    nodes: _Nodes | None = None
    node_names: Raw = _NULL


class _PreemptionArguments(Struct, frozen=True, gc=False, rename="pascal"):
    pod: _Pod | None = None
    node_name_to_meta_victims: Raw = _NULL
    node_name_to_victims: dict[str, Raw] | None = None


class _Victims(Struct, frozen=True, gc=False, rename="pascal"):
    pods: list[_Object] | None = None
    num_pdb_violations: int = msgspec.field(default=0, name="NumPDBViolations")


class _FilterResult(Struct, frozen=True, gc=False, rename="pascal", omit_defaults=True):
    node_names: Raw | list[str] | None = None
    nodes: dict[str, list[Raw]] | None = None
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


_decode_filter: Final = msgspec.json.Decoder(_FilterArguments).decode
_decode_preemption: Final = msgspec.json.Decoder(_PreemptionArguments).decode
_decode_names: Final = msgspec.json.Decoder(list[str]).decode
_decode_node: Final = msgspec.json.Decoder(_Object).decode
_decode_metas: Final = msgspec.json.Decoder(dict[str, Raw] | None).decode
_decode_victims: Final = msgspec.json.Decoder(_Victims).decode
_encode: Final = msgspec.json.Encoder().encode
_UNREADABLE: Final = (msgspec.MsgspecError, RecursionError, ValueError)


class FilterQuestion(Struct, frozen=True):
    """A question on which of some nodes ``pod`` may be placed."""

    pod: CandidatePod
    names: Raw
    nodes: list[Raw] | None

    def answer(self, given: Permission) -> bytes:
        """Return the nodes that can run the pod, and why the others cannot."""
        if not given.refusal and not given.avoided:
            # As it came: five thousand names need not be read.
            if self.nodes is not None:
                return _encode(_FilterResult(nodes={"items": self.nodes}))
            return _encode(_FilterResult(node_names=self.names))
        named = _by_name(_check_size(self.nodes)) if self.nodes is not None else {}
        names = list(named) if self.nodes is not None else _check_size(self._names())
        refused = {
            name: given.refusal or given.avoided[name]
            for name in names
            if given.refusal or name in given.avoided
        }
        good = [name for name in names if name not in refused]
        result = (
            _FilterResult(node_names=good or _EMPTY)
            if self.nodes is None
            else _FilterResult(nodes={"items": [named[name] for name in good]})
        )
        return _encode(msgspec.structs.replace(result, failed_and_unresolvable_nodes=refused))

    def _names(self) -> list[str]:
        try:
            return _decode_names(self.names)
        except _UNREADABLE as error:
            raise ArgumentsError(f"NodeNames: {error}") from None


def read_filter(body: bytes) -> FilterQuestion:
    """Decode the question in ``body``. Raises ArgumentsError."""
    try:
        arguments = _decode_filter(body)
        items = arguments.nodes.items if arguments.nodes is not None else None
    except _UNREADABLE as error:
        raise ArgumentsError(f"the body is not a valid ExtenderArgs: {error}") from None
    if arguments.pod is None:
        raise ArgumentsError("the ExtenderArgs contain no pod")
    if bytes(arguments.node_names) == _NULL_TEXT and items is None:
        raise ArgumentsError("the ExtenderArgs contain neither NodeNames nor Nodes")
    return FilterQuestion(_candidate(arguments.pod), arguments.node_names, items)


def filter_error(text: str) -> bytes:
    """Return an answer that lets no node pass: the scheduler shows ``text``, and asks again."""
    return _encode(_FilterResult(error=text))


class PreemptionQuestion(Struct, frozen=True):
    """A question on which nodes pods may be evicted for ``pod``."""

    pod: CandidatePod
    meta_victims: Raw
    victims: dict[str, Raw] | None

    def answer(self, given: Permission) -> bytes:
        """Return the victims without those of a pod, or on a node, that is not allowed yet."""
        if given.refusal:
            return preemption_refused()
        if self.victims is None and not given.avoided and bytes(self.meta_victims) != _NULL_TEXT:
            return b'{"NodeNameToMetaVictims":%b}' % bytes(self.meta_victims)
        if self.victims is not None:
            victims = {name: _meta(raw) for name, raw in self.victims.items()}
        else:
            victims = _decode_meta(self.meta_victims)
        kept = {name: meta for name, meta in victims.items() if name not in given.avoided}
        return _encode({"NodeNameToMetaVictims": kept})


def preemption_refused() -> bytes:
    """Return an answer by which no pod is evicted."""
    return b'{"NodeNameToMetaVictims":{}}'


def read_preemption(body: bytes) -> PreemptionQuestion:
    """Decode the question in ``body``. Raises ArgumentsError."""
    try:
        preemption = _decode_preemption(body)
        if preemption.node_name_to_victims is None:
            _decode_meta(preemption.node_name_to_meta_victims)
        else:
            for raw in preemption.node_name_to_victims.values():
                _decode_victims(raw)
    except _UNREADABLE as error:
        raise ArgumentsError(f"the body is not a valid ExtenderPreemptionArgs: {error}") from None
    if preemption.pod is None:
        raise ArgumentsError("the ExtenderPreemptionArgs contain no pod")
    return PreemptionQuestion(
        _candidate(preemption.pod),
        preemption.node_name_to_meta_victims,
        preemption.node_name_to_victims,
    )


def _check_size(nodes: list[Node]) -> list[Node]:
    if len(nodes) > MOST_NODES:
        raise ArgumentsError(f"{len(nodes)} nodes, more than {MOST_NODES}")
    return nodes


def _by_name(nodes: list[Raw]) -> dict[str, Raw]:
    try:
        return {_decode_node(raw).metadata.name: raw for raw in nodes}
    except _UNREADABLE as error:
        raise ArgumentsError(f"Nodes: {error}") from None


def _decode_meta(raw: Raw) -> dict[str, Raw]:
    return _decode_metas(raw) or {}


def _meta(raw: Raw) -> Raw:
    victims = _decode_victims(raw)
    pods = [{"UID": pod.metadata.uid} for pod in victims.pods or ()]
    return Raw(_encode({"Pods": pods, "NumPDBViolations": victims.num_pdb_violations}))


def _candidate(pod: _Pod) -> CandidatePod:
    metadata = pod.metadata
    owners: Sequence[OwnerReference] = metadata.owner_references or ()
    return CandidatePod(
        namespace=metadata.namespace,
        annotations=metadata.annotations or {},
        labels=metadata.labels or {},
        owner_references=owners,
        scheduler=pod.spec.scheduler_name,
    )
