"""The policies of now, and those of the preview."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.decoding import MalformedError, decode
from harbourmaster.cli.manifests import read_paths
from harbourmaster.cli.preview.model import Policies
from harbourmaster.policies.compiled import CompiledPolicy
from harbourmaster.policies.index import policy_set
from harbourmaster.policies.model import API_VERSION, CLUSTER_POLICY, POLICY
from harbourmaster.serving.documents import Problem
from harbourmaster.webhook.policy_objects import convert_policy
from harbourmaster.webhook.sources import read_policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from msgspec import Raw

    from harbourmaster.policies.index import PolicySet

_SILENTLY_SKIPPED: Final = frozenset(("Kustomization", "CustomResourceDefinition"))
_SHOWN: Final = 10
_objects: Final = msgspec.json.Decoder(dict[str, Any])


class Given(Struct, frozen=True):
    """A policy, and the object it was read from."""

    compiled: CompiledPolicy
    value: dict[str, Any]

    def says_the_same(self, other: Given) -> bool:
        """Whether both ask for the same, however they are written."""
        try:
            return convert_policy(self.value).spec == convert_policy(other.value).spec
        except MalformedError:
            return self.value.get("spec") == other.value.get("spec")


class UnknownError(Exception):
    """A policy to be taken away is not there; the text is one line."""


def of_object(raw: Raw) -> Given:
    """A policy as the API gives it. Raises MalformedError."""
    value = decode(_objects, raw, "")
    return Given(read_policy(value)[0], value)


def of_files(paths: list[Path], problems: list[str]) -> dict[str, Given]:
    """The policies in files and folders, by reference; what is wrong there goes to ``problems``."""
    found: dict[str, Given] = {}
    for item in read_paths(paths):
        if isinstance(item, Problem):
            problems.append(str(item))
            continue
        value = item.value
        kind = value.get("kind")
        if value.get("apiVersion") != API_VERSION or kind not in {POLICY, CLUSTER_POLICY}:
            if kind not in _SILENTLY_SKIPPED:
                expected = f"{POLICY} or {CLUSTER_POLICY} of {API_VERSION}"
                given = f"{value.get('apiVersion')}, Kind={kind}"
                problems.append(str(item.problem(f"kind: expected {expected}, got {given}")))
            continue
        compiled, errors = read_policy(value)
        problems += [str(item.problem(text)) for text in errors]
        if compiled.reference in found:
            problems.append(str(item.problem(f"{compiled.reference} was defined before: ignored")))
        else:
            found[compiled.reference] = Given(compiled, value)
    return found


def previewed(
    now: Mapping[str, Given], given: Mapping[str, Given], deleted: list[str], *, is_all: bool
) -> tuple[dict[str, Given], Policies]:
    """The policies that would be in force, and what is new about them. Raises UnknownError."""
    then = {} if is_all else dict(now)
    then.update(given)
    for name in deleted:
        reference = f"{POLICY} {name}" if "/" in name else f"{CLUSTER_POLICY} {name}"
        if reference not in now:
            raise UnknownError(f"--delete {name}: there is no {reference}{_others(now)}")
        then.pop(reference, None)
    kept = now.keys() & then.keys()
    changed = {each for each in kept if not now[each].says_the_same(then[each])}
    return then, Policies(
        added=tuple(sorted(then.keys() - now.keys())),
        changed=tuple(sorted(changed)),
        removed=tuple(sorted(now.keys() - then.keys())),
        unchanged=len(kept) - len(changed),
    )


def set_of(given: Iterable[Given]) -> PolicySet:
    """The policies, ready to match."""
    return policy_set(each.compiled for each in given)


def _others(now: Mapping[str, Given]) -> str:
    if not now:
        return ", nor any other policy"
    names = sorted(now)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"; there are {', '.join(names[:_SHOWN])}{more}"
