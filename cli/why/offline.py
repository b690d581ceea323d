"""``why`` for manifests and recorded reviews, by policies of files or of a live cluster."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.decoding import MalformedError
from harbourmaster.cli.live.cluster import DONE, LEFT, complain, run_with_client
from harbourmaster.cli.live.files import read_paths
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.why.asking import (
    Inputs,
    as_asked,
    ask,
    inputs_of,
    is_asked_about,
    policies_of,
    review_of,
)
from harbourmaster.cli.why.model import Subject, WhyContext
from harbourmaster.cli.why.policy_section import Words, policies_section
from harbourmaster.cli.why.render import Explained
from harbourmaster.policies.model import is_policy_kind
from harbourmaster.serving.documents import Document, Problem
from harbourmaster.webhook.cases import DEFAULTS, Case, Failure, read_case
from harbourmaster.webhook.parents import parents_of
from harbourmaster.webhook.review import MAX_BODY_BYTES, RequestHead, decode_review
from harbourmaster.webhook.snapshot import Snapshot
from harbourmaster.webhook.sources import Sources, load, namespaces_of

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

    from harbourmaster.kube.client import Client

    Show: TypeAlias = Callable[[Explained], None]

_NAMESPACE: Final = "default"
_STANDARD_INPUT: Final = "-"


class _Question(Struct, frozen=True):
    """A review, and what it is to be answered by; None for what the command was given."""

    body: bytes
    case: Case | None
    words: Words
    seen: str
    at: str = ""
    """Where it stands, for messages."""


def manifests(arguments: Arguments, show: Show) -> int:
    """Explain what would become of manifests that are created now."""
    questions: list[_Question] = []
    failed = False
    for item in _documents(arguments.manifests):
        if isinstance(item, Problem):
            complain(str(item))
            failed = True
        elif is_asked_about(item.value):
            questions.append(_question(item, arguments.namespace or _NAMESPACE))
    if not questions:
        if not failed:
            complain("no pod and no workload in it: nothing to explain")
        return LEFT
    return max(_answer(arguments, questions, show), LEFT if failed else DONE)


def reviews(arguments: Arguments, file: str, show: Show) -> int:
    """Explain recorded AdmissionReviews, or cases with all that admission knew."""
    data = sys.stdin.buffer.read() if file == _STANDARD_INPUT else Path(file).read_bytes()
    questions: list[_Question] = []
    failed = False
    for number, text in _texts(data):
        at = file if number is None else f"{file}, line {number}"
        found = _recorded(text, at)
        if isinstance(found, str):
            complain(f"{at}: {found}")
            failed = True
        else:
            questions.append(found)
    if not questions and not failed:
        complain(f"{file}: empty file")
        return LEFT
    code = _answer(arguments, questions, show) if questions else DONE
    return max(code, LEFT if failed else DONE)


def _documents(paths: list[Path]) -> Iterator[Document | Problem]:
    """The documents; of a List, as kubectl prints it, its items."""
    for item in read_paths(paths):
        items = item.value.get("items") if isinstance(item, Document) else None
        if isinstance(item, Document) and item.value.get("kind") == "List" and items:
            for each in items:
                if isinstance(each, dict):
                    yield Document(item.file, item.number, each)
        else:
            yield item


def _question(item: Document, namespace: str) -> _Question:
    metadata = item.value.get("metadata")
    fields: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
    asked = as_asked(item.value)
    place = str(fields.get("namespace") or namespace)
    return _Question(
        review_of({**asked.manifest, "metadata": _named(asked.manifest, fields)}, place),
        None,
        Words(whose=asked.whose, is_live=False, remarks=asked.remarks),
        f"as if it were created now, in the namespace {place}",
        item.file,
    )


def _named(manifest: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """The metadata with a name at least: a Rollout's pod has none of its own."""
    metadata = manifest.get("metadata")
    found: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
    return found if "name" in found or "name" not in fields else {"name": fields["name"], **found}


def _texts(data: bytes) -> Iterator[tuple[int | None, bytes]]:
    """The whole, if it is one JSON value; else each line that is not blank, counted from 1."""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        for number, line in enumerate(data.splitlines(), 1):
            if line.strip():
                yield number, line
    else:
        yield None, data


def _recorded(text: bytes, at: str) -> _Question | str:
    """The question in a recorded text, or why it is none."""
    try:
        keys = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        return f"invalid JSON object: {error}"
    case = None
    if "review" in keys:
        found = read_case(text)
        if isinstance(found, Failure):
            return found.error
        case, text = found, bytes(found.review)
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
        Words(whose="the pod" if kind == "Pod" else "the template", is_live=False),
        f"{number}as recorded at its {request.operation or 'CREATE'}",
        at,
    )


def _answer(arguments: Arguments, questions: Sequence[_Question], show: Show) -> int:
    """Answer what brings all it needs, then by files, or by a cluster."""
    if arguments.policies is None and any(each.case is None for each in questions):
        return run_with_client(arguments, partial(_by_cluster, arguments, questions, show))
    given, is_whole = _given(arguments)
    for question in questions:
        show(_explained(arguments, question, given))
    return DONE if is_whole else LEFT


def _given(arguments: Arguments) -> tuple[Inputs, bool]:
    """Policies, namespaces and owners of files, and whether nothing is wrong with the files."""
    if arguments.policies is None:
        return Inputs(Snapshot(), DEFAULTS), True
    loaded = load(Sources(arguments.policies, arguments.namespaces, arguments.parents))
    for problem in loaded.problems:
        complain(str(problem))
    values = [item.value for item in read_paths([arguments.policies]) if isinstance(item, Document)]
    policies = policies_of(filter(_is_policy, values))
    return Inputs(loaded.snapshot, DEFAULTS, policies), not loaded.problems


def _is_policy(value: dict[str, Any]) -> bool:
    group, _, version = str(value.get("apiVersion")).rpartition("/")
    return is_policy_kind(group, version, str(value.get("kind")))


async def _by_cluster(
    arguments: Arguments, questions: Sequence[_Question], show: Show, client: Client
) -> int:
    live = Installation(client, arguments.installed_in)
    for question in questions:
        request = decode_review(question.body).request
        namespace = (request.namespace if request else None) or _NAMESPACE
        subject = Subject("", "", namespace, "", question.body)
        context = WhyContext(subject, live, now=datetime.now(UTC), is_live=False)
        inputs = await inputs_of(context, namespace) if question.case is None else None
        show(_explained(arguments, question, inputs))
    return DONE


def _explained(arguments: Arguments, question: _Question, inputs: Inputs | None) -> Explained:
    """The report; a case brings what it is answered by, for all else that is ``inputs``."""
    case = question.case
    if case is not None:
        snapshot = Snapshot(
            namespaces=namespaces_of(case.namespaces),
            excluded=case.excluded,
            parents=parents_of(case.parents),
        )
        inputs = Inputs(snapshot, case.settings or DEFAULTS, policies_of(case.policies))
        answered = ask(question.body, inputs, may_patch=case.may_patch, hashed=case.hash)
    else:
        inputs = inputs or Inputs(Snapshot(), DEFAULTS)
        answered = ask(question.body, inputs)
    words = msgspec.structs.replace(
        question.words,
        has_all=arguments.has_all,
        problems=inputs.problems,
        remarks=(*question.words.remarks, *filter(None, (inputs.doubt,))),
    )
    request = answered.request
    kind = request.kind
    group = (
        f"{kind.group}/{kind.version}" if kind and kind.group else (kind.version if kind else "")
    )
    return Explained(
        api_version=group,
        kind=kind.kind if kind else "",
        namespace=request.namespace or "",
        name=request.name or _name_in(question.body),
        seen=question.seen,
        sections=(policies_section(answered, words),),
    )


class _Metadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    generate_name: str = ""


class _Object(Struct, frozen=True):
    metadata: _Metadata = _Metadata()


def _name_in(body: bytes) -> str:
    """The name in the object, or what the API server makes one from."""
    request = decode_review(body).request
    if request is None or not request.has_object:
        return ""
    try:
        metadata = msgspec.json.decode(request.object, type=_Object).metadata
    except msgspec.MsgspecError:
        return ""
    return metadata.name or (f"{metadata.generate_name}…" if metadata.generate_name else "")
