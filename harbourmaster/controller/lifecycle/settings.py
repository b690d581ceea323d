"""Settings of the lifecycle controllers: gates, phases, tasks and evaluations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from harbourmaster.gates.waits import kind_of
from harbourmaster.lifecycle.gate_verdict import GateWaitRules

if TYPE_CHECKING:
    from harbourmaster.api.resources import Resource

Vocabulary = Literal["keptn", "documented", "both"]


class LifecycleSettings(
    Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True
):
    """Settings for taking applications and workloads through their phases."""

    definition_namespaces: Annotated[
        tuple[str, ...],
        "namespaces in which definitions, metrics and a KeptnConfig are looked up after the "
        "object's own namespace and ours",
    ] = ("keptn-system",)
    promotion_tasks: Annotated[
        bool, "run an app's promotion tasks as the last phase; false omits that phase"
    ] = False
    app_context_delay_seconds: Annotated[
        float, Meta(ge=0, le=300), "maximum seconds for which an app waits for its KeptnAppContext"
    ] = 3.0
    deployed_when: Annotated[
        Literal["Available", "Complete"],
        "when a Deployment counts as deployed: Available once all pods of the new ReplicaSet are "
        "available, as in Keptn, Complete once no pod of another one is left, too",
    ] = "Available"
    version_from_tag: Annotated[
        bool,
        "use the image tag as version of a pod with one container and no version; false computes "
        "a hash, as Keptn does",
    ] = False
    sticky_evaluations: Annotated[
        bool,
        "an objective that was met stays met, as in Keptn; false requires that one measurement "
        "meets all objectives of an evaluation",
    ] = True
    stale_after_intervals: Annotated[
        float,
        Meta(ge=1),
        "maximum age of a metric value, in fetch intervals of the metric plus ten seconds; "
        "evaluations ignore older values",
    ] = 2.0
    event_vocabulary: Annotated[
        Vocabulary,
        "event reasons: keptn as in Keptn 2 (Finished, Failed), documented as in Keptn's "
        "documentation (Succeeded, Errored), or both",
    ] = "keptn"
    idle_phase_events: Annotated[
        bool,
        "write events about phases without checks, as in Keptn; false sends only CloudEvents",
    ] = True
    history_limit: Annotated[
        int,
        Meta(ge=0),
        "versions kept of each app and each workload, besides those in use; 0 keeps all, as Keptn",
    ] = 10
    max_gate_age_seconds: Annotated[
        float,
        Meta(ge=0),
        "seconds after which a waiting pod is reported, and released if onExpiry is Release; 0 "
        "disables this",
    ] = 0.0
    on_expiry: Annotated[
        Literal["Keep", "Release"], "what happens to a pod that waits longer than maxGateAgeSeconds"
    ] = "Keep"
    deno_image: Annotated[str, "image that runs Deno functions"] = (
        "ghcr.io/keptn/deno-runtime:v3.0.1"
    )
    python_image: Annotated[str, "image that runs Python functions"] = (
        "ghcr.io/keptn/python-runtime:v1.0.8"
    )
    runner_user: Annotated[int, Meta(ge=1), "user ID that runs functions; the images use 1000"] = (
        1000
    )
    runner_requests: Annotated[dict[str, str], "resource requests of a function's pod"] = {}
    runner_limits: Annotated[dict[str, str], "resource limits of a function's pod"] = {}
    runner_security_context: Annotated[
        Literal["Restricted", "Keptn"],
        "security context of functions: Restricted complies with that Pod Security Standard; "
        "Keptn sets none, as in Keptn, and ignores runnerUser",
    ] = "Restricted"
    wait_kinds: Annotated[
        tuple[str, ...],
        "kinds of objects for which pods may wait, as RESOURCE.GROUP if built in, else "
        "RESOURCE.VERSION.GROUP; the controller needs list and watch on each",
    ] = (
        "jobs.batch",
        "deployments.apps",
        "statefulsets.apps",
        "daemonsets.apps",
        "pods",
        "services",
        "configmaps",
        "customresourcedefinitions.apiextensions.k8s.io",
    )
    workers: Annotated[
        int, Meta(ge=1, le=64), "objects of one kind that are reconciled concurrently"
    ] = 24

    def __post_init__(self) -> None:
        for index, entry in enumerate(self.wait_kinds):
            try:
                kind_of(entry)
            except ValueError as error:
                raise ValueError(f"waitKinds[{index}]: {error}") from None

    @property
    def kinds_to_wait_for(self) -> dict[str, Resource]:
        """The kinds for which pods may wait, by the names that items use."""
        return dict(map(kind_of, self.wait_kinds))

    @property
    def wait_rules(self) -> GateWaitRules:
        """The part of these settings that decides on waiting pods."""
        return GateWaitRules(
            max_age_seconds=self.max_gate_age_seconds,
            on_expiry=self.on_expiry,
            stale_after_intervals=self.stale_after_intervals,
        )
