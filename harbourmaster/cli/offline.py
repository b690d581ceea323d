"""``harbourmaster render`` and ``replay``: admission of files, without a cluster.

A manifest is seen as admission sees it: as the review of its creation, and what the answer changes.
"""

from __future__ import annotations

import copy
import difflib
import sys
from base64 import b64decode
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

from harbourmaster.api.decoding import LineFailure
from harbourmaster.api.durations import format_duration
from harbourmaster.api.patches import Operation, apply
from harbourmaster.api.resources import CRON_JOBS, PODS
from harbourmaster.cli import program
from harbourmaster.cli.lines import answer_lines, open_input, print_lines
from harbourmaster.cli.live.files import manifests_in, read_paths
from harbourmaster.cli.terminal import json_text
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.gates.owners import DEPLOYMENT, ROLLOUT
from harbourmaster.gates.waits import waits_of
from harbourmaster.policies.model import POLICY, is_policy_kind
from harbourmaster.policies.pods import KINDS
from harbourmaster.policies.targets import ALL_CONTROLLERS
from harbourmaster.serving.definitions import unknown_fields
from harbourmaster.serving.documents import Problem, parse_documents
from harbourmaster.serving.kubectl_yaml import dump
from harbourmaster.serving.settings import StartError
from harbourmaster.telemetry.text import clean
from harbourmaster.webhook import cases
from harbourmaster.webhook.checked_objects import is_checked
from harbourmaster.webhook.engine import WOULD_CHANGE, Engine, audit_results
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.parents import DEFAULT_NAMESPACE, ParentObject
from harbourmaster.webhook.review import KIND, V1
from harbourmaster.webhook.snapshot import NamespaceObject
from harbourmaster.webhook.sources import Sources, load
from harbourmaster.webhook.verdict import MALFORMED

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO, TypeVar

    from harbourmaster.gates.waits import Waits
    from harbourmaster.serving.documents import Document
    from harbourmaster.webhook.settings import AdmissionSettings
    from harbourmaster.webhook.verdict import Verdict

    Json = dict[str, Any]
    Kind = TypeVar("Kind")

NAMESPACE: Final = ("", "v1", "Namespace")

_WIDEST: Final = 60
"""Characters of a value that is printed beside its path."""
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(tuple[Operation, ...]).decode


def object_in(manifest: Json, name: str) -> Json:
    """A field that holds an object; an empty one where it holds anything else."""
    value = manifest.get(name)
    return value if isinstance(value, dict) else {}


def name_of(manifest: Json) -> str | None:
    """Return the name of a manifest, or None."""
    name = object_in(manifest, "metadata").get("name")
    return name if isinstance(name, str) else None


def pod_in(manifest: Json, kind: str) -> Json:
    """The pod itself, or the template of a workload of that kind; empty for others."""
    if kind == CRON_JOBS.kind:
        manifest = object_in(object_in(manifest, "spec"), "jobTemplate")
    return manifest if kind == PODS.kind else object_in(object_in(manifest, "spec"), "template")


def namespace_of(manifest: Json) -> str:
    """The namespace that kubectl creates it in, where no other one is asked for."""
    return str(object_in(manifest, "metadata").get("namespace") or DEFAULT_NAMESPACE)


def subject_of(manifest: Json) -> str:
    """``Kind namespace/name``, as far as the object says it."""
    metadata = object_in(manifest, "metadata")
    name = name_of(manifest) or f"{metadata.get('generateName') or ''}..."
    key = "/".join(map(str, filter(None, (metadata.get("namespace"), name))))
    return f"{manifest.get('kind')} {key}"


def kind_of(manifest: Json) -> tuple[str, str, str]:
    """Group, version and name of its kind."""
    group, _, version = str(manifest.get("apiVersion") or "").rpartition("/")
    return group, version, str(manifest.get("kind") or "")


def reviewable(manifest: Json) -> Json:
    """The object itself; for a Rollout a Deployment, whose pods are changed in the same way."""
    deployment = {**manifest, "apiVersion": "apps/v1", "kind": DEPLOYMENT}
    return deployment if manifest.get("kind") == ROLLOUT else manifest


def creation_of(
    manifest: Json | msgspec.Raw,
    kind: tuple[str, str, str],
    namespace: str,
    name: str | None = None,
) -> bytes:
    """The review of the creation of an object of that kind."""
    request = {
        "uid": "harbourmaster",
        "kind": dict(zip(("group", "version", "kind"), kind, strict=True)),
        "namespace": namespace,
        "name": name,
        "operation": "CREATE",
        # So that a pod counts as created by the controller that owns it.
        "userInfo": {"username": ALL_CONTROLLERS},
        "object": manifest,
    }
    return _encode({"apiVersion": V1, "kind": KIND, "request": request})


def operations_of(verdict: Verdict) -> tuple[Operation, ...]:
    """All that the answer does to the object."""
    patch = verdict.response.patch
    return _decode(patch) if patch else ()


def apply_patch(manifest: Json, verdict: Verdict) -> Json:
    """The object as it is stored; the one that is given stays as it is."""
    operations = operations_of(verdict)
    if not operations:
        return manifest
    after = copy.deepcopy(manifest)
    apply(after, operations)
    return after


def refusals(verdict: Verdict, manifest: Json) -> list[str]:
    """Why the object is refused: a text for each field where fields are to blame; none if not.

    An API server that validates strictly refuses unknown fields of our kinds, too.
    """
    unknown = [f"{path}: unknown field" for path in unknown_fields(manifest)]
    if verdict.response.allowed:
        return unknown
    status = msgspec.json.decode(verdict.response.encoded)["status"]
    causes = status.get("details", {}).get("causes", ())
    texts = [f"{cause['field']}: {cause['message']}" for cause in causes]
    # Whether a gate could be added matters only in a cluster.
    text = (status.get("message") or status.get("reason", "")).partition("; not even a gate")[0]
    return (texts or [text]) + unknown


def warnings(verdict: Verdict) -> list[str]:
    """Return the warnings of an answer, without our name before them."""
    notes = [note.text for note in verdict.warnings]
    return notes or [
        warning.removeprefix("harbourmaster: ") for warning in verdict.response.warnings
    ]


def engine_of(manifests: list[Json], settings: AdmissionSettings, *, has_gates: bool) -> Engine:
    """An engine of the policies, namespaces and owners among the objects.

    Other namespaces exist as well; ``has_gates``: with gates.
    """
    annotations = {OPT_IN_KEY: OPT_IN} if has_gates else {}
    names = dict.fromkeys(map(namespace_of, manifests))
    namespaces: list[Json] = [
        {"metadata": {"name": name, "annotations": annotations}} for name in names
    ]
    namespaces += [manifest for manifest in manifests if kind_of(manifest) == NAMESPACE]
    case = cases.ReplayCase(
        msgspec.Raw(),
        namespaces=list(_readable(namespaces, NamespaceObject)),
        policies=[manifest for manifest in manifests if is_policy_kind(*kind_of(manifest))],
        parents=list(_readable(manifests, ParentObject)),
    )
    return cases.engine_for(case, settings)


def _readable(manifests: Iterable[Json], kind: type[Kind]) -> Iterator[Kind]:
    for manifest in manifests:
        with suppress(msgspec.ValidationError):
            yield msgspec.convert(manifest, kind)


def describe_waits(waits: Waits, engine: Engine, namespace: str) -> str:
    """For what admission lets pods wait and how long; empty where it does not."""
    space = engine.snapshot.namespace(namespace)
    items = ", ".join(item.text for item in waits.items)
    limit = f", {format_duration(waits.timeout)} at most, then {waits.on_timeout}"
    is_allowed = space is None or engine.waits_for_objects(namespace, space)
    return f"will wait for {items}{limit if waits.timeout else ''}" if is_allowed else ""


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
        elif arguments.patch:
            print(*_patch_lines(item, verdict), sep="\n")
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


def _patch_lines(item: Document, verdict: Verdict | None) -> Iterator[str]:
    """Yield the name of a manifest, and the operations by which admission changes it."""
    operations = msgspec.to_builtins(operations_of(verdict)) if verdict is not None else ()
    return map(clean, (f"{item.file} {subject_of(item.value)}", *format_patch(operations)))


def difference(before: object, after: object, old: str, new: str) -> Iterator[str]:
    """The unified diff of two values as YAML, with these titles."""
    old_lines, new_lines = (dump(value).splitlines(keepends=True) for value in (before, after))
    return difflib.unified_diff(old_lines, new_lines, old, new)


def format_patch(operations: Iterable[Json]) -> Iterator[str]:
    """Yield the operations of a JSON Patch: name, path and value, which is YAML if it is long."""
    for operation in operations:
        value = operation.get("value")
        short = _encode(value).decode() if "value" in operation else ""
        is_long = isinstance(value, (dict, list)) and len(short) > _WIDEST
        yield f"  {operation['op']} {operation['path']} {'' if is_long else short}".rstrip()
        if is_long:
            yield from (f"      {line}" for line in dump(value).splitlines())


class ReplayDifference(Struct, frozen=True):
    """A recorded case whose answer has changed; None if there was none."""

    id: Any
    recorded: Raw | None
    answered: Raw | None
    line: int = 0


def _describe(result: cases.ReplayResult | ReplayDifference | LineFailure) -> Iterator[str]:
    """Yield lines for people: whether an answer allows, its warnings, and what it changes."""
    if isinstance(result, LineFailure):
        yield f"{result.id}: {result.error}"
        return
    answers = (
        {str(result.id): result.response}
        if isinstance(result, cases.ReplayResult)
        else {f"{result.id}, recorded": result.recorded, f"{result.id}, now": result.answered}
    )
    for title, answered in answers.items():
        if answered is None:
            yield f"{title}: no answer"
            continue
        response = msgspec.json.decode(answered, type=dict)
        message = object_in(response, "status").get("message") or "without a message"
        yield f"{title}: {'allowed' if response.get('allowed') else f'denied: {message}'}"
        yield from (f"  warning: {warning}" for warning in response.get("warnings") or ())
        yield from format_patch(msgspec.json.decode(b64decode(response.get("patch") or "W10=")))


def _text_of(arguments: Arguments) -> Callable[[Any], Iterator[str]] | None:
    """Return what makes text of results: by default on a terminal, so that programs read JSON."""
    is_text = arguments.output == "text" or (not arguments.output and sys.stdout.isatty())
    return _describe if is_text else None


def replay(arguments: Arguments) -> int:
    """Answer an AdmissionReview, or each case of a JSON Lines file with one line; 1 for bad input.

    With ``--check`` only what differs from the recorded answer is printed, and is a reason for 1;
    so is a file without any case. How many are alike goes to standard error.
    """
    engine, failed = load_engine(arguments)
    with open_input(arguments.file) as stream:
        first, lines = _read_first(stream, str(arguments.file))
        if arguments.check:
            return _check(lines, arguments)
        if "request" in first:
            failed |= _review(arguments, filter(bytes.strip, lines), engine)
        elif arguments.policies is None:
            results = replay_lines(lines, arguments.settings)
            failed |= print_lines(results, LineFailure, describe=_text_of(arguments)) > 0
        elif "review" in first:
            raise StartError(f"{arguments.file}: cases have their policies: leave out --policies")
        else:
            failed |= _review(arguments, [b"".join(lines)], engine)
    return 1 if failed else 0


def _read_first(stream: BinaryIO, file: str) -> tuple[Json, Iterable[bytes]]:
    """Return the first object, empty for any other value, and all lines, one for each review."""
    lines: list[bytes] = []
    for line in stream:
        lines.append(line)
        if line.strip():
            break
    with suppress(ValueError, RecursionError):
        return msgspec.json.decode(b"".join(lines), type=dict), chain(lines, stream)
    lines += stream
    values = [getattr(item, "value", {}) for item in parse_documents(b"".join(lines), file)]
    if values and all("request" in value for value in values):
        lines = list(map(_encode, values))
    elif values and "kind" in values[0]:
        raise StartError(f"{file}: expected AdmissionReviews or cases: give manifests to render")
    return values[0] if values else {}, lines


def _review(arguments: Arguments, bodies: Iterable[bytes], engine: Engine) -> bool:
    """Print the answers; returns whether a body was not an AdmissionReview."""
    failed = False
    for body in bodies:
        result, decision = answer(body, engine)
        request = decision.request
        title = "/".join(filter(None, (request.namespace, request.name))) or "the review"
        if text := _text_of(arguments):
            print_lines([cases.ReplayResult(title, 200, cases.response_of(result))], describe=text)
        else:
            sys.stdout.buffer.write(json_text(Raw(result)))
        failed |= decision.verdict.outcome == MALFORMED
    return failed


def _check(lines: Iterable[bytes], arguments: Arguments) -> int:
    count = wrong = 0
    compare, text = partial(_compare_case, settings=arguments.settings), _text_of(arguments)
    for count, result in enumerate(answer_lines(lines, compare), 1):  # noqa: B007 - used below
        wrong += print_lines(
            [result] if result else [], LineFailure, ReplayDifference, describe=text
        )
    if not count:
        # A check of nothing must not succeed.
        print(f"{program.name.get()}: {arguments.file}: no case in it", file=sys.stderr)
        return 1
    print(f"{count - wrong} of {count} answered as recorded", file=sys.stderr)
    return 1 if wrong else 0


def replay_lines(
    lines: Iterable[bytes], settings: AdmissionSettings = cases.DEFAULTS
) -> Iterator[cases.ReplayResult | LineFailure]:
    """Answer each line that is not blank, in order."""
    return answer_lines(lines, partial(replay_case, settings=settings))


def replay_case(
    line: bytes, settings: AdmissionSettings = cases.DEFAULTS
) -> cases.ReplayResult | LineFailure:
    """Answer one case, or say why it is invalid; ``settings`` are for a case without its own."""
    case = cases.read_case(line)
    return case if isinstance(case, LineFailure) else cases.answer_case(case, settings)


def _compare_case(
    line: bytes, settings: AdmissionSettings
) -> ReplayDifference | LineFailure | None:
    """A case whose answer is not, byte by byte, the one that was recorded; None for others."""
    case = cases.read_case(line)
    if isinstance(case, LineFailure):
        return case
    if not bytes(case.response):
        return LineFailure(case.id, "the case has no response to compare with")
    now = cases.answer_case(case, settings).response
    if now is None or bytes(now) != bytes(case.response):
        return ReplayDifference(case.id, case.response, now)
    return None
