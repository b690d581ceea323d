"""Plans apps composed of workloads, and the versions of their generations (keptn-spec 3.1, 3.2).

The functions are pure: they return what to create, to change and to deprecate.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct, structs

from harbourmaster.api.field_errors import invalid
from harbourmaster.api.metadata import LAST_APPLIED, Metadata
from harbourmaster.api.resources import APPS
from harbourmaster.gates.metadata import cut
from harbourmaster.gates.names import app_version_name, workload_name
from harbourmaster.lifecycle.conversion import unconverted_checks
from harbourmaster.lifecycle.model import (
    DEPRECATED,
    App,
    AppSpec,
    AppVersion,
    AppVersionSpec,
    Checks,
    WorkloadEntry,
    is_generated,
)
from harbourmaster.lifecycle.tracing import TRACEPARENT, ids_from
from harbourmaster.lifecycle.workload_owners import current_versions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harbourmaster.api.field_errors import FieldError
    from harbourmaster.lifecycle.model import AppContext, AppVersionStatus, Workload

MANAGED_KEY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "keptn"
"""The value of MANAGED_KEY on an app that the controller created."""
APP_TYPE_KEY: Final = "keptn.sh/app-type"
"""Annotation of creation requests and of the apps created from them."""
SINGLE_SERVICE: Final = "single-service"
"""The type of an app whose only workload named no app: it waits for no other workload."""
_VERSION_LENGTH: Final = 10
_HASHED_NAME: Final = re.compile(r".*-[0-9a-f]{8}")
"""The name of a version that a generation has."""


class AppPlan(Struct, frozen=True):
    """The steps for a generation of an app, in this order.

    ``create`` says that its version is missing. ``is_blocked``: a version of that name belongs to a
    former app, or was created by hand, and must be deleted first. ``deprecate`` are versions that
    the generation supersedes if it is the latest one: nothing in a version says which it is of.
    """

    name: str
    create: bool
    is_blocked: bool
    deprecate: tuple[AppVersion, ...]


def version_of(app: App) -> str:
    """Return the name of the KeptnAppVersion of the app's current generation."""
    return app_version_name(app.metadata.name, app.spec.version, app.metadata.generation)


def plan_app(app: App, versions: Iterable[AppVersion]) -> AppPlan:
    """Return what the app lacks, given the existing versions of an app of that name."""
    name = version_of(app)
    by_name = {version.metadata.name: version for version in versions}
    present = by_name.pop(name, None)
    return AppPlan(
        name=name,
        create=present is None,
        is_blocked=present is not None and not _is_ours(present, app),
        deprecate=tuple(
            by_name[key] for key in sorted(by_name) if _is_superseded(by_name[key], app)
        ),
    )


def with_context(version: AppVersion, context: AppContext) -> AppVersionSpec:
    """Return the spec of an app's version with this context."""
    return structs.replace(version.spec, **structs.asdict(context.spec))


def awaits_context(app: App, context: AppContext | None, versions: Iterable[AppVersion]) -> bool:
    """Whether the context of a new version may yet come: tools apply it after the workloads.

    None came yet, or it is still that of an earlier version. An app whose earlier versions were
    created without one is not expected to get one.
    """
    earlier = [version for version in versions if _is_ours(version, app)]
    if context is None:
        return not earlier
    return any(with_context(version, context) == version.spec for version in earlier)


def older_checks(app: App) -> Checks:
    """Return the checks that the app itself lists, as it did before v1beta1.

    They count if there is no KeptnAppContext.
    """
    written = {name: getattr(app.spec, name) for name in Checks.__struct_fields__}
    if any(written.values()):
        return Checks(**written)
    return msgspec.convert(unconverted_checks(app.metadata.annotations), Checks)


def listed_fields(checks: Checks) -> str:
    """Return the fields that name checks, with the names, for people; empty without any."""
    fields = msgspec.to_builtins(checks).items()
    return "; ".join(f"spec.{field}: {cut(', '.join(names))}" for field, names in fields)


def app_errors(app: App) -> list[FieldError]:
    """Return a warning for each list of checks in the app itself."""
    why = (
        "these run only while there is no KeptnAppContext of that name: move them to one, "
        "with apiVersion lifecycle.keptn.sh/v1"
    )
    return [
        invalid(f"spec.{field}", cut(", ".join(names)), why).as_warning()
        for field, names in msgspec.to_builtins(older_checks(app)).items()
    ]


def new_version(app: App, context: AppContext | None) -> AppVersion:
    """Return the KeptnAppVersion of this generation, with the current context.

    Without one, it has the checks that an older KeptnApp lists itself. The app's annotation
    ``traceparent`` names the parent of its spans.
    """
    metadata, spec = app.metadata, app.spec
    current = app.status.current_version
    parent = metadata.annotations.get(TRACEPARENT, "")
    given = structs.asdict(context.spec if context is not None else older_checks(app))
    return AppVersion(
        metadata=Metadata(
            name=version_of(app),
            namespace=metadata.namespace,
            owner_references=(metadata.as_controller(APPS.api_version, APPS.kind),),
        ),
        spec=AppVersionSpec(
            **given,
            app_name=metadata.name,
            version=spec.version,
            revision=spec.revision,
            workloads=spec.workloads,
            previous_version=current if current != spec.version else "",
            trace_id={TRACEPARENT: parent} if ids_from({TRACEPARENT: parent}) else {},
        ),
    )


def deprecate_all_phases(status: AppVersionStatus) -> AppVersionStatus:
    """Return the status of a superseded version: all states change, and the phase stays."""
    return structs.replace(
        status,
        pre_deployment_status=DEPRECATED,
        pre_deployment_evaluation_status=DEPRECATED,
        workload_overall_status=DEPRECATED,
        post_deployment_status=DEPRECATED,
        post_deployment_evaluation_status=DEPRECATED,
        promotion_status=DEPRECATED,
        status=DEPRECATED,
    )


def is_managed(app: App) -> bool:
    """Whether only the controller writes the app."""
    return app.metadata.labels.get(MANAGED_KEY) == MANAGED_BY


def lacks_workload(app: App | None, workload: Workload) -> bool:
    """Whether the app must be created, or updated, to contain the workload."""
    if app is None:
        return True
    return is_managed(app) and not set(entries_of(workload)) <= set(app.spec.workloads)


def short_name(app: str, workload: str) -> str:
    """Return the name of a KeptnWorkload within its app, without the app's name in front.

    If the name was cut to fit, the short name is what gives the name of the KeptnWorkload again.
    """
    if workload.startswith(f"{app}-"):
        return workload[len(app) + 1 :]
    for at, character in enumerate(workload):
        rest = workload[at + 1 :]
        if character == "-" and rest and workload_name(app, rest) == workload:
            return rest
    return workload


def version_of_workloads(workloads: Sequence[Workload]) -> str:
    """Return the version of an app: that of the only workload, or a hash of all."""
    versions = [
        (workload.metadata.name, version)
        for workload in sorted(workloads, key=lambda workload: workload.metadata.name)
        for version in current_versions(workload)
    ]
    if len(versions) == 1:
        return versions[0][1]
    text = "".join(f"{name}-{version}" for name, version in versions)
    return hashlib.sha256(text.encode()).hexdigest()[:_VERSION_LENGTH]


def compose_spec(workloads: Sequence[Workload], before: AppSpec | None = None) -> AppSpec:
    """Return the spec of an app of these workloads; those that it had keep their places."""
    ordered = sorted(workloads, key=lambda workload: workload.metadata.name)
    entries = dict.fromkeys(entry for workload in ordered for entry in entries_of(workload))
    listed = before.workloads if before is not None else ()
    names = dict.fromkeys(entry.name for entry in (*listed, *entries))
    places = {name: place for place, name in enumerate(names)}
    return AppSpec(
        version=version_of_workloads(ordered),
        revision=before.revision if before is not None else 1,
        # One that is new follows in the order of the names.
        workloads=tuple(sorted(entries, key=lambda entry: places[entry.name])),
    )


def new_app(
    name: str, namespace: str, annotations: Mapping[str, str], workloads: Sequence[Workload]
) -> App:
    """Return the KeptnApp of these workloads, with the annotations of the request."""
    return App(
        metadata=Metadata(
            name=name,
            namespace=namespace,
            labels={MANAGED_KEY: MANAGED_BY},
            annotations={key: value for key, value in annotations.items() if key != LAST_APPLIED},
        ),
        spec=compose_spec(workloads),
    )


def change_operations(app: App, workloads: Sequence[Workload]) -> list[dict[str, Any]]:
    """Return the operations that bring a managed app up to date."""
    spec = compose_spec(workloads, app.spec)
    if spec == app.spec:
        return []
    return [
        {"op": "add", "path": "/spec/version", "value": spec.version},
        {"op": "add", "path": "/spec/workloads", "value": spec.workloads},
    ]


def entries_of(workload: Workload) -> list[WorkloadEntry]:
    """Return the entries of a workload in its app: one for each version of its owners."""
    name = short_name(workload.spec.app, workload.metadata.name)
    return [WorkloadEntry(name=name, version=version) for version in current_versions(workload)]


def _is_superseded(version: AppVersion, app: App) -> bool:
    """Whether the latest generation of the app ends this version of an earlier one.

    It ends all with the same ``spec.version``, because the checks run again, and all unfinished
    ones.
    """
    return (
        _is_ours(version, app)
        and _HASHED_NAME.fullmatch(version.metadata.name) is not None
        and version.status.status != DEPRECATED
        and (version.spec.version == app.spec.version or not version.status.is_finished)
    )


def _is_ours(version: AppVersion, app: App) -> bool:
    return is_generated(version, app.metadata.uid)
