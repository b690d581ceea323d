"""``harbourmaster validate``: what is wrong with manifests, without a cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.suggestions import did_you_mean
from harbourmaster.cli.ci.model import conclude, finding
from harbourmaster.cli.ci.references import named_in
from harbourmaster.cli.live.files import manifests_in, read_paths
from harbourmaster.cli.render import rendered
from harbourmaster.cli.reviews import (
    NAMESPACE,
    as_reviewed,
    engine_of,
    kind_of,
    name_of,
    namespace_of,
    object_in,
    refusals,
    subject_of,
    warnings,
)
from harbourmaster.policies.model import is_policy_kind
from harbourmaster.serving.definitions import kinds, object_errors, schemas
from harbourmaster.serving.documents import Document, Problem, parse_documents
from harbourmaster.serving.settings import StartError
from harbourmaster.webhook.sources import read_policy

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Iterator

    from harbourmaster.cli.ci.model import Results
    from harbourmaster.webhook.engine import Engine

_ADD: Final = "add its file, or ignore this if it exists in the cluster"


def validate(arguments: Arguments) -> int:
    """Check the manifests; 1 where one has an error. Raises StartError where there is none."""
    items = list(read_paths(arguments.files))
    if arguments.kustomize is not None:
        items += parse_documents(_built(arguments.kustomize), arguments.kustomize)
    found = list(manifests_in(each for each in items if Path(each.file).stem != "kustomization"))
    if not found:
        raise StartError("no manifest found: give files, folders with YAML or JSON files, - or -k")
    manifests = [each.value for each in found if isinstance(each, Document)]
    engine = engine_of(manifests, arguments.settings, has_gates=True)
    names = {(each.get("kind"), name_of(each)) for each in manifests}
    first: dict[object, Document] = {}
    results: Results = {}
    for item in found:
        if isinstance(item, Problem):
            results.setdefault((item.file, ""), []).append(finding("error", item, "", item.text))
            continue
        value, subject = item.value, subject_of(item.value)
        group, _, kind = kind_of(value)
        mine = results.setdefault((item.file, subject), [])
        mine += [finding("error", item, subject, each) for each in _by_definition(value)]
        fields = {each.field for each in mine}
        for is_error, text in _by_admission(value, engine):
            each = finding("error" if is_error else "warning", item, subject, text)
            # What the definition rejects, the checks of admission may reject as well.
            mine += [each] if each.field not in fields or not each.field else []
        before = first.setdefault((group, kind, namespace_of(value), name_of(value)), item)
        if before is not item and name_of(value):
            text = f"defined twice: metadata.name: remove it here or in {before.file}:{before.line}"
            mine.append(finding("error", item, subject, text))
        for path, named, name in named_in(value, kind if _is_ours(group) else ""):
            if (named, name) not in names:
                text = f'{named} "{name}" is not among the files: {path}: {_ADD}'
                mine.append(finding("warning", item, subject, text))
    return conclude(arguments, results, "harbourmaster validate")


def _built(folder: str) -> bytes:
    """What kubectl builds from a kustomization. Raises StartError."""
    try:
        result = subprocess.run(("kubectl", "kustomize", folder), capture_output=True, check=False)  # noqa: S603, S607
    except FileNotFoundError:
        raise StartError("-k runs kubectl, which is not on PATH: install it") from None
    if result.returncode:
        raise StartError(f"{folder}: {result.stderr.decode(errors='replace').strip()}")
    return result.stdout


def _by_definition(manifest: dict[str, Any]) -> Iterator[str]:
    group, version, kind = kind_of(manifest)
    served = schemas(group, kind)
    if served and version not in served:
        yield f"apiVersion: {kind} has no version {version}: use {', '.join(served)}"
    elif _is_ours(group) and not served:
        known = [name for each, name in kinds() if each == group]
        remedy = did_you_mean(kind, known) or f"use one of {', '.join(known)}"
        yield f"kind: {group} has no kind {kind}: {remedy}"
    yield from map(": ".join, object_errors(manifest))
    if not name_of(manifest) and not object_in(manifest, "metadata").get("generateName"):
        yield "metadata.name: Required value: set it"


def _by_admission(manifest: dict[str, Any], engine: Engine) -> Iterator[tuple[bool, str]]:
    """What is warned of, and what is refused: that is an error."""
    manifest = as_reviewed(manifest)
    kind = kind_of(manifest)
    if kind == NAMESPACE:
        found = engine.snapshot.namespace(name_of(manifest) or "")
        yield from ((False, each.text) for each in (found.notes if found else ()))
    _, verdict = rendered(manifest, engine)
    if verdict is None:
        return
    faults = read_policy(manifest)[1] if is_policy_kind(*kind) else []
    yield from ((True, each) for each in faults or refusals(verdict))
    for each in warnings(verdict):
        # An API server refuses what has fields of the wrong type.
        text = each.removeprefix(f"{kind[2]}: ")
        yield text != each, text


def _is_ours(group: str) -> bool:
    return any(each == group for each, _ in kinds())
