"""Our ignore rules as GitOps tools apply them: both sides of a comparison without what is ignored.

``forget`` reads the four forms of jq expressions that we write, and nothing else of jq.
"""

from __future__ import annotations

import copy
import json
import re

EXPRESSION = re.compile(
    r"""(?P<path>(?:\.\w+)+)
    (?:
        (?P<items>\[\]\?)\ \|\ select\(\.\ ==\ (?P<item>.+)\)
        | \ \|\ select\(\.\[(?P<key>".*?(?<!\\)")\]\?\ ==\ (?P<value>.+)\)\ \|\ \.\[(?P=key)\]
        | \ \|\ select\(\.\ ==\ (?P<scalar>.+)\)
    )?""",
    re.VERBOSE,
)


def forget(document, expressions):
    """The document as Argo CD compares it: each expression's values gone, then what is empty."""
    manifest = copy.deepcopy(document)
    for expression in expressions:
        _delete(manifest, expression)
    return without_empty(manifest)


def forget_pointers(document, pointers):
    """The document as Flux compares it, as far as what is left empty counts as absent."""
    manifest = copy.deepcopy(document)
    for pointer in pointers:
        tokens = [word.replace("~1", "/").replace("~0", "~") for word in pointer.split("/")[1:]]
        _drop(_at(manifest, tokens[:-1]), tokens[-1])
    return without_empty(manifest)


def without_empty(value):
    """Without null, "", and objects and lists that hold nothing, at any depth."""
    if isinstance(value, dict):
        fields = {name: without_empty(field) for name, field in value.items()}
        return {name: field for name, field in fields.items() if field not in ({}, [], None, "")}
    if isinstance(value, list):
        return [item for item in map(without_empty, value) if item != {}]
    return value


def _delete(document, expression):
    match = EXPRESSION.fullmatch(expression)
    assert match is not None, expression
    *parents, last = match["path"].split(".")[1:]
    target = _at(document, parents)
    value = target.get(last) if isinstance(target, dict) else None
    if match["items"]:
        if isinstance(value, list):
            value[:] = [item for item in value if item != json.loads(match["item"])]
    elif match["key"]:
        key = json.loads(match["key"])
        if isinstance(value, dict) and value.get(key) == json.loads(match["value"]):
            del value[key]
    elif not match["scalar"] or (value is not None and value == json.loads(match["scalar"])):
        _drop(target, last)


def _at(document, path):
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _drop(target, name):
    if isinstance(target, dict):
        target.pop(name, None)
