"""``why`` for manifests and recorded reviews, by policies of files or of a live cluster."""

from __future__ import annotations

import shlex
import sys
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from harbourmaster.api.decoding import LineFailure, MalformedError, describe
from harbourmaster.api.resources import NAMESPACES
from harbourmaster.cli.live.cluster import (
    DONE,
    LEFT,
    complain,
    context_namespace,
    run_with_client,
)
from harbourmaster.cli.live.files import STANDARD_INPUT, read_paths
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.live.kinds import decode_anything
from harbourmaster.cli.live.waits import Objects, waits_in_files
from harbourmaster.cli.offline import kind_of, name_of, namespace_of, object_in
from harbourmaster.cli.why.admission import (
    AdmissionInputs,
    explain_review,
    inputs_of,
    makes_pods,
    policies_of,
    review_of,
    reviewed_object,
)
from harbourmaster.cli.why.missing_gate import definitions_of, planned_gate, template_pod
from harbourmaster.cli.why.model import Report, Section, Subject, WhyContext
from harbourmaster.cli.why.policy_lines import Background
from harbourmaster.cli.why.render import show
from harbourmaster.cli.why.sections import section_of
from harbourmaster.cli.why.sections.gate import GateDetail, gate_section
from harbourmaster.cli.why.sections.policies import policies_section
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.gates.version import is_tag_of
from harbourmaster.gates.workload import workload_of
from harbourmaster.kube.connection import FALLBACK_NAMESPACE
from harbourmaster.lifecycle.check_facts import Facts
from harbourmaster.lifecycle.gate_report import gate_report
from harbourmaster.lifecycle.gate_verdict import GateWaitRules
from harbourmaster.lifecycle.gated_pods import Pod
from harbourmaster.lifecycle.model import App
from harbourmaster.policies.model import is_policy_kind
from harbourmaster.serving.documents import Document, Problem, documents_in
from harbourmaster.webhook.cases import ReplayCase, engine_for, read_case
from harbourmaster.webhook.review import (
    MAX_BODY_BYTES,
    GroupVersionKind,
    RequestHead,
    decode_review,
)
from harbourmaster.webhook.sources import Sources, load

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Iterable, Iterator, Sequence

    from harbourmaster.kube.client import Client


class _Question(Struct, frozen=True):
    """A review, and what it is to be answered by; None for what the command was given."""

    body: bytes
    case: ReplayCase | None
    words: Background
    summary: str
    manifest: Subject | None = None
    created_with: frozenset[str] = frozenset()
    """The kinds and names of all objects that are created with the manifest."""
    files: tuple[dict[str, Any], ...] = ()
    """The objects that are created with the manifest."""


def manifests(arguments: Arguments) -> int:
    """Explain the result of creating manifests now."""
    namespace = arguments.namespace or (
        FALLBACK_NAMESPACE if arguments.policies else context_namespace(arguments)
    )
    nothing = "no pod and no workload in it: nothing to explain"
    return _explain(arguments, _manifest_questions(arguments.manifests, namespace), nothing)


def reviews(arguments: Arguments) -> int:
    """Explain recorded AdmissionReviews, or cases with all that admission knew."""
    return _explain(arguments, _recorded_questions(arguments.file), f"{arguments.file}: empty file")


def _explain(
    arguments: Arguments, questions_or_faults: Iterable[_Question | str], nothing: str
) -> int:
    """Explain all questions; a text says what is wrong with one, ``nothing`` that there is none."""
    questions: list[_Question] = []
    code = DONE
    for question in questions_or_faults:
        if isinstance(question, str):
            complain(question)
            code = LEFT
        else:
            questions.append(question)
    if not questions:
        if code == DONE:
            complain(nothing)
        return LEFT
    return max(_answer(arguments, questions), code)


def _manifest_questions(paths: list[Path], namespace: str) -> Iterator[_Question | str]:
    """A question for each pod and workload."""
    manifests: list[dict[str, Any]] = []
    for item in read_paths(paths):
        if isinstance(item, Problem):
            yield str(item)
        else:
            metadata = {"namespace": namespace, **object_in(item.value, "metadata")}
            manifests.append({**item.value, "metadata": metadata})
    given = frozenset(
        f"{manifest.get('kind')} {name_of(manifest)}"
        for manifest in manifests
        if manifest.get("kind") != NAMESPACES.kind
        or object_in(object_in(manifest, "metadata"), "annotations").get(OPT_IN_KEY) == OPT_IN
    )
    for manifest in filter(makes_pods, manifests):
        yield _question(manifest, given, tuple(manifests))


def _subject(manifest: dict[str, Any]) -> Subject:
    kind, place = kind_of(manifest), namespace_of(manifest)
    raw = msgspec.json.encode(manifest)
    return Subject(kind[0], kind[2], place, name_of(manifest) or "", raw)


def listed_by_tag(
    app: dict[str, Any], manifests: Iterable[dict[str, Any]], *, from_tag: bool
) -> Iterator[str]:
    """Yield the workloads of an app that it lists by tag alone, though pods have a digest too."""
    for manifest in manifests:
        # Admission and the definition say what is wrong with either.
        with suppress(msgspec.ValidationError):
            entries = enumerate(msgspec.convert(app, App).spec.workloads)
            pod = template_pod(_subject(manifest), version_from_tag=from_tag)
            described = workload_of(pod.annotations, pod.labels) if pod is not None else None
            if described is None or (namespace_of(manifest), described.app) != (
                namespace_of(app),
                name_of(app),
            ):
                continue
            for at, entry in entries:
                if entry.name == described.workload and is_tag_of(entry.version, described.version):
                    path = f"spec.workloads[{at}].version"
                    yield f'"{entry.version}" is the tag alone: {path}: write "{described.version}"'


def _question(
    manifest: dict[str, Any], given: frozenset[str], files: tuple[dict[str, Any], ...]
) -> _Question:
    asked, place = reviewed_object(manifest), namespace_of(manifest)
    return _Question(
        review_of(asked.manifest, place),
        None,
        Background(whose=asked.whose, is_live=False, remarks=asked.remarks),
        f"as if it were created now, in the namespace {place}",
        _subject(manifest),
        given,
        files,
    )


def _recorded_questions(file: str) -> Iterator[_Question | str]:
    """A question for each record in a file."""
    data = sys.stdin.buffer.read() if file == STANDARD_INPUT else Path(file).read_bytes()
    for number, text in _texts_in(data):
        question = _recorded_question(text)
        at = file if number is None else f"{file}, line {number}"
        yield f"{at}: {question}" if isinstance(question, str) else question


def _texts_in(data: bytes) -> Iterator[tuple[int | None, bytes]]:
    """The whole, if it is one JSON value; else each line that is not blank, counted from 1."""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        for number, line in enumerate(data.splitlines(), 1):
            if line.strip():
                yield number, line
    else:
        yield None, data


def _recorded_question(text: bytes) -> _Question | str:
    """The question in a recorded text, or why it is none."""
    try:
        keys = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        return f"invalid JSON object: {error}"
    case = None
    if "review" in keys:
        recorded = read_case(text)
        if isinstance(recorded, LineFailure):
            return recorded.error
        case, text = recorded, bytes(recorded.review)
    elif "request" not in keys:
        return "neither an AdmissionReview (no request) nor a case (no review)"
    if len(text) > MAX_BODY_BYTES:
        return f"the server refuses it with 413: it has more than {MAX_BODY_BYTES} bytes"
    try:
        request = decode_review(text).request or RequestHead()
    except MalformedError as error:
        return f"invalid AdmissionReview: {error}"
    kind = request.kind.kind if request.kind else ""
    number = f"case {case.id}, " if case is not None and case.id is not None else ""
    return _Question(
        text,
        case,
        Background(whose="the pod" if kind == "Pod" else "the template", is_live=False),
        f"{number}as recorded at its {request.operation or 'CREATE'}",
    )


def _answer(arguments: Arguments, questions: Sequence[_Question]) -> int:
    """Answer what brings all it needs, then by files, or by a cluster."""
    if arguments.policies is None and any(question.case is None for question in questions):
        return run_with_client(arguments, partial(_by_cluster, arguments, questions))
    given, code = _inputs_in_files(arguments)
    for question in questions:
        show(arguments, _report(arguments, question, given, _gate(question, given)))
    return code


def _gate(question: _Question, inputs: AdmissionInputs) -> Section | None:
    """Return the section on what the pods of a manifest wait for, judged by files."""
    subject, known = question.manifest, question.created_with
    if subject is None:
        return None
    made = partial(template_pod, version_from_tag=inputs.settings.version_from_tag)
    try:
        wanted = made(subject)
        reason = planned_gate(subject, wanted, inputs, known)
    except msgspec.DecodeError as error:
        text, step = f"the manifest is invalid: {describe(error)}", "correct what it names"
        return Section(name="gate", state="unknown", code="unread", summary=text, step=step)
    pod = wanted or Pod(namespace=subject.namespace)
    facts = Facts()
    if pod.wait_conditions is not None:
        subjects = map(_subject, filter(makes_pods, question.files))
        pods = [made(maker) for maker in subjects if maker.namespace == subject.namespace]
        objects = Objects(question.files, subject.namespace)
        facts = waits_in_files([pod, *filter(None, pods)], objects).of(pod, facts)
    report = gate_report(pod, facts, GateWaitRules(), datetime.now(UTC))
    checks = definitions_of(workload_of(pod.annotations, pod.labels))
    missing = tuple(f"{check} in these files" for check in checks if check not in known)
    return gate_section(GateDetail(report=report, missing=missing), reason, datetime.now(UTC))


def _inputs_in_files(arguments: Arguments) -> tuple[AdmissionInputs, int]:
    """Policies, namespaces and owners of files, and the exit code that these files deserve."""
    if arguments.policies is None:
        return AdmissionInputs(), DONE
    loaded = load(Sources(arguments.policies, arguments.namespaces, arguments.parents))
    for problem in loaded.problems:
        complain(str(problem))
    values = [item.value for item in documents_in(arguments.policies) if isinstance(item, Document)]
    policies = policies_of(value for value in values if is_policy_kind(*kind_of(value)))
    return AdmissionInputs(loaded.snapshot, policies=policies), LEFT if loaded.problems else DONE


async def _by_cluster(arguments: Arguments, questions: Sequence[_Question], client: Client) -> int:
    live = Installation(client, arguments.installed_in)
    for question in questions:
        inputs, gate = AdmissionInputs(), None
        if question.case is None:
            request = decode_review(question.body).request
            namespace = (request.namespace if request else None) or FALLBACK_NAMESPACE
            inputs = await inputs_of(live, namespace)
        if question.manifest is not None:
            now = datetime.now(UTC)
            objects = Objects(question.files, question.manifest.namespace)
            context = WhyContext(
                question.manifest, live, now, created_with=question.created_with, files=objects
            )
            gate = await section_of("gate", context)
        show(arguments, _report(arguments, question, inputs, gate))
    return DONE


def _report(
    arguments: Arguments, question: _Question, inputs: AdmissionInputs, gate: Section | None
) -> Report:
    """The report; a case brings what it is answered by, for all else that is ``inputs``."""
    case = question.case
    if case is not None:
        engine = engine_for(case)
        inputs = AdmissionInputs(engine.snapshot, engine.settings, policies_of(case.policies))
        answered = explain_review(question.body, inputs, may_patch=case.may_patch, hashed=case.hash)
    else:
        answered = explain_review(question.body, inputs)
    words = msgspec.structs.replace(
        question.words,
        has_all=arguments.has_all,
        problems=inputs.problems,
        remarks=(*question.words.remarks, *filter(None, (inputs.doubt,))),
    )
    request = answered.request
    kind = request.kind or GroupVersionKind()
    subject = Subject(
        "/".join(filter(None, (kind.group, kind.version))),
        kind.kind,
        request.namespace or "",
        request.name or _name_in(question.body),
        question.body,
    )
    sections = (policies_section(answered, words), *filter(None, (gate,)))
    files = " ".join(f"-f {shlex.quote(str(path))}" for path in arguments.manifests or ())
    again = f"kubectl apply {files}" if files else f"harbourmaster why review {arguments.file}"
    return Report(subject, question.summary, sections, again=again)


def _name_in(body: bytes) -> str:
    """The name in the object, or what the API server makes one from."""
    request = decode_review(body).request
    if request is None or not request.has_object:
        return ""
    try:
        anything = decode_anything(request.object)
    except (msgspec.DecodeError, RecursionError):
        return ""
    stem = object_in(anything, "metadata").get("generateName")
    return name_of(anything) or (f"{stem}…" if stem else "")
