"""Settings of gating by schedulerName: pods wait in the scheduling cycle, not at a gate (D9)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from harbourmaster.api.settings import DescribedSettings, Port, SecondsFromZero, check_host
from harbourmaster.gates.gate import SCHEDULER_NAME


class SchedulerSettings(DescribedSettings, frozen=True, kw_only=True):
    """Gates in a scheduler: its extender, and the pods that wait in it."""

    enabled: Annotated[
        bool,
        "serve the extender for pods that name this scheduler, and trigger scheduling when their "
        "checks pass; false ignores these pods",
    ] = False
    scheduler_name: Annotated[
        str,
        Meta(min_length=1),
        "name of the scheduler in which pods wait for their checks; must equal the webhook's "
        "gateSchedulerName",
    ] = SCHEDULER_NAME
    extender_host: Annotated[str, "listen address of the extender, :: for all"] = "127.0.0.1"
    extender_port: Annotated[Port, "TLS port of the extender; 0 selects a free port"] = 10443
    client_ca: Annotated[
        str | None,
        "file of the CA that signs the scheduler's client certificate; clients without such a "
        "certificate are refused",
    ] = None
    client_cn: Annotated[
        str | None, "required common name of that certificate; needs scheduler.clientCa"
    ] = None
    service_name: Annotated[
        str, "Service that the scheduler calls; its name is in the certificate"
    ] = "harbourmaster-scheduling"
    deployment: Annotated[
        str,
        "Deployment of the scheduler in our namespace; it is restarted when our certificate "
        "authority changes, because a scheduler reads the authority only when it starts; empty "
        "restarts nothing",
    ] = "harbourmaster-scheduler"
    pre_check_deadline_seconds: Annotated[
        SecondsFromZero,
        "seconds after the start of a workload version until unfinished checks are reported; they "
        "still release their pods when they pass; 0 never reports",
    ] = 300.0
    failed_node_seconds: Annotated[
        SecondsFromZero,
        "seconds for which a workload version avoids a node on which one of its checks or pods "
        "failed; 0 avoids no node",
    ] = 1800.0
    keep_failed_nodes: Annotated[
        bool, "whether the next version of a workload avoids the same nodes as the previous one"
    ] = False

    def __post_init__(self) -> None:
        check_host("extenderHost", self.extender_host)

    @property
    def of_pods(self) -> str:
        """The scheduler that asks us about its pods; empty for none."""
        return self.scheduler_name if self.enabled else ""

    @property
    def records_nodes(self) -> bool:
        """Whether nodes on which something failed are looked for."""
        return self.enabled and self.failed_node_seconds > 0
