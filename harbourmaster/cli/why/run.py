"""``harbourmaster why``: asks a cluster or files, and prints one report for each object."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from harbourmaster.cli.arguments import subject_of
from harbourmaster.cli.live.cluster import DONE, LEFT, complain, namespace_of, run_with_client
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.live.reader import read_error
from harbourmaster.cli.why.commands import KINDS
from harbourmaster.cli.why.model import Report, WhyContext
from harbourmaster.cli.why.render import show
from harbourmaster.cli.why.sections import SECTIONS, SECTIONS_OF, section_of
from harbourmaster.cli.why.subjects import fetch_subject, owners_of, summarize
from harbourmaster.kube.errors import ApiError, NotFoundError
from harbourmaster.serving.settings import StartError

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.why.model import Subject
    from harbourmaster.kube.client import Client


def why(arguments: Arguments) -> int:
    """Answer; 0 there is an answer, 1 an object or a file is bad or not there, 2 no cluster.

    Raises StartError for arguments that do not go together.
    """
    if arguments.manifests and arguments.what:
        raise StartError(f"why: give either -f or {arguments.what}, not both")
    if arguments.manifests or arguments.what == "review":
        # Only files need what reads files.
        from harbourmaster.cli.why import offline  # noqa: PLC0415

        return (offline.manifests if arguments.manifests else offline.reviews)(arguments)
    if not arguments.what:
        raise StartError("why: give a pod, a workload, a review or -f FILE")
    if arguments.policies or arguments.namespaces or arguments.parents:
        raise StartError("why: --policies, --namespaces and --parents are for -f and review")
    if not (arguments.name or arguments.selector):
        raise StartError("why: give a name, or labels by --selector")
    return run_with_client(arguments, partial(_live, arguments, _resources_of(arguments)))


def _resources_of(arguments: Arguments) -> tuple[Resource, ...]:
    """Return the kinds that a type stands for, by its group if it has one. Raises StartError."""
    group, kinds = getattr(arguments, "group", ""), KINDS[arguments.kind]
    chosen = tuple(
        kind
        for kind in kinds
        if group in {"", kind.group, kind.version, f"{kind.version}.{kind.group}"}
    )
    if not chosen:
        known = " or ".join(kind.name for kind in kinds)
        raise StartError(f'why: unknown kind "{arguments.what}.{group}": expected {known}')
    return chosen


async def _live(arguments: Arguments, resources: tuple[Resource, ...], client: Client) -> int:
    live = Installation(client, arguments.installed_in)
    if arguments.name:
        namespace, name = subject_of(arguments, arguments.name, client.connection.namespace)
        return await _explain_named(arguments, live, resources, namespace, name)
    namespace = namespace_of(arguments, client)
    named: list[tuple[Resource, Metadata]] = []
    for resource in resources:
        place = namespace if resource.namespaced else ""
        listing = live.metadata(resource, place or None, label_selector=arguments.selector)
        try:
            named += [(resource, obj) for obj in await listing]
        except ApiError as error:
            complain(read_error(error, resource.plural))
            return LEFT
    if not named:
        where = f" in namespace {namespace}" if namespace else ""
        kinds = " or ".join(resource.kind for resource in resources)
        complain(f"no {kinds} matches {arguments.selector}{where}")
        return LEFT
    codes = [
        await _explain_named(arguments, live, (resource,), obj.namespace, obj.name)
        for resource, obj in named
    ]
    return max(codes)


async def _explain_named(
    arguments: Arguments,
    live: Installation,
    resources: tuple[Resource, ...],
    namespace: str,
    name: str,
) -> int:
    """Explain the object of each kind that has the name; complain if there is none."""
    subjects, missing, unread = [], [], []
    for resource in resources:
        place = namespace if resource.namespaced else ""
        what = f"{resource.kind} {'/'.join(filter(None, (place, name)))}"
        try:
            subjects.append((resource, await fetch_subject(live, resource, place, name)))
        except NotFoundError as error:
            missing.append(await live.not_found(error, resource, name, place))
        except ApiError as error:
            unread.append(read_error(error, what))
    for subject in subjects:
        await _explain(arguments, live, *subject)
    for complaint in unread if subjects else (*missing, *unread):
        complain(complaint)
    return DONE if subjects else LEFT


async def _explain(
    arguments: Arguments, live: Installation, resource: Resource, subject: Subject
) -> None:
    now = datetime.now(UTC)
    owners, doubt = await owners_of(live, subject)
    context = WhyContext(subject, live, now, owners, has_all=arguments.has_all)
    names = SECTIONS_OF.get(resource, SECTIONS)
    sections = await asyncio.gather(*(section_of(name, context) for name in names))
    line = "; ".join(filter(None, (summarize(subject, owners, now), doubt)))
    show(arguments, Report(subject, line, tuple(filter(None, sections)), owners))
