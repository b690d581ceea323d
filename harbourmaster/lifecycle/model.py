"""Keptn's objects as the controller reads and writes them, all in version v1 (keptn-spec 1.2).

They are projections: unused fields are not kept. Empty fields are not written, like Keptn's own
(``omitempty``); the schema's default of every state is Pending. Times are RFC 3339 in UTC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from msgspec import Struct, field

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import LIFECYCLE_GROUP, PLACEMENT_GROUP

if TYPE_CHECKING:
    from harbourmaster.api.metadata import HasMetadata

PENDING: Final = "Pending"
PROGRESSING: Final = "Progressing"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
WARNING: Final = "Warning"
DEPRECATED: Final = "Deprecated"
UNKNOWN: Final = "Unknown"
APPLICATION_PREFIX: Final = "application/"
"""The beginning of ``appName`` where a version is that of an Application, not of a KeptnApp."""
COMPLETED: Final = frozenset((SUCCEEDED, FAILED, DEPRECATED, WARNING))
"""Final states."""


class _Wire(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True):
    """A part of an object."""


class WorkloadEntry(_Wire, frozen=True, kw_only=True):
    """A workload in a version, as an app lists it."""

    name: str
    version: str


class Checks(_Wire, frozen=True, kw_only=True):
    """The definitions to run, by phase."""

    pre_deployment_tasks: tuple[str, ...] = ()
    post_deployment_tasks: tuple[str, ...] = ()
    pre_deployment_evaluations: tuple[str, ...] = ()
    post_deployment_evaluations: tuple[str, ...] = ()


class AppSpec(Checks, frozen=True, kw_only=True):
    """The spec of a KeptnApp. A higher ``revision`` restarts the checks.

    Only manifests of v1alpha3 and older have the lists of checks here, see ``apps.older_checks``.
    """

    version: str
    revision: int = field(default=1)
    workloads: tuple[WorkloadEntry, ...] = ()


class CurrentVersion(_Wire, frozen=True, kw_only=True):
    """The status of an app and of a workload."""

    current_version: str = ""


class WorkloadStatus(CurrentVersion, frozen=True, kw_only=True):
    """The status of a workload, which users cannot set when they create one."""

    owners: tuple[str, ...] | None = None
    """Uids of the owners of pods that the controller gave it; None before it recorded any."""


class App(_Wire, frozen=True, kw_only=True):
    """A KeptnApp."""

    metadata: Metadata
    spec: AppSpec
    status: CurrentVersion = CurrentVersion()


class AppContextSpec(Checks, frozen=True, kw_only=True):
    """The checks and metadata that an app adds to its versions."""

    promotion_tasks: tuple[str, ...] = ()
    metadata: dict[str, str] = {}
    span_links: tuple[str, ...] = ()


class AppContext(_Wire, frozen=True, kw_only=True):
    """A KeptnAppContext; it has the app's name."""

    metadata: Metadata
    spec: AppContextSpec = AppContextSpec()


class AppVersionSpec(AppContextSpec, frozen=True, kw_only=True):
    """An app in a version, with its context at that time."""

    app_name: str
    version: str
    revision: int = 1
    workloads: tuple[WorkloadEntry, ...] = ()
    previous_version: str = ""
    trace_id: dict[str, str] = {}


class ItemStatus(_Wire, frozen=True, kw_only=True):
    """One task or evaluation of a phase; ``name`` is that of its object."""

    definition_name: str = ""
    status: str = PENDING
    name: str = ""
    start_time: str = ""
    end_time: str = ""


class WorkloadState(_Wire, frozen=True, kw_only=True):
    """The state of a workload that an app lists."""

    workload: WorkloadEntry
    status: str = PENDING


class _Phases(_Wire, frozen=True, kw_only=True):
    """The fields that the statuses of both kinds of version share."""

    deployment_field: ClassVar[str]
    """The field with the state of the deployment."""
    pre_deployment_status: str = PENDING
    pre_deployment_evaluation_status: str = PENDING
    post_deployment_status: str = PENDING
    post_deployment_evaluation_status: str = PENDING
    status: str = PENDING
    current_phase: str = ""
    pre_deployment_task_status: tuple[ItemStatus, ...] = ()
    post_deployment_task_status: tuple[ItemStatus, ...] = ()
    pre_deployment_evaluation_task_status: tuple[ItemStatus, ...] = ()
    post_deployment_evaluation_task_status: tuple[ItemStatus, ...] = ()
    phase_trace_ids: dict[str, dict[str, str]] = field(default_factory=dict, name="phaseTraceIDs")
    start_time: str = ""
    end_time: str = ""

    @property
    def is_finished(self) -> bool:
        """Whether the version has ended."""
        return self.status in COMPLETED

    @property
    def is_final(self) -> bool:
        """Whether the version has ended for good: a deployment that failed may still be done."""
        has_failed_deployment = getattr(self, self.deployment_field) == FAILED
        return self.is_finished and not (self.status == FAILED and has_failed_deployment)


class AppVersionStatus(_Phases, frozen=True, kw_only=True):
    """The phases of an app."""

    deployment_field = "workload_overall_status"
    workload_overall_status: str = PENDING
    promotion_status: str = PENDING
    workload_status: tuple[WorkloadState, ...] = ()
    promotion_task_status: tuple[ItemStatus, ...] = ()


class AppVersion(_Wire, frozen=True, kw_only=True):
    """A KeptnAppVersion."""

    metadata: Metadata
    spec: AppVersionSpec
    status: AppVersionStatus = AppVersionStatus()

    @property
    def is_of_application(self) -> bool:
        """Whether it runs the checks of an Application, which placement deploys."""
        controller = self.metadata.controller
        return controller is not None and controller.group == PLACEMENT_GROUP


class AppCreationRequestSpec(_Wire, frozen=True, kw_only=True):
    """The name of the app to create."""

    app_name: str


class AppCreationRequest(_Wire, frozen=True, kw_only=True):
    """A KeptnAppCreationRequest."""

    metadata: Metadata
    spec: AppCreationRequestSpec


class ResourceReference(_Wire, frozen=True, kw_only=True):
    """The owner of a workload's pods: a ReplicaSet, StatefulSet or DaemonSet."""

    uid: str
    kind: str
    name: str


class WorkloadSpec(Checks, frozen=True, kw_only=True):
    """A workload as its pods describe it."""

    app: str
    version: str
    resource_reference: ResourceReference
    metadata: dict[str, str] = {}
    stages: str = ""
    """The pods that are released one stage after the other, as ``gates.stages`` reads it. Ours."""
    stage_pause: str = ""
    stages_on_first: bool = False
    """Whether stages apply although no other version serves."""
    stage_tasks: tuple[str, ...] = ()
    stage_evaluations: tuple[str, ...] = ()
    stage_analyses: tuple[str, ...] = ()
    """The definitions to run at the end of each stage."""


class Workload(_Wire, frozen=True, kw_only=True):
    """A KeptnWorkload."""

    metadata: Metadata
    spec: WorkloadSpec
    status: WorkloadStatus = WorkloadStatus()


class WorkloadVersionSpec(WorkloadSpec, frozen=True, kw_only=True):
    """A workload in a version."""

    workload_name: str
    previous_version: str = ""
    trace_id: dict[str, str] = {}


class FailedNode(_Wire, frozen=True, kw_only=True):
    """A node on which a check or pod of a workload failed, avoided until ``expires``. Ours."""

    name: str
    reason: str = ""
    expires: str = ""


class StageResult(_Wire, frozen=True, kw_only=True):
    """The end of a stage: Passed, Warning or Promoted, or Failed and held."""

    number: int
    state: str
    end_time: str = ""
    released: int = 0
    """The number of pods of the version that were released."""
    message: str = ""


class StageStatus(_Wire, frozen=True, kw_only=True):
    """The stage of a version; ``number`` begins with 1 and is 0 where stages do not apply. Ours."""

    number: int = 0
    of: int = 0
    state: str = ""
    """One of those in ``lifecycle.stages``."""
    message: str = ""
    """Why it is held, or why stages do not apply."""
    since: str = ""
    """The time of the last change of number or state."""
    wanted: int = 0
    allowed: int = 0
    released: int = 0
    """The numbers of pods at that time."""
    token: str = ""
    """The promotion that was carried out last."""
    results: tuple[StageResult, ...] = ()


class WorkloadVersionStatus(_Phases, frozen=True, kw_only=True):
    """The phases of a workload."""

    deployment_field = "deployment_status"
    deployment_status: str = PENDING
    deployment_start_time: str = ""
    app_context_metadata: dict[str, str] = {}
    failed_nodes: tuple[FailedNode, ...] = ()
    stage: StageStatus | None = None
    stage_task_status: tuple[ItemStatus, ...] = ()
    stage_evaluation_status: tuple[ItemStatus, ...] = ()
    stage_analysis_status: tuple[ItemStatus, ...] = ()
    """The checks of the current stage."""


class WorkloadVersion(_Wire, frozen=True, kw_only=True):
    """A KeptnWorkloadVersion."""

    metadata: Metadata
    spec: WorkloadVersionSpec
    status: WorkloadVersionStatus = WorkloadVersionStatus()


class TaskContext(Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """The objects for which a task runs. All strings are written, empty ones too."""

    workload_name: str = ""
    app_name: str = ""
    app_version: str = ""
    workload_version: str = ""
    task_type: str = ""
    object_type: str = ""
    metadata: dict[str, str] = {}


class Parameters(_Wire, frozen=True, kw_only=True):
    """The parameters of a task."""

    map: dict[str, str] = {}


class SecureParameters(_Wire, frozen=True, kw_only=True):
    """The Secret that a task may read."""

    secret: str = ""


class TaskSpec(_Wire, frozen=True, kw_only=True):
    """The spec of a KeptnTask, with ``timeout`` in Go's syntax."""

    task_definition: str
    context: TaskContext = TaskContext()
    parameters: Parameters = Parameters()
    secure_parameters: SecureParameters = SecureParameters()
    check_type: str = ""
    retries: int | None = None
    timeout: str = ""


class TaskStatus(_Wire, frozen=True, kw_only=True):
    """The state of a task and of its Job. ``job_nonce`` proves that the Job is ours."""

    job_name: str = ""
    job_nonce: str = ""
    status: str = PENDING
    message: str = ""
    reason: str = ""
    start_time: str = ""
    end_time: str = ""


class Task(_Wire, frozen=True, kw_only=True):
    """A KeptnTask."""

    metadata: Metadata
    spec: TaskSpec
    status: TaskStatus = TaskStatus()


class Named(_Wire, frozen=True, kw_only=True):
    """A reference by name within a namespace."""

    name: str = ""


class HttpReference(_Wire, frozen=True, kw_only=True):
    """The URL of code."""

    url: str = ""


class Inline(_Wire, frozen=True, kw_only=True):
    """Code in the definition itself."""

    code: str = ""


class RuntimeSpec(_Wire, frozen=True, kw_only=True):
    """A function for deno or python."""

    function_ref: Named | None = None
    inline: Inline | None = None
    http_ref: HttpReference | None = None
    config_map_ref: Named | None = None
    parameters: Parameters = Parameters()
    secure_parameters: SecureParameters = SecureParameters()
    cmd_parameters: str = ""


class AutomountSpec(_Wire, frozen=True, kw_only=True):
    """Whether a task's pod gets a token."""

    type: bool


class TaskDefinitionSpec(_Wire, frozen=True, kw_only=True):
    """Exactly one of deno, python and container; a container is a whole Container of core/v1."""

    function: Named | None = None
    """The name of deno until v1alpha3; only whether it is there counts."""
    deno: RuntimeSpec | None = None
    python: RuntimeSpec | None = None
    container: dict[str, Any] | None = None
    retries: int | None = None
    timeout: str = ""
    service_account: Named | None = None
    automount_service_account_token: AutomountSpec | None = None
    ttl_seconds_after_finished: int | None = None
    image_pull_secrets: tuple[Named, ...] = ()


class FunctionStatus(_Wire, frozen=True, kw_only=True):
    """The ConfigMap with the code."""

    config_map: str = ""


class TaskDefinitionStatus(_Wire, frozen=True, kw_only=True):
    """The status of a definition."""

    function: FunctionStatus = FunctionStatus()


class TaskDefinition(_Wire, frozen=True, kw_only=True):
    """A KeptnTaskDefinition."""

    metadata: Metadata
    spec: TaskDefinitionSpec = TaskDefinitionSpec()
    status: TaskDefinitionStatus = TaskDefinitionStatus()


class EvaluationSpec(_Wire, frozen=True, kw_only=True):
    """The spec of a KeptnEvaluation. The schema requires ``workload_version``."""

    evaluation_definition: str
    workload: str = ""
    workload_version: str = field(default_factory=str)
    app_name: str = ""
    app_version: str = ""
    check_type: str = ""
    retries: int | None = None
    retry_interval: str = ""


class Measurement(Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """The result of one objective; ``message`` may be empty."""

    value: str
    status: str
    message: str = ""


class Try(_Wire, frozen=True, kw_only=True):
    """A measurement of an objective, or of a metric, then without a status."""

    value: str = ""
    time: str = ""
    status: str = ""
    message: str = ""
    """Why there is no usable value."""


class Tries(_Wire, frozen=True, kw_only=True):
    """The last measurements of an objective, the newest last, and the target of the newest."""

    target: str = ""
    tries: tuple[Try, ...] = ()


class EvaluationStatus(_Wire, frozen=True, kw_only=True):
    """The status of a KeptnEvaluation. The schema requires the first three fields."""

    # What a factory of ours makes is never left out.
    retry_count: int = field(default_factory=int)
    evaluation_status: dict[str, Measurement] = field(default_factory=lambda: {})  # noqa: PIE807
    overall_status: str = field(default_factory=lambda: PENDING)
    start_time: str = ""
    end_time: str = ""
    measurements: dict[str, Tries] = {}
    """The records of the objectives, by the keys of ``evaluation_status``. Ours."""


class Evaluation(_Wire, frozen=True, kw_only=True):
    """A KeptnEvaluation."""

    metadata: Metadata
    spec: EvaluationSpec
    status: EvaluationStatus = EvaluationStatus()


class MetricReference(_Wire, frozen=True, kw_only=True):
    """A reference to a KeptnMetric; without a namespace, several are searched."""

    name: str
    namespace: str = ""


class Objective(_Wire, frozen=True, kw_only=True):
    """The condition on a metric."""

    keptn_metric_ref: MetricReference
    evaluation_target: str


class EvaluationDefinitionSpec(_Wire, frozen=True, kw_only=True):
    """The objectives of an evaluation, with ``retry_interval`` in Go's syntax."""

    objectives: tuple[Objective, ...] = ()
    retries: int | None = None
    retry_interval: str = ""


class EvaluationDefinition(_Wire, frozen=True, kw_only=True):
    """A KeptnEvaluationDefinition."""

    metadata: Metadata
    spec: EvaluationDefinitionSpec = EvaluationDefinitionSpec()


class ConfigSpec(_Wire, frozen=True, kw_only=True):
    """The spec of a KeptnConfig, with durations in Go's syntax."""

    otel_collector_url: str = field(default="", name="OTelCollectorUrl")
    creation_request_timeout: int = field(default=30, name="keptnAppCreationRequestTimeoutSeconds")
    cloud_events_endpoint: str = ""
    block_deployment: bool = True
    observability_timeout: str = "5m"
    rest_api_enabled: bool = False


class Config(_Wire, frozen=True, kw_only=True):
    """A KeptnConfig; its status is a string."""

    metadata: Metadata
    spec: ConfigSpec = ConfigSpec()
    status: str = ""


Version: TypeAlias = AppVersion | WorkloadVersion


def is_generated(obj: HasMetadata, owner: str = "") -> bool:
    """Whether the controller created the object, for the owner with this uid if one is given.

    Only the controller may set owners of these kinds that control an object (decision D18).
    """
    controller = obj.metadata.controller
    return (
        controller is not None
        and controller.group == LIFECYCLE_GROUP
        and owner in {"", controller.uid}
    )
