"""``harbourmaster check``: checks of manifests and of test files, without a cluster."""

from __future__ import annotations

import gc
import re
import subprocess
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from harbourmaster.api.decoding import describe
from harbourmaster.api.field_errors import render_value as shown
from harbourmaster.api.names import did_you_mean, nearest
from harbourmaster.api.resources import APPS, CRON_JOBS, JOBS, PODS
from harbourmaster.cli.findings import conclude, finding_of
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
from harbourmaster.cli.why.offline import listed_by_tag
from harbourmaster.controller.lifecycle.owners import tracked_names
from harbourmaster.gates.known_keys import PREFIXES
from harbourmaster.gates.metadata import names_of
from harbourmaster.gates.owners import STATEFUL_SET, SUPPORTED
from harbourmaster.gates.waits import WAIT_FOR_KEY, waits_of
from harbourmaster.lifecycle.workload_owners import SHARING_ADVICE
from harbourmaster.policies.index import policy_set
from harbourmaster.policies.model import is_policy_kind
from harbourmaster.policies.pods import KINDS
from harbourmaster.serving.definitions import kinds, object_errors, schemas
from harbourmaster.serving.documents import Document, Problem, parse_documents
from harbourmaster.serving.kubectl_yaml import dump
from harbourmaster.serving.settings import StartError
from harbourmaster.webhook.sources import read_policy
from harbourmaster.webhook.verdict import GATED

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Iterable, Iterator

    from harbourmaster.cli.findings import Finding, Results
    from harbourmaster.webhook.engine import Engine

    Owners: TypeAlias = dict[tuple[str, str], tuple[str, str]]
    "Version and object by namespace and workload."

_KINDS: Final = {
    r"((pre|post)-?deployment|stage)-?tasks|promotiontasks|functionref": "KeptnTaskDefinition",
    r"((pre|post)-?deployment|stage)-?evaluations": "KeptnEvaluationDefinition",
    "keptnmetricref": "KeptnMetric",
    "analysisdefinition|stage-analysis": "AnalysisDefinition",
    "analysisvaluetemplateref": "AnalysisValueTemplate",
    "cloudref": "Cloud",
    "metrics": "GlobalMetric",
    "provider": "KeptnMetricsProvider",
}
"""The kinds that fields of our kinds, and Keptn's keys of workloads, name, in small letters."""
_PREFIX: Final = re.compile("|".join(map("^{}".format, PREFIXES)))
_NAMED: Final = (*_KINDS.values(), "Metric", "MetricsProvider")
_PROVIDERS: Final = {"Metric": "MetricsProvider", "GlobalMetric": "GlobalMetricsProvider"}


@contextmanager
def _without_collection() -> Iterator[None]:
    """Pause the garbage collector: it takes half of the time, and finds nothing here."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@_without_collection()
def validate(arguments: Arguments) -> int:
    """Check the manifests; 1 where one has an error. Raises StartError where there is none."""
    items = list(read_paths(arguments.files, recursive=arguments.recursive))
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
            results.setdefault((item.file, ""), []).append(finding_of("error", item, "", item.text))
            continue
        value, subject = item.value, subject_of(item.value)
        group, _, kind = kind_of(value)
        mine = results.setdefault((item.file, subject), [])
        mine += [finding_of("error", item, subject, text) for text in _by_definition(value)]
        fields = {finding.field for finding in mine}
        for is_error, text in _by_admission(value, engine):
            finding = finding_of("error" if is_error else "warning", item, subject, text)
            # What the definition rejects, the checks of admission may reject as well.
            mine += [finding] if finding.field not in fields or not finding.field else []
        mine += [finding_of("error", item, subject, text) for text in _defined_twice(item, first)]
        if (group, kind) == (APPS.group, APPS.kind):
            tagged = listed_by_tag(value, manifests, from_tag=engine.settings.version_from_tag)
            mine += [finding_of("warning", item, subject, text) for text in tagged]
        mine += _sharing(item, subject, owners)
        mine += [
            finding_of("warning", item, subject, text) for text in _brief_jobs(value, manifests)
        ]
        for path, named, name in _names(value, kind if schemas(group, kind) else ""):
            if (named, name) not in names:
                near = next((f"; {kind} {name} is" for kind in _NAMED if (kind, name) in names), "")
                to_do = f"add it, or ignore this{near}"
                text = f'{named} "{name}" is not among the files: {path}: {to_do}'
                mine.append(finding_of("warning", item, subject, text))
    matches = _count_matches(engine, manifests)
    return conclude(arguments, results, matches, "harbourmaster check manifests")


def _count_matches(engine: Engine, manifests: Iterable[dict[str, Any]]) -> Counter[str]:
    """Count the pods and workloads that each policy selects; empty without pods and workloads."""
    filed = engine.snapshot.policies.filed
    policies = policy_set(replace(policy, is_audited=False, is_left_out=False) for policy in filed)
    workloads = [manifest for manifest in map(reviewable, manifests) if kind_of(manifest) in KINDS]
    matches = Counter(dict.fromkeys(sorted(policies.references) if workloads else (), 0))
    for manifest in workloads:
        name = namespace_of(manifest)
        namespace = engine.snapshot.namespace(name)
        metadata = object_in(pod_in(manifest, manifest["kind"]), "metadata")
        labels = {key: str(value) for key, value in object_in(metadata, "labels").items()}
        selecting = policies.match(name, namespace.labels if namespace else {}, labels)
        matches.update(policy.reference for policy in selecting)
    return matches


def _defined_twice(item: Document, first: dict[object, Document]) -> Iterator[str]:
    """Yield an error if an object of the same kind, namespace and name came before."""
    group, _, kind = kind_of(item.value)
    name = name_of(item.value)
    before = first.setdefault((group, kind, namespace_of(item.value), name), item)
    if before is not item and name:
        place = f"{before.file}:{before.line}"
        yield f"defined twice: metadata.name: remove it here or in {place}, or check them apart"


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
            yield finding_of("warning", item, subject, text)


def _brief_jobs(manifest: dict[str, Any], manifests: list[dict[str, Any]]) -> Iterator[str]:
    """Warn of a wait for a Job that is deleted when it has ended: later pods never start."""
    meta = object_in(pod_in(manifest, kind_of(manifest)[2]), "metadata")
    waits = waits_of({key: str(text) for key, text in object_in(meta, "annotations").items()})
    names = {item.name for item in waits.items if item.kind == "job"} if waits else set()
    for job in (job for job in manifests if names and job.get("kind") == JOBS.kind):
        is_brief = "ttlSecondsAfterFinished" in object_in(job, "spec")
        if is_brief and name_of(job) in names and namespace_of(job) == namespace_of(manifest):
            text = f"waits for Job {name_of(job)}, which is deleted when it has ended"
            yield f"{text}: {WAIT_FOR_KEY}: remove spec.ttlSecondsAfterFinished of the Job"


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
    yield from _without_quotes(metadata, "metadata")
    pod = {} if kind == PODS.kind else pod_in(manifest, kind)
    at = "spec.jobTemplate.spec" if kind == CRON_JOBS.kind else "spec"
    yield from _without_quotes(object_in(pod, "metadata"), f"{at}.template.metadata")


def _without_quotes(metadata: dict[str, Any], at: str) -> Iterator[str]:
    """Yield an error for each label or annotation that is not a string; API servers refuse it."""
    for field in ("labels", "annotations"):
        for key, value in object_in(metadata, field).items():
            if not isinstance(value, str | None):
                fault = f"{at}.{field}[{key}]: Invalid value: {shown(value)}"
                yield f"{fault}: put it in quotes, {field} are strings"


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
        path, key = f"{at}.{field}".lstrip("."), _PREFIX.sub("", str(field)).lower()
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


@_without_collection()
def test(arguments: Arguments) -> int:
    """Run the tests, or update them; 1 where one fails. Raises StartError where there is none."""
    results: Results = {}
    matches: Counter[str] = Counter()
    files: list[Path] = []
    for path in arguments.files or [Path()]:
        inner = sorted(file for file in path.rglob(FILE) if file.is_file())
        files += inner if path.is_dir() else [path]
    for item in read_paths(files):
        problems = (
            [item] if isinstance(item, Problem) else _run_test(item, arguments, results, matches)
        )
        findings = [finding_of("error", problem, "", problem.text) for problem in problems]
        results.setdefault((item.file, ""), []).extend(findings)
    if not results:
        raise StartError(f"no {FILE} found: give files or folders")
    if arguments.case and arguments.case not in {subject for _, subject in results}:
        raise StartError(f'no case "{arguments.case}": name an object, such as "Pod shop/web"')
    return conclude(arguments, results, matches, "harbourmaster check tests")


def _is_device(path: Path) -> bool:
    """Return whether a path leads to a device or a pipe, which may have no end."""
    with suppress(OSError):
        return path.exists() and not (path.is_file() or path.is_dir())
    return False


def _run_test(
    test: Document, arguments: Arguments, results: Results, matches: Counter[str]
) -> list[Problem]:
    """Compare the objects of one test, or update it; returns what cannot be read."""
    try:
        declared = msgspec.convert(test.value, Declared)
    except msgspec.ValidationError as error:
        return [test.problem(describe(error))]
    paths = [Path(test.file).parent / path for path in declared.policies + declared.objects]
    if device := next(filter(_is_device, paths), None):
        return [test.problem(f"{device}: not a file or a folder: name manifests")]
    given = _manifests_to_create(read_paths(paths, recursive=arguments.recursive))
    objects = [(subject_of(item.value), item) for item in given if isinstance(item, Document)]
    first: dict[object, Document] = {}
    twice = [
        item.problem(f"{subject}: {text}")
        for subject, item in objects
        for text in _defined_twice(item, first)
    ]
    if twice:
        return twice
    values = [item.value for _, item in objects]
    # Pods of any workload inherit as those of a StatefulSet, which has no revisions.
    owners = [{**value, "kind": STATEFUL_SET} for value in values if value.get("kind") in SUPPORTED]
    engine = engine_of([*values, *owners], arguments.settings, has_gates=False)
    chosen = [pair for pair in objects if arguments.case in {None, pair[0]}]
    matches.update(_count_matches(engine, [item.value for _, item in chosen]))
    made = [(subject, item, _admit(item.value, engine)) for subject, item in chosen]
    expect = declared.expect
    if arguments.update:
        expect = (expect if arguments.case else {}) | {subject: seen for subject, _, seen in made}
        expect = {subject: seen for subject, seen in expect.items() if seen != Expected()}
        if not _write_expectations(test, expect):
            text = "cannot be updated: let expect be the last key, and have one test in the file"
            return [test.problem(text)]
    names = [subject for subject, _ in objects]
    for subject in expect:
        if subject not in names and arguments.case in {None, subject}:
            text = f"not among the objects: {did_you_mean(subject, names) or 'remove it'}"
            results[test.file, subject] = [finding_of("error", test, subject, text)]
    for subject, item, seen in made:
        mine = results.setdefault((test.file, subject), [])
        mine += _difference(test.file, item, expect.get(subject, Expected()), seen)
    return [item for item in given if isinstance(item, Problem)]


def _difference(file: str, item: Document, wanted: Expected, seen: Expected) -> Iterator[Finding]:
    if wanted != seen:
        text = f"not as {file} expects: correct what changed, or accept it with --update"
        lines = difference(to_builtins(wanted), to_builtins(seen), "expected", "found")
        finding = finding_of("error", item, subject_of(item.value), text)
        yield replace(finding, diff=tuple(map(str.rstrip, lines)))


def _write_expectations(test: Document, expect: dict[str, Expected]) -> bool:
    """Replace what a test file expects; False where that would change anything else."""
    file, written = Path(test.file), {"expect": to_builtins(expect)}
    before = file.read_bytes()
    data = before.partition(b"\nexpect:")[0].rstrip() + f"\n{dump(written)}".encode()
    if [test.value | written] != _values(data) or len(_values(before)) > 1:
        return False
    file.write_bytes(data)
    return True


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
