"""The differences of a stored configuration from the desired one, and their repair (pure).

Others may add labels, annotations and owners of their own, terms of selectors and conditions
(``additions``), and a newer API server fields that we don't know: these stay.
"""

from __future__ import annotations

import base64
import copy
import ssl
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import MUTATING_WEBHOOKS
from harbourmaster.certs.secret import BLOCK
from harbourmaster.registration.additions import APPLIED, applied_to, merge
from harbourmaster.registration.desired import (
    GATED_PODS,
    HELD_PODS,
    RERUNS,
    TASK_DEFINITIONS_ENTRY,
    TEMPLATES,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CA_BUNDLE: Final = "clientConfig.caBundle"
ORDER: Final = "webhooks"
"""The field of a repair that only sorts entries."""
_SHOWN: Final = 120
"""Characters of a value in an event."""
_SETTINGS: Final = {
    "annotations": "webhook.annotations",
    "clientConfig.service.name": "webhook.serviceName",
    "clientConfig.service.namespace": "webhook.serviceNamespace",
    "clientConfig.service.port": "webhook.servicePort",
    "failurePolicy": "webhook.failurePolicy",
    "matchConditions": "webhook.matchConditions",
    "namespaceSelector": "webhook.namespaceSelector",
    "objectSelector": "webhook.objectSelector",
    "reinvocationPolicy": "webhook.reinvocationPolicy",
    "rules": "webhook.kinds",
    "timeoutSeconds": "webhook.timeoutSeconds",
}
_ENTRIES: Final = {HELD_PODS: "webhook.apiServerGate", TEMPLATES: "webhook.templates"}
_NO_SETTING_OF_OBJECTS: Final = frozenset(("namespaceSelector", "objectSelector", "rules"))
_UNWANTED: Final = (("matchConditions",), ("clientConfig", "url"))
"""Optional fields that are removed where we don't set them; others may be a newer server's."""


class Repair(Struct, frozen=True):
    """One difference. Values are JSON; None where there is nothing."""

    entry: str
    """Name of the webhook; empty for the object itself."""
    field: str
    """Dotted path below the entry; empty for the entry as a whole."""
    observed: Any
    wanted: Any
    setting: str = ""
    """The key that decides it; empty where none does."""

    @property
    def subject(self) -> str:
        """Return the repaired thing as events name it."""
        if not self.field:
            return f"webhook {self.entry}"
        name = self.field.rpartition(".")[2] if self.field == CA_BUNDLE else self.field
        return f"{name} of {self.entry}" if self.entry else name


def compare(observed: dict[str, Any], desired: dict[str, Any]) -> list[Repair]:
    """Return every difference that matters: of the metadata, then of the webhooks.

    Webhooks that should not exist come first, in the order in which they are stored; then the
    others in the order of the desired object.
    """
    return [
        *_metadata(observed, desired["metadata"]),
        *_webhooks(observed, merge(observed, desired)),
    ]


def apply_repairs(
    observed: dict[str, Any], repairs: Iterable[Repair], desired: dict[str, Any]
) -> dict[str, Any]:
    """A copy of the observed object with some differences repaired."""
    result = copy.deepcopy(observed)
    for repair in repairs:
        if repair.entry:
            _repair_entry(result, repair)
        elif repair.field != ORDER:
            _repair_metadata(result.setdefault("metadata", {}), repair)
    ranks = {entry["name"]: rank for rank, entry in enumerate(desired["webhooks"])}
    result["webhooks"] = sorted(
        result.get("webhooks") or (), key=lambda entry: ranks.get(entry["name"], len(ranks))
    )
    return result


def describe(repair: Repair, *, by_hand: bool) -> str:
    """Describe the repair in one sentence for an event.

    ``by_hand`` says that we have seen the object as it should be, so another client changed it.
    """
    was = _was(repair, by_hand=by_hand)
    if not repair.field and repair.wanted is None:
        now = "is removed: keep it in a configuration of your own"
    elif not repair.field:
        now = "is back" if by_hand else "is there"
    elif repair.field == CA_BUNDLE:
        now = "carries our authorities" + (" again" if by_hand else "")
    elif repair.wanted is None:
        now = "is removed"
    else:
        now = f"is {_shorten(repair.wanted)}" + (" again" if by_hand else " now")
    return f"{repair.subject} {was} and {now}{_advice(repair, by_hand=by_hand)}"


def certificates_in(ca_bundle: object) -> set[bytes] | None:
    """The certificates of a caBundle in base64, in DER; None where it is anything else."""
    try:
        pem = base64.b64decode(ca_bundle, validate=True) if isinstance(ca_bundle, str) else b""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=pem.decode("ascii", "ignore"))
        return {ssl.PEM_cert_to_DER_cert(block.decode()) for block in BLOCK.findall(pem)}
    except (ssl.SSLError, ValueError):
        return None


def _metadata(observed: dict[str, Any], desired: dict[str, Any]) -> Iterator[Repair]:
    metadata = observed.get("metadata") or {}
    earlier = dict.fromkeys(applied_to(observed) or ())
    annotations = {**earlier, **desired.get("annotations", {})}
    for field, texts in (("labels", desired["labels"]), ("annotations", annotations)):
        stored = metadata.get(field) or {}
        setting = _SETTINGS.get(field, "")
        for key, value in texts.items():
            if stored.get(key) != value:
                path = f"metadata.{field}[{key}]"
                yield Repair("", path, stored.get(key), value, "" if key == APPLIED else setting)
    owners = metadata.get("ownerReferences") or []
    for owner in desired.get("ownerReferences", ()):
        if not any(owner.items() <= reference.items() for reference in owners):
            ours = (reference for reference in owners if _is_ours(reference))
            yield Repair("", "metadata.ownerReferences", next(ours, None), owner)


def _webhooks(observed: dict[str, Any], desired: dict[str, Any]) -> Iterator[Repair]:
    entries = {entry["name"]: entry for entry in observed.get("webhooks") or ()}
    wanted = {entry["name"]: entry for entry in desired["webhooks"]}
    is_mutating = desired["kind"] == MUTATING_WEBHOOKS.kind
    for name, entry in entries.items():
        if name not in wanted:
            yield Repair(name, "", entry, None)
    for name, entry in wanted.items():
        if name not in entries:
            setting = _ENTRIES.get(name, "")
            yield Repair(name, "", None, entry, setting)
        else:
            yield from _entry(name, entries[name], entry, is_mutating=is_mutating)
    kept = [name for name in entries if name in wanted]
    right = [name for name in wanted if name in entries]
    if kept != right:
        yield Repair("", ORDER, kept, list(wanted))


def _entry(
    name: str, observed: dict[str, Any], desired: dict[str, Any], *, is_mutating: bool
) -> Iterator[Repair]:
    for path, wanted in _leaves(desired):
        field = ".".join(path)
        value = _at(observed, path)
        if field == CA_BUNDLE:
            same = value == wanted or certificates_in(value) == certificates_in(wanted)
        else:
            same = value == wanted
        if not same:
            setting = _setting(name, field, is_mutating=is_mutating)
            yield Repair(name, field, value, wanted, setting)
    for path in _UNWANTED:
        value = _at(observed, path)
        if value and not _at(desired, path):
            yield Repair(name, ".".join(path), value, None)


def _leaves(
    entry: dict[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the compared fields: those of clientConfig one by one, all others whole."""
    for key, value in entry.items():
        if key in {"clientConfig", "service"}:
            yield from _leaves(value, (*path, key))
        elif key != "name" or path:
            yield (*path, key), value


def _at(value: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _repair_entry(configuration: dict[str, Any], repair: Repair) -> None:
    entries = configuration.get("webhooks") or []
    if not repair.field:
        entries = [entry for entry in entries if entry["name"] != repair.entry]
        if repair.wanted is not None:
            entries.append(repair.wanted)
        configuration["webhooks"] = entries
        return
    target = next((entry for entry in entries if entry["name"] == repair.entry), None)
    *parents, key = repair.field.split(".")
    for parent in parents:
        below = target.get(parent) if target is not None else None
        if target is not None and not isinstance(below, dict):
            below = target[parent] = {}
        target = below
    if target is not None:
        _set_or_remove(target, key, repair.wanted)


def _set_or_remove(values: dict[str, Any], key: str, value: Any) -> None:  # noqa: ANN401
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


def _repair_metadata(metadata: dict[str, Any], repair: Repair) -> None:
    if repair.field == "metadata.ownerReferences":
        owners = [
            reference
            for reference in metadata.get("ownerReferences") or ()
            if not _is_ours(reference)
        ]
        metadata["ownerReferences"] = [*owners, repair.wanted]
    else:
        field, _, key = repair.field.removeprefix("metadata.").removesuffix("]").partition("[")
        metadata[field] = metadata.get(field) or {}
        _set_or_remove(metadata[field], key, repair.wanted)


def _is_ours(owner: dict[str, Any]) -> bool:
    """An owner of the kind that we set; one of an earlier namespace would delete the object."""
    return (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Namespace")


def _setting(entry: str, field: str, *, is_mutating: bool) -> str:
    if entry in {GATED_PODS, HELD_PODS} and field == "matchConditions":
        return "webhook.apiServerGate"
    if (entry == RERUNS or not is_mutating) and field in _NO_SETTING_OF_OBJECTS:
        return ""
    if entry in {GATED_PODS, RERUNS, TASK_DEFINITIONS_ENTRY} and field == "failurePolicy":
        return "webhook.gatedFailurePolicy"
    if entry != TEMPLATES and field == "rules":
        return ""
    return _SETTINGS.get(field, "")


def _was(repair: Repair, *, by_hand: bool) -> str:
    if not repair.field:
        was = "missing" if repair.observed is None else "there"
        done = "removed" if repair.observed is None else "added"
        return f"was {done} by hand" if by_hand else f"was {was}"
    if repair.field == CA_BUNDLE:
        return "was changed by hand" if by_hand else "was another"
    if repair.observed is None:
        return "was removed by hand" if by_hand else "was missing"
    shown = _shorten(repair.observed)
    return f"was set to {shown} by hand" if by_hand else f"was {shown}"


def _advice(repair: Repair, *, by_hand: bool) -> str:
    if not repair.field and repair.wanted is None:
        return ""
    if repair.setting:
        tail = "instead" if by_hand else "to have another"
        return f": change the setting {repair.setting} {tail}"
    if not by_hand:
        return ""
    return ": to keep configurations of your own, set registerWebhooks to false"


def _shorten(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
