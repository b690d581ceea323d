"""``harbourmaster why``: asks a cluster or files, and prints one report for each object."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.cli.live.cluster import DONE, LEFT, UNUSABLE, complain, run_with_client
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.live.reader import is_kind_missing, unreadable
from harbourmaster.cli.terminal import Terminal
from harbourmaster.cli.why.model import Section, WhyContext
from harbourmaster.cli.why.render import Explained, print_json, text
from harbourmaster.cli.why.subjects import KINDS, fetched, owners_of, seen
from harbourmaster.kube.errors import ApiError, NotFoundError

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Callable

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client

SECTIONS: Final = ("gate", "scheduling", "policies", "placement", "rescheduling")
"""In the order in which they are printed; each is a module of ``sections``."""
_REVIEW: Final = "review"
_NAMESPACE: Final = "default"


class UsageError(Exception):
    """Arguments that do not go together; the text is one line."""


def why(arguments: Arguments) -> int:
    """Answer; 0 there is an answer, 1 an object or a file is bad or not there, 2 no cluster."""
    try:
        work = _work(arguments)
    except UsageError as error:
        complain(f"why: {error}; see harbourmaster why --help")
        return UNUSABLE
    return work()


def _work(arguments: Arguments) -> Callable[[], int]:
    """What is to be done. Raises UsageError."""
    print_one = partial(show, arguments)
    if arguments.manifests:
        if arguments.what:
            raise UsageError(f"give either -f or {arguments.what}, not both")
        from harbourmaster.cli.why import offline  # noqa: PLC0415 - what reads files is for files

        return partial(offline.manifests, arguments, print_one)
    if not arguments.what:
        raise UsageError("give a pod, a workload, a review or -f FILE")
    if arguments.what == _REVIEW:
        from harbourmaster.cli.why import offline  # noqa: PLC0415

        return partial(offline.reviews, arguments, arguments.file, print_one)
    if arguments.policies or arguments.namespaces or arguments.parents:
        raise UsageError("--policies, --namespaces and --parents are for -f and review")
    return partial(run_with_client, arguments, partial(_live, arguments, *_asked(arguments)))


def show(arguments: Arguments, told: Explained) -> None:
    """Print one report."""
    if arguments.output == "json":
        print_json(told)
        return
    for line in text(told, Terminal.of(sys.stdout)):
        print(line)
    print(flush=True)


def _asked(arguments: Arguments) -> tuple[Resource, str, str]:
    """Kind, namespace and name of what is asked about. Raises UsageError."""
    namespace, slash, name = arguments.name.rpartition("/")
    if not name or "/" in namespace or (slash and not namespace):
        raise UsageError(f'invalid name "{arguments.name}": expected [NAMESPACE/]NAME')
    if namespace and arguments.namespace not in {None, namespace}:
        raise UsageError(f"{arguments.name} is not in the namespace {arguments.namespace}")
    return KINDS[arguments.kind], namespace or arguments.namespace or _NAMESPACE, name


async def _live(
    arguments: Arguments, resource: Resource, namespace: str, name: str, client: Client
) -> int:
    kind = resource.kind
    live = Installation(client, arguments.installed_in)
    try:
        subject = await fetched(live, resource, namespace, name)
    except NotFoundError as error:
        if is_kind_missing(error):
            complain(f"the cluster does not know the kind {kind}")
        else:
            look = f"kubectl -n {namespace} get {resource.plural}"
            complain(f"{kind} {namespace}/{name} not found: {look} lists those that exist")
        return LEFT
    except ApiError as error:
        complain(unreadable(error, f"{kind} {namespace}/{name}"))
        return LEFT
    now = datetime.now(UTC)
    owners, doubt = await owners_of(live, subject)
    context = WhyContext(subject, live, now=now, owners=owners, has_all=arguments.has_all)
    found = await asyncio.gather(*(_section(each, context) for each in SECTIONS))
    told = Explained(
        api_version=subject.api_version,
        kind=kind,
        namespace=namespace,
        name=name,
        seen="; ".join(filter(None, (seen(subject, owners, now), doubt))),
        sections=tuple(each for each in found if each is not None),
    )
    show(arguments, told)
    return DONE


async def _section(name: str, context: WhyContext) -> Section | None:
    """What one section says; of what it could not read, that."""
    try:
        module = import_module(f"harbourmaster.cli.why.sections.{name}")
        section: Section | None = await module.section(context)
    except ApiError as error:
        reason = unreadable(error, "it")
    except (msgspec.MsgspecError, ValueError) as error:
        reason = f"the cluster's answer about it is invalid: {error}"
    else:
        return section
    return Section(name=name, title=name.capitalize(), state="unknown", summary=reason)
