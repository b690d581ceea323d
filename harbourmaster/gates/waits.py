"""Waits that a pod asks for in one annotation: for which objects, and for how long. No I/O.

``gates.harbourmaster.dev/wait-for: job/migrate, pod/app=cache, optional:service/queue``
An item is ``[optional:]KIND/NAME[#condition=TYPE[:STATUS] | #field=PATH:VALUE]``.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from msgspec import Struct

from harbourmaster.api import resources
from harbourmaster.api.durations import parse_duration
from harbourmaster.api.names import did_you_mean, dns_subdomain, label_value, qualified_name
from harbourmaster.api.resources import Resource
from harbourmaster.gates.metadata import cut

if TYPE_CHECKING:
    from collections.abc import Mapping

WAIT_FOR_KEY: Final = "gates.harbourmaster.dev/wait-for"
"""Annotation of a pod; as a label of a namespace, DISABLED or REQUIRED."""
TIMEOUT_KEY: Final = "gates.harbourmaster.dev/wait-timeout"
ON_TIMEOUT_KEY: Final = "gates.harbourmaster.dev/wait-on-timeout"
WAITED_KEY: Final = "gates.harbourmaster.dev/waited"
"""On a pod whose wait is over without its gate being removed: MET or TIMED_OUT."""
WAIT_KEYS: Final = (WAIT_FOR_KEY, TIMEOUT_KEY, ON_TIMEOUT_KEY)
"""The annotations of a wait, in a pod template or in its workload's own metadata."""
INHERITED_KEY: Final = "gates.harbourmaster.dev/inherited-wait"
"""On a pod template whose wait is that of its workload; the value is a digest of the wait."""
MET: Final = "met"
TIMED_OUT: Final = "timed-out"
DISABLED: Final = "disabled"
"""Pods of the namespace do not wait for objects."""
REQUIRED: Final = "required"
"""Pods of the namespace are not created while the webhook is down."""
OF_NAMESPACES: Final = (REQUIRED, DISABLED)

OnTimeout = Literal["Keep", "Release", "Fail"]
ON_TIMEOUT: Final[tuple[OnTimeout, ...]] = ("Keep", "Release", "Fail")
MAX_ITEMS: Final = 32
MAX_TEXT: Final = 4096
"""Characters of the annotation."""
_COMPARED: Final = 32
"""Characters of words that are compared or parsed; each takes time."""
KINDS: Final[Mapping[str, Resource]] = {
    "job": resources.JOBS,
    "deployment": resources.DEPLOYMENTS,
    "statefulset": resources.STATEFUL_SETS,
    "daemonset": resources.DAEMON_SETS,
    "pod": resources.PODS,
    "service": resources.SERVICES,
    "configmap": resources.CONFIG_MAPS,
    "crd": resources.DEFINITIONS,
    "secret": resources.SECRETS,
}
"""Kinds with a name of their own; any other is ``PLURAL.GROUP``."""
_SHORT: Final = {
    "deploy": "deployment",
    "sts": "statefulset",
    "ds": "daemonset",
    "po": "pod",
    "svc": "service",
    "cm": "configmap",
    "crds": "crd",
}
_WORDS: Final = {
    **{kind: kind for kind in KINDS},
    **{resource.plural: name for name, resource in KINDS.items()},
    **{resource.kind.lower(): name for name, resource in KINDS.items()},
    **{resource.name: name for name, resource in KINDS.items() if resource.group},
    **_SHORT,
}
_ITEM: Final = re.compile(
    r"(?P<optional>optional:)?(?P<kind>[a-z0-9.-]+)/(?P<name>[^#]+)"
    r"(?:#(?P<test>condition|field)=(?P<path>[^:]+)(?::(?P<value>.+))?)?",
    re.ASCII,
)
_CUSTOM: Final = re.compile(r"([a-z0-9-]+)\.(v[0-9]+(?:(?:alpha|beta)[0-9]+)?)\.([a-z0-9.-]+)")
_SHAPE: Final = "write KIND/NAME, for example job/migrate or pod/app=cache"


class WaitItem(Struct, frozen=True):
    """One object, or the pods with a label, and what must hold of it."""

    text: str
    """The item as in the annotation, without ``optional:``."""
    kind: str
    """A key of KINDS, or ``PLURAL.GROUP``."""
    name: str = ""
    label: tuple[str, str] | None = None
    """The label of pods, if the item has no name."""
    test: Literal["", "condition", "field"] = ""
    """Empty: the object is ready, as its kind has it, or exists."""
    path: str = ""
    """The type of a condition, or a path of fields with dots."""
    value: str = ""
    is_optional: bool = False


class Waits(Struct, frozen=True):
    """All that a pod waits for; with a fault it is blocked."""

    items: tuple[WaitItem, ...] = ()
    timeout: float = 0.0
    """Seconds from the pod's creation; 0 for no limit."""
    on_timeout: OnTimeout = "Keep"
    faults: tuple[str, ...] = ()
    """Lines of the form ``what is wrong: where: what to do``."""


def waits_of(annotations: Mapping[str, str]) -> Waits | None:
    """Return the waits of a pod with these annotations; None if it waits for nothing."""
    text = annotations.get(WAIT_FOR_KEY)
    if text is None:
        return None
    limits = (annotations.get(key, "")[: _COMPARED + 1] for key in (TIMEOUT_KEY, ON_TIMEOUT_KEY))
    return _parse(text[: MAX_TEXT + 1], *limits)


class InheritedWait(NamedTuple):
    """The changes of a template's annotations that give it the wait of its workload."""

    added: Mapping[str, str] = {}
    removed: tuple[str, ...] = ()
    is_shadowed: bool = False
    """Whether the workload's wait has no effect, because the template was given another one."""


def inherit_wait(own: Mapping[str, str], template: Mapping[str, str]) -> InheritedWait:
    """Compare the wait in a workload's own metadata with that of its template.

    A template that was given a wait keeps it.
    """
    present = {key: template[key] for key in WAIT_KEYS if key in template}
    wanted = {key: own[key] for key in WAIT_KEYS if key in own}
    if present and not is_wait_inherited(template):
        return InheritedWait(is_shadowed=bool(wanted.items() - present.items()))
    if WAIT_FOR_KEY not in wanted:
        wanted = {}
    if wanted == present:
        return InheritedWait()
    marked = wanted and {**wanted, INHERITED_KEY: _digest(wanted)}
    added = {key: value for key, value in marked.items() if template.get(key) != value}
    removed = {*present, INHERITED_KEY} & template.keys() - marked.keys()
    return InheritedWait(added, tuple(sorted(removed)))


def is_wait_inherited(annotations: Mapping[str, str]) -> bool:
    """Return whether a template, or a pod of it, has the wait of the workload's metadata."""
    wait = {key: annotations[key] for key in WAIT_KEYS if key in annotations}
    return annotations.get(INHERITED_KEY) == _digest(wait)


def _digest(wait: Mapping[str, str]) -> str:
    return hashlib.sha256(repr(sorted(wait.items())).encode()).hexdigest()[:8]


def kind_of(entry: str) -> tuple[str, Resource]:
    """Return the kind of an entry of a list of kinds as items name it, and its resource.

    Raises ValueError with one line.
    """
    if known := _WORDS.get(entry):
        return known, KINDS[known]
    match = _CUSTOM.fullmatch(entry)
    if match is None:
        to_do = "write PLURAL.VERSION.GROUP, for example widgets.v1.example.com"
        raise ValueError(f'"{entry}" is not a kind: {to_do}')
    plural, version, group = match.groups()
    if known := _WORDS.get(f"{plural}.{group}"):
        return known, KINDS[known]
    return f"{plural}.{group}", Resource(group, version, plural, plural)


# All pods of a workload have the same texts.
@lru_cache(maxsize=1024)
def _parse(text: str, timeout: str, on_timeout: str) -> Waits | None:
    parts = text.replace(",", " ").split()
    if not parts:
        return None
    items, faults = [], []
    if len(text) > MAX_TEXT:
        parts = []
        faults.append(_fault(f"more than {MAX_TEXT} characters", "shorten it"))
    if len(parts) > MAX_ITEMS:
        faults.append(_fault(f"{len(parts)} items", f"name at most {MAX_ITEMS}"))
    for part in dict.fromkeys(parts[:MAX_ITEMS]):
        try:
            items.append(_item(part, suggests=not faults))
        except ValueError as error:
            faults.append(str(error))
    seconds = 0.0
    try:
        if len(timeout) <= _COMPARED:
            seconds = parse_duration(timeout) if timeout else 0.0
    except ValueError as error:
        fault, _, to_do = str(error).partition(": ")
        faults.append(_fault(fault, to_do, TIMEOUT_KEY))
    if timeout and seconds <= 0 and not faults:
        to_do = "write for example 10m"
        faults.append(_fault(f'"{cut(timeout)}" is not positive', to_do, TIMEOUT_KEY))
    chosen = next((choice for choice in ON_TIMEOUT if choice == (on_timeout or "Keep")), None)
    if chosen is None:
        to_do = f"write {', '.join(ON_TIMEOUT[:-1])} or {ON_TIMEOUT[-1]}"
        faults.append(_fault(f'"{cut(on_timeout)}" is unknown', to_do, ON_TIMEOUT_KEY))
    return Waits(tuple(items), seconds, chosen or "Keep", tuple(faults))


def _item(part: str, *, suggests: bool) -> WaitItem:
    """Raises ValueError with a fault; ``suggests``: with what may be meant, which takes time."""
    match = _ITEM.fullmatch(part)
    if match is None:
        raise ValueError(_fault(f'"{cut(part)}" is not an object', _SHAPE))
    word, name = match["kind"], match["name"]
    kind = _WORDS.get(word) or word
    if kind not in KINDS and "." not in kind:
        near = did_you_mean(word, _WORDS) if suggests and len(word) <= _COMPARED else ""
        if _ITEM.fullmatch(name) and "/" in name:
            near = f"objects are of the pod's own namespace: write {cut(name)}"
        to_do = near or f"use {', '.join(KINDS)} or PLURAL.GROUP"
        raise ValueError(_fault(f'"{cut(word)}" is not a kind', to_do))
    key, is_label, label = name.partition("=") if kind == "pod" else (name, "", "")
    wrong = [*qualified_name(key), *label_value(label)] if is_label else dns_subdomain(name)
    if wrong:
        what = "label" if is_label else "name"
        raise ValueError(_fault(f'"{cut(name)}" is not a {what}', wrong[0]))
    test, value = match["test"] or "", match["value"] or ""
    if test and kind == "secret":
        # Events and reports tell whether it is so, to people who cannot read Secrets.
        wrong_part = f'"{cut(part)}" tests the content of a Secret'
        raise ValueError(_fault(wrong_part, "write secret/NAME"))
    if test == "field" and is_label:
        raise ValueError(_fault(f'"{cut(part)}" tests a field of many pods', "name one pod"))
    if test == "field" and not value:
        to_do = "write #field=PATH:VALUE, for example #field=status.phase:Active"
        raise ValueError(_fault(f'"{cut(part)}" has no value', to_do))
    return WaitItem(
        text=part.removeprefix("optional:"),
        kind=kind,
        name="" if is_label else name,
        label=(key, label) if is_label else None,
        test=test,  # type: ignore[arg-type] # the pattern has no other
        path=(match["path"] or "").removeprefix("."),
        value=value or ("True" if test else ""),
        is_optional=bool(match["optional"]),
    )


def _fault(wrong: str, to_do: str, key: str = WAIT_FOR_KEY) -> str:
    return f"{wrong}: metadata.annotations[{key}]: {to_do}"
