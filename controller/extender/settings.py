"""Settings of gating by schedulerName: pods wait in the scheduling cycle, not at a gate (D9)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from harbourmaster.api.settings import DescribedSettings
from harbourmaster.gates.gate import SCHEDULER_NAME


class SchedulerSettings(DescribedSettings, frozen=True, kw_only=True):
    """What a scheduler asks us about its pods, and what becomes of those that wait in it."""

    enabled: Annotated[
        bool,
        Meta(
            description="answer a scheduler's questions about pods that name it, and wake those "
            "that may run; false knows of no such pod"
        ),
    ] = False
    scheduler_name: Annotated[
        str,
        Meta(
            min_length=1,
            description="scheduler whose pods wait for their checks inside it; the webhook's "
            "gateSchedulerName must be the same",
        ),
    ] = SCHEDULER_NAME
    extender_host: Annotated[
        str, Meta(description="address on which the scheduler's questions are answered")
    ] = "127.0.0.1"
    extender_port: Annotated[
        int, Meta(ge=0, le=65535, description="TLS port of the same; 0 takes a free one")
    ] = 10443
    service_name: Annotated[
        str, Meta(description="Service that the scheduler calls, and name in the certificate")
    ] = "harbourmaster-scheduling"
    deployment: Annotated[
        str,
        Meta(
            description="Deployment of the scheduler, in our namespace: it is rolled out anew when "
            "another authority signs our certificate, which a scheduler reads only when it starts; "
            "empty for none"
        ),
    ] = "harbourmaster-scheduler"
    pre_check_deadline_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description="seconds from a workload version's start after which checks that are not "
            "done are reported; they still release their pods later; 0 is never",
        ),
    ] = 300.0
    failed_node_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description="seconds for which a workload version avoids a node on which a check or a "
            "pod of it failed; 0 records no node",
        ),
    ] = 1800.0
    keep_failed_nodes: Annotated[
        bool,
        Meta(description="the next version of a workload avoids the same nodes as the last one"),
    ] = False

    @property
    def of_pods(self) -> str:
        """The scheduler that asks us about its pods; empty for none."""
        return self.scheduler_name if self.enabled else ""

    @property
    def records_nodes(self) -> bool:
        """Whether nodes on which something failed are looked for."""
        return self.enabled and self.failed_node_seconds > 0
