"""The sections of ``why``, a module each: ``async def section(context) -> Section | None``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harbourmaster.api import resources
from harbourmaster.cli.live.reader import read_error
from harbourmaster.cli.why.model import Section
from harbourmaster.kube.errors import ApiError

if TYPE_CHECKING:
    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.cli.why.model import WhyContext

SECTIONS: Final = ("pods", "gate", "checks", "scheduling", "policies", "placement", "rescheduling")
"""The modules here that explain a pod or a workload, in the order of the output."""
_PROGRESS: Final = ("progress",)
_REFERENCES: Final = ("checks", "references")
SECTIONS_OF: Final[dict[Resource, tuple[str, ...]]] = {
    resources.APPS: _PROGRESS,
    resources.APP_VERSIONS: _PROGRESS,
    resources.WORKLOADS: _PROGRESS,
    resources.WORKLOAD_VERSIONS: _PROGRESS,
    resources.TASKS: _PROGRESS,
    resources.EVALUATIONS: _PROGRESS,
    resources.EVALUATION_DEFINITIONS: (*_PROGRESS, *_REFERENCES),
    resources.KEPTN_METRICS: ("metric",),
    resources.POLICIES: ("policy",),
    resources.CLUSTER_POLICIES: ("policy",),
    resources.NAMESPACES: ("namespace",),
    resources.APPLICATIONS: ("placement", *_PROGRESS),
    resources.ANALYSES: _REFERENCES,
    resources.ANALYSIS_DEFINITIONS: _REFERENCES,
    resources.ANALYSIS_VALUE_TEMPLATES: _REFERENCES,
    resources.MAGNUM_CLUSTERS: _REFERENCES,
}
"""The modules that explain other kinds."""
_LED: Final = frozenset(("gate", "metric", "namespace", "placement", "progress"))
"""Sections on what the controller does."""
_NOT_LED: Final = frozenset(("foreign-gates-only", "no-pods", "waits-in-scheduler"))
"""Codes of waits for others."""


async def section_of(name: str, context: WhyContext) -> Section | None:
    """Return one section; its summary is the error if the section could not be read."""
    try:
        module = import_module(f"harbourmaster.cli.why.sections.{name}")
        section: Section | None = await module.section(context)
    except ApiError as error:
        reason = read_error(error, "it")
    except ValueError as error:
        reason = f"the cluster's answer about it is invalid: {error}"
    else:
        return section and await _with_leader(section, context.live)
    return Section(name=name, state="unknown", code="unread", summary=reason)


async def _with_leader(section: Section, live: Installation) -> Section:
    """Return the section, with the missing leader as the reason where a wait depends on one."""
    is_ours = section.name in _LED and section.code not in _NOT_LED
    unled = await live.why_unled() if section.state == "waits" and is_ours else ""
    if not unled:
        return section
    summary, step = f"{unled}; {section.summary}", await live.leader_step()
    return replace(section, state="fault", code="not-led", summary=summary, step=step)
