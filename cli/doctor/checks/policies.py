"""Whether policies do something: none is broken, and each selects some namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.decoding import MalformedError
from harbourmaster.api.resources import CLUSTER_POLICIES, POLICIES
from harbourmaster.cli.doctor.model import note, warning
from harbourmaster.cli.doctor.selecting import NAMESPACE_NAME
from harbourmaster.cli.metadata import metadata_in
from harbourmaster.policies.compiled import compile_policy
from harbourmaster.webhook.policy_objects import decode_policy

if TYPE_CHECKING:
    from harbourmaster.cli.doctor.context import Context
    from harbourmaster.cli.doctor.model import Finding
    from harbourmaster.cli.metadata import Metadata

CHECK: Final = "policies"
_SHOWN: Final = 10


class Judged(Struct, frozen=True):
    """A policy of which something is to be said."""

    name: str
    text: str
    is_broken: bool


async def check(context: Context) -> list[Finding]:
    """Policies that are left out, and those that can select nothing."""
    namespaces = await context.namespaces()
    settings = await context.known_settings()
    excluded = {*settings.webhook.excluded_namespaces, context.namespace}
    reached = [one for one in namespaces if one.name not in excluded]
    found: list[Judged] = []
    for resource in (CLUSTER_POLICIES, POLICIES):
        kind = resource.kind

        def pick(raw: msgspec.Raw, kind: str = kind) -> Judged | None:
            return judge(raw, kind, reached, excluded)

        found += await context.items(resource, pick)
    findings = []
    for one in found[:_SHOWN]:
        if one.is_broken:
            text = f"is left out, with a warning on each pod that it would have met: {one.text}"
            findings.append(warning(CHECK, one.name, text, "correct it: kubectl edit"))
        else:
            findings.append(note(CHECK, one.name, f"selects nothing: {one.text}"))
    if found[_SHOWN:]:
        findings.append(note(CHECK, "policies", f"{len(found) - _SHOWN} more of this kind"))
    return findings


def judge(
    raw: msgspec.Raw | bytes, kind: str, namespaces: list[Metadata], excluded: set[str]
) -> Judged | None:
    """What is to be said of a policy; None for nothing."""
    metadata = metadata_in(raw)
    name = f"{kind} {'/'.join(filter(None, (metadata.namespace, metadata.name)))}"
    try:
        policy = msgspec.structs.replace(decode_policy(raw), kind=kind)
    except MalformedError as error:
        return Judged(name, str(error), is_broken=True)
    compiled = compile_policy(policy)
    if compiled.fault is not None:
        return Judged(name, compiled.fault, is_broken=True)
    if compiled.pods is None:
        return Judged(name, "it has no podSelector; {} selects all pods", is_broken=False)
    if compiled.namespace is not None:
        if compiled.namespace in excluded:
            text = f"pods of the namespace {compiled.namespace} are never changed"
            return Judged(name, text, is_broken=False)
        return None
    matcher = compiled.namespaces
    if matcher is None:
        return Judged(name, "it has no namespaceSelector; {} selects all", is_broken=False)
    for one in namespaces:
        if matcher.matches({NAMESPACE_NAME: one.name, **(one.labels or {})}):
            return None
    return Judged(name, "its namespaceSelector matches no namespace", is_broken=False)
