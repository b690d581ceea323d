"""``harbourmaster render``: manifests as policies would change them."""

from __future__ import annotations

import difflib
import sys
from typing import TYPE_CHECKING, Any

from harbourmaster.cli.live.files import dump, manifests_in, read_paths
from harbourmaster.cli.reviews import (
    apply_patch,
    creation_of,
    describe_waits,
    kind_of,
    name_of,
    namespace_of,
    object_in,
    pod_in,
    refusals,
)
from harbourmaster.gates.waits import waits_of
from harbourmaster.policies.model import POLICY, is_policy_kind
from harbourmaster.policies.pods import KINDS
from harbourmaster.serving.documents import Problem
from harbourmaster.telemetry.text import clean
from harbourmaster.webhook.checked_objects import is_checked
from harbourmaster.webhook.engine import WOULD_CHANGE, Engine, audit_results
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.sources import Sources, load

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Iterator

    from harbourmaster.serving.documents import Document
    from harbourmaster.webhook.verdict import Verdict


def render(arguments: Arguments) -> int:
    """Print the manifests as admission would store them, or the difference; 1 where one is bad."""
    engine, failed = load_engine(arguments)
    separator = ""
    for item in manifests_in(read_paths(arguments.manifests)):
        if isinstance(item, Problem):
            print(item, file=sys.stderr)
            failed = True
            continue
        after, verdict = render_manifest(item.value, engine)
        if told := _waits(item.value, engine):
            print(item.problem(told), file=sys.stderr)
        if verdict is not None:
            for warning in verdict.response.warnings:
                print(item.problem(warning), file=sys.stderr)
            for fault in refusals(verdict, item.value):
                print(item.problem(fault), file=sys.stderr)
                failed = True
            for reference, result in audit_results(verdict.audit, engine) if verdict.audit else ():
                told = "would change it" if result == WOULD_CHANGE else "would not change it"
                print(item.problem(f"{reference} in mode Audit: {told}"), file=sys.stderr)
        if arguments.diff:
            sys.stdout.writelines(_difference(item, after))
        else:
            sys.stdout.write(separator + dump(after))
            separator = "---\n"
    return 1 if failed else 0


def load_engine(arguments: Arguments) -> tuple[Engine, bool]:
    """The engine of the files that are given, and whether one is bad: that is reported."""
    sources = load(Sources(arguments.policies, arguments.namespaces, arguments.parents))
    for problem in sources.problems:
        print(problem, file=sys.stderr)
    return Engine(sources.snapshot, arguments.settings), bool(sources.problems)


def render_manifest(
    manifest: dict[str, Any], engine: Engine
) -> tuple[dict[str, Any], Verdict | None]:
    """The manifest as a create request would store it; no verdict for a kind not handled."""
    kind = kind_of(manifest)
    if kind not in KINDS and not is_policy_kind(*kind) and not is_checked(kind[0], kind[2]):
        return manifest, None
    namespace = namespace_of(manifest)
    # Policies are checked as kubectl would send them: with a namespace.
    metadata = {"namespace": namespace, **object_in(manifest, "metadata")}
    obj = {**manifest, "metadata": metadata} if kind[2] == POLICY else manifest
    _, decision = answer(creation_of(obj, kind, namespace), engine)
    return apply_patch(manifest, decision.verdict), decision.verdict


def _waits(manifest: dict[str, Any], engine: Engine) -> str:
    """For which objects its pods will wait, and how long; empty for none."""
    pod = pod_in(manifest, str(manifest.get("kind")))
    annotations = object_in(object_in(pod, "metadata"), "annotations")
    waits = waits_of({key: value for key, value in annotations.items() if isinstance(value, str)})
    told = (
        describe_waits(waits, engine, namespace_of(manifest)) if waits and not waits.faults else ""
    )
    return told and f"{'it' if pod is manifest else 'its pods'} {told}"


def _difference(item: Document, after: dict[str, Any]) -> Iterator[str]:
    title = clean(f"{item.file} {item.value.get('kind')}/{name_of(item.value)}")
    return difference(item.value, after, title, f"{title} (rendered)")


def difference(before: object, after: object, old: str, new: str) -> Iterator[str]:
    """The unified diff of two values as YAML, with these titles."""
    old_lines, new_lines = (dump(value).splitlines(keepends=True) for value in (before, after))
    return difflib.unified_diff(old_lines, new_lines, old, new)
