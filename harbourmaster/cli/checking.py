"""``harbourmaster validate`` and ``harbourmaster test``: checks of files, without a cluster.

What is found is printed as lines, as JSON or YAML, and as JUnit XML.
"""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from xml.etree import ElementTree as ET

import msgspec
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from harbourmaster.api.decoding import describe
from harbourmaster.api.field_errors import render_value as shown
from harbourmaster.api.names import did_you_mean, nearest
from harbourmaster.api.resources import APPS
from harbourmaster.cli.batches import plural
from harbourmaster.cli.live.files import manifests_in, read_paths
from harbourmaster.cli.offline import (
    NAMESPACE,
    difference,
    engine_of,
    kind_of,
    name_of,
    namespace_of,
    object_in,
    pod_in,
    refusals,
    render_manifest,
    reviewable,
    subject_of,
    warnings,
)
from harbourmaster.cli.terminal import print_out
from harbourmaster.cli.why.offline import listed_by_tag
from harbourmaster.controller.lifecycle.owners import tracked_names
from harbourmaster.gates.metadata import names_of
from harbourmaster.gates.owners import STATEFUL_SET, SUPPORTED
from harbourmaster.lifecycle.workload_owners import SHARING_ADVICE
from harbourmaster.policies.model import is_policy_kind
from harbourmaster.serving.definitions import kinds, object_errors, schemas
from harbourmaster.serving.documents import Document, Problem, parse_documents
from harbourmaster.serving.kubectl_yaml import dump
from harbourmaster.serving.settings import StartError
from harbourmaster.telemetry.text import clean
from harbourmaster.webhook.sources import read_policy
from harbourmaster.webhook.verdict import GATED

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Iterable, Iterator

    from harbourmaster.cli.terminal import Tone
    from harbourmaster.webhook.engine import Engine

    Results: TypeAlias = dict[tuple[str, str], list["Finding"]]
    "Findings by file and object, for all that were checked; the object is '' for a whole file."
    Owners: TypeAlias = dict[tuple[str, str], tuple[str, str]]
    "Version and object by namespace and workload."

_KINDS: Final = {
    r"(pre|post)-?deployment-?tasks|promotiontasks|functionref": "KeptnTaskDefinition",
    r"(pre|post)-?deployment-?evaluations": "KeptnEvaluationDefinition",
    "keptnmetricref": "KeptnMetric",
    "analysisdefinition": "AnalysisDefinition",
    "analysisvaluetemplateref": "AnalysisValueTemplate",
    "cloudref": "Cloud",
    "metrics": "GlobalMetric",
    "provider": "KeptnMetricsProvider",
}
"""The kinds that fields of our kinds, and Keptn's keys of workloads, name, in small letters."""
_PROVIDERS: Final = {"Metric": "MetricsProvider", "GlobalMetric": "GlobalMetricsProvider"}


Severity: TypeAlias = Literal["error", "warning"]
_FIELD: Final = re.compile(r"(?:(.*?): )?((?:apiVersion|kind|metadata|spec|status)\b[^\s:]*): (.*)")

_TOLD: Final = re.compile(r'(\w+ value: (?:"(?:\\.|[^"\\])*"|[^":]*)|.*?): (.*)')
"""Matches a fault with its value, and what to do."""


class Finding(Struct, frozen=True):
    """A fault of an object, or of a file whose objects cannot be read."""

    severity: Severity
    file: str
    line: int
    """The line at which the object begins."""
    object: str
    """``Kind namespace/name``; empty for a file."""
    field: str
    """The path of the field at fault, or ""."""
    message: str
    remedy: str = ""
    diff: tuple[str, ...] = ()
    """Lines of a unified diff, from what is expected to what was found."""

    def __str__(self) -> str:
        parts = (self.severity, self.object, self.field, self.message, self.remedy)
        return f"{self.file}:{self.line}: {': '.join(filter(None, parts))}"


def _finding(severity: Severity, place: Document | Problem, subject: str, text: str) -> Finding:
    """A finding from a line of ours, in which a field stands first, or before what to do."""
    parts = _FIELD.fullmatch(text)
    before, field, rest = parts.groups() if parts else ("", "", text)
    message, remedy = (before, rest) if before else (rest, "")
    if not before and (told := _TOLD.fullmatch(rest)) and subject:
        message, remedy = told.groups()
    return Finding(severity, place.file, place.line, subject, field, message, remedy)


def _conclude(arguments: Arguments, results: Results, program: str) -> int:
    """Print all that was found as the arguments say; returns the exit code."""
    findings = [finding for of_object in results.values() for finding in of_object]
    errors = sum(finding.severity == "error" for finding in findings)
    objects = sum(bool(subject) for _, subject in results)
    counts = {"objects": objects, "errors": errors, "warnings": len(findings) - errors}
    if arguments.junit is not None:
        ET.ElementTree(_junit(results, program)).write(arguments.junit, "utf-8", True)
    total = ", ".join(plural(number, noun[:-1]) for noun, number in counts.items())
    print_out(arguments, {**counts, "findings": findings}, [*_lines(findings), total])
    return int(errors > 0)


def _lines(findings: list[Finding]) -> Iterator[str | tuple[str, Tone]]:
    for finding in findings:
        yield str(finding), "bad" if finding.severity == "error" else "waiting"
        yield from (f"  {line}" for line in finding.diff)


def _junit(results: Results, program: str) -> ET.Element:
    suites = ET.Element("testsuites")
    suite = ET.SubElement(suites, "testsuite", name=program, tests=str(len(results)))
    for (file, subject), findings in results.items():
        names = {"classname": clean(file), "name": clean(subject or file)}
        case = ET.SubElement(suite, "testcase", names)
        for severity, tag in (("error", "failure"), ("warning", "system-out")):
            of_severity = [finding for finding in findings if finding.severity == severity]
            texts = [
                clean(text) for finding in of_severity for text in (str(finding), *finding.diff)
            ]
            if texts:
                ET.SubElement(case, tag).text = "\n".join(texts)
    suite.set("failures", str(len(suite.findall("testcase[failure]"))))
    return suites


def validate(arguments: Arguments) -> int:
    """Check the manifests; 1 where one has an error. Raises StartError where there is none."""
    items = list(read_paths(arguments.files))
    if arguments.kustomize is not None:
        items += parse_documents(_build_kustomization(arguments.kustomize), arguments.kustomize)
    documents = _manifests_to_create(items)
    if not documents:
        raise StartError("no manifest found: give files, folders with YAML or JSON files, - or -k")
    manifests = [document.value for document in documents if isinstance(document, Document)]
    engine = engine_of(manifests, arguments.settings, has_gates=True)
    names = {(manifest.get("kind"), name_of(manifest)) for manifest in manifests}
    owners: Owners | None = {} if "keptn.sh/" in str(manifests) else None
    first: dict[object, Document] = {}
    results: Results = {}
    for item in documents:
        if isinstance(item, Problem):
            results.setdefault((item.file, ""), []).append(_finding("error", item, "", item.text))
            continue
        value, subject = item.value, subject_of(item.value)
        group, _, kind = kind_of(value)
        mine = results.setdefault((item.file, subject), [])
        mine += [_finding("error", item, subject, text) for text in _by_definition(value)]
        fields = {finding.field for finding in mine}
        for is_error, text in _by_admission(value, engine):
            finding = _finding("error" if is_error else "warning", item, subject, text)
            # What the definition rejects, the checks of admission may reject as well.
            mine += [finding] if finding.field not in fields or not finding.field else []
        before = first.setdefault((group, kind, namespace_of(value), name_of(value)), item)
        if before is not item and name_of(value):
            text = f"defined twice: metadata.name: remove it here or in {before.file}:{before.line}"
            mine.append(_finding("error", item, subject, text))
        if (group, kind) == (APPS.group, APPS.kind):
            tagged = listed_by_tag(value, manifests, from_tag=engine.settings.version_from_tag)
            mine += [_finding("warning", item, subject, text) for text in tagged]
        mine += _sharing(item, subject, owners)
        for path, named, name in _names(value, kind if schemas(group, kind) else ""):
            if (named, name) not in names:
                text = f'{named} "{name}" is not among the files: {path}: add it, or ignore this'
                mine.append(_finding("warning", item, subject, text))
    return _conclude(arguments, results, "harbourmaster validate")


def _sharing(item: Document, subject: str, owners: Owners | None) -> Iterator[Finding]:
    """Yield a warning if a manifest has the workload of another one; None if no file has gates."""
    if owners is None or kind_of(item.value)[2] not in SUPPORTED:
        return
    with suppress(msgspec.MsgspecError):
        names = tracked_names(msgspec.json.encode(item.value))
        if names is None:
            return
        key = (namespace_of(item.value), names.workload)
        version, first = owners.setdefault(key, (names.version, subject))
        if first != subject:
            which = " and ".join(dict.fromkeys((version, names.version)))
            text = f"its workload {names.workload} is that of {first}, too ({which})"
            text = f"{text}: spec.template.metadata: {SHARING_ADVICE}"
            yield _finding("warning", item, subject, text)


def _manifests_to_create(items: Iterable[Document | Problem]) -> list[Document | Problem]:
    return list(manifests_in(item for item in items if Path(item.file).stem != "kustomization"))


def _build_kustomization(folder: str) -> bytes:
    """Return the output of ``kubectl kustomize``. Raises StartError."""
    command = ("kubectl", "kustomize", folder)
    result = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - the user's own
    if result.returncode:
        raise StartError(f"{folder}: {result.stderr.decode(errors='replace').strip()}")
    return result.stdout


def _by_definition(manifest: dict[str, Any]) -> Iterator[str]:
    group, version, kind = kind_of(manifest)
    served = schemas(group, kind)
    if served and version not in served:
        yield f"apiVersion: {kind} has no version {version}: use {', '.join(served)}"
    elif not served:
        groups = {known_group for known_group, name in kinds() if name == kind}
        known = [name for known_group, name in kinds() if known_group == group]
        if groups and (known or kind.startswith("Keptn") or nearest(group, groups)):
            right = next(iter(groups))
            newest = next(iter(schemas(right, kind)))
            yield f"apiVersion: {group or version} has no kind {kind}: use {right}/{newest}"
        elif known:
            remedy = did_you_mean(kind, known) or f"use one of {', '.join(known)}"
            yield f"kind: {group} has no kind {kind}: {remedy}"
    yield from map(": ".join, object_errors(manifest))
    metadata = object_in(manifest, "metadata")
    name = metadata.get("name")
    if not isinstance(name, str | None):
        yield f"metadata.name: Invalid value: {shown(name)}: put it in quotes, names are strings"
    elif not name and not metadata.get("generateName"):
        yield "metadata.name: Required value: set it"


def _by_admission(manifest: dict[str, Any], engine: Engine) -> Iterator[tuple[bool, str]]:
    """Yield the warnings and refusals of admission, each with True for an error."""
    manifest = reviewable(manifest)
    kind = kind_of(manifest)
    if kind == NAMESPACE and (namespace := engine.snapshot.namespace(name_of(manifest) or "")):
        yield from ((False, note.text) for note in namespace.warnings)
    _, verdict = render_manifest(manifest, engine)
    if verdict is None:
        return
    faults = read_policy(manifest)[1] if is_policy_kind(*kind) else []
    told = warnings(verdict)
    yield from (
        (True, fault) for fault in faults or refusals(verdict, manifest) if fault not in told
    )
    for warning in told:
        # An API server refuses what has fields of the wrong type.
        text = warning.removeprefix(f"{kind[2]}: ")
        yield text != warning or warning.endswith("; the pod is not scheduled"), text


def _names(value: Any, owner: str, at: str = "") -> Iterator[tuple[str, str, str]]:  # noqa: ANN401
    """The path, kind and name of each object that an object of ours names, or a workload's keys.

    ``owner`` is its kind, and empty for a workload.
    """
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _names(item, owner, f"{at}[{index}]")
    for field, below in value.items() if isinstance(value, dict) else ():
        path, key = f"{at}.{field}".lstrip("."), str(field).removeprefix("keptn.sh/").lower()
        named_kinds = (kind for pattern, kind in _KINDS.items() if re.fullmatch(pattern, key))
        kind = next(named_kinds, "") if owner or key != str(field).lower() else ""
        if kind:
            kind = _PROVIDERS.get(owner, kind) if field == "provider" else kind
            yield from _named_objects(below, kind, path if owner else at)
        # Those of another cluster.
        elif field != "manifests":
            yield from _names(below, owner, path)


def _named_objects(value: object, kind: str, at: str) -> Iterator[tuple[str, str, str]]:
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict) and isinstance(item.get("name"), str):
            given = "Metric" if item.get("scope") == "Namespaced" else item.get("kind") or kind
            yield at, str(given), item["name"]
        elif isinstance(item, str) and kind != "GlobalMetric":
            yield from ((at, kind, name) for name in names_of(item))


FILE: Final = "harbourmaster-test.yaml"


class Expected(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The result of admission for one object."""

    fields: dict[str, Any] = {}
    """Those that it adds or changes, with their values."""
    warnings: list[str] = []
    gated: bool = False
    """Whether its pods wait at a gate."""
    denied: list[str] = []
    """Why it is refused; the unknown fields, too."""


class Declared(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A test file; its paths are relative to its folder."""

    api_version: Literal["cli.harbourmaster.dev/v1alpha1"]
    kind: Literal["Test"]
    objects: list[str]
    """With the Namespaces that have gates or labels."""
    policies: list[str] = []
    expect: dict[str, Expected] = {}
    """Expected results by ``Kind namespace/name``; other objects stay unchanged."""


def test(arguments: Arguments) -> int:
    """Run the tests, or update them; 1 where one fails. Raises StartError where there is none."""
    results: Results = {}
    for path in arguments.files or [Path()]:
        for test in read_paths(sorted(path.rglob(FILE)) if path.is_dir() else [path]):
            problems = [test] if isinstance(test, Problem) else _run_test(test, arguments, results)
            findings = [_finding("error", problem, "", problem.text) for problem in problems]
            results.setdefault((test.file, ""), []).extend(findings)
    if not results:
        raise StartError(f"no {FILE} found: give files or folders")
    return _conclude(arguments, results, "harbourmaster test")


def _run_test(test: Document, arguments: Arguments, results: Results) -> list[Problem]:
    """Compare the objects of one test, or update it; returns what cannot be read."""
    file = Path(test.file)
    try:
        declared = msgspec.convert(test.value, Declared)
    except msgspec.ValidationError as error:
        return [test.problem(describe(error))]
    paths = [file.parent / policy for policy in declared.policies + declared.objects]
    given = _manifests_to_create(read_paths(paths))
    objects = {subject_of(item.value): item for item in given if isinstance(item, Document)}
    values = [obj.value for obj in objects.values()]
    # Pods of any workload inherit as those of a StatefulSet, which has no revisions.
    owners = [{**value, "kind": STATEFUL_SET} for value in values if value.get("kind") in SUPPORTED]
    engine = engine_of([*values, *owners], arguments.settings, has_gates=False)
    made = {subject: _admit(obj.value, engine) for subject, obj in objects.items()}
    expect = declared.expect
    if arguments.update:
        expect = {subject: seen for subject, seen in made.items() if seen != Expected()}
        written = {"expect": to_builtins(expect)}
        data = file.read_bytes().partition(b"\nexpect:")[0].rstrip()
        data += f"\n{dump(written)}".encode()
        if [test.value | written] != _values(data) or len(_values(file.read_bytes())) > 1:
            text = "cannot be updated: let expect be the last key, and have one test in the file"
            return [test.problem(text)]
        file.write_bytes(data)
    for subject in dict.fromkeys((*made, *expect)):
        wanted, seen = expect.get(subject, Expected()), made.get(subject)
        text = f"not as {file} expects: correct what changed, or accept it with --update"
        if seen is None:
            text = f"not among the objects: {did_you_mean(subject, objects) or 'remove it'}"
        mine = results.setdefault((test.file, subject), [])
        if wanted != seen:
            lines = difference(to_builtins(wanted), to_builtins(seen), "expected", "found")
            finding = _finding("error", objects.get(subject, test), subject, text)
            mine.append(replace(finding, diff=tuple(map(str.rstrip, lines)) if seen else ()))
    return [item for item in given if isinstance(item, Problem)]


def _values(data: bytes) -> list[object]:
    return [getattr(document, "value", None) for document in parse_documents(data, "")]


def _admit(manifest: dict[str, Any], engine: Engine) -> Expected:
    manifest = reviewable(manifest)
    after, verdict = render_manifest(manifest, engine)
    if verdict is None:
        return Expected()
    decision = verdict
    template, kind = pod_in(manifest, manifest["kind"]), manifest["kind"]
    if template is not manifest:
        kind = STATEFUL_SET if kind in SUPPORTED else kind
        owner = {"apiVersion": "apps/v1", "kind": kind, "name": name_of(manifest) or ""}
        metadata = {"namespace": namespace_of(manifest), **object_in(template, "metadata")}
        metadata["ownerReferences"] = [owner]
        pod = {**template, "apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        decision = render_manifest(pod, engine)[1] or verdict
    denied, is_gated = refusals(verdict, manifest), decision.outcome == GATED
    return Expected(_changes(manifest, after), warnings(verdict), is_gated, denied)


def _changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that differ, with their new values; admission removes none."""
    both = {key: (before.get(key), value) for key, value in after.items()}
    return {
        key: _changes(old, new) if isinstance(old, dict) and isinstance(new, dict) else new
        for key, (old, new) in both.items()
        if old != new
    }
