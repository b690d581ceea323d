"""Settings: one YAML file, every key also a flag, unknown keys are errors.

Each key's description gives its unit and reason; ``--help`` and the manual print it.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from harbourmaster.api.names import dns_subdomain
from harbourmaster.gates.gate import SCHEDULER_NAME
from harbourmaster.kube.server_version import ServerVersion
from harbourmaster.kube.settings import ClusterSettings
from harbourmaster.policies.merge import DEFAULT_SCHEDULER, MergeOptions
from harbourmaster.rescheduling.unmet import Pool
from harbourmaster.serving.settings import LogSettings, ServerSettings, TracingSettings
from harbourmaster.webhook.gating import AT_GATE, WITH_SCHEDULER, GateRules

FEATURES: Final = ("policies", "gates", "waits")
FIRST_WITH_GATES: Final = ServerVersion(1, 27)
"""The first version that has scheduling gates without a feature gate."""


def gating_of(version: ServerVersion) -> Literal["schedulingGates", "schedulerName"]:
    """Return where pods can wait on an API server of that version."""
    return "schedulingGates" if version >= FIRST_WITH_GATES else "schedulerName"


class AdmissionSettings(
    Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True
):
    """Settings of the decisions of admission."""

    features: Annotated[tuple[str, ...], "capabilities that are active at admission"] = FEATURES
    treat_default_scheduler_as_unset: Annotated[
        bool,
        "let a policy's schedulerName replace default-scheduler, which the API server sets in "
        "every pod before admission; false is kupid's behaviour",
    ] = True
    treat_default_tolerations_as_unset: Annotated[
        bool,
        "let a policy's toleration of the taints not-ready or unreachable replace the one of 300 s "
        "that the API server adds to every pod before admission; false is kupid's behaviour",
    ] = True
    on_required_affinity_conflict: Annotated[
        Literal["and", "skip"],
        "what to do if the policy's required node affinity contradicts the pod's: AND both, so "
        "that no platform rule is lost, or skip the policy's part; both give a warning",
    ] = "and"

    allowed_namespaces: Annotated[
        tuple[str, ...],
        "only these namespaces can have gates; empty allows all except deniedNamespaces",
    ] = ()
    denied_namespaces: Annotated[
        tuple[str, ...], "namespaces that never have gates, as in Keptn's chart"
    ] = ("cert-manager", "keptn-system", "observability", "monitoring")
    version_from_tag: Annotated[
        bool,
        "use the image tag as version of a pod with one container that names neither version nor "
        "container, as Keptn's documentation says; false computes a hash, as Keptn does",
    ] = False
    gating: Annotated[
        Literal["auto", "schedulingGates", "schedulerName"],
        "where pods wait for their checks: behind a scheduling gate, or in the scheduler that "
        "gateSchedulerName names; auto uses gates from Kubernetes 1.27 on, because older API "
        "servers drop them silently, and gates without an API server",
    ] = "auto"
    gate_scheduler_name: Annotated[
        str,
        "name of the scheduler in which pods without a gate wait; must equal the controller's "
        "scheduler.schedulerName",
    ] = SCHEDULER_NAME
    on_foreign_scheduler: Annotated[
        Literal["ignore", "deny"],
        "what to do with a pod that must wait in that scheduler but names another one: ignore "
        "admits it without checks and with a warning, deny refuses it",
    ] = "ignore"
    on_unknown_keys: Annotated[
        Literal["Warn", "Deny"],
        "what to do in a namespace with gates with a pod or workload that has an unknown key of "
        "Keptn's or of gates.harbourmaster.dev, probably misspelt: Warn admits it with a warning, "
        "Deny refuses it unless it has an owner, or had the key before",
    ] = "Warn"

    def __post_init__(self) -> None:
        """Raise ValueError for a feature that is none, or a scheduler with which none can wait."""
        for index, name in enumerate(self.features):
            if name not in FEATURES:
                known = ", ".join(f'"{feature}"' for feature in FEATURES)
                at = f"features[{index}]"
                raise ValueError(f'{at}: Unsupported value: "{name}": supported values: {known}')
        scheduler = self.gate_scheduler_name
        faults = dns_subdomain(scheduler)
        if scheduler == DEFAULT_SCHEDULER:
            faults = ["pods without checks use this scheduler"]
        if faults:
            raise ValueError(f'gateSchedulerName: Invalid value: "{scheduler}": {faults[0]}')

    def gate_rules(self) -> GateRules:
        """Return the rules of gates that these settings define."""
        return GateRules(
            is_on="gates" in self.features,
            for_objects="waits" in self.features,
            allowed=frozenset(self.allowed_namespaces),
            denied=frozenset(self.denied_namespaces),
            version_from_tag=self.version_from_tag,
            waits=WITH_SCHEDULER if self.gating == "schedulerName" else AT_GATE,
            scheduler_name=self.gate_scheduler_name,
            denies_foreign=self.on_foreign_scheduler == "deny",
            denies_unknown=self.on_unknown_keys == "Deny",
        )

    def merge_options(self, *, node_name_as_field: bool, waits: str = "") -> MergeOptions:
        """Return the options of a merge; ``waits`` is where the pod waits."""
        return MergeOptions(
            treat_default_scheduler_as_unset=self.treat_default_scheduler_as_unset,
            treat_default_tolerations_as_unset=self.treat_default_tolerations_as_unset,
            skip_conflicts=self.on_required_affinity_conflict == "skip",
            node_name_as_field=node_name_as_field,
            waiting_scheduler=self.gate_scheduler_name if waits else "",
            keeps_scheduler=waits == WITH_SCHEDULER,
        )


class RecordSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Settings of recordings of reviews."""

    directory: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        "directory for samples of reviews for replay, without values of variables and "
        "annotations; by default nothing is recorded",
    ] = None
    sample: Annotated[float, Meta(ge=0, le=1), "share, 0 to 1, of the reviews that is recorded"] = (
        0.01
    )
    max_bytes: Annotated[
        int, Meta(ge=1024), "maximum size of a file in bytes; then the next one begins"
    ] = 16 * 1024 * 1024
    max_files: Annotated[int, Meta(ge=1), "maximum number of files; the oldest is deleted"] = 4


class Settings(
    AdmissionSettings, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True
):
    """All settings of the admission process: admission's at the top, the rest by subject."""

    server: ServerSettings = ServerSettings()
    log: LogSettings = LogSettings()
    tracing: TracingSettings = TracingSettings()
    record: RecordSettings = RecordSettings()


class WatchSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Settings of the watches."""

    stale_after_seconds: Annotated[
        float,
        Meta(gt=0),
        "seconds without a message of a watch after which this replica is not ready; it still "
        "answers from its cache",
    ] = 300.0
    namespace_wait_seconds: Annotated[
        float,
        Meta(ge=0, le=1),
        "seconds that a review waits for a namespace that is not in the cache yet, before it is "
        "skipped",
    ] = 0.3
    nodes: Annotated[bool, "watch nodes, and warn of pods and workloads that no node matches"] = (
        True
    )
    autoscaled_pools: Annotated[
        dict[str, Pool], "labels and taints of nodes that an autoscaler can add, by pool"
    ] = {}


class WebhookSettings(
    Settings, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True
):
    """All settings of the admission process in a cluster."""

    shadow: Annotated[
        bool, "only compare what others do; needs webhook.shadow in the controller's settings"
    ] = False
    cluster: ClusterSettings = ClusterSettings()
    watch: WatchSettings = WatchSettings()
