"""``harbourmaster why``: asks a cluster or files, and prints one report for each object."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from harbourmaster.cli.arguments import subject_of
from harbourmaster.cli.live.cluster import DONE, LEFT, complain, run_with_client
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.live.reader import read_error
from harbourmaster.cli.why.commands import KINDS, REFERRING
from harbourmaster.cli.why.model import Report, WhyContext
from harbourmaster.cli.why.render import show
from harbourmaster.cli.why.sections import SECTIONS, section_of
from harbourmaster.cli.why.subjects import fetch_subject, owners_of, summarize
from harbourmaster.kube.errors import ApiError, NotFoundError
from harbourmaster.serving.settings import StartError

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from harbourmaster.api.resources import Resource
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
    return run_with_client(arguments, partial(_live, arguments, KINDS[arguments.kind]))


async def _live(arguments: Arguments, resource: Resource, client: Client) -> int:
    live = Installation(client, arguments.installed_in)
    here = client.connection.namespace
    if arguments.name:
        return await _explain(
            arguments, live, resource, *subject_of(arguments, arguments.name, here)
        )
    namespace = here if arguments.namespace is None else arguments.namespace
    try:
        objects = await live.metadata(
            resource, namespace or None, label_selector=arguments.selector
        )
    except ApiError as error:
        complain(read_error(error, resource.plural))
        return LEFT
    if not objects:
        where = f" in namespace {namespace}" if namespace else ""
        complain(f"no {resource.kind} matches {arguments.selector}{where}")
        return LEFT
    codes = [await _explain(arguments, live, resource, obj.namespace, obj.name) for obj in objects]
    return max(codes)


async def _explain(
    arguments: Arguments, live: Installation, resource: Resource, namespace: str, name: str
) -> int:
    try:
        subject = await fetch_subject(live, resource, namespace, name)
    except NotFoundError as error:
        complain(await live.not_found(error, resource, name, namespace))
        return LEFT
    except ApiError as error:
        complain(read_error(error, f"{resource.kind} {namespace}/{name}"))
        return LEFT
    now = datetime.now(UTC)
    owners, doubt = await owners_of(live, subject)
    context = WhyContext(subject, live, now, owners, has_all=arguments.has_all)
    names = ("checks", "references") if resource in REFERRING else SECTIONS
    sections = await asyncio.gather(*(section_of(name, context) for name in names))
    line = "; ".join(filter(None, (summarize(subject, owners, now), doubt)))
    show(arguments, Report(subject, line, tuple(filter(None, sections)), owners))
    return DONE
