"""The criteria and the rules of plans, from the settings."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import msgspec

from harbourmaster.api.selectors import LabelSelector, compile_selector
from harbourmaster.rescheduling.model import Criteria
from harbourmaster.rescheduling.plans import PlannerSettings

if TYPE_CHECKING:
    from harbourmaster.api.selectors import Matcher
    from harbourmaster.controller.rescheduling.settings import ReschedulingSettings


def criteria_of(settings: ReschedulingSettings) -> Criteria:
    """What is critical, as the settings say."""
    return Criteria(
        namespaces=frozenset(settings.system_namespaces),
        classes=frozenset(settings.critical_classes),
        selector=_matcher(settings.critical_selector),
        taint_key=settings.taint_key,
    )


def planner_settings(settings: ReschedulingSettings, namespace: str) -> PlannerSettings:
    """What plans go by; no pod of our own ``namespace`` is ever evicted."""
    return PlannerSettings(
        allow_pdb_violation=settings.allow_pdb_violation,
        non_drainable=settings.non_drainable,
        grace_limit=settings.grace_period_limit_seconds,
        max_victims=settings.max_victims_per_pod,
        max_victim_priority=settings.max_victim_priority,
        protected_namespaces=frozenset((*settings.protected_namespaces, namespace)),
        score_order=settings.score_order,
        seed=_seed(settings),
        prefer_relocatable=settings.prefer_relocatable,
        taint_key=settings.taint_key,
        mode=settings.mode,
    )


def _seed(settings: ReschedulingSettings) -> int:
    if settings.score_order != "random":
        return 0
    return random.getrandbits(32) if settings.seed is None else settings.seed


def _matcher(selector: dict[str, Any] | None) -> Matcher | None:
    return None if selector is None else compile_selector(msgspec.convert(selector, LabelSelector))
