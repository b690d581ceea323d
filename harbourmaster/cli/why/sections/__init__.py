"""The sections of ``why``, a module each: ``async def section(context) -> Section | None``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from harbourmaster.cli.live.reader import read_error
from harbourmaster.cli.why.model import Section
from harbourmaster.kube.errors import ApiError

if TYPE_CHECKING:
    from harbourmaster.cli.why.model import WhyContext

SECTIONS: Final = ("gate", "checks", "scheduling", "policies", "placement", "rescheduling")
"""The modules here that explain a pod or a workload, in the order of the output."""


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
        return section
    return Section(name=name, state="unknown", code="unread", summary=reason)
