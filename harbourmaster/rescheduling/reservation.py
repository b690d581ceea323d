"""Nodes kept for critical add-ons: an annotation says for whom (rescheduler-spec 6.3).

A taint keeps other pods away. It is unique by key and effect, so all reservations of a node share
one. It is ours by its value, never by its key: others keep nodes by the same key for good.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.patches import escape
from harbourmaster.api.times import parse_rfc3339 as parse_time
from harbourmaster.rescheduling.model import RESERVATIONS, TAINT_KEY
from harbourmaster.rescheduling.taints import NO_SCHEDULE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

_MARK: Final = "resched."
_HEX: Final = 8
_WHOLE_MARK: Final = re.compile(rf"{re.escape(_MARK)}[0-9a-f]{{{_HEX}}}")
_ANNOTATIONS: Final = "/metadata/annotations"
_PATH: Final = f"{_ANNOTATIONS}/{escape(RESERVATIONS)}"
_TAINTS: Final = "/spec/taints"


class RecordedVictim(Struct, frozen=True, gc=False, rename={"namespace": "ns"}):
    """A pod that is to go."""

    uid: str
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """The key of the pod in the stores: ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class Reservation(Struct, frozen=True):
    """Whom a node is kept for: the ``pod`` is ``namespace/name``, times are RFC 3339 in UTC."""

    pod: str
    uid: str
    since: str = ""
    deadline: str = ""
    attempt: int = 1
    tier: int = 3
    victims: tuple[RecordedVictim, ...] = ()

    @property
    def ends(self) -> float:
        """The deadline in seconds since the epoch; long ago where it can't be read."""
        try:
            return parse_time(self.deadline).timestamp()
        except ValueError:
            return 0.0


class Held(Struct, frozen=True):
    """A node as far as reservations go, as it was read: taints with all of their fields.

    ``taints`` and ``annotations`` are None where the node has none.
    """

    name: str
    uid: str
    taints: tuple[dict[str, Any], ...] | None = None
    annotations: dict[str, str] | None = None

    @property
    def text(self) -> str | None:
        """Our annotation; None where it is not there."""
        return (self.annotations or {}).get(RESERVATIONS)

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        """The reservations in our annotation."""
        return parse(self.text)

    def has_ours(self, key: str) -> bool:
        """Whether anything of ours is on the node."""
        return self.text is not None or any(is_owned(taint, key) for taint in self.taints or ())


class _Metadata(Struct, frozen=True):
    name: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None


class _Spec(Struct, frozen=True):
    taints: tuple[dict[str, Any], ...] | None = None


class _Node(Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec | None = None


_decode_node: Final = msgspec.json.Decoder(_Node).decode
_decode_list: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_one: Final = msgspec.json.Decoder(Reservation).decode


def decode_held(raw: bytes | msgspec.Raw) -> Held:
    """Read a Node. Raises msgspec.DecodeError."""
    node = _decode_node(raw)
    taints = node.spec.taints if node.spec is not None else None
    metadata = node.metadata
    return Held(metadata.name, metadata.uid, taints or None, metadata.annotations or None)


def parse(text: str | None) -> tuple[Reservation, ...]:
    """Parse the reservations of our annotation; unreadable ones are skipped."""
    try:
        items = _decode_list(text or "[]")
    except (msgspec.DecodeError, RecursionError):
        return ()
    reservations: dict[str, Reservation] = {}
    for item in items:
        try:
            reservation = _decode_one(item)
        except (msgspec.DecodeError, RecursionError):
            continue
        namespace, _, name = reservation.pod.partition("/")
        if reservation.uid and namespace and name:
            reservations[reservation.uid] = reservation
    return tuple(reservations.values())


def render(reservations: Iterable[Reservation]) -> str:
    """The text of our annotation."""
    return msgspec.json.encode(list(reservations)).decode()


def taint_value(uid: str) -> str:
    """The value of the taint for a pod: the same length whatever its name is."""
    digest = hashlib.sha1(uid.encode(), usedforsecurity=False).hexdigest()
    return f"{_MARK}{digest[:_HEX]}"


def is_owned(taint: Mapping[str, Any], key: str) -> bool:
    """Whether we set a taint: by its value, for the key alone is everybody's."""
    return taint.get("key") == key and is_ours(taint.get("value"))


def is_ours(value: object) -> bool:
    """Whether a taint's value is one of ours."""
    return isinstance(value, str) and value.startswith(_MARK)


def has_our_mark(taint: Mapping[str, Any]) -> bool:
    """Whether a taint looks as ours do to the last sign, whatever its key is."""
    value = taint.get("value")
    is_whole = isinstance(value, str) and _WHOLE_MARK.fullmatch(value) is not None
    return is_whole and taint.get("effect") == NO_SCHEDULE


def is_legacy(taint: Mapping[str, Any], key: str, pending: Collection[str]) -> bool:
    """Whether the first rescheduler left a taint (``namespace_name``) whose pod waits no more."""
    value = taint.get("value")
    if taint.get("key") != key or not isinstance(value, str):
        return False
    namespace, _, name = value.partition("_")
    is_its = namespace == "kube-system" and bool(name) and taint.get("effect") == NO_SCHEDULE
    return is_its and f"{namespace}/{name}" not in pending


def reserve(held: Held, added: Reservation, key: str) -> list[dict[str, Any]]:
    """The JSON Patch that keeps the node for one pod more, or renews what is said of it."""
    others = [reservation for reservation in held.reservations if reservation.uid != added.uid]
    return arrange(held, [*others, added], key)


def arrange(
    held: Held,
    reservations: Sequence[Reservation],
    key: str,
    *,
    legacy: Collection[str] | None = None,
) -> list[dict[str, Any]]:
    """Return the JSON Patch after which the node has exactly these reservations; empty for none.

    A taint of ours without a reservation is removed. With ``legacy``, the keys of waiting pods,
    taints of the first rescheduler for other pods are removed, too.
    """
    value = taint_value(reservations[0].uid) if reservations else ""
    return _patch(held, _annotation(held, reservations), _taints(held, key, value, legacy))


def clear(held: Held) -> list[dict[str, Any]]:
    """The JSON Patch after which nothing of ours is on the node, whatever the key of our taint."""
    taints = [
        taint
        for taint in held.taints or ()
        if not (has_our_mark(taint) or is_owned(taint, TAINT_KEY))
    ]
    return _patch(held, _annotation(held, ()), taints)


def _patch(
    held: Held, annotation: list[dict[str, Any]], taints: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    before = list(held.taints or ())
    if not annotation and taints == before:
        return []
    operations = [{"op": "test", "path": "/metadata/uid", "value": held.uid}, *annotation]
    if taints != before:
        operations += [
            {"op": "test", "path": _TAINTS, "value": held.taints},
            {"op": "add", "path": _TAINTS, "value": taints},
        ]
    return operations


def _taints(
    held: Held, key: str, value: str, legacy: Collection[str] | None
) -> list[dict[str, Any]]:
    """The taints as they should be: others' in their order, and ours if ``value`` is given."""
    kept = [
        taint
        for taint in held.taints or ()
        if not (is_owned(taint, key) and not (value and taint.get("effect") == NO_SCHEDULE))
        # Beside our annotation it is one of ours from when the key was another one.
        and not (held.text is not None and taint.get("key") != key and has_our_mark(taint))
        and not (legacy is not None and is_legacy(taint, key, legacy))
    ]
    if not value or any(_takes_place(taint, key) for taint in kept):
        return kept
    return [*kept, {"key": key, "value": value, "effect": NO_SCHEDULE}]


def _annotation(held: Held, reservations: Sequence[Reservation]) -> list[dict[str, Any]]:
    text = render(reservations) if reservations else None
    if text == held.text:
        return []
    if text is None:
        return [
            {"op": "test", "path": _PATH, "value": held.text},
            {"op": "remove", "path": _PATH},
        ]
    if held.annotations is None:
        return [
            {"op": "test", "path": _ANNOTATIONS, "value": None},
            {"op": "add", "path": _ANNOTATIONS, "value": {RESERVATIONS: text}},
        ]
    return [
        {"op": "test", "path": _PATH, "value": held.text},
        {"op": "add", "path": _PATH, "value": text},
    ]


def _takes_place(taint: Mapping[str, Any], key: str) -> bool:
    """Whether the API takes no other taint beside this one; its value says whose it is."""
    return taint.get("key") == key and taint.get("effect") == NO_SCHEDULE
