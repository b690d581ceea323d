"""Settings of the controller process: one YAML file, every key also a flag.

Each key's description gives its unit and reason; ``--help`` and the manual print it.
"""

from __future__ import annotations

from typing import Annotated

from harbourmaster.api.references import DEFAULT_MODE, ReferenceMode
from harbourmaster.api.settings import Count, DescribedSettings
from harbourmaster.controller.evaluation.settings import MetricsSettings
from harbourmaster.controller.extender.settings import SchedulerSettings
from harbourmaster.controller.lifecycle.settings import LifecycleSettings
from harbourmaster.controller.names import CONTROLLERS, PLACEMENT, REGISTRATION, RESCHEDULING
from harbourmaster.controller.placement.settings import PlacementSettings
from harbourmaster.controller.rescheduling.settings import ReschedulingSettings
from harbourmaster.dashboard.settings import DashboardSettings
from harbourmaster.kube.settings import ClusterSettings
from harbourmaster.registration.settings import CertificateSettings, RegistrationSettings
from harbourmaster.serving.settings import HealthSettings, LogSettings, TracingSettings


class LeaderElectionSettings(DescribedSettings, frozen=True, kw_only=True):
    """The election of the replica that works."""

    enabled: Annotated[
        bool, "elect a leader by a Lease; false only if no second controller can run"
    ] = True
    lease_name: Annotated[str, "Lease in our namespace that the leader holds"] = (
        "harbourmaster-controller"
    )
    lease_duration_seconds: Annotated[
        Count, "seconds after the last renewal until another replica can take the Lease"
    ] = 15
    renew_deadline_seconds: Annotated[
        Count, "seconds without a renewal after which a leader stops working"
    ] = 10
    retry_period_seconds: Annotated[
        Count, "seconds between two attempts to get or renew the Lease"
    ] = 2


class ControllerSettings(DescribedSettings, frozen=True, kw_only=True):
    """All settings of the controller process."""

    controllers: Annotated[tuple[str, ...], "which controllers run"] = tuple(CONTROLLERS)
    register_webhooks: Annotated[
        bool, "manage webhook configurations and certificates; false neither reads nor writes them"
    ] = True
    cross_namespace_references: Annotated[
        ReferenceMode,
        "which references across namespaces need the consent of the object pointed to, by its "
        "annotation harbourmaster.dev/allow-from: those to providers and projects, all, or none "
        "(Open); the manifests of a new installation set AllNeedConsent",
    ] = DEFAULT_MODE
    webhook: RegistrationSettings = RegistrationSettings()
    certificates: CertificateSettings = CertificateSettings()
    lifecycle: LifecycleSettings = LifecycleSettings()
    metrics: MetricsSettings = MetricsSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    rescheduling: ReschedulingSettings = ReschedulingSettings()
    placement: PlacementSettings = PlacementSettings()
    dashboard: DashboardSettings = DashboardSettings()
    leader_election: LeaderElectionSettings = LeaderElectionSettings()
    cluster: ClusterSettings = ClusterSettings()
    server: HealthSettings = HealthSettings()
    log: LogSettings = LogSettings()
    tracing: TracingSettings = TracingSettings()

    @property
    def running(self) -> tuple[str, ...]:
        """The names of the controllers that run, in the order in which they start."""
        switches = {
            REGISTRATION: self.register_webhooks,
            RESCHEDULING: self.rescheduling.enabled,
            PLACEMENT: self.placement.enabled,
        }
        return tuple(
            name for name in CONTROLLERS if name in self.controllers and switches.get(name, True)
        )
