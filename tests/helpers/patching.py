"""The independent oracle for patches, and comparisons that follow the scheduler's meaning."""

from __future__ import annotations

import base64
import json

import jsonpatch

NODE_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def decode_patch(response):
    if "patch" not in response:
        assert "patchType" not in response
        return []
    assert response["patchType"] == "JSONPatch"
    return json.loads(base64.b64decode(response["patch"], validate=True))


def patched(document, response):
    return jsonpatch.apply_patch(document, decode_patch(response))


def as_sets(value, key=None):
    """Required node terms as sets of sets, everything else as it is; empty and absent are one."""
    if isinstance(value, dict):
        fields = {k: as_sets(v, k) for k, v in value.items()}
        return {k: v for k, v in fields.items() if v not in (None, [], {}, "", frozenset())}
    if isinstance(value, list):
        if key == "nodeSelectorTerms":
            return frozenset(term_set(term) for term in value)
        return [as_sets(item) for item in value]
    return value


def term_set(term):
    return frozenset(
        (scope, r["key"], r["operator"], frozenset(r.get("values") or ()))
        for scope in ("matchExpressions", "matchFields")
        for r in term.get(scope) or ()
    )
