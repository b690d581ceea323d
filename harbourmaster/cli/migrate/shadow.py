"""``harbourmaster migrate --shadow``: what shadow mode has found.

It only reads: the report of the webhook, and the objects that Keptn has stored. The latter are
compared with those that Harbourmaster would make of the same pods and apps.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api import resources
from harbourmaster.api.metadata import Metadata
from harbourmaster.cli.live.cluster import DONE, LEFT, UNUSABLE, complain
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.cli.live.reader import on_unread
from harbourmaster.cli.live.webhooks import decode_definition
from harbourmaster.cli.migrate.survey import resource_of
from harbourmaster.cli.terminal import print_out
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.gates.owners import supported_owner, workload_above
from harbourmaster.gates.workload import workload_of
from harbourmaster.kube.errors import ForbiddenError
from harbourmaster.lifecycle.apps import is_managed, version_of, version_of_workloads
from harbourmaster.lifecycle.model import App, AppVersion, Checks, Workload, WorkloadVersion
from harbourmaster.lifecycle.workloads import names_of_pod
from harbourmaster.webhook.shadow import CONFIG_MAP, MORE, Difference, report_in

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Iterator

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client

STORED: Final = "stored-by-keptn"
"""The reason of a difference from an object that Keptn has made."""
_CHECKS: Final = tuple(msgspec.structs.fields(Checks))


class Stored(Struct, frozen=True):
    """Keptn's stored objects, and the pods of namespaces that opted in to it."""

    pods: tuple[Metadata, ...] = ()
    workloads: tuple[Workload, ...] = ()
    versions: tuple[WorkloadVersion, ...] = ()
    apps: tuple[App, ...] = ()
    app_versions: tuple[AppVersion, ...] = ()


async def run(arguments: Arguments, client: Client) -> int:
    """Report; return 0 if all differences are intended, 1 if not, 2 without a report."""
    live = Installation(client, arguments.installed_in)
    token = on_unread.set(live.faults.append)
    where = f"ConfigMap {live.namespace}/{CONFIG_MAP}"
    try:
        body = await live.find(resources.CONFIG_MAPS, CONFIG_MAP, live.namespace)
        if body is None:
            complain(f"shadow mode is not installed: {where} not found: run make deploy-shadow")
            return UNUSABLE
        report, stored = report_in(body), await _read(live)
    except (ForbiddenError, msgspec.MsgspecError) as error:
        complain(f"report of shadow mode not read: {where}: {error}")
        return UNUSABLE
    finally:
        on_unread.reset(token)
        await live.close()
    differences = sorted(
        (*report.differences, *stored_differences(stored)),
        key=lambda difference: (bool(difference.intended), -difference.objects, difference.key),
    )
    shown = {"counts": report.counts, "differences": differences, "unread": live.faults}
    print_out(arguments, shown, _lines(report.counts, differences))
    for line in live.faults:
        complain(f"not read: {line}")
    has_faults = any(not difference.intended for difference in differences) or report.counts.get(
        MORE
    )
    return LEFT if has_faults or live.faults else DONE


def stored_differences(stored: Stored) -> Iterator[Difference]:
    """Names, versions and checks of Keptn's objects that differ from those made here."""
    for difference, number in Counter((*_of_pods(stored), *_of_apps(stored))).items():
        yield msgspec.structs.replace(difference, objects=number)


def _of_pods(stored: Stored) -> Iterator[Difference]:
    versions = {version.metadata.key: version.spec for version in stored.versions}
    for pod in stored.pods:
        owner = supported_owner(pod.owner_references)
        described = workload_of(pod.annotations, pod.labels)
        # Keptn gives every pod that it tracks a version.
        if owner is None or described is None or not described.version:
            continue
        kind, name = workload_above(owner, pod.labels)
        place, names = (kind, pod.namespace, name), names_of_pod(described)
        spec = versions.get(f"{pod.namespace}/{names.version}")
        if spec is None:
            yield Difference(*place, "KeptnWorkloadVersion", STORED, names.version, "")
            continue
        values = {
            "app": (names.app, spec.app),
            "workloadName": (names.workload, spec.workload_name),
            "version": (described.version, spec.version),
        }
        for check in _CHECKS:
            lists = (getattr(source, check.name) for source in (described, spec))
            ours, theirs = (", ".join(sorted(names_of_check)) for names_of_check in lists)
            values[check.encode_name] = ours, theirs
        for field, (ours, theirs) in values.items():
            if ours != theirs:
                at = f"KeptnWorkloadVersion spec.{field}"
                yield Difference(*place, at, STORED, ours, theirs)


def _of_apps(stored: Stored) -> Iterator[Difference]:
    versions = {app_version.metadata.key for app_version in stored.app_versions}
    for app in stored.apps:
        namespace, name = app.metadata.namespace, app.metadata.name
        members = [
            workload
            for workload in stored.workloads
            if (workload.metadata.namespace, workload.spec.app) == (namespace, name)
        ]
        ours = version_of_workloads(members) if members and is_managed(app) else app.spec.version
        if ours != app.spec.version:
            yield Difference(
                "KeptnApp", namespace, name, "spec.version", STORED, ours, app.spec.version
            )
        version = version_of(app)
        if f"{namespace}/{version}" not in versions:
            yield Difference("KeptnApp", namespace, name, "KeptnAppVersion", STORED, version, "")


async def _read(live: Installation) -> Stored:
    async def read(resource: Resource, kind: type[Any]) -> tuple[Any, ...]:
        """Read all objects of a kind, in the version in which Keptn stores it."""
        definition = await live.read(resources.DEFINITIONS, resource.name, decode_definition)
        if definition is None:
            return ()
        decode = msgspec.json.Decoder(kind).decode
        return tuple(await live.attempt(live.items(resource_of(definition), decode), []))

    namespaces = await live.attempt(live.namespaces(), [])
    gated = {
        namespace.name
        for namespace in namespaces
        if namespace.annotations.get(OPT_IN_KEY) == OPT_IN
    }
    pods = await live.attempt(live.list_all(resources.PODS, metadata_in, metadata_only=True), [])
    return Stored(
        tuple(pod for pod in pods if pod.namespace in gated),
        await read(resources.WORKLOADS, Workload),
        await read(resources.WORKLOAD_VERSIONS, WorkloadVersion),
        await read(resources.APPS, App),
        await read(resources.APP_VERSIONS, AppVersion),
    )


def _lines(counts: dict[str, int], differences: list[Difference]) -> Iterator[str]:
    yield f"Objects: {', '.join(f'{counts[name]} {name}' for name in counts)}"
    for difference in differences:
        field = f" {difference.field}" if difference.field else ""
        place = f"{difference.kind} {difference.namespace}/{difference.name}{field}"
        yield f"{place}: {difference.reason} (objects: {difference.objects})"
        yield f"    Harbourmaster: {difference.ours or 'not set'}"
        yield f"    kupid, Keptn:  {difference.theirs or 'not set'}"
        if difference.intended:
            yield f"    intended: {difference.intended}"
    if not differences:
        yield "No differences."
