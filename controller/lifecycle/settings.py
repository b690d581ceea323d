"""Settings of the lifecycle controllers: gates, phases, tasks and evaluations."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

Vocabulary = Literal["keptn", "documented", "both"]


class LifecycleSettings(
    Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True
):
    """How applications and workloads are taken through their phases."""

    definition_namespaces: Annotated[
        tuple[str, ...],
        Meta(
            description="namespaces in which definitions, metrics and a KeptnConfig are looked up "
            "after the object's own; our own namespace always comes first"
        ),
    ] = ("keptn-system",)
    promotion_tasks: Annotated[
        bool,
        Meta(description="run an app's promotion tasks as a last phase; false knows no such phase"),
    ] = False
    version_from_tag: Annotated[
        bool,
        Meta(
            description="take the version of a pod with one container from its image's tag, where "
            "no version is given; false computes a hash, as Keptn does"
        ),
    ] = False
    sticky_evaluations: Annotated[
        bool,
        Meta(
            description="an objective that was met once stays met, as in Keptn; false wants all of "
            "an evaluation's objectives met by the same measurement"
        ),
    ] = True
    stale_after_intervals: Annotated[
        float,
        Meta(
            ge=1,
            description="fetch intervals of a metric, and ten seconds, after which a value that "
            "was not fetched again counts for no evaluation",
        ),
    ] = 2.0
    event_vocabulary: Annotated[
        Vocabulary,
        Meta(
            description="reasons of events: those of Keptn 2 (Finished, Failed), those of Keptn's "
            "documentation (Succeeded, Errored), or both"
        ),
    ] = "keptn"
    max_gate_age_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description="seconds after which a pod that still waits is reported, and released "
            "where onExpiry says so; 0 is never",
        ),
    ] = 0.0
    on_expiry: Annotated[
        Literal["Keep", "Release"],
        Meta(description="what happens to a pod that waits longer than maxGateAgeSeconds"),
    ] = "Keep"
    deno_image: Annotated[str, Meta(description="image that runs deno functions")] = (
        "ghcr.io/keptn/deno-runtime:v3.0.1"
    )
    python_image: Annotated[str, Meta(description="image that runs Python functions")] = (
        "ghcr.io/keptn/python-runtime:v1.0.8"
    )
    runner_user: Annotated[
        int,
        Meta(ge=1, description="number of the user as whom functions run; the images' own is 1000"),
    ] = 1000
    runner_requests: Annotated[
        dict[str, str], Meta(description="resources that a function's pod asks for")
    ] = {}
    runner_limits: Annotated[
        dict[str, str], Meta(description="resources that a function's pod may use")
    ] = field(default_factory=lambda: {"memory": "512Mi"})
    workers: Annotated[
        int,
        Meta(ge=1, le=64, description="objects of a kind that are worked on at the same time"),
    ] = 8
