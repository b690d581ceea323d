"""Policies, namespaces and parents from files, for standalone mode and the command line (D14).

A bad document is reported with its file, its number and the field; the others are used.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.decoding import MalformedError, describe
from harbourmaster.policies.compiled import compile_policy, undecodable_policy
from harbourmaster.policies.index import audited_set, policy_set
from harbourmaster.policies.model import API_VERSION, CLUSTER_POLICY, POLICY
from harbourmaster.policies.validation import validate
from harbourmaster.serving.definitions import unknown_fields
from harbourmaster.serving.documents import Document, Problem, documents_in
from harbourmaster.serving.settings import StartError
from harbourmaster.webhook.parents import DEFAULT_NAMESPACE, ParentObject, parents_of
from harbourmaster.webhook.policy_objects import convert_policy, source_of
from harbourmaster.webhook.snapshot import NamespaceObject, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.policies.compiled import CompiledPolicy
    from harbourmaster.webhook.snapshot import Namespace

_Object = TypeVar("_Object", NamespaceObject, ParentObject)
# What commonly lies beside policies and is not a mistake there.
_SILENTLY_SKIPPED: Final = frozenset(("Kustomization", "CustomResourceDefinition"))


class Sources(Struct, frozen=True, gc=False):
    """The paths of all objects."""

    policies: Path | None
    namespaces: Path | None = None
    parents: Path | None = None
    keeps_policies: bool = False
    """Whether policies are kept as they were written, too."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Every path that is given."""
        given = (self.policies, self.namespaces, self.parents)
        return tuple(path for path in given if path is not None)

    def check(self) -> None:
        """Raise StartError where a path leads nowhere."""
        for path in self.paths:
            if not path.exists():
                raise StartError(f"{path}: no such file or directory")


class Loaded(Struct, frozen=True, gc=False):
    """A snapshot, the problems of the documents it was made from, and the parents read."""

    snapshot: Snapshot
    problems: tuple[Problem, ...]
    parents: int = 0


def load(sources: Sources) -> Loaded:
    """Read every source again. Raises StartError if one of them is absent."""
    problems: list[Problem] = []
    documents = _documents(sources.policies, problems) if sources.policies else []
    policies = policies_in(documents, problems, keeps=sources.keeps_policies)
    namespaces = None
    if sources.namespaces is not None:
        objects = _load(sources.namespaces, problems, NamespaceObject, "Namespace")
        namespaces = namespaces_of(objects)
    parents: list[ParentObject] = []
    if sources.parents is not None:
        parents = _load(sources.parents, problems, ParentObject)
    snapshot = Snapshot(
        policy_set(policies.values()),
        namespaces,
        parents=parents_of(parents),
        audited=audited_set(policies.values()),
    )
    return Loaded(snapshot, tuple(problems), len(parents))


def _documents(path: Path, problems: list[Problem]) -> list[Document]:
    documents = list(documents_in(path))
    problems += [document for document in documents if isinstance(document, Problem)]
    return [document for document in documents if isinstance(document, Document)]


def policies_in(
    documents: Iterable[Document], problems: list[Problem], *, keeps: bool = False
) -> dict[str, CompiledPolicy]:
    """The policies by reference; ``keeps`` keeps them as they were written, too.

    What is wrong is added to ``problems``.
    """
    policies: dict[str, CompiledPolicy] = {}
    for document in documents:
        kind = document.value.get("kind")
        if document.value.get("apiVersion") != API_VERSION or kind not in {POLICY, CLUSTER_POLICY}:
            if kind not in _SILENTLY_SKIPPED:
                declared = f"{document.value.get('apiVersion')}, Kind={kind}"
                expected = f"{POLICY} or {CLUSTER_POLICY} of {API_VERSION}"
                problems.append(document.problem(f"kind: expected {expected}, got {declared}"))
            continue
        policy, errors = read_policy(document.value)
        if keeps:
            policy = replace(policy, source=source_of(msgspec.json.encode(document.value)))
        problems.extend(document.problem(text) for text in errors)
        if policy.reference in policies:
            problems.append(document.problem(f"{policy.reference} was defined before: ignored"))
        else:
            policies[policy.reference] = policy
    return policies


def read_policy(value: dict[str, Any]) -> tuple[CompiledPolicy, list[str]]:
    """Compile one policy object, and list its errors; an invalid one is returned with its fault.

    A namespaced policy without a namespace lives in ``default``. An unknown field is an error, and
    the rest of the policy counts as in a cluster, which drops such fields from what it has stored.
    """
    is_cluster_scoped = value.get("kind") == CLUSTER_POLICY
    metadata = value.get("metadata")
    if isinstance(metadata, dict) and not is_cluster_scoped and not metadata.get("namespace"):
        value = {**value, "metadata": {**metadata, "namespace": DEFAULT_NAMESPACE}}
    try:
        policy = convert_policy(value)
    except MalformedError as error:
        text = str(error)
        return _undecodable(value, is_cluster_scoped=is_cluster_scoped, fault=text), [text]
    unknown = [f"{path}: unknown field" for path in unknown_fields(value)]
    return compile_policy(policy), [*map(str, validate(policy)), *unknown]


def _undecodable(value: dict[str, Any], *, is_cluster_scoped: bool, fault: str) -> CompiledPolicy:
    metadata = value.get("metadata")
    fields = metadata if isinstance(metadata, dict) else {}
    namespace = None if is_cluster_scoped else str(fields.get("namespace") or DEFAULT_NAMESPACE)
    prefix = "" if namespace is None else f"{namespace}/"
    reference = f"{value.get('kind')} {prefix}{fields.get('name') or ''}"
    return undecodable_policy(reference, namespace, fault)


def _load(
    path: Path, problems: list[Problem], target: type[_Object], kind: str = ""
) -> list[_Object]:
    """The objects of a file or folder; with ``kind`` those of another one are problems."""
    objects: list[_Object] = []
    for document in _documents(path, problems):
        says = document.value.get("kind")
        if kind and says != kind:
            problems.append(document.problem(f"kind: expected {kind}, got {says}"))
            continue
        try:
            obj = msgspec.convert(document.value, target)
        except msgspec.ValidationError as error:
            problems.append(document.problem(describe(error)))
            continue
        if obj.metadata.name:
            objects.append(obj)
        else:
            problems.append(document.problem("metadata.name: required"))
    return objects


def namespaces_of(objects: Iterable[NamespaceObject]) -> dict[str, Namespace]:
    """Namespaces by name."""
    return {obj.metadata.name or "": obj.to_namespace() for obj in objects}
