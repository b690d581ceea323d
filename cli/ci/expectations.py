"""``harbourmaster test``: compares what admission makes of objects with what files expect."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.decoding import describe
from harbourmaster.api.suggestions import did_you_mean
from harbourmaster.cli.ci.model import conclude, finding
from harbourmaster.cli.live.files import dump, read_paths
from harbourmaster.cli.render import difference, rendered
from harbourmaster.cli.reviews import (
    as_reviewed,
    engine_of,
    name_of,
    namespace_of,
    object_in,
    refusals,
    subject_of,
    warnings,
)
from harbourmaster.gates.owners import STATEFUL_SET, SUPPORTED
from harbourmaster.serving.documents import Document, Problem
from harbourmaster.serving.settings import StartError
from harbourmaster.webhook.engine import GATED
from harbourmaster.webhook.sources import policies_in

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from harbourmaster.cli.ci.model import Results
    from harbourmaster.webhook.engine import Engine

FILE: Final = "harbourmaster-test.yaml"
_REMEDY: Final = "correct what changed, or accept it with --update"


class Expected(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What admission makes of one object."""

    fields: dict[str, Any] = {}
    """Those that it adds or changes, with their values; no other field changes."""
    warnings: list[str] = []
    gates: list[str] = []
    """The scheduling gates of its pods, or the scheduler with which they wait."""
    denied: list[str] = []
    """Why it is refused."""


class Declared(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A test file; its paths are relative to its folder."""

    api_version: Literal["cli.harbourmaster.dev/v1alpha1"]
    kind: Literal["Test"]
    objects: list[str]
    """With the Namespaces that have gates or labels."""
    policies: list[str] = []
    expect: dict[str, Expected] = {}
    """By ``Kind namespace/name``; other objects stay as they are."""


def run(arguments: Arguments) -> int:
    """Run the tests, or update them; 1 where one fails. Raises StartError where there is none."""
    results: Results = {}
    for path in arguments.files or [Path()]:
        for file in sorted(path.rglob(FILE)) if path.is_dir() else [path]:
            test = next(read_paths([file]), Problem(str(file), None, "empty: declare objects"))
            problems = _test(test, arguments, results) if isinstance(test, Document) else [test]
            results[str(file), ""] = [finding("error", each, "", each.text) for each in problems]
    if not results:
        raise StartError(f"no {FILE} found: give files or folders")
    return conclude(arguments, results, "harbourmaster test")


def _test(test: Document, arguments: Arguments, results: Results) -> list[Problem]:
    """Compare the objects of one test, or update it; returns what cannot be read."""
    try:
        declared = msgspec.convert(test.value, Declared)
    except msgspec.ValidationError as error:
        return [test.problem(describe(error))]
    file = Path(test.file)
    policies, objects = (
        list(read_paths([file.parent / each for each in names]))
        for names in (declared.policies, declared.objects)
    )
    problems = [each for each in (*policies, *objects) if isinstance(each, Problem)]
    policies_in((each for each in policies if isinstance(each, Document)), problems)
    values = [each.value for each in (*policies, *objects) if isinstance(each, Document)]
    # Pods of any workload inherit as those of a StatefulSet, which has no revisions.
    owners = [{**each, "kind": STATEFUL_SET} for each in values if each.get("kind") in SUPPORTED]
    engine = engine_of([*values, *owners], arguments.settings, has_gates=False)
    found = {subject_of(each.value): each for each in objects if isinstance(each, Document)}
    made = {subject: _made(each.value, engine) for subject, each in found.items()}
    expect = declared.expect
    if arguments.update:
        expect = {subject: each for subject, each in made.items() if each != Expected()}
        text = file.read_text().partition("\nexpect:")[0].rstrip()
        file.write_text(f"{text}\n{dump({'expect': msgspec.to_builtins(expect)})}")
    for subject, item in found.items():
        mine = results[test.file, subject] = []
        wanted, is_made = (
            msgspec.to_builtins(replace(each, fields=_merged(item.value, each.fields)))
            for each in (expect.get(subject, Expected()), made[subject])
        )
        if wanted != is_made:
            each = finding("error", item, subject, f"not as {file} expects: {_REMEDY}")
            lines = difference(wanted, is_made, "expected", "found")
            mine.append(replace(each, diff=tuple(map(str.rstrip, lines))))
    for subject in sorted(expect.keys() - found.keys()):
        text = f"not among the objects: {did_you_mean(subject, found) or 'correct or remove it'}"
        results[test.file, subject] = [finding("error", test, subject, text)]
    return problems


def _made(manifest: dict[str, Any], engine: Engine) -> Expected:
    manifest = as_reviewed(manifest)
    after, verdict = rendered(manifest, engine)
    if verdict is None:
        return Expected()
    pod, waits = after, verdict.outcome == GATED
    if manifest["kind"] in SUPPORTED:
        name, namespace = name_of(manifest) or "", namespace_of(manifest)
        owner = {"apiVersion": "apps/v1", "kind": STATEFUL_SET, "name": name}
        template = object_in(object_in(manifest, "spec"), "template")
        metadata = {"name": name, "namespace": namespace, "ownerReferences": [owner]}
        metadata = {**object_in(template, "metadata"), **metadata}
        template = {**template, "apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        pod, decision = rendered(template, engine)
        waits = decision is not None and decision.outcome == GATED
    spec = object_in(pod, "spec")
    gates = [each["name"] for each in spec.get("schedulingGates") or ()]
    gates = gates or [str(spec.get("schedulerName"))] * waits
    return Expected(_changed(manifest, after), warnings(verdict), gates, refusals(verdict))


def _changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What merges into the one to become the other; admission removes nothing."""
    both = {key: (before.get(key), each) for key, each in after.items()}
    return {
        key: _changed(old, new) if isinstance(old, dict) and isinstance(new, dict) else new
        for key, (old, new) in both.items()
        if old != new
    }


def _merged(before: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    both = {key: (before.get(key), each) for key, each in fields.items()}
    merged = {
        key: _merged(old, new) if isinstance(old, dict) and isinstance(new, dict) else new
        for key, (old, new) in both.items()
    }
    return {**before, **merged}
