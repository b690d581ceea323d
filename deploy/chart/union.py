"""Merges what overlays render into templates, with conditions where they differ."""  # noqa: INP001 -- for the script beside it
# ruff: noqa: ANN401 -- manifests of any kind

from __future__ import annotations

import json
import re
import sys
from difflib import SequenceMatcher
from functools import cache
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml
from overlays import Overlay, additions, size, with_parts  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Term = tuple[Overlay, Overlay]
"""The components that must be included, and those that must not."""
Alternative = tuple[list[Term], Any]
"""A condition, and the value where it is met."""

NAMESPACE: Final = "harbourmaster-system"
_CERTMANAGER: Final = 'eq .Values.certificates "certManager"'
_OWN_AUTHORITY: Final = f"and ({_CERTMANAGER}) (not .Values.certManager.issuerRef)"
ONLY_IF: Final = {
    "Namespace": ".Values.namespace.create",
    "CustomResourceDefinition": ".Values.crds.install",
    "ServiceAccount/harbourmaster-controller": ".Values.controller.serviceAccount.create",
    "ServiceAccount/harbourmaster-webhook": ".Values.webhook.serviceAccount.create",
    "Certificate": _CERTMANAGER,
    "Certificate/harbourmaster-webhook-ca": _OWN_AUTHORITY,
    "Issuer": _OWN_AUTHORITY,
}
"""Conditions of all objects of a kind, or of one."""


class Expression(NamedTuple):
    """A template's pipeline in place of a value.

    ``form``: value, optional, items of a list, or members of a mapping, whose key is "".
    """

    pipeline: str
    form: str = "value"


def templates(renderings: Mapping[Overlay, list[dict[str, Any]]]) -> dict[str, str]:
    """A template for each kind, with all objects that any overlay has."""
    objects: dict[tuple[str, str, str], dict[Overlay, Any]] = {}
    for overlay, objects_of_overlay in renderings.items():
        for obj in objects_of_overlay:
            metadata = obj["metadata"]
            key = obj["kind"], metadata.get("namespace", ""), metadata["name"]
            objects.setdefault(key, {})[overlay] = obj
    files: dict[str, list[str]] = {}
    for (kind, _, name), values in sorted(objects.items()):
        lines = files.setdefault(
            f"templates/{kind.lower()}.yaml",
            [
                '{{- $with := include "harbourmaster.components" . | fromJson }}',
                '{{- $labels := include "harbourmaster.labels" . | fromJson }}',
            ],
        )
        only_if = ONLY_IF.get(f"{kind}/{name}", ONLY_IF.get(kind))
        for condition, tree in unite(values, frozenset(renderings)):
            text = guard(condition, ["---", *write_lines(tree)])
            lines += [f"{{{{- if {only_if} }}}}", *text, "{{- end }}"] if only_if else text
    return {name: "\n".join(lines) + "\n" for name, lines in files.items()}


def unite(values: Mapping[Overlay, Any], among: frozenset[Overlay]) -> list[Alternative]:
    """Return the alternatives for a field with their conditions; unite mappings and lists.

    The members of a united mapping, and the items of a united list, are alternatives too.
    """
    groups: dict[str, dict[Overlay, Any]] = {}
    for overlay, value in values.items():
        united = isinstance(value, (dict, list)) and value
        groups.setdefault(type(value).__name__ if united else repr(value), {})[overlay] = value
    alternatives = []
    for group in groups.values():
        condition = find_condition(frozenset(group), among)
        overlay, first = next(iter(group.items()))
        same = {overlay: first} if all(value == first for value in group.values()) else group
        alternatives.append((condition, _unite(same)))
    return alternatives


def _unite(group: Mapping[Overlay, Any]) -> Any:
    tree, here = next(iter(group.values())), frozenset(group)
    if isinstance(tree, dict):
        keys = sorted(set[str]().union(*group.values()))
        return {
            key: unite(
                {overlay: value[key] for overlay, value in group.items() if key in value}, here
            )
            for key in keys
        }
    if not isinstance(tree, list):
        return tree
    # The largest first: it has nearly all items, and so their order.
    items: list[tuple[str, dict[Overlay, Any]]] = []
    for overlay in sorted(group, key=size, reverse=True):
        new = [(_identity(item), {overlay: item}) for item in group[overlay]]
        matcher = SequenceMatcher(
            None, [name for name, _ in items], [name for name, _ in new], autojunk=False
        )
        for what, _, end, begin, stop in reversed(matcher.get_opcodes()):
            if what == "equal":
                for (_, known), (_, values) in zip(
                    items[:end][begin - stop :], new[begin:stop], strict=True
                ):
                    known.update(values)
            else:
                items[end:end] = new[begin:stop]
    return [alternative for _, values in items for alternative in unite(values, here)]


def _identity(item: Any) -> str:
    return item["name"] if isinstance(item, dict) and "name" in item else repr(item)


@cache
def find_condition(present: frozenset[Overlay], among: frozenset[Overlay]) -> list[Term]:
    """Return the condition of a field: it is met if any of the terms is.

    ``present`` are the overlays that have the field, ``among`` those that have its parent. It
    depends on the components that add or remove it when they are added to one of these. Exits if
    the overlays contradict that.
    """
    decisive = Overlay(
        name
        for name, before, after in additions()
        if {before, after} <= among and (before in present) != (after in present)
    )
    absent = {overlay & decisive for overlay in among - present}
    terms: list[Term] = []
    for overlay in sorted({overlay & decisive for overlay in present}, key=size):
        if overlay in absent:
            sys.exit(f"no condition found: it would be wrong for {', '.join(sorted(overlay))}")
        if holds(terms, overlay):
            continue
        term = overlay, decisive - overlay
        # Parts first, so that what is left is the component that they are parts of.
        for name in sorted(decisive, key=lambda part: size(with_parts(part))):
            shorter = term[0] - {name}, term[1] - {name}
            if not any(holds([shorter], other_overlay) for other_overlay in absent):
                term = shorter
        terms.append(term)
    return terms


def holds(terms: Iterable[Term], overlay: Overlay) -> bool:
    """Whether a condition is met."""
    return any(needed <= overlay and not refused & overlay for needed, refused in terms)


def write_lines(tree: Any, indent: str = "") -> list[str]:
    """Return the lines of a united mapping or list."""
    if isinstance(tree, list):
        entries = [(condition, _entry(f"{indent}-", item, indent)) for condition, item in tree]
    else:
        entries = [
            (condition, _entry(f"{indent}{_text(key)}:", value, indent))
            for key, alternatives in tree.items()
            for condition, value in alternatives
        ]
    return [
        line
        for condition, group in groupby(entries, key=itemgetter(0))
        for line in guard(condition, list(chain.from_iterable(map(itemgetter(1), group))))
    ]


def _entry(head: str, tree: Any, indent: str) -> list[str]:
    if isinstance(tree, Expression):
        if tree.form == "value":
            return [f"{head} {{{{ toJson ({tree.pipeline}) }}}}"]
        if tree.form == "members":
            member = f"{indent}{{{{ $key }}}}: {{{{ toJson $value }}}}"
            return [f"{{{{- range $key, $value := {tree.pipeline} }}}}", member, "{{- end }}"]
        block, head = ("with", head) if tree.form == "optional" else ("range", head)
        return [f"{{{{- {block} {tree.pipeline} }}}}", f"{head} {{{{ toJson . }}}}", "{{- end }}"]
    if isinstance(tree, (dict, list)) and tree:
        return [head, *write_lines(tree, f"{indent}  ")]
    return [f"{head} {_text(tree)}"]


def _text(value: Any) -> str:
    """A scalar, as JSON unless it is plainly text, without what templates would read as theirs."""
    plain = isinstance(value, str) and _is_plain(value)
    text = value if plain else json.dumps(value, ensure_ascii=False)
    return text.replace("{{", '{{ "{{" }}').replace(NAMESPACE, "{{ .Release.Namespace }}")


@cache
def _is_plain(text: str) -> bool:
    if NAMESPACE in text or not re.fullmatch(r"[A-Za-z][\w./-]+", text):
        return False
    return bool(yaml.safe_load(text) == text)


def guard(condition: Iterable[Term], lines: list[str]) -> list[str]:
    """Return the lines, enclosed in the condition if there is one."""
    terms = [
        [
            *(f"$with.{name}" for name in sorted(needed)),
            *(f"(not $with.{name})" for name in sorted(refused)),
        ]
        for needed, refused in condition
    ]
    if not all(terms):
        return lines
    texts = [f"(and {' '.join(term)})" if len(term) > 1 else term[0] for term in terms]
    text = f"or {' '.join(texts)}" if len(texts) > 1 else texts[0]
    return [f"{{{{- if {text} }}}}", *lines, "{{- end }}"]
