"""Why a pod waits, or does not: one report for ``why``, ``gate list`` and the dashboard. Pure.

One code always wins. In this order, the first that holds:

=====================  ==========================================================================
``ending``             the pod is being deleted, and nobody sees to its gate any more
``not-gated``          it neither has our gate nor waits in a scheduler for us
``foreign-gates-only`` as before, but gates of others hold it
``released``           its checks passed, or its time is over and it goes without: due, or done
``waits-in-scheduler`` its checks passed, and its scheduler has no node for it yet
``waits-for-owner``    its owner is to be looked at, or to be recorded in its version
``orphaned``           no check will ever release it
``waits-for-version``  its KeptnWorkloadVersion is not there yet
``checks-failed``      a check before its deployment failed; this version stays where it is
``app-failed``         a check of its app failed; only a new version of the app lets it go
``waits-for-app``      the checks of its app, which come first
``checks-pending``     its own checks
``deployment-due``     all checks passed, and the deployment is about to begin
=====================  ==========================================================================
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from lifecycle.check_report import CheckReport

Code: TypeAlias = Literal[
    "ending",
    "not-gated",
    "foreign-gates-only",
    "released",
    "waits-in-scheduler",
    "waits-for-owner",
    "orphaned",
    "waits-for-version",
    "checks-failed",
    "app-failed",
    "waits-for-app",
    "checks-pending",
    "deployment-due",
]
Place: TypeAlias = Literal["", "gate", "scheduler"]


class GateReport(Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """How one pod stands. Times are stamps, and empty where there is none."""

    namespace: str
    pod: str
    code: Code
    text: str
    """What it waits for, to be read after "waits for"."""
    place: Place = ""
    """Where it waits; empty for a pod that does not wait for us."""
    app: str = ""
    workload: str = ""
    version: str = ""
    """As the pod says it."""
    version_object: str = ""
    """The name of its KeptnWorkloadVersion, be it there or not."""
    app_version_object: str = ""
    """The name of the KeptnAppVersion that lets it begin; empty where there is none."""
    since: str = ""
    """When the pod was made."""
    age: int = 0
    """Seconds since then."""
    deadline: str = ""
    """When it has waited too long; empty for never, and where that is not known."""
    on_expiry: Literal["", "Keep", "Release"] = ""
    """What happens then: it is reported and stays, or goes without its checks."""
    is_overdue: bool = False
    next_try: str = ""
    """The earliest of its checks' next tries."""
    advice: str = ""
    """What somebody may do about it; empty where nothing need be done."""
    checks: tuple[CheckReport, ...] = ()
    """Those before its release, of its app and of itself, in their order."""
    foreign_gates: tuple[str, ...] = ()

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for us."""
        return bool(self.place)
