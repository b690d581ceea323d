"""``harbourmaster render``: what policies make of manifests, before anyone applies them."""

from __future__ import annotations

import copy
import difflib
import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.api.patches import Operation, apply
from harbourmaster.cli.live.files import dump, read_paths
from harbourmaster.policies.model import POLICY, is_policy_kind
from harbourmaster.policies.pods import KINDS
from harbourmaster.policies.unknown_fields import unknown_fields
from harbourmaster.serving.documents import Problem
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.handlers import INVALID, answer
from harbourmaster.webhook.parents import DEFAULT_NAMESPACE
from harbourmaster.webhook.review import V1
from harbourmaster.webhook.sources import Sources, load

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Iterator

    from harbourmaster.serving.documents import Document
    from harbourmaster.webhook.engine import Verdict

_operations: Final = msgspec.json.Decoder(list[Operation])
_encode: Final = msgspec.json.Encoder().encode


def render(arguments: Arguments) -> int:
    """Print the manifests as admission would store them, or the difference; 1 where one is bad."""
    loaded = load(Sources(arguments.policies, arguments.namespaces, arguments.parents))
    for problem in loaded.problems:
        print(problem, file=sys.stderr)
    engine = Engine(loaded.snapshot, arguments.settings)
    failed = bool(loaded.problems)
    separator = ""
    for item in read_paths(arguments.manifests):
        if isinstance(item, Problem):
            print(item, file=sys.stderr)
            failed = True
            continue
        after, verdict = rendered(item.value, engine)
        if verdict is not None:
            for warning in verdict.response.warnings:
                print(item.problem(warning), file=sys.stderr)
            if verdict.outcome == INVALID:
                print(item.problem(verdict.response.reason or ""), file=sys.stderr)
                failed = True
            for path in _unknown_fields(item.value):
                print(item.problem(f"{path}: unknown field"), file=sys.stderr)
                failed = True
        if arguments.diff:
            sys.stdout.writelines(_difference(item, after))
        else:
            sys.stdout.write(separator + dump(after))
            separator = "---\n"
    return 1 if failed else 0


def rendered(manifest: dict[str, Any], engine: Engine) -> tuple[dict[str, Any], Verdict | None]:
    """The manifest as a create request would end; no verdict on a kind that is not handled."""
    review = _review_of(manifest)
    kind = _kind_of(manifest)
    if kind not in KINDS and not is_policy_kind(*kind):
        return manifest, None
    _, decision = answer(_encode(review), engine)
    verdict = decision.verdict
    if verdict.response.patch is None:
        return manifest, verdict
    after = copy.deepcopy(manifest)
    apply(after, _operations.decode(verdict.response.patch))
    return after, verdict


def _unknown_fields(manifest: dict[str, Any]) -> list[str]:
    """Of a policy; pods have more fields than we know."""
    return unknown_fields(manifest) if is_policy_kind(*_kind_of(manifest)) else []


def _kind_of(manifest: dict[str, Any]) -> tuple[str, str, str]:
    group, _, version = str(manifest.get("apiVersion") or "").rpartition("/")
    return group, version, str(manifest.get("kind") or "")


def _review_of(manifest: dict[str, Any]) -> dict[str, Any]:
    group, version, kind = _kind_of(manifest)
    metadata = manifest.get("metadata")
    fields = metadata if isinstance(metadata, dict) else {}
    return {
        "apiVersion": V1,
        "kind": "AdmissionReview",
        "request": {
            "uid": "render",
            "kind": {"group": group, "version": version, "kind": kind},
            "namespace": str(fields.get("namespace") or DEFAULT_NAMESPACE),
            "operation": "CREATE",
            "object": _in_namespace(manifest) if manifest.get("kind") == POLICY else manifest,
        },
    }


def _in_namespace(policy: dict[str, Any]) -> dict[str, Any]:
    """The policy as kubectl would send it: in a namespace, given or not."""
    metadata = policy.get("metadata")
    if not isinstance(metadata, dict):
        return policy
    return {**policy, "metadata": {"namespace": DEFAULT_NAMESPACE, **metadata}}


def _difference(item: Document, after: dict[str, Any]) -> Iterator[str]:
    metadata = item.value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    title = f"{item.file} {item.value.get('kind')}/{name}"
    before_lines = dump(item.value).splitlines(keepends=True)
    after_lines = dump(after).splitlines(keepends=True)
    return difflib.unified_diff(before_lines, after_lines, title, f"{title} (rendered)")
